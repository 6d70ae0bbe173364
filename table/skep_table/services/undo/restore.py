"""Restore: brings a table back to a savepoint, by rolling back every write after it, newest first."""

from __future__ import annotations

from collections.abc import Iterable

from skep_format.errors import InputError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import InstantInfo, RestoreMetadata, RestorePlan
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.commit.instants import request_plan
from skep_table.commit.undo.recovery import finish_interrupted, finish_restore, refuse_active
from skep_table.commit.writable import prepared
from skep_table.services.cleaning.clean import finish_cleans
from skep_table.services.undo.rollback import check_not_cleaned
from skep_table.table import HudiTable


def restore(table: HudiTable, savepoint: InstantTime) -> RestoreMetadata | None:
    """Rolls back all writes after a savepoint, after an interrupted restore is finished. None when there are none.

    InputError, and nothing has changed, where there is no such savepoint or a later one. CommitConflictError while
    another writer is active.
    """
    with table.context.events.step("restore", savepoint=savepoint) as found, table.context.locked():
        table = prepared(table)
        plan_restore(table, savepoint)
        finish_cleans(table)
        table = finish_interrupted(table.reload())
        plan = plan_restore(table, savepoint)
        if not plan.instants_to_rollback:
            return None
        refuse_active(table, table.timeline.pending().of(*WRITE_ACTIONS))
        table.context.lock.ensure_held()
        instant = request_plan(table, Action.RESTORE, plan)
        found.update(instant=instant.requested_time, instants=len(plan.instants_to_rollback))
        return finish_restore(table.reload(), instant)


def plan_restore(table: HudiTable, savepoint: InstantTime) -> RestorePlan:
    """The plan of `restore`: the writes to roll back, newest first. Changes nothing."""
    name, timeline = table.config.name, table.timeline
    savepoints = [i.requested_time for i in timeline.completed().of(Action.SAVEPOINT)]
    if savepoint not in savepoints:
        raise InputError(
            f"table {name}: there is no savepoint {savepoint}",
            hint=f"there are {', '.join(savepoints)}" if savepoints else "there are none",
            instant=savepoint,
        )
    if savepoint != savepoints[-1]:
        raise InputError(
            f"table {name}: the savepoint {savepoints[-1]} is later than {savepoint}",
            hint="delete later savepoints first",
            instant=savepoint,
            found=savepoints[-1],
        )
    kept = CompletionTime(timeline.completion_time_of(savepoint) or savepoint)
    targets = _later(timeline.instants, kept, is_mor=table.config.is_mor)
    archived = _later(timeline.archived(InstantTime(kept)), kept, is_mor=table.config.is_mor)
    if archived:
        raise InputError(
            f"table {name}: {archived[0].requested_time} was written after the savepoint {savepoint} and is archived",
            instant=savepoint,
            found=archived[0].requested_time,
        )
    check_not_cleaned(table, targets)
    return RestorePlan(
        instants_to_rollback=tuple(map(_info, targets)),
        savepoint_to_restore_timestamp=savepoint,
    )


def _later(instants: Iterable[Instant], kept: CompletionTime, *, is_mor: bool) -> list[Instant]:
    """The writes that are not part of the table as it was at `kept`, in the order in which they are rolled back.

    Clusterings that are pending come first, as in Hudi. What is pending counts by its requested time: a plan has seen
    what completed before that. So does a completed compaction, which shows no other rows than there were.
    """
    found = []
    for instant in instants:
        if instant.action not in WRITE_ACTIONS:
            continue
        is_compaction = is_mor and instant.action is Action.COMMIT
        done = None if is_compaction else instant.completion_time
        time = done or CompletionTime(instant.requested_time)
        if time.is_after(kept):
            found.append((instant.action is Action.CLUSTERING, time, instant))
    return [instant for *_, instant in sorted(found, key=lambda each: each[:2], reverse=True)]


def _info(instant: Instant) -> InstantInfo:
    return InstantInfo(commit_time=instant.requested_time, action=instant.action.value)
