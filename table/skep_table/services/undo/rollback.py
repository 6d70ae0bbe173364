"""Rollback by name: of a pending write, or of the newest completed one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import WriteStat
from skep_format.timeline.plans import RollbackMetadata, RollbackPlan
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.commit.concurrency.changes import groups_of
from skep_table.commit.parts.metadata_table import create_again
from skep_table.commit.undo.recovery import finish_interrupted, refuse_active
from skep_table.commit.undo.rollback import plan_rollback, roll_back
from skep_table.commit.writable import prepared
from skep_table.keys.hash_rings import is_copy
from skep_table.services.cleaning.clean import finish_cleans
from skep_table.table import HudiTable


def roll_back_instant(table: HudiTable, time: InstantTime) -> RollbackMetadata:
    """Rolls back the write requested at `time`. InputError, and nothing has changed, where Hudi would not allow it;
    CommitConflictError where its writer is active.

    Interrupted services are finished first: a planned clean would delete files that the rollback makes current again.
    """
    with table.context.locked():
        table = prepared(table)
        check_rollback(table, time)
        if table.timeline.pending().of(Action.CLEAN, Action.ROLLBACK, Action.RESTORE).instants:
            finish_cleans(table)
            table = finish_interrupted(table.reload())
        target = check_rollback(table, time)
        refuse_active(table, [target])
        table.context.lock.ensure_held()
        done = roll_back(table, target)
        create_again(table.reload())
        return done


def preview_rollback(table: HudiTable, time: InstantTime) -> RollbackPlan:
    """The plan of `roll_back_instant`. Changes nothing."""
    return plan_rollback(table, check_rollback(table, time))


def check_rollback(table: HudiTable, time: InstantTime) -> Instant:
    """The instant to roll back. InputError where it is missing, kept by a savepoint, or later writes build on it."""
    name, timeline = table.config.name, table.timeline
    target = next((i for i in timeline.instants if i.requested_time == time and i.action in WRITE_ACTIONS), None)
    if target is None:
        raise _unknown(table, time)
    if target.action is Action.COMPACTION and target.state is State.REQUESTED:
        raise UnsupportedError(
            f"table {name}: the compaction {time} is only planned; writers may have written to its slices already",
            hint="carry it out, or take it back: skep compaction unschedule TABLE INSTANT",
            instant=time,
        )
    if target.is_completed:
        if timeline.of(Action.SAVEPOINT).contains(time):
            raise InputError(f"table {name}: {time} is kept by a savepoint", hint="delete that first", instant=time)
        later = timeline.of(*WRITE_ACTIONS).after(time).instants
        if later:
            newest = later[-1]
            raise InputError(
                f"table {name}: {time} is not the newest write, {newest.action.value} {newest.requested_time} is",
                hint="roll back newest first, or restore to a savepoint",
                instant=time,
                found=newest.requested_time,
            )
        check_not_cleaned(table, [target])
    return target


def _unknown(table: HudiTable, time: InstantTime) -> InputError:
    others = [i.action.value for i in table.timeline.instants if i.requested_time == time]
    if others:
        problem = f"{time} is a {others[0]}, which can't be rolled back"
    elif table.timeline.is_archived(time):
        problem = f"{time} lies before the active timeline: what is archived can't be rolled back"
    else:
        problem = f"there is no write {time} on the timeline"
    return InputError(f"table {table.config.name}: {problem}", instant=time, found=others[0] if others else None)


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
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            wanted[partition].update(dict.fromkeys(file_ids, (target.requested_time, None)))
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
                raise InputError(
                    f"table {table.config.name}: without {time}, rows of {partition or 'the table'}/{file_id} would be"
                    " lost: the cleaner has removed what was there before",
                    instant=time,
                    path=partition,
                )


def _is_only_of(targets: Collection[Instant], table: HudiTable, group: FileGroupId) -> bool:
    """Whether nobody but `targets` ever wrote to a file group: then without them it had no rows."""
    others = [i for i in table.timeline.completed().data() if i not in targets]
    others += table.timeline.archived_holding(group.file_id)
    return not any(group in groups_of(table.commit_metadata(other)) for other in others if other.action in DATA_ACTIONS)


_Wanted = tuple[InstantTime, InstantTime | None]
"""The write that is rolled back, and the slice that is the latest without it, where no earlier one has its rows."""


def _slice_before(table: HudiTable, stat: WriteStat) -> InstantTime | None:
    """The base instant of the slice that a write went on from; None where an older slice has the same rows.

    That is where it came of a compaction, or may have: in merge-on-read tables an archived write may be one.
    """
    before = InstantTime(stat.prev_commit or "")
    if not table.config.is_mor:
        return before
    wrote = next((i for i in table.timeline.completed().data() if i.requested_time == before), None)
    return before if wrote is not None and wrote.action is not Action.COMMIT else None
