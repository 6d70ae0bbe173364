"""A copy-on-write table becomes a merge-on-read one, and back: a change of its settings, once no row depends on logs.

Readers of a copy-on-write table pass over log files, and Hudi's also over base files of delta commits that come after
the first commit of the timeline. Both are compacted first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from skep_format.errors import CommitConflictError, InputError, UnsupportedError
from skep_format.table_config import TableType, update_table_config
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CompactionPlan
from skep_table.commit.parts.metadata_table import create_again
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_writable, prepared
from skep_table.keys.hash_rings import has_rings
from skep_table.services.compaction.compact import execute_compaction, refuse_running_writes
from skep_table.services.compaction.plan import PLAN_VERSION, operation_of
from skep_table.services.execution import execute_each, schedule
from skep_table.services.plan_scope import coverage_of
from skep_table.services.repairs.settings import SettingsChange
from skep_table.table import HudiTable
from skep_table.upgrade.change import logs_come_back, settle
from skep_table.upgrade.route import check_pending
from skep_table.view import FileSlice
from skep_table.write.planning.options import most_bytes

_ATTEMPTS: Final = 3
_COMPLETED: Final = (Action.COMMIT, Action.REPLACE_COMMIT)

log = logging.getLogger("skep.upgrade")


def change_table_type(table: HudiTable, to: TableType, *, compacts: bool = True, plan: bool = False) -> SettingsChange:
    """Makes the table one of the other type. Rows, and how rows with one key merge, stay.

    Towards copy-on-write it carries out what is pending and compacts; without `compacts`, InputError where that is
    needed. CommitConflictError while others write, or while a clustering is planned. The snapshot before is read by the
    old type: queries and writers that go on see the new one when they open the table again.
    """
    table = table.reload()
    check_writable(table.config, table.storage.root)
    if to is TableType.COPY_ON_WRITE and has_rings(table):
        raise UnsupportedError(
            f"table {table.config.name} is written by consistent hashing, which a copy-on-write table can't have",
            hint="copy the rows into another table",
            table=table.config.name,
            path=table.storage.root,
        )
    change = _change(table, to)
    if change.is_empty or plan:
        return change
    for _ in range(_ATTEMPTS):
        if to is TableType.COPY_ON_WRITE and compacts:
            _compact_all(settle(table))
        if _switch(table, to):
            log.info("table %s: its type is %s now", table.config.name, to.value)
            return change
        if not compacts:
            raise _needs_compaction(table)
    raise logs_come_back(table, "type")


def slices_of_delta_commits(table: HudiTable) -> Iterator[FileSlice]:
    """The latest slices of which readers of a copy-on-write table would miss rows."""
    completed = table.timeline.completed()
    first = next((i.requested_time for i in completed.of(*_COMPLETED) if i.action in _COMPLETED), None)
    deltas = {instant.requested_time for instant in completed.of(Action.DELTA_COMMIT)}
    view, found = table.view(metadata=False), False
    for partition in view.partitions():
        for slice_ in view.slices(partition):
            base = slice_.base_instant
            is_hidden = base in deltas and (not found if first is None else base.is_after(first))
            # Without any commit one is enough: what lies before the first one of the timeline counts as committed.
            if slice_.log_files or is_hidden:
                found = True
                yield slice_


def _change(table: HudiTable, to: TableType) -> SettingsChange:
    before = table.config
    # A merge-on-read table states how rows merge; that may stay in one that is copy-on-write.
    after = {} if before.type is to else replace(before, type=to).to_properties()
    return SettingsChange(before.raw, {**before.raw, **after})


def _compact_all(table: HudiTable) -> None:
    with table.context.locked():
        table = roll_back_failed(prepared(table))
        if not table.format.logs.of_delta_commit:
            refuse_running_writes(table)
        _refuse_pending(table)
        planned = _schedule(table)
    execute_each(table.reload(), [planned], execute_compaction)


def _schedule(table: HudiTable) -> Instant | None:
    slices = list(slices_of_delta_commits(table))
    if not slices:
        return None
    operations = tuple(operation_of(table, each, most_bytes(table.config, table.options)) for each in slices)
    coverage = coverage_of(table, table.view(metadata=False), set())
    plan = CompactionPlan(
        operations=operations, extra_metadata=coverage, version=PLAN_VERSION, missing_schedule_partitions=()
    )
    return schedule(table, Action.COMPACTION, plan)


def _switch(table: HudiTable, to: TableType) -> bool:
    """The change under the lock; False where slices are to be compacted before it."""
    with table.context.locked():
        table = roll_back_failed(prepared(table))
        _refuse_pending(table)
        if to is TableType.COPY_ON_WRITE and next(slices_of_delta_commits(table), None) is not None:
            return False
        table.context.lock.ensure_held()
        update_table_config(table.storage, _change(table, to).after)
        create_again(table.reload())
    return True


def _refuse_pending(table: HudiTable) -> None:
    """CommitConflictError for a write or a service that is pending, clusterings among them."""
    clusterings = table.timeline.pending().of(Action.CLUSTERING, Action.REPLACE_COMMIT).instants
    if clusterings:
        problem = f"{clusterings[0].action.value} {clusterings[0].requested_time} is pending"
        hint = "carry it out first (skep cluster TABLE --execute), or roll it back"
        raise table.error(CommitConflictError, problem, hint=hint, instant=clusterings[0].requested_time)
    check_pending(table)


def _needs_compaction(table: HudiTable) -> InputError:
    found = next(slices_of_delta_commits(table.reload()), None)
    where = "" if found is None else f" of partition {found.partition_path!r}, file group {found.file_id},"
    return InputError(
        f"table {table.config.name} can't become copy-on-write as it is: rows{where} are in files of delta commits,"
        " which readers of copy-on-write tables pass over",
        hint="let the change compact them",
        option="compact",
        table=table.config.name,
    )
