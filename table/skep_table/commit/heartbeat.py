"""Heartbeats of writers: a file that a writer renews while it runs, so that nobody rolls back its pending instant.

Hudi's own `.hoodie/.heartbeat/<instant>`: what counts is its modification time. skep's file also records the process
that writes it, so that other writers need not wait for one that has certainly ended.
"""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from skep_format.errors import LeaseLostError, StorageError
from skep_format.instant_time import InstantTime
from skep_format.names import META_FOLDER
from skep_format.options import Options
from skep_format.storage import FileStatus, Storage
from skep_table.commit.options import HEARTBEAT_MILLISECONDS, HEARTBEAT_MISSES
from skep_table.context import TableContext
from skep_table.runtime.process import ProcessName, this_process
from skep_table.runtime.renewal import Renewal

FOLDER: Final = f"{META_FOLDER}/.heartbeat"

log = logging.getLogger("skep.commit")

_active_here: set[str] = set()  # ids, as in the files, of the heartbeats that this process renews


def heartbeat_path(instant_time: InstantTime) -> str:
    """The heartbeat file of an instant, `.hoodie/.heartbeat/<instant>`, relative to the table."""
    return f"{FOLDER}/{instant_time}"


@dataclass(frozen=True, slots=True)
class HeartbeatLimits:
    """How often a heartbeat is renewed, and after how long without renewal its writer counts as dead."""

    interval_seconds: float
    timeout_seconds: float

    @classmethod
    def of(cls, options: Options) -> HeartbeatLimits:
        """The interval of the options in seconds; the timeout is that many intervals as may be missed."""
        interval = options.value(HEARTBEAT_MILLISECONDS) / 1000
        return cls(interval, interval * options.value(HEARTBEAT_MISSES))


class Heartbeat:
    """The heartbeat file of one writer: created before its instant can be seen, renewed until `stop`.

    `on_lost` of the context is called, from the renewing thread, when other writers may have taken this one for dead.
    """

    def __init__(self, context: TableContext) -> None:
        self._storage, self._clock, self._on_lost = context.storage, context.clock, context.on_lost
        self._limits = HeartbeatLimits.of(context.options)
        self._id = uuid.uuid4().hex
        self._content = json.dumps({**this_process().as_dict(), "id": self._id}).encode()
        self._time: InstantTime | None = None
        self._note()
        self._lost: LeaseLostError | None = None
        self._renewal: Renewal | None = None

    def announce(self, instant_time: InstantTime) -> None:
        """Creates the file, for an instant that is about to be requested. AlreadyExistsError: the time is taken."""
        self._delete()
        try:
            self._storage.create_exclusive(heartbeat_path(instant_time), self._content)
        except BaseException as error:
            if not isinstance(error, Exception):  # interrupted, perhaps after it was created
                self._delete_own(instant_time)
            raise
        self._time = instant_time
        self._note()
        _active_here.add(self._id)

    def start(self) -> None:
        """Renews the file in a thread from now on."""
        self._renewal = Renewal(self.renew, self._limits.interval_seconds, self._lose, name=f"heartbeat-{self._time}")

    def end(self) -> list[str]:
        """Ends the renewal, once the write is committed or undone. Returns the files that the caller has to delete."""
        _active_here.discard(self._id)
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()
        time, self._time = self._time, None
        return [] if time is None else [heartbeat_path(time)]

    def stop(self) -> None:
        """Ends the renewal and deletes the file. A failure is logged: the next write deletes it."""
        try:
            self._storage.delete_many(self.end(), durable=False)
        except StorageError:
            log.warning("a heartbeat stays until the next write", exc_info=True)

    def ensure_alive(self) -> None:
        """LeaseLostError when other writers may have taken this one for dead."""
        if self._lost is None and self._silent_seconds() > self._limits.timeout_seconds:
            self._lost = self._silence()
        if self._lost is not None:
            raise self._lost

    def renew(self) -> None:
        """LeaseLostError when the last renewal is too long ago, or the file is deleted: somebody rolled the write back.

        StorageError: one missed heartbeat.
        """
        assert self._time is not None
        path = heartbeat_path(self._time)
        if self._silent_seconds() > self._limits.timeout_seconds:
            raise self._silence()
        if not self._storage.exists(path):
            raise self._error("was taken for dead by another writer")
        self._storage.replace_atomic(path, self._content)
        self._note()

    def _lose(self, error: LeaseLostError) -> None:
        self._lost = error
        log.error("%s", error.message)
        self._on_lost(error)

    def _note(self) -> None:
        self._last, self._last_ticks = self._clock.now(), self._clock.monotonic()

    def _silent_seconds(self) -> float:
        return self._clock.monotonic() - self._last_ticks

    def _silence(self) -> LeaseLostError:
        return self._error(f"renewed no heartbeat for {self._silent_seconds():.0f} s")

    def _error(self, what: str) -> LeaseLostError:
        return LeaseLostError(
            f"the writer of {self._time} {what}, last heartbeat at {self._last:%Y-%m-%d %H:%M:%S} UTC",
            instant=self._time,
            since=self._last,
        )

    def _delete_own(self, instant_time: InstantTime) -> None:
        with suppress(StorageError, FileNotFoundError):
            if self._storage.read(heartbeat_path(instant_time)) == self._content:
                self._storage.delete(heartbeat_path(instant_time))

    def _delete(self) -> None:
        if self._time is not None:
            self._storage.delete(heartbeat_path(self._time), durable=False)
            self._time = None


class ActiveWriters:
    """A snapshot of the heartbeats of all writers of a table: one listing."""

    def __init__(self, context: TableContext) -> None:
        self._storage = context.storage
        self._timeout_seconds = HeartbeatLimits.of(context.options).timeout_seconds
        self._now_ms = context.clock.now().timestamp() * 1000
        self._files = {InstantTime(file.name): file for file in context.storage.list_prefix(FOLDER)}

    def is_active(self, instant_time: InstantTime) -> bool:
        """Whether the writer of a pending instant may still be running."""
        file = self._files.get(instant_time)
        if file is None:
            return False
        return self._now_ms - file.modified_ms <= self._timeout_seconds * 1000 and not self._has_ended(file)

    def has_heartbeat(self, instant_time: InstantTime) -> bool:
        """Whether there is a heartbeat of the instant, be it expired."""
        return instant_time in self._files

    def expired(self) -> list[InstantTime]:
        """Instant times of heartbeats whose writers are dead."""
        return [time for time in self._files if not self.is_active(time)]

    def _has_ended(self, file: FileStatus) -> bool:
        """Only where it is certain, from what skep's writers record in the file."""
        facts = writer_details(self._storage, InstantTime(file.name))
        process = ProcessName.parse(facts)
        if process is None:
            return False
        mine = this_process()
        is_this = bool(mine.machine) and process == mine
        return process.has_ended or (is_this and facts.get("id") not in _active_here)


def writer_details(storage: Storage, instant_time: InstantTime) -> dict[str, Any]:
    """Process and host that skep's writers record in their heartbeat file; empty for Hudi's, and without a file."""
    try:
        facts = json.loads(storage.read(heartbeat_path(instant_time)) or b"{}")
    except (FileNotFoundError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def delete_heartbeat(storage: Storage, instant_time: InstantTime) -> None:
    """Deletes the heartbeat file of an instant, if there is one."""
    storage.delete(heartbeat_path(instant_time))
