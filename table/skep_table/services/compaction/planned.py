"""Compactions that are planned: compared with the files, and taken off the timeline, whole or for one file group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId, LogFileName, join
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionOperation, CompactionPlan, encode_plan
from skep_format.timeline.write import delete_pending
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import prepared
from skep_table.services.compaction.compact import check_compactable, refuse_running_writes
from skep_table.services.compaction.plan import compaction_plan
from skep_table.services.execution import pending_instant, refuse_while_active
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """A file slice that a compaction names, and why it can't be compacted; None where it can."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: int
    error: str | None = None


def planned_slices(table: HudiTable, time: InstantTime) -> list[PlannedSlice]:
    """What the plan of a pending or completed compaction names. InputError where there is no such plan."""
    return [_slice(each) for each in _plan(table, time).operations]


def validate_compaction(table: HudiTable, time: InstantTime) -> list[PlannedSlice]:
    """Compares the plan of a pending compaction with the files of the table, slice by slice. Changes nothing.

    An `error` names a file that is missing, or a log file of a write before the plan that it does not name.
    """
    check_compactable(table)
    _pending(table, time)
    plan = _plan(table, time)
    by_partition: dict[str, list[CompactionOperation]] = {}
    for each in plan.operations:
        by_partition.setdefault(each.group.partition_path, []).append(each)
    compared = table.context.threads.map(partial(_compared, table), list(by_partition.items()))
    return [each for found in compared for each in found]


def unschedule_compaction(
    table: HudiTable, time: InstantTime, group: FileGroupId | None = None, *, plan: bool = False
) -> list[PlannedSlice]:
    """Takes a planned compaction off the timeline, or one file group out of it. Returns what is not compacted then.

    InputError for one that an executor carries out. UnsupportedError where a write has put a log file on the slice that
    the compaction begins: in table version 6 it would belong to no slice. No file is renamed for it, as Hudi 0.15 does,
    since commits and metadata table name the files as they are. CommitConflictError while a write is under way there.
    """
    if plan:
        return [_slice(each) for each in _to_unschedule(table.reload(), time, group)[1]]
    with table.context.locked():
        table = prepared(table)
        check_compactable(table)
        table = roll_back_failed(table)
        instant, taken, left = _to_unschedule(table, time, group)
        refuse_while_active(table, instant)
        if not table.format.logs.of_delta_commit:
            refuse_running_writes(table)
        table.context.lock.ensure_held()
        if left is None:
            delete_pending(table, instant)
        else:
            table.storage.replace_atomic(table.layout.path(instant), encode_plan(left, table.layout.release))
    return [_slice(each) for each in taken]


def _to_unschedule(
    table: HudiTable, time: InstantTime, group: FileGroupId | None
) -> tuple[Instant, Sequence[CompactionOperation], CompactionPlan | None]:
    """The instant, what is taken out of its plan, and the plan without it; None where nothing of it is left."""
    instant, plan = _pending(table, time), _plan(table, time)
    if instant.state is not State.REQUESTED:
        hint = f"skep rollback TABLE {time} undoes what its executor has written, the plan stays"
        raise table.error(InputError, f"an executor carries out the compaction {time}", hint=hint, instant=time)
    taken = [each for each in plan.operations if group is None or each.group == group]
    if group is not None and not taken:
        problem = f"compaction {time} does not plan {join(*group)}"
        raise table.error(InputError, problem, found=join(*group), instant=time)
    if not table.format.logs.of_delta_commit:
        for found in table.context.threads.map(partial(_later_logs, table, time), taken):
            if found:
                problem = f"{found[0]} was written onto the slice that compaction {time} begins"
                hint = f"carry it out: skep compact TABLE --execute --instant {time}"
                raise table.error(UnsupportedError, problem, hint=hint, path=found[0], instant=time)
    left = [each for each in plan.operations if each not in taken]
    return instant, taken, replace(plan, operations=tuple(left)) if left else None


def _later_logs(table: HudiTable, time: InstantTime, operation: CompactionOperation) -> list[str]:
    names = (
        (file.path, LogFileName.parse(file.name)) for file in table.storage.list_prefix(operation.group.partition_path)
    )
    return [
        path
        for path, name in names
        if name is not None and name.file_id == operation.file_id and name.instant_time == time
    ]


def _compared(table: HudiTable, task: tuple[str, list[CompactionOperation]]) -> list[PlannedSlice]:
    partition, operations = task
    there = {file.name for file in table.storage.list_prefix(partition)}
    view = table.view(metadata=False)
    groups = {group.file_id: group for group in view.file_groups(partition)}
    found = []
    for operation in operations:
        group = groups.get(operation.file_id or "")
        older = () if group is None else [s for s in group.slices if s.base_instant == operation.base_instant_time]
        logs = {str(log.name) for slice_ in older for log in slice_.log_files}
        missing = None if group is not None else "the table has no such file group"
        found.append(replace(_slice(operation), error=next(_errors(operation, there, logs), missing)))
    return found


def _errors(operation: CompactionOperation, there: set[str], logs: set[str]) -> Iterator[str]:
    named = set(operation.file_names)
    for name in sorted(named - there):
        yield f"{name} is missing"
    # Those of writes after the plan are of the slice that it begins.
    for name in sorted(logs - named):
        yield f"{name} is of the slice, and the plan does not name it"


def _pending(table: HudiTable, time: InstantTime) -> Instant:
    found = pending_instant(table, Instant(time, Action.COMPACTION, State.REQUESTED))
    if found is None:
        pending = ", ".join(each.requested_time for each in table.timeline.pending().of(Action.COMPACTION))
        hint = f"pending are: {pending}" if pending else "none is pending"
        raise table.error(InputError, f"there is no pending compaction {time}", hint=hint, instant=time)
    return found


def _plan(table: HudiTable, time: InstantTime) -> CompactionPlan:
    plan = compaction_plan(table, Instant(time, Action.COMPACTION, State.REQUESTED))
    if plan is None:
        raise table.error(InputError, f"there is no plan of a compaction {time}", instant=time)
    return plan


def _slice(operation: CompactionOperation) -> PlannedSlice:
    partition, file_id = operation.group
    base = (operation.data_file_path or "").rpartition("/")[2] or None
    return PlannedSlice(partition, file_id, operation.base_instant_time or "", base, len(operation.delta_file_paths))
