"""Works off the queue of pending syncs: every table in its order, every target by itself, failures again later.

A commit is in the queue on storage before `submit` returns. Each target has its own workers, so one that is down
costs the others nothing; one table is synced by one worker at a time, and what arrives meanwhile is one more round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import NotATableError, SkepError
from skep_sync.following.queue import Pending, SyncQueue
from skep_sync.options import RELOCATE
from skep_sync.sync import SyncReport
from skep_sync.targets import Clients, Target, sync_target
from skep_table.events import NO_EVENTS, Events

log = logging.getLogger("skep.sync")

_LONGEST_SLEEP = 1.0
_FIRST = datetime.min.replace(tzinfo=timezone.utc)

AfterSync = Callable[[Pending, SyncReport], None]
"""Called after a sync of the first target, to run table services, for example."""


@dataclass
class _Slot:
    """One table at one target. `running`: a worker has it."""

    pending: Pending
    running: bool = False

    @property
    def due_at(self) -> datetime:
        failure = self.pending.failure
        return _FIRST if failure is None else datetime.fromisoformat(failure.retry_at)


class SyncService:
    """Syncs what is submitted, and what a former process left in the queue. Start it, submit, stop it."""

    def __init__(
        self,
        targets: Sequence[Target],
        clients: Clients,
        queue: SyncQueue,
        *,
        workers: int = 4,
        rescan_seconds: float = 60.0,
        after: AfterSync | None = None,
        events: Events = NO_EVENTS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        # one who may send callbacks may not take the name of another table
        kept = {RELOCATE.key: False}
        self.targets = {
            target.name: target
            if target.options.is_set(RELOCATE)
            else replace(target, options=target.options.with_values(kept))
            for target in targets
        }
        self._clients, self._queue, self._events, self._clock = clients, queue, events, clock
        self._workers, self._rescan_seconds, self._after = workers, rescan_seconds, after
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._scheduler: threading.Thread | None = None
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._following: ThreadPoolExecutor | None = None
        self._follow_ups: set[Future[None]] = set()

    # -- life

    def start(self) -> None:
        """Begins with what is in the queue. Storage that can't be read is tried again, not an error."""
        self._pools = {name: ThreadPoolExecutor(self._workers, f"skep-sync-{name}") for name in self.targets}
        self._following = ThreadPoolExecutor(1, "skep-after") if self._after is not None else None
        self._scheduler = threading.Thread(target=self._schedule, name="skep-sync", daemon=True)
        self._scheduler.start()

    def stop(self, grace_seconds: float | None = None) -> bool:
        """Starts nothing more and waits for the syncs, and for what follows commits, that are under way; returns
        whether they ended in time.

        What is left stays in the queue.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._scheduler is not None:
            self._scheduler.join()
        for pool in (*self._pools.values(), *((self._following,) if self._following else ())):
            pool.shutdown(wait=grace_seconds is None, cancel_futures=True)
        if grace_seconds is not None:
            end = time.monotonic() + grace_seconds
            with self._changed:
                # Futures that were cancelled are done, too.
                while any(slot.running for slot in self._slots.values()) or not all(
                    one.done() for one in self._follow_ups
                ):
                    left = end - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(min(left, 0.1))
        return True

    @property
    def clients(self) -> Clients:
        """The clients of the targets."""
        return self._clients

    def __enter__(self) -> SyncService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_working(self) -> bool:
        """Whether all threads of the service are running."""
        return self._scheduler is not None and self._scheduler.is_alive() and not self._stopping

    # -- for callers

    def submit(self, base_path: str, table: str, instant: str | None = None, *, entry: str | None = None) -> None:
        """A table has a commit. When this returns, that is on storage; StorageError when it can't be."""
        for target in self.targets:
            self._add(self._queue.add(target, base_path, table, instant, entry))
        self._events.emit("service.queued", table=entry or table, base_path=base_path, instant=instant)

    def pending(self) -> list[Pending]:
        """What is left as far as this process knows, oldest first."""
        with self._changed:
            found = [slot.pending for slot in self._slots.values()]
        return sorted(found, key=lambda one: one.events[0])

    # -- the scheduler's thread

    def _schedule(self) -> None:
        next_scan = 0.0
        while not self._stopping:
            if time.monotonic() >= next_scan:
                self._rescan()
                next_scan = time.monotonic() + self._rescan_seconds
            with self._changed:
                for slot in self._startable():
                    slot.running = True
                    self._pools[slot.pending.target].submit(self._work, slot)
                if not self._stopping:
                    self._changed.wait(self._sleep_seconds())

    def _startable(self) -> list[_Slot]:
        """Due, and with a worker free for it: those that wait longest first."""
        now = self._clock.now()
        free = Counter(dict.fromkeys(self.targets, self._workers))
        free.subtract(slot.pending.target for slot in self._slots.values() if slot.running)
        chosen = []
        for slot in sorted(self._slots.values(), key=lambda slot: slot.pending.events[0]):
            target = slot.pending.target
            if not slot.running and slot.due_at <= now and free[target] > 0:
                free[target] -= 1
                chosen.append(slot)
        return chosen

    def _sleep_seconds(self) -> float:
        now = self._clock.now()
        waits = [(slot.due_at - now).total_seconds() for slot in self._slots.values() if slot.due_at > now]
        return max(0.01, min([_LONGEST_SLEEP, *waits]))

    def _rescan(self) -> None:
        """What other processes added or did. A slot that runs is left as it is: its worker looks after it."""
        try:
            found = [one for one in self._queue.pending() if one.target in self.targets]
        except (SkepError, OSError) as error:
            log.warning("the queue at %s can't be read: %s", self._queue.place, error)
            self._events.emit("service.queue_failed", error=error)
            return
        with self._changed:
            known = {(one.target, one.key) for one in found}
            # What is not there was done by another process; without a failure it may be newer than the listing.
            for key, slot in list(self._slots.items()):
                if key not in known and not slot.running and slot.pending.failure is not None:
                    del self._slots[key]
            for one in found:
                slot = self._slots.setdefault((one.target, one.key), _Slot(one))
                if not slot.running:
                    slot.pending = _with_events(one, slot.pending)
            self._changed.notify_all()

    def _add(self, pending: Pending) -> None:
        with self._changed:
            slot = self._slots.get((pending.target, pending.key))
            if slot is None:
                self._slots[pending.target, pending.key] = _Slot(pending)
            else:
                slot.pending = replace(_with_events(slot.pending, pending), latest=pending.latest)
            self._changed.notify_all()

    # -- a worker's thread

    def _work(self, slot: _Slot) -> None:
        with self._changed:
            taken = slot.pending
        start = time.monotonic()
        try:
            report = self._sync(taken)
            self._queue.done(taken)
        except NotATableError as error:
            log.warning("no table at %s any more: forgotten", taken.latest.base_path)
            self._events.emit("service.dropped", target=taken.target, table=_name(taken), error=error)
            self._forget(slot, taken)
        except Exception as error:
            self._failed(slot, taken, error)
        else:
            seconds = time.monotonic() - start
            self._events.emit("service.synced", target=taken.target, table=_name(taken), report=report, seconds=seconds)
            self._start_following(taken, report)
            self._finished(slot, taken)

    def _sync(self, pending: Pending) -> SyncReport:
        event = pending.latest
        target = self.targets[pending.target]
        return sync_target(target, self._clients, event.base_path, event.entry, events=self._events)

    def _forget(self, slot: _Slot, taken: Pending) -> None:
        try:
            self._queue.done(taken)
        except (SkepError, OSError) as error:
            log.warning("the queue at %s can't be written: %s", self._queue.place, error)
        self._finished(slot, taken)

    def _finished(self, slot: _Slot, taken: Pending) -> None:
        with self._changed:
            left = tuple(name for name in slot.pending.events if name not in taken.events)
            slot.running = False
            if left:
                slot.pending = replace(slot.pending, events=left, failure=None)
            else:
                del self._slots[taken.target, taken.key]
            for other in self._slots.values():  # the target answers: those that it did not answer need not wait
                failure = other.pending.failure
                if other.pending.target == taken.target and failure is not None and failure.unreachable:
                    now = self._clock.now().isoformat(timespec="milliseconds")
                    other.pending = replace(other.pending, failure=replace(failure, retry_at=now, unreachable=False))
            self._changed.notify_all()

    def _failed(self, slot: _Slot, taken: Pending, error: Exception) -> None:
        if not isinstance(error, SkepError):
            log.exception("sync of %s to %s failed", _name(taken), taken.target)
        failed = self._queue.failed(taken, error)
        try:
            self._queue.note(failed)
        except (SkepError, OSError) as problem:
            log.warning("the queue at %s can't be written: %s", self._queue.place, problem)
        again = f"again at {failed.failure.retry_at}" if failed.failure else "again at once"
        log.warning("sync of %s to %s failed, %s: %s", _name(taken), taken.target, again, error)
        self._events.emit("service.failed", target=taken.target, table=_name(taken), error=error)
        with self._changed:
            slot.running = False
            slot.pending = replace(slot.pending, failure=failed.failure)
            self._changed.notify_all()

    # -- the thread of what follows a commit

    def _start_following(self, taken: Pending, report: SyncReport) -> None:
        with self._changed:
            if self._following is not None and not self._stopping and taken.target == next(iter(self.targets)):
                self._follow_ups = {one for one in self._follow_ups if not one.done()}
                self._follow_ups.add(self._following.submit(self._follow, taken, report))

    def _follow(self, taken: Pending, report: SyncReport) -> None:
        assert self._after is not None
        try:
            self._after(taken, report)
            self._events.emit("service.after", table=_name(taken))
        except Exception as error:
            log.warning("what follows a commit of %s failed: %s", _name(taken), error)
            self._events.emit("service.after_failed", table=_name(taken), error=error)


def _with_events(pending: Pending, other: Pending) -> Pending:
    """The events of both."""
    return replace(pending, events=tuple(sorted({*pending.events, *other.events})))


def _name(pending: Pending) -> str:
    return pending.latest.entry or pending.latest.table
