"""Archiving: moves old instants into the archive, so that listing the timeline stays cheap (format guide 2.10, 14.7).

Readers take whatever is older than the active timeline for committed, so commits leave from its old end only, and
nothing that is pending, kept or still to be cleaned up stays behind. The archive has them before any instant file is
deleted. Commits are deleted oldest first, each with its completed file last: at every moment the active timeline is the
end of the whole one. What a crash left is archived again, to the same effect.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from skep_format.errors import NotATableError, OptionError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName
from skep_format.options import Options
from skep_format.storage import FileStatus
from skep_format.timeline.archive_writer import ArchiveSetting, ArchiveWriter, InstantFiles
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.timeline import WRITE_ACTIONS, Timeline
from skep_format.versions import STREAMER_KEYS
from skep_table.commit.undo.recovery import delete_stale_markers
from skep_table.commit.writable import prepared
from skep_table.metadata_write.compaction.compact import last_compaction
from skep_table.metadata_write.own import has_metadata_table, open_own
from skep_table.services.cleaning.clean import Retention, last_clean
from skep_table.services.compaction.options import COMPACT_DELTA_COMMITS
from skep_table.services.options import (
    ARCHIVE_BATCH,
    HISTORY_BATCH,
    HISTORY_MANIFESTS,
    KEEP_CHECKPOINT,
    KEEP_MAX_COMMITS,
    KEEP_MIN_COMMITS,
    CleanPolicy,
)
from skep_table.table import HudiTable

log = logging.getLogger("skep.archive")

_SERVICES: Final = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """`instants` in their completed state, oldest first. `held_back` is the reason why no more are archived."""

    instants: tuple[Instant, ...]
    held_back: str | None = None


def check_archive_options(options: Options) -> None:
    """OptionError, naming both, for numbers that don't fit together."""
    most, least = options.value(KEEP_MAX_COMMITS), options.value(KEEP_MIN_COMMITS)
    if most <= least:
        raise OptionError(
            f"{KEEP_MAX_COMMITS.key}={most} is not greater than {KEEP_MIN_COMMITS.key}={least}",
            option=KEEP_MAX_COMMITS.key,
            found=most,
        )
    retention = Retention.of(options)
    if retention.policy is CleanPolicy.KEEP_LATEST_COMMITS and retention.number >= least:
        raise OptionError(
            f"hoodie.cleaner.commits.retained={retention.number} is not below {KEEP_MIN_COMMITS.key}={least}: commits"
            " would be archived that the cleaner retains",
            option="hoodie.cleaner.commits.retained",
            found=retention.number,
            expected=f"< {least}",
        )


def is_archive_due(timeline: Timeline, options: Options) -> bool:
    """Whether there are more commits, cleans or rollbacks than may be. Reasons to keep them are not considered."""
    most, completed = options.value(KEEP_MAX_COMMITS), timeline.completed()
    return len(completed.data()) > most or any(len(completed.of(action)) > most for action in _SERVICES)


def plan_archive(table: HudiTable) -> ArchivePlan:
    """The instants that archiving would move now. Changes nothing."""
    options = table.options
    check_archive_options(options)
    most, least = options.value(KEEP_MAX_COMMITS), options.value(KEEP_MIN_COMMITS)
    commits = table.timeline.data().completed().instants
    uncompacted = _first_uncompacted(table)
    chosen: tuple[Instant, ...] = ()
    held_back = None
    if len(commits) > most:
        chosen = commits[: len(commits) - least]
        bound, why = _bound(table, options, uncompacted)
        if bound is not None:
            chosen = tuple(commit for commit in chosen if commit.requested_time.is_before(bound))
        unclean = _first_unclean(table, chosen)
        if unclean is not None:
            chosen = chosen[: chosen.index(unclean)]
            why = f"files that {unclean.requested_time} replaced are not cleaned yet"
        streamed = _newest_checkpoint(table, chosen, commits[len(chosen) :])
        if streamed is not None:
            chosen = chosen[: chosen.index(streamed)]
            why = f"{streamed.requested_time} has the newest checkpoint of a stream ({KEEP_CHECKPOINT.key})"
        if len(chosen) < len(commits) - least:
            held_back = why
    # each kind by its own number; the last clean stays in any case, since the next one needs it
    kinds = (table.timeline.completed().of(action).instants for action in _SERVICES)
    old = chain.from_iterable(found[: len(found) - least] for found in kinds if len(found) > most)
    services = [each for each in old if uncompacted is None or each.requested_time.is_before(uncompacted)]
    return ArchivePlan(tuple(sorted((*chosen, *services), key=lambda instant: instant.sort_key)), held_back)


def _bound(
    table: HudiTable, options: Options, uncompacted: InstantTime | None
) -> tuple[InstantTime | None, str | None]:
    """The time that no archived commit may reach, with the reason."""
    timeline = table.timeline
    bounds: list[tuple[InstantTime, str]] = []
    for instant in timeline.pending():
        if instant.action in WRITE_ACTIONS or instant.action in (Action.ROLLBACK, Action.RESTORE):
            bounds.append((instant.requested_time, f"{instant.action.value} {instant.requested_time} is pending"))
            break
    savepoints = timeline.of(Action.SAVEPOINT).instants
    if savepoints:
        first = savepoints[0].requested_time
        bounds.append((first, f"{first} has a savepoint"))
    cleaned = last_clean(table)
    if cleaned is not None and cleaned.earliest_commit_to_retain:
        # Incremental cleaning finds what to look into by the commits since then.
        earliest = cleaned.earliest_commit_to_retain
        bounds.append((earliest, f"the next clean goes on from {earliest}"))
    if table.config.is_mor and (oldest := _oldest_to_compact(timeline, options.value(COMPACT_DELTA_COMMITS))):
        bounds.append((oldest, f"the next compaction is planned by the delta commits since {oldest}"))
    if uncompacted is not None:
        bounds.append((uncompacted, "its files are not compacted in the metadata table yet"))
    return min(bounds, default=(None, None), key=lambda bound: bound[0] or "")


def _first_uncompacted(table: HudiTable) -> InstantTime | None:
    """The first instant whose entries in the metadata table no compaction has merged: readers take them for those of a
    failed write once it is not on the active timeline. Before all others where nothing was compacted yet."""
    if not has_metadata_table(table.config):
        return None
    try:
        last = last_compaction(open_own(table))
    except NotATableError:
        return None
    if last is None:
        return BEFORE_ALL
    later = (i.requested_time for i in table.timeline.completed() if i.latest_time.is_at_or_after(last.requested_time))
    return min(later, default=None)


def _oldest_to_compact(timeline: Timeline, delta_commits: int) -> InstantTime | None:
    """Compactions are planned by counting delta commits since the last one: as many of them stay, or it does."""
    completed = timeline.completed()
    last = completed.of(Action.COMMIT).last()
    deltas = completed.of(Action.DELTA_COMMIT)
    since = [i.requested_time for i in (deltas if last is None else deltas.after(last.requested_time))]
    if len(since) >= delta_commits:
        return since[-delta_commits]
    if last is not None:
        return last.requested_time
    return since[0] if since else None


def _first_unclean(table: HudiTable, commits: tuple[Instant, ...]) -> Instant | None:
    """The first replace commit whose replaced files are not deleted yet: without it readers would see them again."""
    for commit in commits:
        if commit.action is not Action.REPLACE_COMMIT:
            continue
        replaced = set(table.commit_metadata(commit).replaced)
        partitions = sorted({group.partition_path for group in replaced})
        for path, files in zip(
            partitions, table.context.threads.map(table.storage.list_prefix, partitions), strict=True
        ):
            names = (BaseFileName.parse(file.name) or LogFileName.parse(file.name) for file in files)
            if any(name is not None and FileGroupId(path, name.file_id) in replaced for name in names):
                return commit
    return None


def _newest_checkpoint(table: HudiTable, chosen: tuple[Instant, ...], kept: tuple[Instant, ...]) -> Instant | None:
    """The last commit to archive that has a streamer's checkpoint, where no later one has any: a stream goes on from
    the active timeline. Later commits are read only where there is one."""
    if not table.options.value(KEEP_CHECKPOINT):
        return None
    last = next((each for each in reversed(chosen) if _has_checkpoint(table, each)), None)
    return None if last is None or any(_has_checkpoint(table, each) for each in reversed(kept)) else last


def _has_checkpoint(table: HudiTable, commit: Instant) -> bool:
    extra = table.commit_extra(commit)
    return any(extra.get(keys.checkpoint) for keys in STREAMER_KEYS)


def archive(table: HudiTable) -> ArchivePlan:
    """Moves the instants that may leave the active timeline. Returns which they were, and what keeps the others."""
    check_archive_options(table.options)
    with table.context.locked():
        table = prepared(table)
        plan = plan_archive(table)
        if not plan.instants:
            return plan
        delete_stale_markers(table)
        with table.context.events.step("archive", instants=len(plan.instants)) as found:
            found["file"] = path = move_to_archive(table, plan.instants)
    log.info("table %s: %d instants archived in %s", table.config.name, len(plan.instants), path)
    return plan


def move_to_archive(table: HudiTable, instants: Sequence[Instant]) -> str:
    """Moves completed instants of any action, oldest first, into a file of the archive, whose path it returns: that of
    the archive's folder where all are in it already.

    For the holder of the table's lock, which has verified that nobody needs them on the timeline.
    """
    files = _files_of(table, instants)
    writer = _writer(table)
    path = writer.add(files)
    table.context.lock.ensure_held()
    # A pending instant must not come back without its completion, nor be there longer than an older one.
    table.storage.delete_many([path for each in files for path in each.paths(completed=False)])
    completed = [path for each in files for path in each.paths(completed=True)]
    for done in completed:
        table.storage.delete(done, durable=False)
    table.storage.sync(completed)
    writer.merge()
    return path or table.layout.archive_folder


def _writer(table: HudiTable) -> ArchiveWriter:
    return table.format.archive_writer(
        ArchiveSetting(
            storage=table.storage,
            layout=table.layout,
            zone=table.config.timezone,
            runner=table.context.runner,
            check=table.context.lock.ensure_held,
            block_entries=table.options.value(ARCHIVE_BATCH),
            files_per_level=table.options.value(HISTORY_BATCH),
            manifests_kept=table.options.value(HISTORY_MANIFESTS),
        )
    )


def _files_of(table: HudiTable, instants: Sequence[Instant]) -> list[InstantFiles]:
    layout = table.layout
    found: dict[tuple[str, Action], list[tuple[Instant, FileStatus]]] = defaultdict(list)
    for file in table.storage.list_prefix(layout.folder):
        state = layout.parse(file.name)
        if state is not None:
            found[state.requested_time, state.action.completed_as].append((state, file))
    return [
        InstantFiles(
            instant,
            tuple(sorted(found[instant.requested_time, instant.action], key=lambda entry: entry[0].state.value)),
        )
        for instant in instants
    ]
