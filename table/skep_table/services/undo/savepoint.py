"""Savepoints: a commit whose files neither cleaner nor archiver touch, so that the table can be restored to it."""

from __future__ import annotations

import contextlib
from functools import partial

from skep_format.errors import AlreadyExistsError, InputError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import SavepointMetadata, SavepointPartitionMetadata
from skep_format.timeline.write import complete, delete_completed, delete_pending, transition_to_inflight
from skep_table.commit.instants import timeline_clock
from skep_table.commit.undo.recovery import finish_interrupted
from skep_table.commit.writable import prepared
from skep_table.query.cleaned import not_whole
from skep_table.query.named import refuse_lost_files
from skep_table.services.cleaning.clean import finish_cleans
from skep_table.table import HudiTable
from skep_table.view import FileView
from skep_table.view.instant_states import completed_by
from skep_table.view.slicing import file_groups


def create_savepoint(
    table: HudiTable, time: InstantTime | None = None, *, user: str = "", comments: str = ""
) -> SavepointMetadata:
    """Keeps the files of a completed commit, `time` or the last one, from being cleaned or archived.

    InputError where there is no such commit, it has a savepoint, or its files are cleaned already.
    """
    with table.context.events.step("savepoint") as found, table.context.locked():
        table = prepared(table)
        if table.timeline.pending().of(Action.CLEAN, Action.ROLLBACK, Action.RESTORE).instants:
            check_savepoint(table, time)
            finish_cleans(table)  # a planned clean may delete files of this commit
            table = finish_interrupted(table.reload())
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
            raise InputError(f"table {table.config.name}: there is no savepoint {time}", instant=time)
        if savepoint.is_completed:
            savepoint = delete_completed(table, savepoint)
        delete_pending(table, savepoint)


def check_savepoint(table: HudiTable, time: InstantTime | None) -> Instant:
    """The commit to keep. InputError where there is none, it has a savepoint, or its files are cleaned already."""
    name, commits = table.config.name, table.timeline.data().completed()
    instant = commits.last() if time is None else next((i for i in commits if i.requested_time == time), None)
    if instant is None:
        problem = f"no completed commit {time} is on the active timeline" if time else "no commit is completed yet"
        raise InputError(f"table {name}: {problem}", instant=time)
    time = instant.requested_time
    if table.timeline.completed().of(Action.SAVEPOINT).contains(time):
        raise InputError(f"table {name}: {time} has a savepoint already", instant=time)
    cleaned = not_whole(table, time)
    if cleaned is not None:
        raise InputError(f"table {name}: the cleaner has removed files of {time}; {cleaned}", instant=time)
    return instant


def _metadata(table: HudiTable, instant: Instant, user: str, comments: str) -> SavepointMetadata:
    view = table.view(as_of=instant.requested_time, metadata=False)
    partitions = view.partitions()
    refuse_lost_files(table, view, partitions, instant.requested_time)
    slices = dict(
        zip(partitions, table.context.threads.map(partial(_kept, table, view, instant), partitions), strict=True)
    )
    return SavepointMetadata(
        savepointed_by=user,
        savepointed_at=int(table.context.clock.now().timestamp() * 1000),
        comments=comments,
        partition_metadata={
            partition: SavepointPartitionMetadata(
                partition_path=partition,
                savepoint_data_file=names,
            )
            for partition, names in slices.items()
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
