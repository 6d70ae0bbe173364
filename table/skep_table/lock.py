"""The lock protocol of writers. Providers live above (the metastore's in `skep_catalog`), the in-process one here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Protocol, runtime_checkable

from skep_format.errors import LockTimeoutError


@runtime_checkable
class Lock(Protocol):
    """Excludes other writers of one table for the short sections that check and complete an instant."""

    @property
    def leased(self) -> bool:
        """Whether it may be lost while its holder sleeps."""

    def acquire(self, timeout_seconds: float) -> str:
        """Blocks until held and returns the lock's id. Raises LockTimeoutError, or LockError when it can't be had."""

    def release(self) -> None:
        """Gives the lock up. Calling it when not held is no error."""

    def ensure_held(self) -> None:
        """Asks the provider, not memory: raises LeaseLostError when the lock is no longer ours."""


@contextmanager
def held(lock: Lock, timeout_seconds: float) -> Iterator[str]:
    """Holds `lock` for a block, released on every way out."""
    lock_id = lock.acquire(timeout_seconds)
    try:
        yield lock_id
    finally:
        lock.release()


class GuardedLock:
    """A lock that is granted only if `check` passes once it is held. `inner` is the provider's."""

    def __init__(self, inner: Lock, check: Callable[[], None]) -> None:
        self.inner = inner
        self._check = check

    @property
    def leased(self) -> bool:
        return self.inner.leased

    def acquire(self, timeout_seconds: float) -> str:
        """Raises what `check` raises, the lock then not held."""
        lock_id = self.inner.acquire(timeout_seconds)
        try:
            self._check()
        except BaseException:
            self.inner.release()
            raise
        return lock_id

    def release(self) -> None:
        self.inner.release()

    def ensure_held(self) -> None:
        self.inner.ensure_held()


def unguarded(lock: Lock) -> Lock:
    """The provider's lock, which may support more than the protocol."""
    return lock.inner if isinstance(lock, GuardedLock) else lock


class NoLock:
    """For the single writer: nothing is excluded."""

    leased = False

    def acquire(self, timeout_seconds: float) -> str:  # noqa: ARG002 - the protocol's signature
        return "none"

    def release(self) -> None: ...

    def ensure_held(self) -> None: ...


_process_locks: dict[str, threading.Lock] = {}
_process_holders: dict[str, str] = {}  # by base path, in words
_process_locks_guard = threading.Lock()


class InProcessLock:
    """Excludes the threads of this process that write to the table at one base path."""

    leased = False

    def __init__(self, base_path: str) -> None:
        with _process_locks_guard:
            self._lock = _process_locks.setdefault(base_path, threading.Lock())
        self._base_path = base_path
        self._held = False

    def acquire(self, timeout_seconds: float) -> str:
        if not self._lock.acquire(timeout=timeout_seconds):
            holder = _process_holders.get(self._base_path)
            raise LockTimeoutError(
                f"the lock on {self._base_path} was not granted in {timeout_seconds:g} s; held by a thread of this"
                " process" + (f", {holder}" if holder else ""),
                hint="it is given up when the write of that thread ends",
                table=self._base_path,
                holder=holder,
                waited_seconds=timeout_seconds,
            )
        self._held = True
        now = datetime.now(timezone.utc)
        _process_holders[self._base_path] = f"{threading.current_thread().name}, since {now:%Y-%m-%d %H:%M:%S} UTC"
        return f"in-process:{id(self._lock)}"

    def release(self) -> None:
        if self._held:
            self._held = False
            _process_holders.pop(self._base_path, None)
            self._lock.release()

    def ensure_held(self) -> None: ...
