"""What undoes writes: rollback by name, restore to a savepoint, newest write first; and savepoints.

A savepoint is a commit whose files neither cleaner nor archiver touch, so that the table can be restored to it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import partial

from skep_format.errors import AlreadyExistsError, InputError, UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import FileGroupId
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import WriteStat
from skep_format.timeline.plans import (
    InstantInfo,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
    SavepointPartitionMetadata,
)
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.timeline.write import complete, delete_completed, delete_pending, transition_to_inflight
from skep_table.commit.concurrency.changes import groups_of
from skep_table.commit.instants import request_plan, timeline_clock
from skep_table.commit.parts.metadata_table import create_again
from skep_table.commit.undo.recovery import finish_interrupted, finish_restore, refuse_active
from skep_table.commit.undo.rollback import plan_rollback, roll_back
from skep_table.commit.writable import prepared
from skep_table.keys.hash_rings import is_copy
from skep_table.query.cleaned import not_whole, refuse_lost_files
from skep_table.services.cleaning.clean import finish_cleans
from skep_table.table import HudiTable
from skep_table.view import FileView
from skep_table.view.instant_states import completed_by
from skep_table.view.slicing import file_groups

_Wanted = tuple[InstantTime, InstantTime | None]
"""The write that is rolled back, and the slice that is the latest without it, where no earlier one has its rows."""


def roll_back_instant(table: HudiTable, time: InstantTime) -> RollbackMetadata:
    """Rolls back the write requested at `time`. InputError, and nothing has changed, where Hudi would not allow it;
    CommitConflictError where its writer is active.

    Interrupted services are finished first: a planned clean would delete files that the rollback makes current again.
    """
    with table.context.locked():
        table = prepared(table)
        check_rollback(table, time)
        table = finish_services(table)
        target = check_rollback(table, time)
        refuse_active(table, [target])
        table.context.lock.ensure_held()
        done = roll_back(table, target)
        create_again(table.reload())
        return done


def finish_services(table: HudiTable) -> HudiTable:
    """The snapshot after interrupted cleans, rollbacks and restores are finished, with the lock held."""
    if not table.timeline.pending().of(Action.CLEAN, Action.ROLLBACK, Action.RESTORE):
        return table
    finish_cleans(table)
    return finish_interrupted(table.reload())


def preview_rollback(table: HudiTable, time: InstantTime) -> RollbackPlan:
    """The plan of `roll_back_instant`. Changes nothing."""
    return plan_rollback(table, check_rollback(table, time))


def check_rollback(table: HudiTable, time: InstantTime) -> Instant:
    """The instant to roll back. InputError where it is missing, kept by a savepoint, or later writes build on it."""
    timeline = table.timeline
    target = next((i for i in timeline.instants if i.requested_time == time and i.action in WRITE_ACTIONS), None)
    if target is None:
        others = [i.action.value for i in timeline.instants if i.requested_time == time]
        if others:
            problem = f"{time} is a {others[0]}, which can't be rolled back"
        elif timeline.is_archived(time):
            problem = f"{time} lies before the active timeline: what is archived can't be rolled back"
        else:
            problem = f"there is no write {time} on the timeline"
        raise table.error(InputError, problem, instant=time, found=others[0] if others else None)
    if target.action is Action.COMPACTION and target.state is State.REQUESTED:
        problem = f"the compaction {time} is only planned; writers may have written to its slices already"
        hint = "carry it out, or take it back: skep compaction unschedule TABLE INSTANT"
        raise table.error(UnsupportedError, problem, hint=hint, instant=time)
    if target.is_completed:
        if timeline.of(Action.SAVEPOINT).contains(time):
            raise table.error(InputError, f"{time} is kept by a savepoint", hint="delete that first", instant=time)
        later = timeline.of(*WRITE_ACTIONS).after(time).instants
        if later:
            newest = later[-1]
            problem = f"{time} is not the newest write, {newest.action.value} {newest.requested_time} is"
            hint = "roll back newest first, or restore to a savepoint"
            raise table.error(InputError, problem, hint=hint, instant=time, found=newest.requested_time)
        check_not_cleaned(table, [target])
    return target


def check_not_cleaned(table: HudiTable, targets: Collection[Instant]) -> None:
    """InputError when the slices that would be the latest without `targets` were cleaned away.

    The stats of log files of version 8 on name no slice. That of the compaction which ended their slice does, and
    without one a slice with log files is the latest, which no clean takes.
    """
    view, rolled_back = table.view(metadata=False), {target.requested_time for target in targets}
    wanted: dict[str, dict[str, _Wanted]] = defaultdict(dict)
    stats: dict[FileGroupId, WriteStat] = {}
    for target in targets:
        if not target.is_completed:
            continue
        metadata = table.commit_metadata(target)
        for stat in metadata.stats:
            if metadata.compacted or stat.prev_commit not in ("null", "", *rolled_back):
                stats[FileGroupId(stat.partition_path, stat.file_id)] = stat
                wanted[stat.partition_path][stat.file_id] = target.requested_time, _slice_before(table, stat)
        for partition, file_id in metadata.replaced:
            wanted[partition][file_id] = target.requested_time, None
    for partition, groups in wanted.items():
        there = {
            group.file_id: {slice_.base_instant for slice_ in group.slices} - rolled_back
            for group in view.file_groups(partition, replaced=True)
        }
        for file_id, (time, base) in groups.items():
            found = there.get(file_id, set())
            is_missing = not found or (base is not None and base not in found)
            group = FileGroupId(partition, file_id)
            if is_missing and not _is_only_of(targets, table, group):
                if group in stats and is_copy(table, stats[group]):
                    continue
                raise table.error(
                    InputError,
                    f"without {time}, rows of {partition or 'the table'}/{file_id} would be lost: the cleaner has"
                    " removed what was there before",
                    instant=time,
                    path=partition,
                )


def _is_only_of(targets: Collection[Instant], table: HudiTable, group: FileGroupId) -> bool:
    """Whether nobody but `targets` ever wrote to a file group: then without them it had no rows."""
    others = [i for i in table.timeline.completed().data() if i not in targets]
    others += table.timeline.archived_holding(group.file_id)
    return not any(group in groups_of(table.commit_metadata(other)) for other in others if other.action in DATA_ACTIONS)


def _slice_before(table: HudiTable, stat: WriteStat) -> InstantTime | None:
    """The base instant of the slice that a write went on from; None where an older slice has the same rows.

    That is where it came of a compaction, or may have: in merge-on-read tables an archived write may be one.
    """
    before = InstantTime(stat.prev_commit or "")
    if not table.config.is_mor:
        return before
    wrote = next((i for i in table.timeline.completed().data() if i.requested_time == before), None)
    return before if wrote is not None and wrote.action is not Action.COMMIT else None


def restore(table: HudiTable, savepoint: InstantTime) -> RestoreMetadata | None:
    """Rolls back all writes after a savepoint, after an interrupted restore is finished. None when there are none.

    InputError, and nothing has changed, where there is no such savepoint or a later one. CommitConflictError while
    another writer is active.
    """
    with table.context.events.step("restore", savepoint=savepoint) as found, table.context.locked():
        table = prepared(table)
        plan_restore(table, savepoint)
        table = finish_services(table)
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
    timeline = table.timeline
    savepoints = [i.requested_time for i in timeline.completed().of(Action.SAVEPOINT)]
    if savepoint not in savepoints:
        hint = f"there are {', '.join(savepoints)}" if savepoints else "there are none"
        raise table.error(InputError, f"there is no savepoint {savepoint}", hint=hint, instant=savepoint)
    if savepoint != savepoints[-1]:
        problem, hint = f"the savepoint {savepoints[-1]} is later than {savepoint}", "delete later savepoints first"
        raise table.error(InputError, problem, hint=hint, instant=savepoint, found=savepoints[-1])
    kept = CompletionTime(timeline.completion_time_of(savepoint) or savepoint)
    targets = _later(timeline.instants, kept, is_mor=table.config.is_mor)
    archived = _later(timeline.archived(InstantTime(kept)), kept, is_mor=table.config.is_mor)
    if archived:
        problem = f"{archived[0].requested_time} was written after the savepoint {savepoint} and is archived"
        raise table.error(InputError, problem, instant=savepoint, found=archived[0].requested_time)
    check_not_cleaned(table, targets)
    infos = (InstantInfo(commit_time=each.requested_time, action=each.action.value) for each in targets)
    return RestorePlan(instants_to_rollback=tuple(infos), savepoint_to_restore_timestamp=savepoint)


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
        time = (None if is_compaction else instant.completion_time) or CompletionTime(instant.requested_time)
        if time.is_after(kept):
            found.append((instant.action is Action.CLUSTERING, time, instant))
    return [instant for *_, instant in sorted(found, key=lambda each: each[:2], reverse=True)]


def create_savepoint(
    table: HudiTable, time: InstantTime | None = None, *, user: str = "", comments: str = ""
) -> SavepointMetadata:
    """Keeps the files of a completed commit, `time` or the last one, from being cleaned or archived.

    InputError where there is no such commit, it has a savepoint, or its files are cleaned already.
    """
    with table.context.events.step("savepoint") as found, table.context.locked():
        table = prepared(table)
        check_savepoint(table, time)
        table = finish_services(table)  # a planned clean may delete files of this commit
        instant = check_savepoint(table, time)
        metadata = _metadata(table, instant, user, comments)
        savepoint = Instant(instant.requested_time, Action.SAVEPOINT, State.INFLIGHT)
        table.context.lock.ensure_held()
        for died in table.timeline.pending().of(Action.SAVEPOINT):
            if died.requested_time != savepoint.requested_time:
                delete_pending(table, died)  # it would block archiving for ever
        with contextlib.suppress(AlreadyExistsError):  # an interrupted one is finished
            transition_to_inflight(table, savepoint)
        complete(table, savepoint, metadata, timeline_clock(table))
        found.update(instant=instant.requested_time)
    return metadata


def plan_savepoint(table: HudiTable, time: InstantTime | None = None) -> SavepointMetadata:
    """What `create_savepoint` would keep. Changes nothing."""
    return _metadata(table, check_savepoint(table, time), "", "")


def delete_savepoint(table: HudiTable, time: InstantTime) -> None:
    """Deletes a savepoint: its commit may be cleaned and archived again. InputError when there is no such savepoint."""
    with table.context.events.step("savepoint.delete", instant=time), table.context.locked():
        table = prepared(table)
        savepoint = next((i for i in table.timeline.of(Action.SAVEPOINT) if i.requested_time == time), None)
        if savepoint is None:
            raise table.error(InputError, f"there is no savepoint {time}", instant=time)
        if savepoint.is_completed:
            savepoint = delete_completed(table, savepoint)
        delete_pending(table, savepoint)


def check_savepoint(table: HudiTable, time: InstantTime | None) -> Instant:
    """The commit to keep. InputError where there is none, it has a savepoint, or its files are cleaned already."""
    name, commits = table.config.name, table.timeline.data().completed()
    instant = commits.last() if time is None else next((i for i in commits if i.requested_time == time), None)
    if instant is None:
        problem = f"no completed commit {time} is on the active timeline" if time else "no commit is completed yet"
        raise InputError.of_table(name, f"{problem}", instant=time)
    time = instant.requested_time
    if table.timeline.completed().of(Action.SAVEPOINT).contains(time):
        raise InputError.of_table(name, f"{time} has a savepoint already", instant=time)
    cleaned = not_whole(table, time)
    if cleaned is not None:
        raise InputError.of_table(name, f"the cleaner has removed files of {time}; {cleaned}", instant=time)
    return instant


def _metadata(table: HudiTable, instant: Instant, user: str, comments: str) -> SavepointMetadata:
    view = table.view(as_of=instant.requested_time, metadata=False)
    partitions = view.partitions()
    refuse_lost_files(table, view, partitions, instant.requested_time)
    kept = table.context.threads.map(partial(_kept, table, view, instant), partitions)
    return SavepointMetadata(
        savepointed_by=user,
        savepointed_at=int(table.context.clock.now().timestamp() * 1000),
        comments=comments,
        partition_metadata={
            partition: SavepointPartitionMetadata(partition_path=partition, savepoint_data_file=names)
            for partition, names in zip(partitions, kept, strict=True)
        },
    )


def _kept(table: HudiTable, view: FileView, instant: Instant, partition: str) -> tuple[str, ...]:
    """The files of a partition that are read as of the commit, and those that a restore to it brings back.

    These differ where writes overlapped: the one reads what was requested until then, and the other brings back what
    had completed when the commit did.
    """
    names = {name: None for slice_ in view.slices(partition) for name in slice_.file_names}
    if instant.completion_time is not None:
        states = completed_by(table.timeline, view.states, instant.completion_time)
        groups = file_groups(partition, view.listing.files(partition), states)
        latest = [group.latest for group in groups if group.replaced_by is None]
        names.update({name: None for slice_ in latest if slice_ is not None for name in slice_.file_names})
    return tuple(names)
