"""A write: an instant of its own, from the request to the completed file, or to its rollback."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from skep_format.errors import CommitConflictError, InputError, SkepError
from skep_format.names import FileGroupId
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import RequestedReplaceMetadata
from skep_format.timeline.write import delete_pending, transition_to_inflight
from skep_table.commit.concurrency.changes import completed_since, services_planned_after, touched_groups
from skep_table.commit.concurrency.conflict import CommitCandidate, check_concurrency, check_conflicts, refuse_early
from skep_table.commit.concurrency.partition_locks import PartitionLocks
from skep_table.commit.concurrency.schemas import with_merged_schema
from skep_table.commit.instants import after_others_have_read, request_write
from skep_table.commit.machine import transition
from skep_table.commit.options import Concurrency
from skep_table.commit.parts.batches import CommitLabel
from skep_table.commit.parts.data_files import delete_files, delete_new_partitions, files_of_instant, own_files
from skep_table.commit.parts.markers import close_markers, delete_markers, open_markers
from skep_table.commit.parts.metadata_table import abort_in_metadata_table, create_missing, drop_unkept
from skep_table.commit.pending import PendingCommit
from skep_table.commit.states import REMOVE, REQUEST, RETRY, ROLL_BACK, START, CommitKind, CommitState
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.undo.rollback import roll_back, rollbacks_of
from skep_table.commit.writable import check_bootstrapped, check_version, check_writable
from skep_table.metadata_write.kinds.contract import FoundByTasks
from skep_table.metadata_write.own import has_metadata_table
from skep_table.metadata_write.updates import NOTHING_FOUND
from skep_table.table import HudiTable

log = logging.getLogger("skep.commit")

_NO_BATCH: Final = CommitLabel({})


class Transaction(PendingCommit):
    """A write under way. Use as a context manager: leaving it without `complete` aborts."""

    kind = CommitKind.WRITE

    def __init__(self, table: HudiTable, label: CommitLabel) -> None:
        self._concurrency, self._label = Concurrency.of(table.options), label
        super().__init__(table)
        self._partitions = PartitionLocks(table.context)
        self._compared: frozenset[Instant] = frozenset()  # commits that were compared with before the lock

    @classmethod
    def begin(
        cls,
        table: HudiTable,
        action: Action,
        label: CommitLabel = _NO_BATCH,
        replaces: RequestedReplaceMetadata | None = None,
    ) -> Transaction:
        """Prepares the table and requests an instant. Raises what `check_writable` and the metadata policy raise.

        NoCommit, now and at the completion, where another commit holds the batch of `label`. `replaces` is the content
        of the requested file of a replace commit that states one.
        """
        write = cls(table, label)
        try:
            write._partitions.acquire()
            with write._exclusive() as (fresh, _):
                write._request(fresh, action, replaces)
            write._heartbeat.start()
            label.check(write.table)
        except BaseException as error:
            if write.state is CommitState.NEW:
                if hasattr(write, "instant"):  # interrupted right after it was requested
                    with suppress(Exception):
                        delete_pending(write.table, write.instant)
                write._release()
            else:
                write.abort(error)
            raise
        return write

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.state.is_final:
            if self.committed is not None and error is not None and not isinstance(error, Exception):
                self._report_complete("was interrupted")
            return
        self.abort(error)
        if isinstance(error, Exception) and not isinstance(error, SkepError):
            self._heartbeat.ensure_alive()  # tasks that were stopped for it raise errors of their own
            self._partitions.ensure_alive()

    @property
    def is_requested(self) -> bool:
        """Whether no task has been started yet."""
        return self.state is CommitState.REQUESTED

    def inflight(self, profile: CommitMetadata | None) -> None:
        """Records which file groups are going to be written, None where only new ones are; tasks may start after that.

        CommitConflictError when early conflict detection finds that the write is going to lose.
        """
        self._heartbeat.ensure_alive()
        self._start(profile)
        if not self._concurrency.is_non_blocking:
            refuse_early(self.table, self.instant, profile)

    def complete(self, metadata: CommitMetadata, found: FoundByTasks = NOTHING_FOUND) -> Instant:
        """Makes the write visible. CommitConflictError, LeaseLostError, StorageError: the caller then aborts.

        `found` spares reading the files again.
        """
        self._participants = (*self._standing, *self._label.participants)
        self._metadata_table.spare_reading(found)
        return self._finish(metadata)

    def retry(self) -> frozenset[FileGroupId] | None:
        """Continues after a conflict: at the same instant, on a new snapshot of the table.

        Returns the file groups that others changed meanwhile; None when it takes another instant, since one that is
        later than ours completed or was planned: what this write adds afterwards would sort before it.
        """
        self._heartbeat.ensure_alive()
        fresh, time = self.table.reload(), self.instant.requested_time
        check_version(self.table, fresh)
        since = completed_since(self.table, fresh)
        later = [i for i in (*since, *services_planned_after(fresh, time)) if i.requested_time.is_after(time)]
        if not since or later or not self._is_pending(fresh):
            return None
        changed = frozenset(group for each in since for group in touched_groups(fresh, each))
        self._retry(fresh)
        self._label.check(fresh)
        return changed

    # -- steps

    @transition(REQUEST)
    def _request(self, fresh: HudiTable, action: Action, replaces: RequestedReplaceMetadata | None) -> None:
        check_version(self.table, fresh)
        check_writable(fresh.config, fresh.storage.root)
        check_concurrency(fresh, action)
        if self._label.at is None:
            check_bootstrapped(fresh)
        # first the rollback, then the instant time: see format guide 2.4
        self.table = create_missing(roll_back_failed(drop_unkept(fresh)))
        self.table.context.lock.ensure_held()
        content = replaces or RequestedReplaceMetadata() if action is Action.REPLACE_COMMIT else None
        self.instant = request_write(self.table, action, content, self._heartbeat.announce, self._label.at)

    @transition(START)
    def _start(self, profile: CommitMetadata | None) -> None:
        open_markers(self.table.storage, self.instant.requested_time, ensure_alive=self._heartbeat.ensure_alive)
        self.instant = transition_to_inflight(self.table, self.instant, profile)

    @transition(RETRY)
    def _retry(self, fresh: HudiTable) -> None:
        self.table, self._compared = fresh, frozenset()

    def _prepare_ahead(self, metadata: CommitMetadata) -> None:
        """Compares with the commits so far while others may have the lock."""
        if not self._concurrency.is_shared:
            return
        fresh = after_others_have_read(self.table.reload(), self.instant)
        check_version(self.table, fresh)
        self._label.check(fresh)
        since = completed_since(self.table, fresh)
        self._check_conflicts(CommitCandidate(fresh, self.instant, metadata, since), locked=False)
        self._compared = frozenset(since)

    def _verify(self, fresh: HudiTable, metadata: CommitMetadata) -> CommitMetadata:
        check_version(self.table, fresh)
        check_writable(fresh.config, fresh.storage.root)
        self._partitions.ensure_held(metadata)
        if not self._is_pending(fresh):
            problem = f"another writer took {self.instant.requested_time} for a failed write and rolled it back"
            hint = "let all writers keep heartbeats: hoodie.cleaner.policy.failed.writes=LAZY for those of Hudi"
            raise fresh.error(CommitConflictError, problem, hint=hint, instant=self.instant.requested_time)
        self._label.check(fresh)
        since = tuple(each for each in completed_since(self.table, fresh) if each not in self._compared)
        self._check_conflicts(CommitCandidate(fresh, self.instant, metadata, since), locked=True)
        return with_merged_schema(self.table, fresh, self.instant, metadata, fresh.options)

    def _check_conflicts(self, candidate: CommitCandidate, *, locked: bool) -> None:
        with self.table.context.events.step("commit.conflicts", locked=locked, lost=False) as found:
            try:
                check_conflicts(candidate)
            except CommitConflictError:
                found["lost"] = True
                raise

    def _collides(self, fresh: HudiTable, done: Instant, metadata: CommitMetadata, since: Sequence[Instant]) -> bool:
        try:
            check_conflicts(CommitCandidate(fresh, done, metadata, tuple(since)))
        except CommitConflictError:
            return True
        return False

    # -- undoing

    def _undo(self, error: BaseException | None) -> None:
        """A write that failed for its input leaves no trace; any other leaves the rollback on the timeline."""
        fresh = self.table.reload()
        done = self._completed(fresh)
        if done is not None and self.state is CommitState.READY:
            self._confirm(done)
            return
        close_markers(fresh.storage, self.instant.requested_time)
        files = [] if self.is_requested else files_of_instant(fresh, self.instant.requested_time)
        upgraded = fresh.format != self.table.format
        own = own_files(self.table, self.instant.requested_time, files)
        leaves_nothing = isinstance(error, InputError) and len(own) == len(files)
        if not files or upgraded or not self._is_pending(fresh) or leaves_nothing:
            self._remove(fresh, own)
        elif fresh.format.chooses_times_under_lock or has_metadata_table(fresh.config):
            with self._exclusive(self._patience(error)) as (locked, _):
                if self._is_pending(locked):
                    self._roll_back(locked, files)
                else:
                    self._remove(locked, own)
        else:
            self._roll_back(fresh, files)

    @transition(REMOVE)
    def _remove(self, fresh: HudiTable, files: Sequence[str]) -> None:
        for participant in reversed(self._participants[1:]):
            participant.abort(fresh, self.instant)
        delete_files(fresh.context, files)
        delete_pending(self.table, self.instant)  # where it was written: an upgrade moves the timeline
        if fresh.format != self.table.format:
            for moved in fresh.timeline.pending().instants:  # an upgrade also gives replace commits another name
                if moved.requested_time == self.instant.requested_time:
                    delete_pending(fresh, moved)
        delete_markers(fresh.storage, self.instant.requested_time)
        delete_new_partitions(fresh.storage, files, self.instant.requested_time)

    @transition(ROLL_BACK)
    def _roll_back(self, fresh: HudiTable, files: Sequence[str]) -> None:
        for participant in reversed(self._participants[len(self._standing) :]):  # the others are the rollback's
            participant.abort(fresh, self.instant)
        try:
            roll_back(fresh, self.instant)
        except OSError as problem:  # on a full disk: a rollback takes room, deleting gives room
            time = self.instant.requested_time
            log.info("table %s: no rollback of %s on the timeline: %s", fresh.config.name, time, problem)
            if len(own_files(fresh, time, files)) < len(files):
                raise  # its blocks stay in logs of others: it stays pending until a rollback has room
            delete_files(fresh.context, files)
            rollbacks = list(rollbacks_of(self.table.reload(), time))
            for each in (self.instant, *rollbacks):
                abort_in_metadata_table(fresh, each.requested_time)
            delete_pending(self.table, self.instant)
            delete_markers(fresh.storage, time)
            for rollback in rollbacks:
                delete_pending(self.table, rollback)
        delete_new_partitions(fresh.storage, files, self.instant.requested_time)

    def _report_undone(self, what: str, error: BaseException | None) -> None:
        name, time = self.table.config.name, self.instant.requested_time
        expected = isinstance(error, SkepError) and not isinstance(error, OSError)
        level = logging.INFO if expected else logging.WARNING
        log.log(level, "table %s: write %s %s and is rolled back; the table reads as before it", name, time, what)
        self.table.context.events.emit("write.rolled_back", instant=time, error=repr(error))

    def _release(self) -> None:
        super()._release()
        self._partitions.release()

    def _is_pending(self, fresh: HudiTable) -> bool:
        """Whether the instant is there, and no rollback of it has been started."""
        time = self.instant.requested_time
        if any(rollbacks_of(fresh, time)):
            return False
        return any(i.requested_time == time and not i.is_completed for i in fresh.timeline.data())
