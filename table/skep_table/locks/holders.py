"""Who has a lock, for people who look: what each provider can tell, and taking a lock from its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol, runtime_checkable

from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.errors import LockError, NoSuchLockError
from skep_table.locks.agent import agent_facts, describe, is_gone


@dataclass(frozen=True, slots=True)
class Holder:
    """One lock, held or waited for. `text` is what its owner wrote; times are epoch seconds, None where not told.

    `over`: its lease has ended, or its owner has given no sign for longer than it may.
    """

    lock_id: str
    text: str
    held: bool = True
    last_sign: float | None = None
    until: float | None = None
    over: bool = False

    @property
    def facts(self) -> Mapping[str, object]:
        """What a skep owner told; empty for others."""
        return agent_facts(self.text)

    @property
    def may_live(self) -> bool:
        return not self.over and not is_gone(self.text)

    @property
    def name(self) -> str:
        return describe(self.facts) if self.facts else self.text or "another client"


@runtime_checkable
class Inspected(Protocol):
    """A lock that tells who has it, whether or not it is held by the object that is asked."""

    name: str

    def holders(self) -> list[Holder]:
        """The one who has it first, then those who wait for it, where that can be seen."""
        ...

    def take_away(self, lock_id: str) -> bool:
        """Ends the lock of this id, whoever has it. False when it is gone, or was renewed in this moment."""
        ...


def break_held(lock: Inspected, lock_id: str, *, force: bool = False, clock: Clock = SYSTEM_CLOCK) -> Holder:
    """Takes a lock, or a place in its queue, from its owner, and answers whose it was.

    LockError while the owner may live, unless forced; NoSuchLockError when there is no such lock.
    """
    for _ in range(_TRIES):
        found = next((each for each in lock.holders() if each.lock_id == lock_id), None)
        if found is None:
            raise NoSuchLockError(f"{lock.name} knows no lock {lock_id}", lock_id=lock_id)
        if found.may_live and not force:
            sign = _sign(found, clock)
            raise LockError(
                f"lock {lock_id} on {lock.name} is of {found.name}{sign}",
                hint="end that process first; --force takes the lock from it, and its commit fails",
                lock_id=lock_id,
                holder=found.name,
            )
        if lock.take_away(lock_id):
            return found
    raise LockError(f"lock {lock_id} on {lock.name} is renewed all the time", lock_id=lock_id)


_TRIES = 10


def _sign(found: Holder, clock: Clock) -> str:
    now = clock.now().timestamp()
    if found.last_sign is not None:
        return f", whose last heartbeat was {max(0.0, now - found.last_sign):.0f} s ago"
    if found.until is not None:
        return f", until {datetime.fromtimestamp(found.until, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    return ", which may be alive"
