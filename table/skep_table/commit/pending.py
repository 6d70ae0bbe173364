"""One instant under way in this process: what writes and table services share, from heartbeat to completed file.

`states.py` has the protocol as a table; the steps here are bound to its transitions.

    lock { request or claim }   start, markers, data files   prepare   lock { check, publish, complete }   close

The completed file is the commit point. A process that dies before it leaves a pending instant, which the next writer
rolls back, or the next executor of the plan takes over, once its heartbeat has expired.

A lock can be lost while its holder is suspended. So the completed file is staged before the lock is verified for the
last time, and renamed after it: the next holder of the lock deletes the staged file. Where storage can't rename in one
step, and beside Hudi's writers, which do not delete staged files, a process whose completion took long verifies the
lock once more, and reverts its commit if it conflicts with what completed in the meantime.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from skep_format.errors import AlreadyExistsError, LeaseLostError, SkepError, StorageError
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import RollbackMetadata
from skep_format.timeline.timeline import format_instant_time, milliseconds_of
from skep_format.timeline.write import complete, complete_staged, stage
from skep_table.commit.concurrency.changes import completed_since
from skep_table.commit.heartbeat import Heartbeat
from skep_table.commit.instants import timeline_clock
from skep_table.commit.machine import CommitMachine, transition
from skep_table.commit.parts.markers import end_here
from skep_table.commit.parts.participant import Participant
from skep_table.commit.parts.participants import DataFiles, MetadataTableParticipant, table_participants
from skep_table.commit.states import (
    CHECK,
    CLOSE,
    COMPLETE,
    CONFIRM,
    PREPARE,
    PUBLISH,
    REVERT,
    CommitState,
)
from skep_table.commit.undo.rollback import roll_back, rollbacks_of
from skep_table.metadata_write.own import has_metadata_table, open_own, size_metrics
from skep_table.metrics.options import LOG_BLOCKS, METADATA_METRICS, METRICS_ON
from skep_table.metrics.values import commit_metrics, service_action, timeline_metrics
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from typing_extensions import Self

LOCK_ID: Final = "skep.lock_id"
"""In a commit's extra metadata: the id of the lock under which it was completed."""

# A lease lasts several seconds at least: a completion that took less than this since the last check is under the lock.
_SURE_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 5.0  # after an interrupt: its sender kills the process soon

log = logging.getLogger("skep.commit")


class PendingCommit(CommitMachine, ABC):
    """Use as a context manager: leaving it without completing aborts.

    `table` is the snapshot that the commit is based on: everything that completes later may conflict with it.
    """

    def __init__(self, table: HudiTable) -> None:
        super().__init__(table)
        context = table.context
        self._began = context.clock.monotonic()
        self.committed: CommitMetadata | None = None
        """What the completed file holds."""
        self.after: HudiTable | None = None
        """The table right after the completion, without a new listing; None before it."""
        self._files = DataFiles()
        self._metadata_table = MetadataTableParticipant()
        self._standing: tuple[Participant, ...] = (self._files, *table_participants(self._metadata_table))
        self._participants = self._standing
        self._content: CommitMetadata | None = None  # what the completed file is to hold, once it was checked
        self._heartbeat_files: list[str] = []
        self._heartbeat = Heartbeat(context)
        if threading.current_thread() is threading.main_thread():
            _of_main_thread[id(self)] = os.getpid(), self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self.state.is_final:
            self.abort(error)

    # -- what writes and services do differently

    @abstractmethod
    def _verify(self, fresh: HudiTable, metadata: CommitMetadata) -> CommitMetadata:
        """Under the lock: raises where the instant may not complete; returns what its completed file is to hold."""

    @abstractmethod
    def _collides(self, fresh: HudiTable, done: Instant, metadata: CommitMetadata, since: Sequence[Instant]) -> bool:
        """Whether commits that completed before this one, while the lock was lost, make it invalid."""

    @abstractmethod
    def _undo(self, error: BaseException | None) -> None:
        """Walks the transition that ends a commit which does not complete."""

    @abstractmethod
    def _prepare_ahead(self, metadata: CommitMetadata) -> None:
        """The last step before the lock: waits until other writers have their snapshots, then checks conflicts."""

    def _release(self) -> None:
        """Gives up what is held besides the table's lock. Repeatable."""
        if hasattr(self, "instant"):
            end_here(self.table.storage, self.instant.requested_time)
        self._heartbeat.stop()
        _of_main_thread.pop(id(self), None)

    # -- the way to a commit

    def _finish(self, metadata: CommitMetadata) -> Instant:
        """From written files to the closed commit. Raises, and the caller then aborts."""
        self._prepare(metadata)
        with self._exclusive() as (fresh, lock_id):
            self._content = metadata = self._check(fresh, metadata, lock_id)
            self._publish(fresh, metadata)
            slow = self._complete_file(fresh, metadata)
            if slow:
                self._look_back(fresh, metadata)
        # a metadata table that was dropped on the way is still in the settings of `fresh`
        self.after = fresh.reload() if has_metadata_table(fresh.config) else fresh.completing(self.instant, metadata)
        self._close()
        return self.instant

    @transition(PREPARE)
    def _prepare(self, metadata: CommitMetadata) -> None:
        with self.table.context.events.step("commit.finalize", files=len(metadata.stats)):
            for participant in self._participants:
                participant.prepare(self.table, self.instant, metadata)
        self._prepare_ahead(metadata)

    @transition(CHECK)
    def _check(self, fresh: HudiTable, metadata: CommitMetadata, lock_id: str) -> CommitMetadata:
        self._heartbeat.ensure_alive()
        metadata = self._verify(fresh, metadata)
        if not fresh.context.lock.leased:
            return metadata
        return replace(metadata, extra_metadata={**metadata.extra_metadata, LOCK_ID: lock_id})

    @transition(PUBLISH)
    def _publish(self, fresh: HudiTable, metadata: CommitMetadata) -> None:
        for participant in self._participants:
            participant.commit(fresh, self.instant, metadata)

    @transition(COMPLETE)
    def _complete_file(self, fresh: HudiTable, metadata: CommitMetadata) -> bool:
        """The commit point, under the lock or not at all.

        Returns whether it took so long that the lock may have been lost.
        """
        lock, clock = fresh.context.lock, fresh.context.clock
        if lock.leased and fresh.storage.flags.atomic_rename:
            staged = stage(fresh, self.instant, metadata, timeline_clock(fresh))
            checked = clock.monotonic()
            lock.ensure_held()
            done = self._confirmed(lambda: complete_staged(fresh, staged))
        else:
            checked = clock.monotonic()
            lock.ensure_held()
            alone = not lock.leased
            done = self._confirmed(lambda: complete(fresh, self.instant, metadata, timeline_clock(fresh), alone=alone))
        self.instant, self.committed = done, metadata
        return lock.leased and clock.monotonic() - checked > _SURE_SECONDS

    @transition(CONFIRM)
    def _confirm(self, done: Instant) -> None:
        self.instant, self.committed = done, self._content

    @transition(CLOSE)
    def _close(self) -> None:
        self._heartbeat_files += self._heartbeat.end()  # kept for another call, should this one be interrupted
        try:
            self._files.delete_markers(self.table, self.instant, *self._heartbeat_files)
        except SkepError:
            name, time = self.table.config.name, self.instant.requested_time
            log.exception("table %s: markers and heartbeat of %s stay until the next write", name, time)
        finally:
            self._release()
        self._report_committed()

    @transition(REVERT)
    def _revert(self, fresh: HudiTable, done: Instant) -> None:
        fresh.context.events.emit("write.taken_back", instant=done.requested_time)
        self.committed = None
        self._revert_files(fresh, done)
        self._release()

    def _revert_files(self, fresh: HudiTable, done: Instant) -> None:
        roll_back(fresh, done)

    # -- and away from it

    def abort(self, error: BaseException | None) -> None:
        """Undoes what was written. A failure in that is logged: the next writer undoes the rest."""
        if self.state.is_final:
            return
        if self.state is CommitState.NEW:  # nothing is on storage
            self._release()
            return
        interrupted = error is not None and not isinstance(error, Exception)
        what = "was interrupted" if interrupted else "failed"
        try:
            if not self.state.is_committed:
                self._undo(error)
            if self.state.is_committed:
                self._close()
        except Exception as problem:
            log.error(
                "table %s: %s %s %s and could not be undone (%s); readers ignore it, and the next writer undoes it",
                *(self.table.config.name, self._noun, self.instant.requested_time, what, problem),
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        finally:
            self._release()
        end = self.state
        if end.is_committed:
            self._report_complete(what)
        elif end.is_final:
            self._report_undone(what, error)

    def _report_committed(self) -> None:
        """Emits what was committed, with its metrics where these are on."""
        table, instant, metadata = self.table, self.instant, self.committed
        assert metadata is not None
        seconds = table.context.clock.monotonic() - self._began
        operation = metadata.operation_type and metadata.operation_type.value
        facts: dict[str, object] = {"action": service_action(instant, metadata), "operation": operation}
        if table.options.value(METRICS_ON):
            try:
                facts["metrics"] = self._metrics(metadata, seconds)
            except Exception:
                log.exception("table %s: %s is complete, and has no metrics", table.config.name, instant.requested_time)
        name, time = table.config.name, instant.requested_time
        table.context.events.emit("commit.completed", table=name, instant=time, took_seconds=seconds, **facts)

    def _metrics(self, metadata: CommitMetadata, seconds: float) -> dict[str, int]:
        table, after = self.table, self.after or self.table
        began_ms = milliseconds_of(self.instant.requested_time, table.config.timezone)
        blocks = table.options.value(LOG_BLOCKS)
        of_commit = commit_metrics(self.instant, metadata, began_ms, seconds, log_blocks=blocks)
        found = {**of_commit, **timeline_metrics(after.timeline)}
        if table.options.value(METADATA_METRICS) and after.config.metadata_partitions:
            found |= size_metrics(after, open_own(after))
        return found

    def _report_complete(self, what: str) -> None:
        name, time = self.table.config.name, self.instant.requested_time
        log.warning("table %s: commit %s is complete; what follows it %s", name, time, what)

    _noun: ClassVar[str] = "write"

    @abstractmethod
    def _report_undone(self, what: str, error: BaseException | None) -> None:
        """Logs and emits how the instant ended."""

    # -- shared mechanics

    def _patience(self, error: BaseException | None) -> float:
        """Seconds to wait for the lock when the commit is undone."""
        wait = self.table.context.lock_timeout_seconds
        return wait if isinstance(error, Exception) else min(wait, _GRACE_SECONDS)

    def _confirmed(self, create: Callable[[], Instant]) -> Instant:
        """A call that failed may have taken effect, and only its answer was lost."""
        try:
            return create()
        except (StorageError, FileNotFoundError) as error:
            done = self._completed(self.table.reload())
            if done is not None:
                return done
            if isinstance(error, StorageError) and not isinstance(error, AlreadyExistsError):
                raise
            problem = f"another writer took the lock before {self.instant.requested_time} was completed"
            raise self.table.error(LeaseLostError, problem, instant=self.instant.requested_time) from error

    def _completed(self, fresh: HudiTable) -> Instant | None:
        """The completed instant, where it is this process that completed it."""
        if self._content is None:
            return None
        time, action, layout = self.instant.requested_time, self.instant.action.completed_as, fresh.layout
        done = next((i for i in fresh.timeline.completed().of(action) if i.requested_time == time), None)
        if done is None:
            return None
        path = layout.path(done)
        # Compared as metadata: the same metadata may have other bytes in each file (Avro's sync marker).
        ours = layout.decode_commit(layout.encode_commit(self._content), path)
        return done if layout.decode_commit(fresh.storage.read(path), path) == ours else None

    def _look_back(self, before: HudiTable, metadata: CommitMetadata) -> None:
        """After a completion that took long. Where the lock was lost meanwhile, and something collides that others
        completed before, the commit is reverted; unless others have built on it already."""
        context, done = before.context, self.instant
        now = format_instant_time(context.clock.now(), before.config.timezone)
        try:
            context.lock.ensure_held()
            return
        except LeaseLostError:
            context.lock.release()
            context.lock.acquire(context.lock_timeout_seconds)  # released with the section
            fresh = self.table.reload()
            if fresh.format != before.format:  # the completed file is not on the timeline of the new version
                before.storage.delete(before.layout.path(done))
                self._revert(fresh, done)
                raise
            since = [each for each in completed_since(before, fresh) if each != done]
            if _is_built_on(done, metadata, fresh, since):
                return
            before_it = [
                each for each in since if each.requested_time.is_at_or_before(now)
            ]  # later ones have seen this commit
            if self._is_rolled_back(before, fresh) or self._collides(fresh, done, metadata, before_it):
                self._revert(fresh, done)
                raise

    def _is_rolled_back(self, before: HudiTable, fresh: HudiTable) -> bool:
        """Whether another process has rolled the instant back since, or is doing so: its files are deleted."""
        time = self.instant.requested_time
        if any(rollbacks_of(fresh, time)):
            return True
        known = set(before.timeline.instants)
        plans = (fresh.plan(each) for each in fresh.timeline.completed().of(Action.ROLLBACK) if each not in known)
        return any(isinstance(plan, RollbackMetadata) and time in plan.commits_rollback for plan in plans)


def _is_built_on(done: Instant, metadata: CommitMetadata, fresh: HudiTable, since: Sequence[Instant]) -> bool:
    """Whether a commit among `since` goes on from files of `done`: by the slice that it names, or by a log file that
    lies over a slice of `done` without naming it. That commit completed later; one that completed before had not seen
    `done`."""
    if any(stat.prev_commit == done.requested_time for i in since for stat in fresh.commit_metadata(i).stats):
        return True
    if not fresh.format.logs.of_delta_commit or done.completion_time is None:
        return False
    ended = done.completion_time
    later = [i for i in since if i.completion_time is not None and i.completion_time.is_after(ended)]
    logs = {stat.path for i in later for stat in fresh.commit_metadata(i).stats if stat.is_log}
    view = fresh.view(metadata=False)
    partitions = metadata.partition_to_write_stats if logs else ()
    slices = (s for path in partitions for group in view.file_groups(path, replaced=True) for s in group.slices)
    return any(s.base_instant == done.requested_time and any(log.path in logs for log in s.log_files) for s in slices)


# An interrupt may come between the begin of a commit and the block that would abort it.
_of_main_thread: dict[int, tuple[int, PendingCommit]] = {}


@atexit.register
def _abort_all() -> None:
    for process, commit in list(_of_main_thread.values()):
        if process == os.getpid() and hasattr(commit, "instant"):
            with suppress(Exception):
                commit.abort(None)
