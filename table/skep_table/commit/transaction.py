"""One commit, from its first instant file to its last: the protocol of format guide 2.4.

    lock { check the table, drop its metadata table, roll back what failed, heartbeat, requested } inflight
        markers, data files (the tasks' part), heartbeats
    lock { reload, check for conflicts, delete what losing attempts left, stage, still held?, completed } markers away

The completed file is the commit point. Before it, every way out takes away what was written; after it, nothing that
fails undoes the commit. A process that dies leaves a pending instant, which the next writer rolls back when its
heartbeat is over.

A lock can be lost while its holder sleeps. So the completed file is staged before the last look at the lock, and moved
to its place after it: whoever gets the lock next takes the stage away. Where storage can't move a file in one step,
and beside Hudi's writers, which know of no stages, a writer that was held up just then looks once more after the
commit, and takes it back when it collides with what completed meanwhile.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final

from skep_table.commit.admission import check_writable, drop_metadata_table
from skep_table.commit.concurrency import Concurrency
from skep_table.commit.conflict import Ending, Group, completed_since, services_planned_after, touched_groups
from skep_table.commit.durability import sync_written
from skep_table.commit.early import refuse_early
from skep_table.commit.heartbeat import Heart, Pulse
from skep_table.commit.instants import after_others_looked, request_write
from skep_table.commit.leftovers import delete_files, delete_new_partitions, files_of_instant
from skep_table.commit.markers import close_markers, delete_markers, open_markers
from skep_table.commit.partition_locks import PartitionLocks
from skep_table.commit.recovery import roll_back_failed
from skep_table.commit.rollback import pending_rollback_plan, roll_back
from skep_table.commit.schemas import with_merged_schema
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError, InputError, LeaseLostError, SkepError, StorageError
from skep_table.lock import held
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.plans import RequestedReplaceMetadata
from skep_table.timeline.timeline import format_instant_time
from skep_table.timeline.write import (
    complete,
    complete_staged,
    delete_pending,
    remove_stages,
    stage,
    transition_to_inflight,
)

LOCK_ID: Final = "skep.lock_id"
"""In a commit's extra metadata: the id of the lock under which it was completed."""

# A lease lasts several seconds at least: a completion that took less than this since the last look is under the lock.
_SURE_SECONDS: Final = 1.0

log = logging.getLogger("skep.commit")


class Transaction:
    """A commit under way. Use as a context manager: leaving it without `complete` aborts.

    `table` is the look at the table on which the write is based: everything that completes later may conflict with it.
    """

    def __init__(
        self, table: HudiTable, instant: Instant, setting: CommitSetting, heart: Heart, partitions: PartitionLocks
    ) -> None:
        self.table = table
        self.instant = instant
        self._setting = setting
        self.committed: CommitMetadata | None = None  # the account as it was written
        self._heart = heart
        self._partitions = partitions
        self._done = False
        _begun(self)

    @classmethod
    def begin(cls, table: HudiTable, action: Action, setting: CommitSetting) -> Transaction:
        """Prepares the table and requests an instant. Raises what `check_writable` and the metadata policy raise."""
        Concurrency.of(setting.options)
        heart = Heart(table.storage, Pulse.of(setting.options), setting.clock, setting.on_lost)
        partitions = PartitionLocks(setting)
        partitions.acquire()
        instant: Instant | None = None
        try:
            with _exclusive(table, setting) as (table, _):
                check_writable(table.config, table.storage.root)
                table = drop_metadata_table(table, setting.options, setting.events)
                # first the rollback, then the instant time: see format guide 2.4
                table = roll_back_failed(table, setting)
                setting.lock.ensure_held()
                content = RequestedReplaceMetadata() if action is Action.REPLACE_COMMIT else None
                instant = request_write(table, action, content, setting, heart.announce)
        except BaseException:
            if instant is not None:  # it is this write's for certain
                with suppress(Exception):
                    delete_pending(table, instant)
            heart.stop()
            partitions.release()
            raise
        transaction = cls(table, instant, setting, heart, partitions)
        try:
            heart.start()
            open_markers(table.storage, instant.requested_time)
        except BaseException as error:
            transaction.abort(error)
            raise
        return transaction

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done:
            if self.committed is not None and error is not None and not isinstance(error, Exception):
                self._report_standing("was interrupted")
                self._heart.stop()
                self._partitions.release()
            return
        self.abort(error)
        if isinstance(error, Exception) and not isinstance(error, SkepError):
            self._heart.ensure_alive()  # tasks that were stopped for it say so in their own words
            self._partitions.ensure_alive()

    @property
    def is_requested(self) -> bool:
        return self.instant.state is State.REQUESTED

    def inflight(self, profile: CommitMetadata) -> None:
        """Says what is going to be written; tasks may start after that. CommitConflictError when it is of no use."""
        self._heart.ensure_alive()
        self.instant = transition_to_inflight(self.table, self.instant, profile)
        refuse_early(self.table, self.instant, profile, self._setting)

    def complete(self, metadata: CommitMetadata, check: Callable[[HudiTable], None] | None = None) -> Instant:
        """Makes the write visible. CommitConflictError, LeaseLostError, StorageError: the caller then aborts.

        `check` looks at the table as it is under the lock, and may refuse.
        """
        storage, setting, time = self.table.storage, self._setting, self.instant.requested_time
        close_markers(storage, time)
        sync_written(storage, metadata)
        optimistic = Concurrency.of(setting.options).is_optimistic
        checked = self._check_ahead(metadata, check) if optimistic else frozenset()
        with _exclusive(self.table, setting) as (fresh, lock_id):
            check_writable(fresh.config, storage.root)
            self._heart.ensure_alive()
            self._partitions.ensure_held(metadata)
            self._ensure_pending(fresh)
            if check is not None:
                check(fresh)
            since = completed_since(self.table, fresh)
            setting.check_conflicts(
                Ending(fresh, self.instant, metadata, tuple(each for each in since if each not in checked))
            )
            metadata = with_merged_schema(self.table, fresh, self.instant, metadata, setting.options)
            if setting.lock.leased:
                metadata = replace(metadata, extra_metadata={**metadata.extra_metadata, LOCK_ID: lock_id})
            written = {stat.path for stat in metadata.stats}
            losing = [path for path in files_of_instant(fresh, time, setting) if path not in written]
            delete_files(storage, losing, setting)
            self.instant = self._complete_file(fresh, metadata)
            self.committed = metadata
            self._ended()
        self._heart.stop()
        try:
            delete_markers(storage, time)
        except SkepError:
            log.exception("table %s: the markers of %s stay until the next write", self.table.config.name, time)
        finally:
            self._partitions.release()
        return self.instant

    def go_on(self) -> frozenset[Group] | None:
        """After a conflict: to write on at the same instant, from a fresh look at the table.

        Answers the file groups that others changed meanwhile; None when it takes another instant, since one that is
        later than ours completed or was planned: what we wrote after it would lie below it.
        """
        self._heart.ensure_alive()
        fresh, time = self.table.reload(), self.instant.requested_time
        since = completed_since(self.table, fresh)
        later = [i for i in (*since, *services_planned_after(fresh, time)) if i.requested_time > time]
        if not since or later or not self._is_pending(fresh):
            return None
        changed = frozenset(group for each in since for group in touched_groups(fresh, each))
        open_markers(self.table.storage, time)
        self.table = fresh
        return changed

    def abort(self, error: BaseException | None) -> None:
        """Takes away what was written. What goes wrong here is logged: the next writer rolls back what is left.

        A write that failed for its input leaves no trace; any other leaves the rollback on the timeline.
        """
        self._ended()
        name, time = self.table.config.name, self.instant.requested_time
        interrupted = error is not None and not isinstance(error, Exception)
        what = "was interrupted" if interrupted else "failed"
        try:
            if not self._take_back(error):
                self._report_standing(what)
                return
        except Exception as problem:
            log.error(
                "table %s: write %s %s and could not be rolled back (%s); readers ignore it, and the next write"
                " rolls it back",
                *(name, time, what, problem),
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        else:
            expected = isinstance(error, SkepError) and not isinstance(error, OSError)
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "table %s: write %s %s and is rolled back; the table reads as before it", name, time, what)
        finally:
            self._heart.stop()
            self._partitions.release()
        self._setting.events.emit("write.rolled_back", instant=time, error=repr(error))

    def _report_standing(self, what: str) -> None:
        name, time = self.table.config.name, self.instant.requested_time
        log.warning("table %s: what follows commit %s %s; the commit stands", name, time, what)

    def _take_back(self, error: BaseException | None) -> bool:
        """False when the completed file is there: storage could not tell before, but it is a commit."""
        time, setting = self.instant.requested_time, self._setting
        fresh = self.table.reload()
        if self._completed(fresh) is not None:
            return False
        close_markers(fresh.storage, time)
        files = files_of_instant(fresh, time, setting)
        upgraded = fresh.config.version != self.table.config.version
        if not files or upgraded or not self._is_pending(fresh) or isinstance(error, InputError):
            self._forget(fresh, files)
        else:
            try:
                roll_back(fresh, self.instant, setting)
            except OSError as problem:  # on a full disk: a rollback takes room, deleting gives room
                log.info("table %s: no rollback of %s on the timeline: %s", fresh.config.name, time, problem)
                self._forget(fresh, files)
                for rollback in _rollbacks_of(self.table.reload(), time):
                    delete_pending(self.table, rollback)
        delete_new_partitions(fresh.storage, files, time)
        return True

    def _forget(self, fresh: HudiTable, files: Sequence[str]) -> None:
        """Without a trace on the timeline."""
        delete_files(fresh.storage, files, self._setting)
        delete_pending(self.table, self.instant)  # where it was written: an upgrade moves the timeline
        delete_markers(fresh.storage, self.instant.requested_time)

    def _ended(self) -> None:
        self._done = True
        _of_main_thread.pop(id(self), None)

    def _check_ahead(self, metadata: CommitMetadata, check: Callable[[HudiTable], None] | None) -> frozenset[Instant]:
        """Compares with the commits so far while others may have the lock; answers which these were."""
        fresh = after_others_looked(self.table.reload(), self.instant, self._setting)
        if check is not None:
            check(fresh)
        since = completed_since(self.table, fresh)
        self._setting.check_conflicts(Ending(fresh, self.instant, metadata, since))
        return frozenset(since)

    def _complete_file(self, fresh: HudiTable, metadata: CommitMetadata) -> Instant:
        """The commit point, under the lock or not at all."""
        lock, clock = self._setting.lock, self._setting.clock
        if not lock.leased:
            return self._asked_again(lambda: complete(fresh, self.instant, metadata, clock))
        if fresh.storage.flags.atomic_rename:
            staged = stage(fresh, self.instant, metadata, clock)
            looked = clock.monotonic()
            lock.ensure_held()
            done = self._asked_again(lambda: complete_staged(fresh, staged))
        else:
            looked = clock.monotonic()
            lock.ensure_held()
            done = self._asked_again(lambda: complete(fresh, self.instant, metadata, clock))
        if clock.monotonic() - looked > _SURE_SECONDS:
            self._look_back(fresh, done, metadata)
        return done

    def _asked_again(self, create: Callable[[], Instant]) -> Instant:
        """A call that failed may have had its effect, and only its answer was lost."""
        try:
            return create()
        except (StorageError, FileNotFoundError) as error:
            done = self._completed(self.table.reload())
            if done is not None:
                return done
            if isinstance(error, StorageError):
                raise
            raise LeaseLostError(
                f"table {self.table.config.name}: another writer took the lock before {self.instant.requested_time} was"
                " completed",
                instant=self.instant.requested_time,
            ) from error

    def _look_back(self, before: HudiTable, done: Instant, metadata: CommitMetadata) -> None:
        """After a completion that took long. Where the lock was lost meanwhile, and somebody completed before this
        write did what collides with it, it is taken back; unless others have built on it already."""
        setting = self._setting
        now = format_instant_time(setting.clock.now(), before.config.timezone)
        try:
            setting.lock.ensure_held()
            return
        except LeaseLostError as lost:
            setting.lock.release()
            setting.lock.acquire(setting.lock_timeout_seconds)  # released with the section
            fresh = self.table.reload()
            since = [each for each in completed_since(before, fresh) if each != done]
            if any(stat.prev_commit == done.requested_time for i in since for stat in fresh.commit_metadata(i).stats):
                return
            before_it = tuple(each for each in since if each.requested_time <= now)  # the others have seen it
            try:
                setting.check_conflicts(Ending(fresh, done, metadata, before_it))
            except CommitConflictError as conflict:
                setting.events.emit("write.taken_back", instant=done.requested_time)
                roll_back(fresh, done, setting)
                raise lost from conflict

    def _completed(self, fresh: HudiTable) -> Instant | None:
        time = self.instant.requested_time
        return next((i for i in fresh.timeline.completed().data() if i.requested_time == time), None)

    def _is_pending(self, fresh: HudiTable) -> bool:
        """Whether the instant is there, and nobody has begun to roll it back."""
        time = self.instant.requested_time
        if any(_rollbacks_of(fresh, time)):
            return False
        return any(i.requested_time == time and not i.is_completed for i in fresh.timeline.data())

    def _ensure_pending(self, fresh: HudiTable) -> None:
        if not self._is_pending(fresh):
            raise CommitConflictError(
                f"table {fresh.config.name}: another writer took {self.instant.requested_time} for a failed write and"
                " rolled it back",
                hint="let all writers keep heartbeats: hoodie.cleaner.policy.failed.writes=LAZY for those of Hudi",
                table=fresh.config.name,
                instant=self.instant.requested_time,
            )


def _rollbacks_of(fresh: HudiTable, time: str) -> Iterator[Instant]:
    """The pending rollbacks of an instant."""
    for rollback in fresh.timeline.pending().of(Action.ROLLBACK):
        plan = pending_rollback_plan(fresh, rollback)
        if plan is not None and plan.instant_to_rollback and plan.instant_to_rollback.commit_time == time:
            yield rollback


# An interrupt may come between the begin of a transaction and the block that would abort it.
_of_main_thread: dict[int, tuple[int, Transaction]] = {}


def _begun(transaction: Transaction) -> None:
    if threading.current_thread() is threading.main_thread():
        _of_main_thread[id(transaction)] = os.getpid(), transaction


@atexit.register
def _abort_all() -> None:
    for process, transaction in list(_of_main_thread.values()):
        if process == os.getpid():
            transaction.abort(None)


@contextmanager
def _exclusive(table: HudiTable, setting: CommitSetting) -> Iterator[tuple[HudiTable, str]]:
    """Holds the lock: a fresh look at the table, and the lock's id. Nobody who had it before completes any more."""
    with held(setting.lock, setting.lock_timeout_seconds) as lock_id:
        if setting.lock.leased:
            remove_stages(table.storage)
        yield table.reload(), lock_id
