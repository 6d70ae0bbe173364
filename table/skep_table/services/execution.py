"""One executor's attempt at a planned compaction or clustering: of all that try, one completes it.

    lock { reload, take over from an executor that died, claim }    tasks: markers, files
    lock { still ours? delete what losing attempts left, completed }

An executor keeps a heartbeat, as writers do: while it beats, nobody takes over. The claim is written into the sign that
tasks look at before they open a file. An attempt that fails gives the plan back: its files go, the plan stays
requested, and whoever comes next carries it out.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Final

from skep_table.commit.durability import sync_written
from skep_table.commit.heartbeat import Heart, Heartbeats, Pulse, forget_heartbeat
from skep_table.commit.instants import after_others_looked
from skep_table.commit.leftovers import delete_files, files_of_instant
from skep_table.commit.markers import claimed_by, close_markers, delete_markers, open_markers
from skep_table.commit.rollback import roll_back
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError, SkepError, StorageError, storage_failure
from skep_table.lock import held
from skep_table.names import BaseFileName
from skep_table.services.prepare import prepared
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.write import complete, complete_staged, delete_pending, stage, transition_to_inflight

log = logging.getLogger("skep.services")

_GRACE_SECONDS: Final = 5.0  # after an interrupt: whoever sent it does not wait for long

Check = Callable[[HudiTable], None]
"""Raises CommitConflictError where the plan does not fit the table any more: it is then taken off the timeline."""


class Execution:
    """Use as a context manager: leaving it without `complete` gives the plan back."""

    def __init__(self, table: HudiTable, instant: Instant, setting: CommitSetting, claim: str, heart: Heart) -> None:
        self.table = table
        self.instant = instant
        self._setting = setting
        self._claim = claim
        self._heart = heart
        self._done = False

    @classmethod
    def begin(cls, table: HudiTable, planned: Instant, setting: CommitSetting, check: Check) -> Execution | None:
        """None when the plan is carried out or taken back already.

        CommitConflictError when it fits no more, or another executor is at it.
        """
        claim = uuid.uuid4().hex
        heart = Heart(table.storage, Pulse.of(setting.options), setting.clock, setting.on_lost)
        try:
            with held(setting.lock, setting.lock_timeout_seconds):
                table = prepared(table, setting)
                instant = pending_instant(table, planned)
                if instant is None:
                    return None
                _check_or_forget(table, instant, setting, check)
                _refuse_while_alive(table, instant, setting)
                setting.lock.ensure_held()
                forget_heartbeat(table.storage, instant.requested_time)
                heart.announce(instant.requested_time)
                if instant.state is State.INFLIGHT:
                    log.info("table %s: %s is taken over", table.config.name, instant.requested_time)
                    _delete_written(table, instant, setting)
                else:
                    instant = transition_to_inflight(table, instant)
                open_markers(table.storage, instant.requested_time, claim)
            heart.start()
        except BaseException:
            heart.stop()
            raise
        return cls(table, instant, setting, claim, heart)

    def __enter__(self) -> Execution:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done:
            return
        self.give_back(error)
        if isinstance(error, OSError) and not isinstance(error, SkepError):
            raise storage_failure(f"table {self.table.config.name}: {self.instant.action.value}", error) from error

    def complete(self, metadata: CommitMetadata, check: Check) -> Instant:
        """Makes the result visible. CommitConflictError when another executor took over, or the plan does not fit."""
        setting, time = self._setting, self.instant.requested_time
        sync_written(self.table.storage, metadata)
        after_others_looked(self.table.reload(), self.instant, setting)
        with held(setting.lock, setting.lock_timeout_seconds):
            fresh = prepared(self.table, setting)
            self._heart.ensure_alive()
            self._ensure_ours(fresh)
            _check_or_forget(fresh, self.instant, setting, check)
            close_markers(fresh.storage, time)
            written = {stat.path for stat in metadata.stats}
            losing = [path for path in _files(fresh, self.instant, setting) if path not in written]
            delete_files(fresh.storage, losing, setting)
            self.instant = self._complete_file(fresh, metadata)
            self._done = True
        self._heart.stop()
        try:
            delete_markers(fresh.storage, time)
        except SkepError:
            log.exception("table %s: the markers of %s stay until the next write", fresh.config.name, time)
        return self.instant

    def give_back(self, error: BaseException | None) -> None:
        """Takes away what this attempt wrote. What goes wrong here is logged: the next executor takes over."""
        self._done = True
        setting, time = self._setting, self.instant.requested_time
        name, action = self.table.config.name, self.instant.action.value
        interrupted = error is not None and not isinstance(error, Exception)
        what = "was interrupted" if interrupted else "failed"
        patience = min(setting.lock_timeout_seconds, _GRACE_SECONDS) if interrupted else setting.lock_timeout_seconds
        try:
            with held(setting.lock, patience):
                fresh = self.table.reload()
                if pending_instant(fresh, self.instant) is None or claimed_by(fresh.storage, time) != self._claim:
                    return
                _delete_written(fresh, self.instant, setting)
                delete_pending(fresh, self.instant, keep_requested=True)
        except Exception as problem:
            log.error(
                "table %s: %s %s %s and could not be taken back (%s); it stays as it is, the next executor goes on",
                *(name, action, time, what, problem),
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        else:
            level = logging.WARNING if interrupted or isinstance(error, OSError) else logging.INFO
            log.log(level, "table %s: %s %s %s; what it wrote is taken away, the plan stays", name, action, time, what)
        finally:
            self._heart.stop()
        setting.events.emit("service.given_back", instant=time, error=repr(error))

    def _ensure_ours(self, fresh: HudiTable) -> None:
        time = self.instant.requested_time
        if pending_instant(fresh, self.instant) is None or claimed_by(fresh.storage, time) != self._claim:
            raise CommitConflictError(
                f"table {fresh.config.name}: another executor took {self.instant.action.value} {time} over",
                table=fresh.config.name,
                instant=time,
            )

    def _complete_file(self, fresh: HudiTable, metadata: CommitMetadata) -> Instant:
        """The commit point, under the lock or not at all where storage can rename."""
        lock, clock = self._setting.lock, self._setting.clock
        try:
            if lock.leased and fresh.storage.flags.atomic_rename:
                staged = stage(fresh, self.instant, metadata, clock)
                lock.ensure_held()
                return complete_staged(fresh, staged)
            lock.ensure_held()
            return complete(fresh, self.instant, metadata, clock)
        except (StorageError, FileNotFoundError):
            # The call may have had its effect, and only its answer was lost.
            time = self.instant.requested_time
            done = next((i for i in self.table.reload().timeline.data().completed() if i.requested_time == time), None)
            if done is None:
                raise
            return done


def pending_instant(table: HudiTable, planned: Instant) -> Instant | None:
    """The planned instant as it is now; None when it is completed or gone."""
    time, action = planned.requested_time, planned.action
    pending = table.timeline.pending().of(action)
    return next((instant for instant in pending if instant.requested_time == time), None)


def _refuse_while_alive(table: HudiTable, instant: Instant, setting: CommitSetting) -> None:
    time = instant.requested_time
    if Heartbeats(table.storage, Pulse.of(setting.options), setting.clock).is_alive(time):
        raise CommitConflictError(
            f"table {table.config.name}: another executor is carrying out {instant.action.value} {time}",
            table=table.config.name,
            instant=time,
        )


def _check_or_forget(table: HudiTable, instant: Instant, setting: CommitSetting, check: Check) -> None:
    try:
        check(table)
    except CommitConflictError:
        roll_back(table, instant, setting)
        raise


def _files(table: HudiTable, instant: Instant, setting: CommitSetting) -> list[str]:
    """Without the logs that writers may have begun over what a compaction is to write."""
    found = files_of_instant(table, instant.requested_time, setting)
    if instant.action is Action.LOG_COMPACTION:
        return found
    return [path for path in found if BaseFileName.parse(path.rpartition("/")[2]) is not None]


def _delete_written(table: HudiTable, instant: Instant, setting: CommitSetting) -> None:
    close_markers(table.storage, instant.requested_time)
    delete_files(table.storage, _files(table, instant, setting), setting)
    delete_markers(table.storage, instant.requested_time)
