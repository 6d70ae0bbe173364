"""Holders of a lock as each provider reports them, and breaking a lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol, runtime_checkable

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import LockError, NoSuchLockError
from skep_table.locks.agent import agent_facts, describe, has_ended


@dataclass(frozen=True, slots=True)
class Holder:
    """One lock, held or waited for. `text` is what its owner wrote; times are epoch seconds, None where unknown.

    `last_sign`: the last heartbeat; `until`: the end of the lease. `over`: the lease has expired, or the owner sent no
    heartbeat for longer than allowed.
    """

    lock_id: str
    text: str
    held: bool = True
    last_sign: float | None = None
    until: float | None = None
    over: bool = False

    @property
    def facts(self) -> Mapping[str, object]:
        """The facts in a skep owner's text; empty for other clients."""
        return agent_facts(self.text)

    @property
    def may_be_alive(self) -> bool:
        """False only when the owner has certainly lost the lock or ended."""
        return not self.over and not has_ended(self.text)

    @property
    def name(self) -> str:
        """The owner as text for people."""
        return describe(self.facts) if self.facts else self.text or "another client"


@runtime_checkable
class Inspected(Protocol):
    """A lock that reports its holders, whether or not this object holds it."""

    name: str

    def holders(self) -> list[Holder]:
        """The holder first, then those waiting, where the provider has a queue."""

    def revoke(self, lock_id: str) -> bool:
        """Ends the lock of this id, of any holder. False when it is missing, or was renewed in this moment."""


def break_held(lock: Inspected, lock_id: str, *, force: bool) -> Holder:
    """Breaks a lock, or removes a place in its queue, and returns who held it.

    LockError while the owner may be alive, unless forced; NoSuchLockError when there is no such lock.
    """
    for _ in range(_TRIES):
        found = next((each for each in lock.holders() if each.lock_id == lock_id), None)
        if found is None:
            raise NoSuchLockError(f"{lock.name} knows no lock {lock_id}", lock_id=lock_id)
        if found.may_be_alive and not force:
            raise LockError(
                f"lock {lock_id} on {lock.name} is of {found.name}{_sign(found)}",
                hint="end that process first; --force takes the lock from it, and its commit fails",
                lock_id=lock_id,
                holder=found.name,
            )
        if lock.revoke(lock_id):
            return found
    raise LockError(f"lock {lock_id} on {lock.name} is renewed all the time", lock_id=lock_id)


_TRIES = 10


def _sign(found: Holder) -> str:
    now = SYSTEM_CLOCK.now().timestamp()
    if found.last_sign is not None:
        return f", whose last heartbeat was {max(0.0, now - found.last_sign):.0f} s ago"
    if found.until is not None:
        return f", until {datetime.fromtimestamp(found.until, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    return ", which may be alive"
