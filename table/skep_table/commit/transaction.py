"""One commit, from its first instant file to its last: the protocol of format guide 2.4.

    lock { check the table, drop its metadata table, roll back what failed, requested } inflight
        markers, data files (the tasks' part)
    lock { reload, check for conflicts, delete what losing attempts left, completed } markers away

The completed file is the commit point. Before it, every way out takes away what was written; after it, nothing that
fails undoes the commit. A process that dies leaves a pending instant, which the next writer rolls back.
"""

from __future__ import annotations

import logging
from types import TracebackType

from skep_table.commit.admission import check_writable, drop_metadata_table
from skep_table.commit.leftovers import delete_files, delete_new_partitions, files_of_instant
from skep_table.commit.markers import close_markers, delete_markers, open_markers
from skep_table.commit.recovery import roll_back_failed
from skep_table.commit.rollback import roll_back
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError, InputError, SkepError, StorageError
from skep_table.lock import held
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.plans import RequestedReplaceMetadata
from skep_table.timeline.write import complete, delete_pending, request_instant, transition_to_inflight

log = logging.getLogger("skep.commit")


class Transaction:
    """A commit under way. Use as a context manager: leaving it without `complete` aborts.

    `table` is the look at the table on which the write is based: everything that completes later may conflict with it.
    """

    def __init__(self, table: HudiTable, instant: Instant, setting: CommitSetting) -> None:
        self.table = table
        self.instant = instant
        self._setting = setting
        self._done = False

    @classmethod
    def begin(cls, table: HudiTable, action: Action, setting: CommitSetting) -> Transaction:
        """Prepares the table and requests an instant. Raises what `check_writable` and the metadata policy raise."""
        with held(setting.lock, setting.lock_timeout_seconds):
            table = table.reload()
            check_writable(table.config, table.storage.root)
            table = drop_metadata_table(table, setting.options, setting.events)
            # first the rollback, then the instant time: see format guide 2.4
            table = roll_back_failed(table, setting)
            setting.lock.ensure_held()
            content = RequestedReplaceMetadata() if action is Action.REPLACE_COMMIT else None
            instant, _ = request_instant(table, action, content, clock=setting.clock)
        transaction = cls(table, instant, setting)
        try:
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
        if not self._done:
            self.abort(error)

    @property
    def is_requested(self) -> bool:
        return self.instant.state is State.REQUESTED

    def inflight(self, profile: CommitMetadata) -> None:
        """Says what is going to be written; tasks may start after that."""
        self.instant = transition_to_inflight(self.table, self.instant, profile)

    def complete(self, metadata: CommitMetadata) -> Instant:
        """Makes the write visible. CommitConflictError, LeaseLostError, StorageError: the caller then aborts."""
        storage, setting, time = self.table.storage, self._setting, self.instant.requested_time
        close_markers(storage, time)
        with held(setting.lock, setting.lock_timeout_seconds):
            fresh = self.table.reload()
            check_writable(fresh.config, storage.root)
            self._ensure_pending(fresh)
            setting.conflict_check(fresh, self._completed_since(fresh), metadata)
            written = {stat.path for stat in metadata.stats}
            losing = [path for path in files_of_instant(fresh, time, setting) if path not in written]
            delete_files(storage, losing, setting)
            setting.lock.ensure_held()
            self.instant = self._complete_file(fresh, metadata)
            self._done = True
        try:
            delete_markers(storage, time)
        except SkepError:
            log.exception("table %s: the markers of %s stay until the next write", self.table.config.name, time)
        return self.instant

    def abort(self, error: BaseException | None) -> None:
        """Takes away what was written. What goes wrong here is logged: the next writer rolls back what is left.

        A write that failed for its input leaves no trace; any other leaves the rollback on the timeline.
        """
        self._done = True
        time = self.instant.requested_time
        try:
            fresh = self.table.reload()
            if self._completed(fresh) is not None:
                return  # storage could not tell before, but the completed file is there: it is a commit
            close_markers(fresh.storage, time)
            files = files_of_instant(fresh, time, self._setting)
            upgraded = fresh.config.version != self.table.config.version
            if files and not upgraded and not isinstance(error, InputError):
                roll_back(fresh, self.instant, self._setting)
            else:
                delete_files(fresh.storage, files, self._setting)
                delete_pending(self.table, self.instant)  # where it was written: an upgrade moves the timeline
                delete_markers(fresh.storage, time)
            delete_new_partitions(fresh.storage, files, time)
        except Exception:
            log.exception("table %s: %s could not be rolled back, the next write will", self.table.config.name, time)
        self._setting.events.emit("write.rolled_back", instant=time, error=repr(error))

    def _complete_file(self, fresh: HudiTable, metadata: CommitMetadata) -> Instant:
        try:
            return complete(fresh, self.instant, metadata, self._setting.clock)
        except StorageError:
            # The call may have had its effect, and only its answer was lost.
            done = self._completed(self.table.reload())
            if done is None:
                raise
            return done

    def _completed(self, fresh: HudiTable) -> Instant | None:
        time = self.instant.requested_time
        return next((i for i in fresh.timeline.completed().data() if i.requested_time == time), None)

    def _ensure_pending(self, fresh: HudiTable) -> None:
        time = self.instant.requested_time
        if not any(i.requested_time == time and i.state is State.INFLIGHT for i in fresh.timeline.instants):
            raise CommitConflictError(
                f"table {fresh.config.name}: another writer took {time} for a failed write and rolled it back",
                hint="let one writer at a time write to the table",
                table=fresh.config.name,
                instant=time,
            )

    def _completed_since(self, fresh: HudiTable) -> tuple[Instant, ...]:
        known = set(self.table.timeline.completed().instants)
        return tuple(instant for instant in fresh.timeline.completed().instants if instant not in known)
