"""Heartbeats of writers: a file that a writer renews while it lives, so that nobody takes its pending instant for dead.

Hudi's own `.hoodie/.heartbeat/<instant>`: what counts is when the file was changed. skep's says who writes it, too, so
that a process which is certainly gone need not be waited for.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from skep_table.clock import Clock
from skep_table.commit.options import HEARTBEAT_MILLISECONDS, HEARTBEAT_MISSES
from skep_table.errors import LeaseLostError, StorageError
from skep_table.names import META_FOLDER
from skep_table.options import Options
from skep_table.process import ProcessName, this_process
from skep_table.storage import FileStatus, Storage

FOLDER: Final = f"{META_FOLDER}/.heartbeat"

log = logging.getLogger("skep.commit")

_beating: set[str] = set()  # the hearts of this process, by the id that their files bear


def heartbeat_path(instant_time: str) -> str:
    return f"{FOLDER}/{instant_time}"


@dataclass(frozen=True, slots=True)
class Pulse:
    """How often hearts beat, and how long one may be silent."""

    interval_seconds: float
    tolerable_seconds: float

    @classmethod
    def of(cls, options: Options) -> Pulse:
        interval = options.value(HEARTBEAT_MILLISECONDS) / 1000
        return cls(interval, interval * options.value(HEARTBEAT_MISSES))


class Heart:
    """Beats for one write, from before its instant can be seen until `stop`.

    `on_lost` is called, from the heart's thread, when others may have taken the writer for dead.
    """

    def __init__(
        self, storage: Storage, pulse: Pulse, clock: Clock, on_lost: Callable[[LeaseLostError], None] | None = None
    ) -> None:
        self._storage = storage
        self._pulse = pulse
        self._clock = clock
        self._on_lost = on_lost
        self._id = uuid.uuid4().hex
        self._content = json.dumps({**this_process().as_dict(), "id": self._id}).encode()
        self._time: str | None = None
        self._last: datetime = clock.now()
        self._last_ticks = clock.monotonic()
        self._lost: LeaseLostError | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def announce(self, instant_time: str) -> None:
        """The first beat, for an instant that is about to be requested. AlreadyExistsError: the time is another's."""
        self._forget()
        try:
            self._storage.create_exclusive(heartbeat_path(instant_time), self._content)
        except BaseException as error:
            if not isinstance(error, Exception):  # interrupted, perhaps after it was created
                self._forget_own(instant_time)
            raise
        self._time = instant_time
        self._note()
        _beating.add(self._id)

    def start(self) -> None:
        """Beats by itself from now on."""
        self._thread = threading.Thread(target=self._run, name=f"heart-{self._time}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The write is decided."""
        self._stopped.set()
        _beating.discard(self._id)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        try:
            self._forget()
        except StorageError:
            log.warning("the heartbeat of %s stays until the next write", self._time, exc_info=True)

    def ensure_alive(self) -> None:
        """LeaseLostError when others may have taken the writer for dead."""
        if self._lost is None and self._silent_for() > self._pulse.tolerable_seconds:
            self._lost = self._error(f"showed no life for {self._silent_for():.0f} s")
        if self._lost is not None:
            raise self._lost

    def beat(self) -> None:
        """One more sign of life. A file that is gone means that somebody has rolled the write back."""
        assert self._time is not None
        path = heartbeat_path(self._time)
        if self._silent_for() > self._pulse.tolerable_seconds:
            self._lose(self._error(f"showed no life for {self._silent_for():.0f} s"))
        elif not self._storage.exists(path):
            self._lose(self._error("was taken for dead by another writer"))
        else:
            self._storage.replace_atomic(path, self._content)
            self._note()

    def _run(self) -> None:
        while self._lost is None and not self._stopped.wait(self._pulse.interval_seconds):
            try:
                self.beat()
            except StorageError as error:
                log.warning("heartbeat of %s failed: %s", self._time, error)

    def _lose(self, error: LeaseLostError) -> None:
        self._lost = error
        log.error("%s", error.message)
        if self._on_lost is not None and not self._stopped.is_set():
            self._on_lost(error)

    def _note(self) -> None:
        self._last, self._last_ticks = self._clock.now(), self._clock.monotonic()

    def _silent_for(self) -> float:
        return self._clock.monotonic() - self._last_ticks

    def _error(self, what: str) -> LeaseLostError:
        return LeaseLostError(
            f"the writer of {self._time} {what}, last at {self._last:%Y-%m-%d %H:%M:%S} UTC",
            instant=self._time,
            since=self._last,
        )

    def _forget_own(self, instant_time: str) -> None:
        with suppress(StorageError, FileNotFoundError):
            if self._storage.read(heartbeat_path(instant_time)) == self._content:
                self._storage.delete(heartbeat_path(instant_time))

    def _forget(self) -> None:
        if self._time is not None:
            self._storage.delete(heartbeat_path(self._time), durable=False)
            self._time = None


class Heartbeats:
    """One look at the hearts of all writers of a table."""

    def __init__(self, storage: Storage, pulse: Pulse, clock: Clock) -> None:
        self._storage = storage
        self._tolerable = pulse.tolerable_seconds
        self._now_ms = clock.now().timestamp() * 1000
        self._files = {file.name: file for file in storage.list_prefix(FOLDER)}

    def is_alive(self, instant_time: str) -> bool:
        """Whether the writer of a pending instant lives, as far as anybody can tell."""
        file = self._files.get(instant_time)
        if file is None:
            return False
        return self._now_ms - file.modified_ms <= self._tolerable * 1000 and not self._is_gone(file)

    def dead(self) -> list[str]:
        """Instant times of hearts that beat no more."""
        return [time for time in self._files if not self.is_alive(time)]

    def _is_gone(self, file: FileStatus) -> bool:
        facts = writer_facts(self._storage, file.name)
        process = ProcessName.parse(facts)
        if process is None:
            return False
        return process.is_gone or (_is_this(process) and facts.get("id") not in _beating)


def _is_this(process: ProcessName) -> bool:
    mine = this_process()
    return bool(mine.machine) and process == mine


def writer_facts(storage: Storage, instant_time: str) -> dict[str, Any]:
    """What the writer of a pending instant says of itself; empty for Hudi's, and where there is none."""
    try:
        facts = json.loads(storage.read(heartbeat_path(instant_time)) or b"{}")
    except (FileNotFoundError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def forget_heartbeat(storage: Storage, instant_time: str) -> None:
    storage.delete(heartbeat_path(instant_time))
