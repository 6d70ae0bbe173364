"""Holders of a lock by the texts in which they identify themselves, as each provider reports them; breaking a lock."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, Protocol, runtime_checkable

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import LockError, NoSuchLockError
from skep_table.runtime.process import ProcessName, this_process

_PREFIX: Final = "skep "


def agent_text(purpose: str | None, *, most: int | None = None) -> str:
    """Process, purpose, time, and an id unique to this lock, as JSON.

    `most`: the provider's limit in characters, at least 110; then host and time are left out, and the purpose cut.
    """
    facts: dict[str, object] = {**this_process().as_dict(), "id": uuid.uuid4().hex[:16]}
    if most is not None:
        del facts["host"]
    else:
        facts["since"] = int(time.time())
    if purpose is not None:
        room = len(purpose) if most is None else most - len(_text({**facts, "purpose": ""}))
        facts["purpose"] = purpose[:room]
    return _text(facts)


def _text(facts: Mapping[str, object]) -> str:
    return _PREFIX + json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


def agent_facts(text: str | None) -> dict[str, object]:
    """The facts in a skep holder's text; empty for other clients."""
    if not (text or "").startswith(_PREFIX):
        return {}
    try:
        facts = json.loads((text or "").removeprefix(_PREFIX))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def has_ended(text: str | None) -> bool:
    """Whether the process that wrote the text has certainly ended, so that its lock can be broken."""
    process = ProcessName.parse(agent_facts(text))
    return process is not None and process.has_ended


def describe(
    facts: Mapping[str, object], *, user: str | None = None, host: str | None = None, since: float | None = None
) -> str:
    """A holder as text for people. `since`: epoch seconds, where its own text has none."""
    host = host or str(facts.get("host", "")) or "another client"
    parts = [f"{user}@{host}" if user else host]
    if "pid" in facts:
        parts.append(f"process {facts['pid']}")
    if facts.get("purpose"):
        parts.append(str(facts["purpose"]))
    own = facts.get("since")
    began = since if since is not None else own if isinstance(own, int | float) else None
    if began is not None:
        parts.append(f"since {datetime.fromtimestamp(began, timezone.utc):%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(parts)


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
