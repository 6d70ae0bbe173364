"""Archiving: moves old instants into the archive, so that listing the timeline stays cheap (format guide 2.10, 14.7).

The archive has them before any instant file is deleted. Commits are deleted oldest first, each with its completed file
last: at every moment the active timeline is the end of the whole one. What a crash left is archived again, to the same
effect.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from skep_format.storage import FileStatus
from skep_format.timeline.archive_writer import ArchiveSetting, ArchiveWriter, InstantFiles
from skep_format.timeline.instant import Action, Instant
from skep_table.commit.undo.recovery import delete_stale_markers
from skep_table.commit.writable import prepared
from skep_table.services.cleaning.archive_plan import ArchivePlan, check_archive_options, plan_archive
from skep_table.services.options import ARCHIVE_BATCH, HISTORY_BATCH, HISTORY_MANIFESTS
from skep_table.table import HudiTable

log = logging.getLogger("skep.archive")


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
