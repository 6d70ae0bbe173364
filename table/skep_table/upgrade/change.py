"""Brings a table to another version: settle, copy, switch, delete (see the package)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from skep_format.errors import AlreadyExistsError, CommitConflictError
from skep_format.storage import TimedStorage
from skep_format.table_config import update_table_config
from skep_format.timeline.layout import MOVED, TimelineLayout
from skep_format.versions import DEFAULT
from skep_table.commit.parts.metadata_table import create_again, drop_metadata_table
from skep_table.commit.parts.participants import rename_for_version_6
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_version, prepared
from skep_table.keys.hash_rings import move_markers_for_version_6
from skep_table.services.cleaning.clean import execute_pending_cleans
from skep_table.services.compaction.compact import compact, execute_pending_log_compactions
from skep_table.table import HudiTable
from skep_table.upgrade.instants import (
    CompletionTimes,
    MovedFile,
    archive_to_history,
    history_to_archive,
    instant_files,
    moved_instants,
)
from skep_table.upgrade.older import become_written, left_by_older, settings_when_written
from skep_table.upgrade.route import (
    VersionRoute,
    check_old_logs,
    check_pending,
    check_settings,
    check_target,
    other_layouts,
    route_to,
    slices_with_logs,
)
from skep_table.upgrade.settings import changes_between
from skep_table.write.planning.settings import metadata_of_newest, names_newest


def settle(table: HudiTable) -> HudiTable:
    """Rolls back failed writes, carries out pending plans and compacts all logs. Returns the snapshot after it.

    CommitConflictError while a write is active. Clusterings that are planned stay so, their plans move with the
    timeline.
    """
    with table.context.locked():
        table = roll_back_failed(prepared(table))
    execute_pending_cleans(table)
    if table.config.is_mor:
        execute_pending_log_compactions(table)
        compact(table)
    return table.reload()


def refuse_clustered_logs(table: HudiTable) -> None:
    """CommitConflictError where log files are in a file group that a pending clustering is going to rewrite."""
    clusterings = table.view(metadata=False).states.pending_clusterings
    for slice_ in slices_with_logs(table) if clusterings else ():
        planned = clusterings.get(slice_.group)
        if planned is not None:
            raise table.error(
                CommitConflictError,
                f"clustering {planned} is pending over file group {slice_.file_id} of partition"
                f" {slice_.partition_path!r}, whose log files can't be compacted before it",
                hint="carry it out (skep cluster TABLE --execute) or roll it back",
                instant=planned,
            )


def logs_come_back(table: HudiTable, change: str) -> CommitConflictError:
    """The error of a `change` that was tried several times."""
    problem = "other writers add log files faster than they are compacted"
    return table.error(CommitConflictError, problem, hint=f"pause them for the change of {change}")


_ATTEMPTS: Final = 3
_FILES_AT_ONCE: Final = 32

log = logging.getLogger("skep.upgrade")


def change_version(table: HudiTable, to: int) -> HudiTable:
    """Brings the table to version `to`, newer or older, and returns the snapshot after it.

    Of a table that has this version, only what an interrupted change left is deleted. VersionChangeError where the
    version can't hold what the table has, CommitConflictError while others write: the table is as before.
    """
    table = table.reload()
    check_target(table, to)
    if not table.format.is_written:
        check_route(table.with_config(settings_when_written(table)), to)
        table = become_written(table, goes_on=to != DEFAULT.version)
    route = check_route(table, to)
    if route.after.version == table.config.version:
        return delete_leftovers(table)
    refuse_clustered_logs(table)
    events = table.context.events
    facts = {"table": table.config.name, "before": table.config.version, "after": to}
    with events.step("version", **facts):
        for _ in range(_ATTEMPTS):
            with events.step("version.settle"):
                settled = settle(table)
                refuse_clustered_logs(settled)
            changed = _change(table, to)
            if changed is not None:
                log.info("table %s: version %s is version %s now", table.config.name, table.config.version, to)
                return changed
    raise logs_come_back(table, "version")


def check_route(table: HudiTable, to: int) -> VersionRoute:
    """The way of a table to a version, where settings and storage do not refuse it."""
    route = route_to(table, to)
    check_settings(table, route.target)
    check_old_logs(table, route.target)
    return route


def upgrade_to(table: HudiTable, version: int) -> HudiTable:
    """Brings the table to `version` where it has an older one; raises as `change_version`.

    Where the options give it as `newest`, a table without a metadata table is to have the one that a new table gets.
    """
    table = table.reload()
    config = table.config
    if config.version >= version:
        return table
    if names_newest(table.options) and not config.metadata_partitions:
        check_route(table, version)
        # before, so that an upgrade that a kill ends does not leave a table of the version without it
        with table.context.locked():
            update_table_config(table.storage, metadata_of_newest(table.options, config.partition_fields))
    return change_version(table, version)


def _change(began: HudiTable, to: int) -> HudiTable | None:
    """The change under the lock; None where writers have added log files since the compaction."""
    with began.context.locked():
        table = drop_metadata_table(prepared(began), again=True)
        check_version(began, table)
        table = roll_back_failed(table)
        route = route_to(table, to)
        check_settings(table, route.target)
        check_pending(table)
        table.storage.delete_many(left_by_older(table))
        if next(slices_with_logs(table), None) is not None:
            return None
        check_old_logs(table, route.target)
        if route.moves:
            with table.context.events.step("version.copy"):
                _copy(table, route)
            _sign(table, table.layout)
        table.context.lock.ensure_held()
        update_table_config(table.storage, changes_between(route.before, route.after))
        if route.moves:
            with table.context.events.step("version.delete"):
                table.storage.delete(_sign_path(route.layout))
                _delete(table, table.layout)
        return create_again(table.reload())


def _copy(table: HudiTable, route: VersionRoute) -> None:
    """Writes the timeline in the other layout."""
    _delete(table, route.layout)
    _sign(table, route.layout)
    times = CompletionTimes()
    if route.layout.has_completion_times:
        archive_to_history(table, route.layout, times)
    else:
        history_to_archive(table, route.layout)
        rename_for_version_6(table)
        move_markers_for_version_6(table)
    moved = moved_instants(table, route.layout, times)
    for at in range(0, len(moved), _FILES_AT_ONCE):
        table.context.lock.ensure_held()
        table.context.threads.map(partial(_write, table), moved[at : at + _FILES_AT_ONCE])
        table.context.events.progress("version.copy", min(at + _FILES_AT_ONCE, len(moved)), len(moved))
    table.storage.sync([file.target for file in moved])


def _write(table: HudiTable, file: MovedFile) -> None:
    storage = table.storage
    storage.create_exclusive(file.target, file.data, durable=False)
    if file.modified_ms is not None and isinstance(storage, TimedStorage):
        storage.set_modified(file.target, file.modified_ms)


def _sign_path(layout: TimelineLayout) -> str:
    return f"{layout.folder}/{MOVED}"


def _sign(table: HudiTable, layout: TimelineLayout) -> None:
    with suppress(AlreadyExistsError):  # of an interrupted change
        table.storage.create_exclusive(_sign_path(layout), b"")


def _delete(table: HudiTable, layout: TimelineLayout) -> None:
    """Deletes a timeline that is not the table's, the sign last."""
    files = instant_files(table, layout)
    if files:
        _sign(table, layout)
    table.context.lock.ensure_held()
    table.storage.delete_many(files)
    table.storage.delete_folder(layout.archive_folder)
    table.storage.delete(_sign_path(layout))


def leftovers(table: HudiTable) -> Sequence[str]:
    """The instant files of timelines that the table has left, or was never brought to."""
    found: list[str] = []
    for layout in other_layouts(table):
        found += instant_files(table, layout)
    signs = [_sign_path(layout) for layout in (table.layout, *other_layouts(table))]
    found += left_by_older(table)
    return [*found, *(path for path in signs if table.storage.exists(path))]


def delete_leftovers(table: HudiTable) -> HudiTable:
    """Deletes what an interrupted change of version left. Nothing else changes."""
    if leftovers(table):
        with table.context.locked():
            table = table.reload()
            for layout in other_layouts(table):
                _delete(table, layout)
            table.storage.delete(_sign_path(table.layout))
            table.storage.delete_many(left_by_older(table))
    return table
