"""Care for a metastore's locks: is a holder alive, may its lock be broken, and does the server do its part?"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from skep_catalog.client import Metastore
from skep_catalog.entities import LockInfo, LockState
from skep_catalog.lock import HmsLock, describe
from skep_catalog.settings import seconds
from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import CatalogError, LockError, NoSuchLockError
from skep_table.lock import held
from skep_table.locks.holders import has_ended

FRESH_SECONDS: Final = 120.0
"""Hudi's writers send a heartbeat once a minute, skep's every fifteen seconds: one within this time may be active."""

_NAMED: Final = 3
_DRIFT_SECONDS: Final = 2.0
_DEFAULT_TIMEOUT_SECONDS: Final = 300.0


def silent_seconds(lock: LockInfo, clock: Clock = SYSTEM_CLOCK) -> float:
    """Since its last heartbeat, by the two clocks."""
    return max(0.0, clock.now().timestamp() - lock.last_heartbeat_ms / 1000)


def may_live(lock: LockInfo, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether the owner of a lock may be active: its process runs here, or it sent a heartbeat lately."""
    return not has_ended(lock.agent_info) and silent_seconds(lock, clock) < FRESH_SECONDS


def break_lock(metastore: Metastore, lock_id: int, *, force: bool = False, clock: Clock = SYSTEM_CLOCK) -> LockInfo:
    """Takes a lock, or a place in the queue, from its owner, and returns whose it was.

    LockError while the owner may be active, unless forced; NoSuchLockError when there is no such lock.
    """
    lock = next((each for each in metastore.locks() if each.lock_id == lock_id), None)
    if lock is None:
        raise NoSuchLockError(f"metastore {metastore.uri} knows no lock {lock_id}", lock_id=lock_id)
    if may_live(lock, clock) and not force:
        raise LockError(
            f"lock {lock_id} is of {describe(lock)}, whose last heartbeat was {silent_seconds(lock, clock):.0f} s ago",
            hint="end that process first; --force takes the lock from it, and its commit fails",
            lock_id=lock_id,
            holder=describe(lock),
        )
    metastore.unlock(lock_id)
    return lock


@dataclass(frozen=True, slots=True)
class LockFinding:
    """One finding of `examine_locks`: what was examined, whether it is well, and what to do if not."""

    what: str
    well: bool
    found: str
    hint: str | None = None


def examine_locks(metastore: Metastore, clock: Clock = SYSTEM_CLOCK) -> list[LockFinding]:
    """Whether locks of this metastore can be relied upon. Takes a lock on a table that does not exist, and gives it up.

    What the server does not disclose (some keep their settings private) is left out.
    """
    found = [_version(metastore)]
    probe = _probe(metastore, clock)
    found += probe
    if all(each.well for each in probe):
        found.append(_holders(metastore, clock))
        found.append(_house_keeping(metastore, clock))
    return found


def _version(metastore: Metastore) -> LockFinding:
    try:
        return LockFinding("metastore", True, f"{metastore.uri}, version {metastore.version}")
    except CatalogError as error:
        return LockFinding("metastore", False, error.message, "is it running, and is the address right?")


def _probe(metastore: Metastore, clock: Clock) -> list[LockFinding]:
    lock = HmsLock(metastore, "skep_doctor", f"probe_{uuid.uuid4().hex[:12]}", purpose="doctor", clock=clock)
    try:
        start = clock.monotonic()
        with held(lock, 10):
            took = clock.monotonic() - start
            before = clock.now().timestamp()
            (there,) = [each for each in metastore.locks() if each.lock_id == lock.lock_id]
            after = clock.now().timestamp()
            lock.ensure_held()
    except (CatalogError, LockError) as error:
        return [
            LockFinding(
                "lock tables",
                False,
                error.message,
                "the lock tables of its database may be missing (HIVE_LOCKS, NEXT_LOCK_ID): run schematool, or set"
                " hive.in.test=true once on an embedded Derby",
            )
        ]
    drift = there.last_heartbeat_ms / 1000 - (before + after) / 2
    return [
        LockFinding("lock tables", True, f"a lock was granted in {took * 1000:.0f} ms"),
        LockFinding(
            "clock",
            abs(drift) < _DRIFT_SECONDS + (after - before),
            f"the metastore's is {abs(drift):.1f} s {'ahead' if drift > 0 else 'behind'}",
            "ages of locks are off by as much",
        ),
    ]


def _holders(metastore: Metastore, clock: Clock) -> LockFinding:
    """Locks whose owners are dead, or have been silent for long: others wait for them until the time-out."""
    left = [each for each in metastore.locks() if each.state is LockState.ACQUIRED and not may_live(each, clock)]
    if not left:
        return LockFinding("holders", True, "all have sent a heartbeat lately")
    shown = "; ".join(
        f"{describe(each)}, "
        + (
            "whose process has ended"
            if has_ended(each.agent_info)
            else f"silent for {silent_seconds(each, clock):.0f} s"
        )
        for each in left[:_NAMED]
    )
    more = f"; and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    hint = f"skep lock break --lock-id {left[0].lock_id}"
    return LockFinding("holders", False, f"{len(left)} of them left: {shown}{more}", hint)


def _house_keeping(metastore: Metastore, clock: Clock) -> LockFinding:
    """Seen by what it left: a lock that was silent for longer than the time-out ought not to be there any more."""
    limit = _timeout_seconds(metastore)
    over = [lock for lock in metastore.locks() if silent_seconds(lock, clock) > limit + 60]
    hint = (
        "the house-keeper seems to be off (metastore.compactor.initiator.on, metastore.task.threads.remote): locks of"
        " dead writers stay; break them by hand"
    )
    if over:
        return LockFinding("house-keeper", False, f"{len(over)} locks outlived the time-out of {limit:.0f} s", hint)
    return LockFinding("house-keeper", True, f"no lock has outlived the time-out of {limit:.0f} s")


def _timeout_seconds(metastore: Metastore) -> float:
    """`hive.txn.timeout` of the server, where it reports it."""
    try:
        return seconds(metastore.setting("hive.txn.timeout", "300s"))
    except (CatalogError, ValueError):
        return _DEFAULT_TIMEOUT_SECONDS
