"""What all leased locks share: waiting with reports, a heart in a thread of its own, release on every way out."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.errors import LeaseLostError, LockError, LockTimeoutError, SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.locks.options import LOCK_PROVIDER

log = logging.getLogger("skep.lock")

_FIRST_POLL_SECONDS: Final = 0.01
_NEXT_POLL_SECONDS: Final = 0.2  # the next one asks often at first, then less: turns are short, most times
_PLACE_SECONDS: Final = 0.1  # a turn takes longer than this
_LONGEST_POLL_SECONDS: Final = 1.0
_POLL_ANYWAY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_TELL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Queue:
    """Who has the lock, in words, and how many come before a waiting one (the holder counts).

    `unknown`: why there is no holder to name.
    """

    holder: str | None = None
    ahead: int = 1
    lock_id: object = None
    unknown: str = "its holder has just changed"

    @property
    def words(self) -> str:
        return f"held by {self.holder}" if self.holder else self.unknown


class LeasedLock(ABC):
    """A lock that its provider gives up some time after the last heartbeat. Used by one thread at a time.

    Providers say how a lock is asked for, looked after, renewed and given up; `name` is what errors call it. `on_lost`
    is called, from the heart's thread, when a held lock turns out to be gone.
    """

    leased: Final = True
    provider: str
    """The short name by which the options name it."""
    _in_turns = False  # whether the provider keeps a queue that it has to be asked about

    def __init__(
        self,
        name: str,
        *,
        heartbeat_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        events: Events = NO_EVENTS,
        on_lost: Callable[[LeaseLostError], None] | None = None,
    ) -> None:
        self.name = name
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._events = events
        self._on_lost = on_lost
        self._heart: _Heart | None = None
        self._held_since: float | None = None
        self._process = os.getpid()

    # -- what a provider does

    @abstractmethod
    def _enter(self) -> bool:
        """Asks for the lock, or for a place in its queue. Whether it was granted at once."""

    @abstractmethod
    def _poll(self) -> bool:
        """Whether the lock is granted now."""

    @abstractmethod
    def _leave(self) -> None:
        """Gives up the lock or the place in the queue. Only LeaseLostError: it was gone already."""

    @abstractmethod
    def _look(self) -> None:
        """Asks the provider. LeaseLostError when the lock is not held, or nobody can tell."""

    @abstractmethod
    def _beat(self) -> None:
        """Renews lock or place. LeaseLostError when it is gone; any other SkepError is one missed beat."""

    @abstractmethod
    def _queue(self) -> Queue:
        """Who is before us."""

    def _pause(self, seconds: float) -> int:
        """Between two polls. Providers that are told of changes may return earlier, with the number of turns taken."""
        self._clock.sleep(seconds)
        return 0

    @property
    @abstractmethod
    def lock_id(self) -> object | None:
        """None when neither held nor waited for."""

    # -- what callers do

    @property
    def events(self) -> Events:
        """Where it tells what becomes of it."""
        return self._events

    def acquire(self, timeout_seconds: float) -> str:
        """Waits for at most `timeout_seconds`; answers the lock's id."""
        if self.lock_id is not None:
            raise LockError(f"lock on {self.name} is held already, with id {self.lock_id}", lock_id=self.lock_id)
        start = self._clock.monotonic()
        self._process = os.getpid()
        _in_use.add(self)
        try:
            granted = self._enter()
            self._heart = _Heart(self._beat, self._heartbeat_seconds, self._lost)
            if not granted:
                self._wait(start, timeout_seconds)
        except BaseException:  # time-out, error, interrupt: no place in the queue is left behind
            self.release()
            raise
        self._held_since = self._clock.monotonic()
        self._events.emit(
            "lock.acquired", lock=self.name, lock_id=self.lock_id, waited_seconds=self._held_since - start
        )
        return str(self.lock_id)

    def release(self) -> None:
        lock_id, heart, self._heart = self.lock_id, self._heart, None
        _in_use.discard(self)
        if heart is not None:
            heart.stop()
        if lock_id is None or self._process != os.getpid():
            return
        try:
            self._leave()
        except LeaseLostError as error:
            log.warning("%s before it was released", error.message)
        except SkepError as error:
            # Without heartbeats it is given up after its own time-out; the work under it is done.
            log.warning("lock %s on %s could not be released: %s", lock_id, self.name, error)
        since, self._held_since = self._held_since, None
        held = None if since is None else self._clock.monotonic() - since
        self._events.emit("lock.released", lock=self.name, lock_id=lock_id, held_seconds=held)

    def __del__(self) -> None:
        """A lock that its owner has forgotten is given up: it would keep others out as long as this process lives."""
        if getattr(self, "_heart", None) is None or self.lock_id is None or self._process != os.getpid():
            return
        with suppress(Exception):
            log.warning("lock %s on %s was forgotten by its owner: it is released", self.lock_id, self.name)
            self.release()

    def ensure_held(self) -> None:
        """Asks the provider. LeaseLostError when the lock is gone, or when nobody can say that it is there."""
        if self.lock_id is None:
            raise LeaseLostError(f"lock on {self.name} is not held")
        try:
            self._look()
        except LeaseLostError:
            raise
        except SkepError as error:
            raise LeaseLostError(
                f"whether lock {self.lock_id} on {self.name} is still held can't be told: {error.message}",
                lock_id=self.lock_id,
                since=self.last_beat,
            ) from error

    @property
    def last_beat(self) -> datetime | None:
        return self._heart.last_beat if self._heart else None

    def lease_lost(self) -> LeaseLostError:
        """The error that says so."""
        last = self.last_beat
        return LeaseLostError(
            f"lock {self.lock_id} on {self.name} is lost: it expired or was broken"
            + (f" after {last:%Y-%m-%d %H:%M:%S} UTC" if last else ""),
            lock_id=self.lock_id,
            since=last,
        )

    # -- how

    def _wait(self, start: float, timeout_seconds: float) -> None:
        """Asks again and again: the first in a queue often, the others how long it still is; without one, ever less."""
        pause, look_at, polled, told, ahead = _FIRST_POLL_SECONDS, start, start, start, 1
        while True:
            left = start + timeout_seconds - self._clock.monotonic()
            if left <= 0:
                raise self._timed_out(timeout_seconds - left)
            turns = self._pause(min(pause, left))
            ahead = max(1, ahead - turns)
            now = self._clock.monotonic()
            if ahead == 1 or now - polled >= _POLL_ANYWAY_SECONDS:
                polled = now
                if self._poll():
                    return
            if now >= look_at:
                queue = self._queue()
                if self._in_turns and queue.ahead != ahead:
                    turns, ahead = 1, queue.ahead
                look_at = now + (_LOOK_SECONDS if ahead == 1 else min(_PLACE_SECONDS * (ahead - 1), _LOOK_SECONDS))
                self._tell(queue, now - start, timeout_seconds)
                if now - told >= _TELL_SECONDS:
                    told = now
                    log.warning("waiting for the lock on %s for %d s: %s", self.name, now - start, queue.words)
            if not self._in_turns:
                pause = min(pause * random.uniform(1.2, 1.8), _LONGEST_POLL_SECONDS)
            elif ahead > 1:
                pause = max(look_at - now, _FIRST_POLL_SECONDS)
            else:
                pause = _FIRST_POLL_SECONDS if turns else min(pause * 1.2, _NEXT_POLL_SECONDS)

    def _tell(self, queue: Queue, waited: float, timeout_seconds: float) -> None:
        facts = {"lock": self.name, "holder": queue.holder, "ahead": queue.ahead}
        self._events.progress("lock.waiting", int(waited), int(timeout_seconds), **facts)

    def _timed_out(self, waited: float) -> LockTimeoutError:
        try:
            queue = self._queue()
        except SkepError as error:
            queue = Queue(unknown=f"its holder can't be asked for: {error.message}")
        self._events.emit("lock.timed_out", lock=self.name, waited_seconds=waited, holder=queue.holder)
        return LockTimeoutError(
            f"the lock on {self.name} was not granted in {waited:.1f} s; {queue.words}",
            hint=self._how_to_break(queue.lock_id),
            lock=self.name,
            holder=queue.holder,
            lock_id=queue.lock_id,
            waited_seconds=waited,
        )

    def _how_to_break(self, lock_id: object) -> str | None:
        if lock_id is None:
            return None
        target = self.target
        if self.provider != "metastore":
            target += f" --option {LOCK_PROVIDER.key}={self.provider}"
        return (
            f"`skep lock show {target}` tells more of it; once that process has ended, or is to lose it,"
            f" `skep lock break {target} --lock-id {lock_id}` takes the lock from it"
        )

    @property
    def target(self) -> str:
        """How the command line names the table whose lock it is."""
        return "TABLE"

    def _lost(self) -> None:
        error = self.lease_lost()
        self._events.emit("lock.lost", lock=self.name, lock_id=self.lock_id)
        if self._on_lost is not None:
            self._on_lost(error)


class _Heart:
    """Beats until stopped, told that the lock is gone, or left alone: the lock's own life is not prolonged by it."""

    def __init__(self, beat: Callable[[], None], interval_seconds: float, on_lost: Callable[[], None]) -> None:
        self._beat = weakref.WeakMethod(beat)
        self._interval = interval_seconds
        self._on_lost = weakref.WeakMethod(on_lost)
        self._stopped = threading.Event()
        self.last_beat = SYSTEM_CLOCK.now()
        self._thread = threading.Thread(target=self._run, name="lock-heart", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            beat, on_lost = self._beat(), self._on_lost()
            if beat is None or on_lost is None:
                return
            try:
                beat()
                self.last_beat = SYSTEM_CLOCK.now()
            except LeaseLostError:
                if not self._stopped.is_set():
                    on_lost()
                return
            except Exception as error:
                # One missed beat is none: the provider waits several intervals.
                log.warning("heartbeat failed: %s", error)
            finally:
                del beat, on_lost  # not held while it waits

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


# -- ends of the process -----------------------------------------------------------------------------------------------

_in_use: weakref.WeakSet[LeasedLock] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for lock in list(_in_use):
        with suppress(Exception):
            lock.release()
