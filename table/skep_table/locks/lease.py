"""The base of all leased locks: waiting with progress reports, renewal by a thread, release on every exit."""

from __future__ import annotations

import atexit
import logging
import os
import random
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import LeaseLostError, LockError, LockTimeoutError, SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.locks.holders import agent_facts
from skep_table.locks.options import LOCK_PROVIDER
from skep_table.runtime.renewal import Renewal

log = logging.getLogger("skep.lock")

_FIRST_POLL_SECONDS: Final = 0.01
_NEXT_POLL_SECONDS: Final = 0.2  # the next one asks often at first, then less: turns are short, most times
_PLACE_SECONDS: Final = 0.1  # a turn takes longer than this
_LONGEST_POLL_SECONDS: Final = 1.0
_POLL_ANYWAY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_WARN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Queue:
    """The holder as text, and how many are ahead of a waiting one (the holder counts).

    `unknown`: why the holder can't be named.
    """

    holder: str | None = None
    ahead: int = 1
    lock_id: object = None
    unknown: str = "its holder has just changed"

    @property
    def description(self) -> str:
        """Who holds the lock, for messages."""
        return f"held by {self.holder}" if self.holder else self.unknown


class LockTerms(TypedDict, total=False):
    """What every lock takes. `purpose` (the instant, for example) is shown to others; `on_lost` is called, from the
    renewing thread, when a held lock turns out to be lost."""

    purpose: str | None
    clock: Clock
    events: Events
    on_lost: Callable[[LeaseLostError], None] | None


class LeasedLock(ABC):
    """A lock that its provider frees some time after the last heartbeat. Used by one thread at a time.

    Subclasses request, check, renew and release the lock; `name` appears in errors.
    """

    leased: Final = True
    provider: str
    """The short name by which the options name it."""
    _in_turns = False  # whether the provider keeps a queue that has to be polled

    def __init__(
        self,
        name: str,
        *,
        heartbeat_seconds: float,
        purpose: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        events: Events = NO_EVENTS,
        on_lost: Callable[[LeaseLostError], None] | None = None,
    ) -> None:
        self.name = name
        self._heartbeat_seconds = heartbeat_seconds
        self._purpose = purpose
        self._owner: str | None = None
        self._clock = clock
        self._events = events
        self._on_lost = on_lost
        self._renewal: Renewal | None = None
        self._last_renewal: datetime | None = None
        self._held_since: float | None = None
        self._process = os.getpid()

    # -- what a provider does

    def _enter(self) -> bool:
        """Requests the lock, or a place in its queue. Whether it was granted at once."""
        return self._poll()

    @abstractmethod
    def _poll(self) -> bool:
        """Whether the lock is granted now."""

    @abstractmethod
    def _leave(self) -> None:
        """Releases the lock or the place in the queue. LeaseLostError only when it was lost already."""

    @abstractmethod
    def _look(self) -> None:
        """Queries the provider. LeaseLostError when the lock is not held, or its state is unknown."""

    @abstractmethod
    def _beat(self) -> None:
        """Renews lock or place. LeaseLostError when it is lost; any other SkepError is one missed heartbeat."""

    @abstractmethod
    def _queue(self) -> Queue:
        """The holder, and how many are ahead."""

    def _pause(self, seconds: float) -> int:
        """Between two polls. Providers with notifications may return earlier, with the number of turns taken."""
        self._clock.sleep(seconds)
        return 0

    @property
    def lock_id(self) -> object | None:
        """None when neither held nor waited for; else the id in the text by which `_owner` has the lock."""
        return agent_facts(self._owner).get("id")

    # -- what callers do

    @property
    def events(self) -> Events:
        """Receives the lock's events."""
        return self._events

    def acquire(self, timeout_seconds: float) -> str:
        """Waits for at most `timeout_seconds`; returns the lock's id. LockTimeoutError, LockError."""
        if self.lock_id is not None:
            raise LockError(f"lock on {self.name} is held already, with id {self.lock_id}", lock_id=self.lock_id)
        start = self._clock.monotonic()
        self._process = os.getpid()
        _in_use.add(self)
        try:
            granted = self._enter()
            self._note_renewal()
            self._renewal = Renewal(self._renew, self._heartbeat_seconds, self._lost, name="lock-renewal")
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
        lock_id, renewal, self._renewal = self.lock_id, self._renewal, None
        _in_use.discard(self)
        if renewal is not None:
            renewal.stop()
        if lock_id is None or self._process != os.getpid():
            return
        try:
            self._leave()
        except LeaseLostError as error:
            log.warning("%s before it was released", error.message)
        except SkepError as error:
            # Without heartbeats the provider frees it after its own time-out; the work under it is done.
            log.warning("lock %s on %s could not be released: %s", lock_id, self.name, error)
        since, self._held_since = self._held_since, None
        held = None if since is None else self._clock.monotonic() - since
        self._events.emit("lock.released", lock=self.name, lock_id=lock_id, held_seconds=held)

    def __del__(self) -> None:
        """Releases a lock that its owner forgot: it would block others as long as this process runs."""
        if getattr(self, "_renewal", None) is None or self.lock_id is None or self._process != os.getpid():
            return
        with suppress(Exception):
            log.warning("lock %s on %s was forgotten by its owner: it is released", self.lock_id, self.name)
            self.release()

    def ensure_held(self) -> None:
        """Queries the provider. LeaseLostError when the lock is lost, or when its state is unknown."""
        if self.lock_id is None:
            raise LeaseLostError(f"lock on {self.name} is not held")
        try:
            self._look()
        except LeaseLostError:
            raise
        except SkepError as error:
            raise LeaseLostError(
                f"whether lock {self.lock_id} on {self.name} is still held is unknown: {error.message}",
                lock_id=self.lock_id,
                since=self.last_beat,
            ) from error

    @property
    def last_beat(self) -> datetime | None:
        """When the lease was renewed last (UTC); None when the lock is not held."""
        return self._last_renewal if self._renewal else None

    def lease_lost(self) -> LeaseLostError:
        """The error for a lost lease, with the time of the last heartbeat."""
        last = self.last_beat
        return LeaseLostError(
            f"lock {self.lock_id} on {self.name} is lost: it expired or was broken"
            + (f" after {last:%Y-%m-%d %H:%M:%S} UTC" if last else ""),
            lock_id=self.lock_id,
            since=last,
        )

    # -- how

    def _wait(self, start: float, timeout_seconds: float) -> None:
        """Polls: often as the first in a queue, by its length further back, ever less often without a queue."""
        pause, look_at, polled, warned, ahead = _FIRST_POLL_SECONDS, start, start, start, 1
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
                facts = {"lock": self.name, "holder": queue.holder, "ahead": queue.ahead}
                self._events.progress("lock.waiting", int(now - start), int(timeout_seconds), **facts)
                if now - warned >= _WARN_SECONDS:
                    warned = now
                    log.warning("waiting for the lock on %s for %d s: %s", self.name, now - start, queue.description)
            if not self._in_turns:
                pause = min(pause * random.uniform(1.2, 1.8), _LONGEST_POLL_SECONDS)
            elif ahead > 1:
                pause = max(look_at - now, _FIRST_POLL_SECONDS)
            else:
                pause = _FIRST_POLL_SECONDS if turns else min(pause * 1.2, _NEXT_POLL_SECONDS)

    def _timed_out(self, waited: float) -> LockTimeoutError:
        try:
            queue = self._queue()
        except SkepError as error:
            queue = Queue(unknown=f"its holder is unknown: {error.message}")
        self._events.emit("lock.timed_out", lock=self.name, waited_seconds=waited, holder=queue.holder)
        return LockTimeoutError(
            f"the lock on {self.name} was not granted in {waited:.1f} s; {queue.description}",
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
            f"`skep lock show {target}` shows its holder; once that process has ended, or is to lose the lock,"
            f" `skep lock break {target} --lock-id {lock_id}` breaks it"
        )

    @property
    def target(self) -> str:
        """How the command line names the table whose lock it is."""
        return "TABLE"

    def _renew(self) -> None:
        if self.lock_id is not None:  # else still waiting: there is no place to keep
            self._beat()
        self._note_renewal()

    def _note_renewal(self) -> None:
        self._last_renewal = SYSTEM_CLOCK.now()

    def _lost(self, _error: LeaseLostError) -> None:
        error = self.lease_lost()
        self._events.emit("lock.lost", lock=self.name, lock_id=self.lock_id)
        if self._on_lost is not None:
            self._on_lost(error)


# -- ends of the process -----------------------------------------------------------------------------------------------

_in_use: weakref.WeakSet[LeasedLock] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for lock in list(_in_use):
        with suppress(Exception):
            lock.release()
