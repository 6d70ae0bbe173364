"""Repairs what a check has found, as far as no committed row can get lost by it. All others are named with the reason.

In the order in which one repair needs another: the settings, metafiles, failed writes, plans that began nothing, files
of writes that were rolled back, the metadata table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from skep_format.errors import AlreadyExistsError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.names import LogFileName
from skep_format.table_config.file import restore_settings
from skep_format.table_config.keys import BACKUP_PATH, PROPERTIES_PATH
from skep_format.timeline.instant import Action, State
from skep_format.timeline.plans import RestoreMetadata, RollbackMetadata
from skep_format.timeline.write import delete_pending
from skep_table.commit.undo.recovery import refuse_active, roll_back_failed
from skep_table.commit.writable import check_writable, take_lock_over
from skep_table.context import TableContext
from skep_table.services.fsck.files import read_timeline
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, Repair, reason
from skep_table.services.fsck.settings import open_damaged
from skep_table.services.metadata.indexing import rebuild_metadata_table
from skep_table.services.repairs.metafiles import write_metafile
from skep_table.table import HudiTable

DAMAGED_PATH: Final = f"{PROPERTIES_PATH}.damaged"
"""A copy of damaged settings, kept when they are written again."""

_BEGIN_INFLIGHT: Final = (Action.CLEAN, Action.ROLLBACK, Action.CLUSTERING, Action.REPLACE_COMMIT, Action.INDEXING)
_HARMLESS: Final = {
    Problem.DOUBLE: "nothing to do: readers use the file that the commit names",
    Problem.TORN: "nothing to do: readers pass over it",
}
_LOSSES: Final = (Problem.SETTINGS, Problem.VERSION, Problem.COMMIT, Problem.METAFILE, Problem.MISSING, Problem.SIZE)
_ADVICE: Final = {
    **dict.fromkeys(
        (Problem.MISSING, Problem.SIZE, Problem.ROWS, Problem.DAMAGED),
        "bring the file back from a copy, or restore the table to a savepoint from before",
    ),
    Problem.KEYS: "upsert the rows of the file, or cluster its partition: that writes another file",
    Problem.COMMIT: "bring the file back from a copy, or restore the table to a savepoint from before",
    Problem.PLAN: "bring the file back from a copy",
    Problem.ARCHIVE: "bring the file back from a copy; only reads of changes from before the active timeline need it",
    Problem.VERSION: "let the writer that began the change finish it",
}

log = logging.getLogger("skep.services")


@dataclass
class _Progress:
    """What became of each finding."""

    left: list[FileFinding]
    done: list[Repair] = field(default_factory=list)

    def of(self, *problems: Problem) -> list[FileFinding]:
        return [finding for finding in self.left if finding.problem in problems]

    def settle(self, finding: FileFinding, detail: str, *, done: bool = True) -> None:
        self.left.remove(finding)
        self.done.append(Repair(finding, done, detail))


def repair(
    context: TableContext, findings: Sequence[FileFinding], properties: Mapping[str, str] | None = None
) -> list[Repair]:
    """What became of each finding, in their order. Takes the table's lock; where it is not granted, LockError.

    `properties` are settings that the administrator knows, for a table whose file of settings is lost.
    """
    progress = _Progress(list(findings))
    with context.locked():
        if progress.of(Problem.SETTINGS, Problem.BACKUP):
            _repair_settings(context, progress, properties)
        if not progress.of(Problem.SETTINGS, Problem.VERSION):
            table = take_lock_over(HudiTable.in_context(context))
            check_writable(table.config, table.storage.root)
            _repair_partitions(table, progress)
            _attempt(progress, (Problem.LEFTOVER,), lambda: _roll_back(table, progress))
            _delete_plans(table.reload(), progress)
            _attempt(progress, (Problem.ORPHAN,), lambda: _delete_rolled_back(table.reload(), progress))
    if progress.of(Problem.METADATA):
        _repair_metadata(context, progress)
    for finding in list(progress.left):
        harmless = _HARMLESS.get(finding.problem)
        detail = harmless or _ADVICE.get(finding.problem, "left as it is")
        progress.settle(finding, detail, done=harmless is not None)
    at = {finding: number for number, finding in enumerate(findings)}
    return sorted(progress.done, key=lambda each: at[each.finding])


def _attempt(progress: _Progress, problems: tuple[Problem, ...], step: Callable[[], None]) -> None:
    """A step that fails leaves its findings with the reason."""
    if not progress.of(*problems):
        return
    try:
        step()
    except UNREADABLE as error:
        log.warning("a repair failed: %s", reason(error))
        for finding in progress.of(*problems):
            progress.settle(finding, reason(error), done=False)


def _repair_settings(context: TableContext, progress: _Progress, properties: Mapping[str, str] | None) -> None:
    storage = context.storage
    opened = open_damaged(context, properties)  # once more, under the lock
    if opened.whole is None:
        for finding in progress.of(Problem.BACKUP):
            progress.settle(finding, "kept: the settings are not whole", done=False)
        return
    if any(finding.problem is Problem.SETTINGS for finding in opened.findings):
        with suppress(FileNotFoundError, AlreadyExistsError):
            storage.create_exclusive(DAMAGED_PATH, storage.read(PROPERTIES_PATH))
        restore_settings(storage, opened.whole)
        source = f"by {BACKUP_PATH}" if opened.stated is None else _sources(opened.stated.sources)
        detail = f"written again {source}"
    else:
        storage.delete(BACKUP_PATH)
        detail = "the settings are whole"
    log.warning("table %s: %s %s", opened.whole.name, PROPERTIES_PATH, detail)
    for finding in progress.of(Problem.SETTINGS):
        progress.settle(finding, detail)
    for finding in progress.of(Problem.BACKUP):
        progress.settle(finding, "deleted: the settings are whole")


def _sources(sources: Mapping[str, str]) -> str:
    by: dict[str, list[str]] = {}
    for key, source in sources.items():
        by.setdefault(source, []).append(key)
    return "by " + "; ".join(f"{source}: {', '.join(keys)}" for source, keys in by.items())


def _repair_partitions(table: HudiTable, progress: _Progress) -> None:
    for finding in progress.of(Problem.METAFILE):
        partition = finding.path.rpartition("/")[0]
        try:
            write_metafile(table, partition)
        except SkepError as error:
            progress.settle(finding, reason(error), done=False)
        else:
            progress.settle(finding, "written again")


def _roll_back(table: HudiTable, progress: _Progress) -> None:
    """As the next writer does: writes of dead writers are rolled back."""
    after = roll_back_failed(table)
    pending = {instant.requested_time for instant in after.timeline.pending_changes()}
    for finding in progress.of(Problem.LEFTOVER):
        if not after.storage.exists(finding.path):
            progress.settle(finding, "rolled back")
        elif finding.instant in pending:
            detail = "its writer is active, or its plan waits for the next executor"
            progress.settle(finding, detail, done=False)


def _delete_plans(table: HudiTable, progress: _Progress) -> None:
    """Plans that can't be read, of actions that change nothing before they are inflight, and are not."""
    started = {instant.requested_time for instant in table.timeline.pending() if instant.state is not State.REQUESTED}
    for finding in progress.of(Problem.PLAN):
        instant = table.layout.parse(finding.path.rpartition("/")[2])
        if instant is None or instant.state is not State.REQUESTED or instant.action not in _BEGIN_INFLIGHT:
            continue
        if instant.requested_time in started or not table.timeline.pending().contains(instant.requested_time):
            continue
        try:
            refuse_active(table, [instant])
            delete_pending(table, instant)
        except SkepError as error:
            progress.settle(finding, error.message, done=False)
        else:
            progress.settle(
                finding, f"the {instant.action.value}, which had not started, is deleted: it is planned again"
            )


def _delete_rolled_back(table: HudiTable, progress: _Progress) -> None:
    """Files of writes that a rollback names as undone. Those of log files that are named by their slice stay: later
    writes may have added to it."""
    undone = set(_undone(table))
    known = {instant.requested_time for instant in table.timeline}
    named: set[str] = set()
    read_timeline(table, lambda _instant, commit: named.update(path for stat in commit.stats for path in stat.paths))
    deleted = []
    for finding in progress.of(Problem.ORPHAN):
        is_log = LogFileName.parse(finding.path.rpartition("/")[2]) is not None
        own = not is_log or table.format.logs.of_delta_commit
        if finding.instant in undone and finding.instant not in known and own and finding.path not in named:
            deleted.append(finding)
        else:
            progress.settle(finding, "kept: no rollback names its write; readers pass over it", done=False)
    table.storage.delete_many([finding.path for finding in deleted])
    for finding in deleted:
        progress.settle(finding, "deleted: its write was rolled back")


def _undone(table: HudiTable) -> Iterator[InstantTime]:
    """The instants that completed rollbacks and restores have undone, archived ones included."""
    for instant in table.timeline.completed().of(Action.ROLLBACK, Action.RESTORE):
        with suppress(*UNREADABLE):
            yield from _undone_by(table.plan(instant))
    archive = table.timeline.archive
    if archive is None:
        return
    with suppress(*UNREADABLE):
        for each in table.timeline.archived():
            if each.action in (Action.ROLLBACK, Action.RESTORE):
                yield from _undone_by(archive.completed_content(each))


def _undone_by(content: object) -> Iterator[InstantTime]:
    if isinstance(content, RollbackMetadata):
        yield from content.commits_rollback
    elif isinstance(content, RestoreMetadata):
        for parts in content.hoodie_restore_metadata.values():
            for part in parts:
                yield from part.commits_rollback if part is not None else ()


def _repair_metadata(context: TableContext, progress: _Progress) -> None:
    """Makes it again, where all files are there: made from fewer, it would hide that rows are lost."""
    left = (each.finding for each in progress.done if not each.done and each.finding.problem in _LOSSES)
    lost = next(iter([*progress.of(*_LOSSES), *left]), None)
    if lost is not None:
        for finding in progress.of(Problem.METADATA):
            detail = f"kept: made from the files that are there it would hide what {lost.path} lacks"
            progress.settle(finding, detail, done=False)
        return

    def rebuild() -> None:
        made = rebuild_metadata_table(HudiTable.in_context(context))
        for finding in progress.of(Problem.METADATA):
            progress.settle(finding, f"the metadata table is rebuilt: {', '.join(made.kept) or 'not yet'}")

    _attempt(progress, (Problem.METADATA,), rebuild)
