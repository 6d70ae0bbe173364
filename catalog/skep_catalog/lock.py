"""The metastore's lock as the lock of a table's writers.

A request that has to wait keeps its place in the server's queue, and heartbeats from then on; so turns are taken in
order. It excludes Hudi's own writers that use HiveMetastoreBasedLockProvider on the same database and table.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from skep_catalog.client import Metastore
from skep_catalog.entities import LockAnswer, LockInfo, LockState
from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.errors import (
    CatalogError,
    LeaseLostError,
    LockError,
    LockTimeoutError,
    MetastoreUnreachableError,
    NoSuchLockError,
)
from skep_table.events import NO_EVENTS, Events

log = logging.getLogger("skep.lock")

_FIRST_POLL_SECONDS: Final = 0.02
_LONGEST_POLL_SECONDS: Final = 1.0
_REPORT_SECONDS: Final = 2.0


class HmsLock:
    """The exclusive lock of `database.table` in a Hive Metastore; a `skep_table.lock.Lock`.

    Used by one thread at a time. `purpose` (the instant, say) is told in the lock's agent text for whoever looks.
    `on_lost` is called, from the heartbeat's thread, when a held lock turns out to be gone.
    """

    leased = True

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        table: str,
        *,
        partition: str | None = None,
        purpose: str | None = None,
        heartbeat_seconds: float = 15.0,
        clock: Clock = SYSTEM_CLOCK,
        events: Events = NO_EVENTS,
        on_lost: Callable[[LeaseLostError], None] | None = None,
    ) -> None:
        self._metastore = metastore
        self._database, self._table, self._partition = database.lower(), table.lower(), partition
        self._purpose = purpose
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._events = events
        self._on_lost = on_lost
        self._lock_id: int | None = None
        self._heart: _Heart | None = None
        self._process = os.getpid()

    @property
    def name(self) -> str:
        return f"{self._database}.{self._table}" + (f"/{self._partition}" if self._partition else "")

    @property
    def lock_id(self) -> int | None:
        return self._lock_id

    def acquire(self, timeout_seconds: float) -> str:
        """Waits its turn for at most `timeout_seconds`; answers the lock's id, which only rises."""
        if self._lock_id is not None:
            raise LockError(f"lock on {self.name} is held already, with id {self._lock_id}", lock_id=self._lock_id)
        start = self._clock.monotonic()
        answer = self._request()
        try:
            self._lock_id, self._process = answer.lock_id, os.getpid()
            self._heart = _Heart(self._metastore, answer.lock_id, self._heartbeat_seconds, self._lost)
            if answer.state is not LockState.ACQUIRED:
                self._wait(answer.lock_id, start, timeout_seconds)
        except BaseException:  # time-out, error, interrupt: no place in the queue is left behind
            self.release()
            raise
        _held.add(self)
        waited = self._clock.monotonic() - start
        self._events.emit("lock.acquired", lock=self.name, lock_id=answer.lock_id, waited_seconds=waited)
        return str(answer.lock_id)

    def release(self) -> None:
        lock_id, self._lock_id = self._lock_id, None
        heart, self._heart = self._heart, None
        _held.discard(self)
        if heart is not None:
            heart.stop()
        if lock_id is None or self._process != os.getpid():
            return
        try:
            self._unlock(lock_id)
        except NoSuchLockError:
            log.warning("lock %s on %s was gone before it was released", lock_id, self.name)
        except CatalogError as error:
            # Without heartbeats the server gives it up after its own time-out; the work under it is done.
            log.warning("lock %s on %s could not be released: %s", lock_id, self.name, error)
        self._events.emit("lock.released", lock=self.name, lock_id=lock_id)

    def ensure_held(self) -> None:
        """Asks the server. LeaseLostError when the lock is gone, or when nobody can say that it is there."""
        if self._lock_id is None:
            raise LeaseLostError(f"lock on {self.name} is not held")
        try:
            answer = self._metastore.check_lock(self._lock_id)
        except NoSuchLockError as error:
            raise self._lease_lost(self._lock_id) from error
        except MetastoreUnreachableError as error:
            raise LeaseLostError(
                f"whether lock {self._lock_id} on {self.name} is still held can't be told: {error.message}",
                lock_id=self._lock_id,
            ) from error
        if answer.state is not LockState.ACQUIRED:
            raise self._lease_lost(self._lock_id)

    # -- how

    def _request(self) -> LockAnswer:
        """Asks once. When the answer is lost, the request is looked for by its agent text: found, it is ours."""
        agent = self._agent()
        try:
            return self._metastore.lock(
                self._database,
                self._table,
                partition=self._partition,
                agent_info=agent,
                user=self._metastore.user,
                host=socket.gethostname(),
            )
        except MetastoreUnreachableError:
            found = [lock for lock in self._metastore.locks(self._database, self._table) if lock.agent_info == agent]
            if not found:
                raise
            log.info("the answer to a lock request on %s was lost; lock %s is ours", self.name, found[0].lock_id)
            return LockAnswer(found[0].lock_id, found[0].state)

    def _wait(self, lock_id: int, start: float, timeout_seconds: float) -> None:
        pause = _FIRST_POLL_SECONDS
        reported = start
        while True:
            now = self._clock.monotonic()
            left = start + timeout_seconds - now
            if left <= 0:
                raise self._timed_out(lock_id, now - start)
            self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_POLL_SECONDS)
            try:
                state = self._metastore.check_lock(lock_id).state
            except NoSuchLockError as error:
                raise LockError(
                    f"the place in the queue for the lock on {self.name} (id {lock_id}) expired or was broken",
                    lock_id=lock_id,
                    waited_seconds=now - start,
                ) from error
            if state is LockState.ACQUIRED:
                return
            if now - reported >= _REPORT_SECONDS:
                reported = now
                holder = self._holder(lock_id)
                self._events.progress(
                    "lock.waiting",
                    int(now - start),
                    int(timeout_seconds),
                    lock=self.name,
                    holder=holder and describe(holder),
                )

    def _holder(self, waiting_id: int) -> LockInfo | None:
        locks = self._metastore.locks(self._database, self._table)
        return next((lock for lock in locks if lock.state is LockState.ACQUIRED and lock.lock_id != waiting_id), None)

    def _timed_out(self, lock_id: int, waited: float) -> LockTimeoutError:
        holder = None
        with suppress(CatalogError):
            holder = self._holder(lock_id)
        by = f"; held by {describe(holder)}" if holder else ""
        return LockTimeoutError(
            f"the lock on {self.name} was not granted in {waited:.1f} s{by}",
            holder=holder and describe(holder),
            lock_id=holder and holder.lock_id,
            waited_seconds=waited,
        )

    def _unlock(self, lock_id: int) -> None:
        try:
            self._metastore.unlock(lock_id)
        except MetastoreUnreachableError:
            with suppress(NoSuchLockError):  # the first try may have come through, its answer lost
                self._metastore.unlock(lock_id)

    def _lost(self, lock_id: int) -> None:
        error = self._lease_lost(lock_id)
        self._events.emit("lock.lost", lock=self.name, lock_id=lock_id)
        if self._on_lost is not None:
            self._on_lost(error)

    def _lease_lost(self, lock_id: int) -> LeaseLostError:
        since = self._heart.last_beat if self._heart else None
        return LeaseLostError(
            f"lock {lock_id} on {self.name} is lost: it expired or was broken", lock_id=lock_id, since=since
        )

    def _agent(self) -> str:
        facts = {"pid": os.getpid(), "purpose": self._purpose, "id": uuid.uuid4().hex}
        return "skep " + json.dumps({key: value for key, value in facts.items() if value is not None})


class _Heart:
    """Beats for one lock, waiting or held, on a connection of its own, until stopped or told that the lock is gone."""

    def __init__(
        self, metastore: Metastore, lock_id: int, interval_seconds: float, on_lost: Callable[[int], None]
    ) -> None:
        self._metastore = metastore
        self._lock_id = lock_id
        self._interval = interval_seconds
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self.last_beat = SYSTEM_CLOCK.now()
        self._thread = threading.Thread(target=self._run, name=f"lock-{lock_id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._metastore.own_connection() as metastore:
            while not self._stopped.wait(self._interval):
                try:
                    metastore.heartbeat(self._lock_id)
                    self.last_beat = SYSTEM_CLOCK.now()
                except NoSuchLockError:
                    if not self._stopped.is_set():
                        self._on_lost(self._lock_id)
                    return
                except CatalogError as error:
                    # One missed beat is none: the server waits several intervals.
                    log.warning("heartbeat of lock %s failed: %s", self._lock_id, error)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


_held: weakref.WeakSet[HmsLock] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for lock in list(_held):
        with suppress(Exception):
            lock.release()


def describe(lock: LockInfo) -> str:
    """A lock's holder in words."""
    facts = agent_facts(lock)
    parts = [f"{lock.user}@{lock.host}"]
    if "pid" in facts:
        parts.append(f"process {facts['pid']}")
    if facts.get("purpose"):
        parts.append(str(facts["purpose"]))
    return f"{', '.join(parts)} (lock {lock.lock_id})"


def agent_facts(lock: LockInfo) -> dict[str, object]:
    """What a skep holder wrote into the lock's agent text; empty for others."""
    text = lock.agent_info or ""
    if not text.startswith("skep "):
        return {}
    try:
        facts = json.loads(text.removeprefix("skep "))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
