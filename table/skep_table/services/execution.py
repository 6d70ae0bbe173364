"""Plans of compactions, log compactions and clusterings: written onto the timeline, and carried out by one executor.

A plan takes file slices as they are before its requested time. A write that completes between the snapshot that it was
made from and that time would be neither in the plan nor in the slice that follows, and its rows would be lost. All of
it happens in one holding of the lock, under which writes complete, too; but a lock that is leased may be lost in
between.

Of all executors that try, one completes a plan. The protocol is that of writes (`commit/states.py`). The instant is the
plan's: an attempt that fails gives the plan back, and the next executor carries it out. The claim is written into the
open sign, which tasks check before they open a file: an executor whose plan was taken over meanwhile finds another
claim there.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

from skep_format.errors import AlreadyExistsError, CommitConflictError, SkepError, storage_failure
from skep_format.names import FileGroupId, join
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import CompactionPlan, NamedSlice, RequestedReplaceMetadata
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_format.timeline.write import delete_completed, delete_pending, transition_to_inflight
from skep_table.commit.concurrency.changes import completed_since, groups_of, touched_groups
from skep_table.commit.heartbeat import ActiveWriters, HeartbeatLimits, delete_heartbeat
from skep_table.commit.instants import after_others_have_read, request_plan
from skep_table.commit.machine import transition
from skep_table.commit.parts.markers import claimed_by, list_markers, marker_files, open_markers
from skep_table.commit.parts.metadata_table import drop_unkept
from skep_table.commit.parts.participants import DataFiles
from skep_table.commit.pending import PendingCommit
from skep_table.commit.states import CLAIM, DISCARD, GIVE_BACK, TAKE_OVER, YIELD, CommitKind, CommitState
from skep_table.commit.undo.rollback import roll_back
from skep_table.commit.writable import check_version
from skep_table.services.rewriting import Rewritten
from skep_table.table import HudiTable
from skep_table.view import FileSlice

log = logging.getLogger("skep.services")

T = TypeVar("T")
Check = Callable[[HudiTable], None]
"""Raises CommitConflictError where the plan does not fit the table any more: it is then taken off the timeline."""
_UNDOING = frozenset({Action.ROLLBACK, Action.RESTORE})


def schedule(table: HudiTable, action: Action, plan: CompactionPlan | RequestedReplaceMetadata) -> Instant:
    """Requests a plan that was made from the snapshot `table`, which was taken under the lock that is held.

    CommitConflictError, and the plan is off the timeline, where a write completed since. Where writers name log files
    by the slice that a plan begins, it has to stay: they may have written to that slice already.
    """
    table.context.lock.ensure_held()
    instant = request_plan(table, action, plan)
    if table.context.lock.leased and table.format.logs.of_delta_commit:
        missed = completed_since(table, fresh := table.reload())
        if missed:
            delete_pending(fresh, instant)
            problem = f"{missed[0].requested_time} completed while a {action.value} was planned"
            raise table.error(CommitConflictError, problem, hint="plan it again", instant=missed[0].requested_time)
    return instant


def execute_each(
    table: HudiTable, planned: Iterable[Instant | None], execute: Callable[[HudiTable, Instant], T | None]
) -> list[T]:
    """What was completed of these plans: not those that others have carried out, or taken back, meanwhile."""
    done = [execute(table, instant) for instant in planned if instant is not None]
    return [each for each in done if each is not None]


class Execution(PendingCommit):
    """Use as a context manager: leaving it without `complete` gives the plan back."""

    kind = CommitKind.SERVICE

    def __init__(self, table: HudiTable, planned: Instant, check: Check) -> None:
        super().__init__(table)
        self.instant = planned
        self._check_plan = check
        self._claim_id = uuid.uuid4().hex

    @classmethod
    def begin(cls, table: HudiTable, planned: Instant, check: Check) -> Execution | None:
        """None when the plan is carried out or taken back already.

        CommitConflictError when it does not fit any more, or another executor is active.
        """
        execution = cls(table, planned, check)
        try:
            with execution._exclusive() as (fresh, _):
                check_version(table, fresh)
                execution.table = fresh = drop_unkept(fresh)
                instant = pending_instant(fresh, planned)
                if instant is None:
                    execution._release()
                    return None
                execution.instant = instant
                execution._fit(fresh)
                refuse_while_active(fresh, instant)
                fresh.context.lock.ensure_held()
                if instant.state is State.INFLIGHT:
                    execution._take_over()
                else:
                    execution._claim()
            execution._heartbeat.start()
        except BaseException as error:
            if execution.state in (CommitState.NEW, CommitState.ROLLED_BACK):
                execution._release()
            else:
                execution.abort(error)
            raise
        return execution

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if self.committed is None and isinstance(error, OSError) and not isinstance(error, SkepError):
            raise storage_failure(f"table {self.table.config.name}: {self.instant.action.value}", error) from error

    def complete(self, metadata: CommitMetadata) -> Rewritten:
        """Makes the result visible. CommitConflictError when another executor took over, or the plan does not fit."""
        instant = self._finish(metadata)
        return Rewritten(instant, self.committed or metadata, self.after or self.table)

    # -- steps

    @transition(CLAIM)
    def _claim(self) -> None:
        self._announce()
        try:
            self._open()
        except AlreadyExistsError:  # of an executor that died before its inflight file
            DataFiles().abort(self.table, self.instant)
            self._open()
        # An inflight file without a claim looks like one of Hudi's.
        self.instant = transition_to_inflight(self.table, self.instant)

    @transition(TAKE_OVER)
    def _take_over(self) -> None:
        log.info("table %s: %s is taken over", self.table.config.name, self.instant.requested_time)
        self._announce()
        DataFiles().abort(self.table, self.instant)
        self.table = self.table.reload()  # a snapshot remembers its listings, with the files that are deleted now
        self._open()

    def _announce(self) -> None:
        delete_heartbeat(self.table.storage, self.instant.requested_time)  # that of an executor that died
        self._heartbeat.announce(self.instant.requested_time)

    def _open(self) -> None:
        time, alive = self.instant.requested_time, self._heartbeat.ensure_alive
        open_markers(self.table.storage, time, self._claim_id, ensure_alive=alive)

    def _prepare_ahead(self, metadata: CommitMetadata) -> None:  # noqa: ARG002
        if self.table.context.lock.leased:  # others share the table
            after_others_have_read(self.table.reload(), self.instant)

    def _verify(self, fresh: HudiTable, metadata: CommitMetadata) -> CommitMetadata:
        check_version(self.table, fresh)
        if not self._is_ours(fresh):
            time = self.instant.requested_time
            problem = f"another executor took {self.instant.action.value} {time} over"
            raise fresh.error(CommitConflictError, problem, instant=time)
        self._fit(fresh)
        return metadata

    def _fit(self, fresh: HudiTable) -> None:
        try:
            self._check_plan(fresh)
        except CommitConflictError:
            self._discard(fresh)
            raise

    @transition(DISCARD)
    def _discard(self, fresh: HudiTable) -> None:
        roll_back(fresh, self.instant)

    def _collides(self, fresh: HudiTable, done: Instant, metadata: CommitMetadata, since: Sequence[Instant]) -> bool:  # noqa: ARG002
        """Delta commits go on beside a compaction: they write to the slice that it begins."""
        if self._is_superseded(fresh):
            return True
        if metadata.operation_type is WriteOperation.COMPACT:
            return False
        ours = groups_of(metadata)
        return any(ours & touched_groups(fresh, other) for other in since)

    def _revert_files(self, fresh: HudiTable, done: Instant) -> None:
        if self._is_superseded(fresh):
            delete_completed(fresh, done)  # the other executor has deleted the files, and completes the plan
        else:
            super()._revert_files(fresh, done)

    def _is_superseded(self, fresh: HudiTable) -> bool:
        """Whether another executor has opened the instant since this one ended the opening of files."""
        return claimed_by(fresh.storage, self.instant.requested_time) is not None

    # -- undoing

    def _undo(self, error: BaseException | None) -> None:
        with self._exclusive(self._patience(error)) as (fresh, _):
            done = self._completed(fresh)
            if done is not None and self.state is CommitState.READY:
                self._confirm(done)
            elif self._is_ours(fresh):
                self._give_back(fresh)
            else:
                self._yield()

    @transition(GIVE_BACK)
    def _give_back(self, fresh: HudiTable) -> None:
        for participant in reversed(self._participants):
            participant.abort(fresh, self.instant)
        delete_pending(fresh, self.instant, keep_requested=True)

    @transition(YIELD)
    def _yield(self) -> None:
        """Nothing here is this executor's any more."""

    def _is_ours(self, fresh: HudiTable) -> bool:
        """Whether the plan is pending, and no other executor has claimed it. After PUBLISH no claim is left."""
        if pending_instant(fresh, self.instant) is None:
            return False
        claim = claimed_by(fresh.storage, self.instant.requested_time)
        return claim == self._claim_id or (claim is None and self.state in (CommitState.CHECKED, CommitState.READY))

    def _report_undone(self, what: str, error: BaseException | None) -> None:
        if self.state is not CommitState.GIVEN_BACK:
            return
        name, time, action = self.table.config.name, self.instant.requested_time, self.instant.action.value
        level = logging.INFO if isinstance(error, Exception) and not isinstance(error, OSError) else logging.WARNING
        log.log(level, "table %s: %s %s %s; its files are deleted, the plan stays", name, action, time, what)
        self.table.context.events.emit("service.given_back", instant=time, error=repr(error))


def pending_instant(table: HudiTable, planned: Instant) -> Instant | None:
    """The planned instant as it is now; None when it is completed or off the timeline."""
    time, action = planned.requested_time, planned.action
    pending = table.timeline.pending().of(action)
    return next((instant for instant in pending if instant.requested_time == time), None)


def delete_unreadable(
    table: HudiTable, instant: Instant, plan_of: Callable[[HudiTable, Instant], object | None]
) -> None:
    """Deletes the instant of a plan that can't be read: it was never finished, or is deleted already."""
    with table.context.locked():
        if plan_of(table.reload(), instant) is None:
            delete_pending(table, instant)


def refuse_while_active(table: HudiTable, instant: Instant) -> None:
    """CommitConflictError where an executor that may be alive is carrying a plan out."""
    time, writers = instant.requested_time, ActiveWriters(table.context)
    if writers.is_active(time) or (
        instant.state is State.INFLIGHT and not writers.has_heartbeat(time) and _is_worked_on(table, instant)
    ):
        problem = f"another executor is carrying out {instant.action.value} {time}"
        raise table.error(CommitConflictError, problem, instant=time)


def _is_worked_on(table: HudiTable, instant: Instant) -> bool:
    """Whether an executor without heartbeat may be active: Hudi's before 1.2, which leave markers and no claim.

    It counts as dead when its last file is as old as a heartbeat may be.
    """
    storage, time = table.storage, instant.requested_time
    if claimed_by(storage, time) is not None:
        return False
    files = [*marker_files(storage, time), storage.status(table.layout.path(instant))]
    age_seconds = table.context.clock.now().timestamp() - max(file.modified_ms for file in files) / 1000
    return age_seconds <= HeartbeatLimits.of(table.options).timeout_seconds


def inputs_of(planned: Iterable[NamedSlice]) -> dict[FileGroupId, frozenset[str]]:
    """The names of the files of each slice that a plan takes."""
    return {each.group: frozenset(each.file_names) for each in planned}


class PlannedSlices:
    """Partitions are listed before the executor takes the table's lock, and under the lock only where something ran
    beside it since: a write, a rollback, or another service that writes.

    `planned` maps each file group to the names of the files that the plan takes. What the plan's own executors wrote
    does not count. A log compaction loses a slice, too, for which a compaction is planned.
    """

    def __init__(
        self,
        table: HudiTable,
        instant: Instant,
        planned: Mapping[FileGroupId, frozenset[str]],
        after: Mapping[FileGroupId, frozenset[FileGroupId]] = MappingProxyType({}),
    ) -> None:
        """`after`: of a group the ones that a resize makes of it. A write that has its rows in these, too, changes
        nothing of the plan."""
        self._instant = instant
        self._planned = planned
        self._after = after
        self._seen: HudiTable | None = None
        self._executed: HudiTable | None = None
        self.slices: Mapping[FileGroupId, FileSlice] = {}
        """The slices in the order of `planned`, with the files that the plan names only."""
        with suppress(CommitConflictError):  # decided under the lock, where the plan is taken off the timeline
            self._read(table)

    def check(self, table: HudiTable) -> None:
        """Raises CommitConflictError where a slice of this snapshot, taken under the lock, is not as planned.

        The first snapshot is the one whose rows the executor takes.
        """
        if self._seen is None or not _is_quiet(self._seen, table, self._instant):
            self._read(table)
        if self._executed is None:
            self._executed = table
        for write in completed_since(self._executed, table):
            # In version 6 its log files were there, under the same names, when the plan was made.
            for group in self._changed_by(table, write):
                raise self._conflict(table, group)

    def _read(self, table: HudiTable) -> None:
        self._seen = None
        view = table.view(metadata=False)
        partitions = sorted({group.partition_path for group in self._planned})
        own = _own_files(table, self._instant)
        slices = chain.from_iterable(table.context.threads.map(view.slices, partitions))
        current = {slice_.group: slice_ for slice_ in slices}
        of_logs = self._instant.action is Action.LOG_COMPACTION
        taken = view.states.pending_compactions if of_logs else {}
        found = {}
        doubled = self._written_twice(table)
        for group, names in self._planned.items():
            slice_ = current.get(group)
            if slice_ is not None and group in doubled:
                slice_ = replace(slice_, log_files=tuple(log for log in slice_.log_files if str(log.name) in names))
            if slice_ is not None and own:
                slice_ = replace(slice_, log_files=tuple(log for log in slice_.log_files if str(log.name) not in own))
            if slice_ is None or frozenset(slice_.file_names) != names or group in taken:
                raise self._conflict(table, group)
            found[group] = slice_
        self._seen, self.slices = table, found

    def _written_twice(self, table: HudiTable) -> frozenset[FileGroupId]:
        """The groups of a resize whose later rows are in those that it makes, too: of all writes that completed.

        Other log files than these have put nothing there: those of a write that goes on, or that was rolled back.
        """
        once = set[FileGroupId]()
        if self._after:
            for write in table.timeline.data().completed().after(self._instant.requested_time):
                once.update(self._changed_by(table, write))
        return frozenset(self._after.keys() - once)

    def _changed_by(self, table: HudiTable, write: Instant) -> Iterator[FileGroupId]:
        touched = touched_groups(table, write)
        return (group for group in self._planned.keys() & touched if not self._after.get(group, frozenset()) & touched)

    def _conflict(self, table: HudiTable, group: FileGroupId) -> CommitConflictError:
        happened, service = "written to or replaced", "clustering"
        if self._instant.action is Action.LOG_COMPACTION:
            happened, service = "written to, or planned for a compaction,", "log compaction"
        problem = f"{join(*group)} was {happened} since its {service} was planned"
        return table.error(CommitConflictError, problem, hint="plan it again", path=join(*group))


def _own_files(table: HudiTable, instant: Instant) -> frozenset[str]:
    """The names of the files that executors of the plan have written, or started to write."""
    now = pending_instant(table, instant)
    if now is None or now.state is State.REQUESTED:
        return frozenset()
    return frozenset(marker.file_name for marker in list_markers(table.storage, instant.requested_time) or ())


def _is_quiet(before: HudiTable, now: HudiTable, own: Instant) -> bool:
    """Whether nothing has changed data files between two snapshots, but the executors of the plan `own`."""
    changes = WRITE_ACTIONS | _UNDOING
    found, earlier = (
        {each for each in table.timeline if each.action in changes and each.requested_time != own.requested_time}
        for table in (now, before)
    )
    return found == earlier and all(each.is_completed for each in found if each.action in DATA_ACTIONS | _UNDOING)
