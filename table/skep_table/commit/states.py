"""The commit protocol as a table: the states of an instant under way, and every transition between them.

`machine.py` executes it: each step of a write or a service is a method bound to one transition, which runs only from
the states that the table names, and under the table's lock where the table requires it. The fault tests kill the
process in every transition of this table. Format guide 2.4 and 2.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class CommitState(Enum):
    """How far one process has brought its instant. What others see of it is on the timeline."""

    NEW = "new"
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    PREPARED = "prepared"
    CHECKED = "checked"
    READY = "ready"
    COMPLETED = "completed"
    CLOSED = "closed"
    REMOVED = "removed"
    ROLLED_BACK = "rolled back"
    GIVEN_BACK = "given back"
    TAKEN_OVER = "taken over"

    @property
    def is_committed(self) -> bool:
        """Whether readers see what the instant wrote, also after the process is killed in this state."""
        return self in (CommitState.COMPLETED, CommitState.CLOSED)

    @property
    def is_final(self) -> bool:
        """Whether this process has nothing left to do for the instant."""
        return self in _FINAL


_FINAL: Final = frozenset(
    {
        CommitState.CLOSED,
        CommitState.REMOVED,
        CommitState.ROLLED_BACK,
        CommitState.GIVEN_BACK,
        CommitState.TAKEN_OVER,
    }
)


class CommitKind(Enum):
    """A write has an instant of its own; a service carries out a plan that is on the timeline already."""

    WRITE = "write"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Transition:
    """One step. `locked`: it runs under the table's lock. `effect`: what it changes on storage, in its order."""

    name: str
    sources: frozenset[CommitState]
    target: CommitState
    kinds: frozenset[CommitKind]
    locked: bool
    effect: str


def _step(
    name: str, sources: tuple[CommitState, ...], target: CommitState, kinds: str, effect: str, *, locked: bool = False
) -> Transition:
    named = frozenset(CommitKind(kind) for kind in kinds.split())
    return Transition(name, frozenset(sources), target, named, locked, effect)


_S = CommitState
_UNDECIDED = (_S.INFLIGHT, _S.PREPARED, _S.CHECKED, _S.READY)

REQUEST: Final = _step(
    *("request", (_S.NEW,), _S.REQUESTED, "write"),
    "failed writes of others are rolled back; heartbeat, requested file",
    locked=True,
)
CLAIM: Final = _step(
    *("claim", (_S.NEW,), _S.INFLIGHT, "service"),
    "heartbeat, open sign with the executor's claim, inflight file",
    locked=True,
)
TAKE_OVER: Final = _step(
    *("take over", (_S.NEW,), _S.INFLIGHT, "service"),
    "heartbeat; files and markers of the executor that died are deleted; open sign with the claim",
    locked=True,
)
START: Final = _step(
    *("start", (_S.REQUESTED,), _S.INFLIGHT, "write"),
    "open sign, inflight file with the planned file groups; then markers and data files",
)
PREPARE: Final = _step(
    *("prepare", (_S.INFLIGHT,), _S.PREPARED, "write service"),
    "participants prepare: data files are synced, index entries written",
)
CHECK: Final = _step(
    *("check", (_S.PREPARED,), _S.CHECKED, "write service"),
    "none: heartbeat, ownership of the instant, conflicts and columns are compared with the table as it is",
    locked=True,
)
PUBLISH: Final = _step(
    *("publish", (_S.CHECKED,), _S.READY, "write service"),
    "participants commit: the open sign and files of losing task attempts are deleted, the metadata table is updated",
    locked=True,
)
COMPLETE: Final = _step(
    *("complete", (_S.READY,), _S.COMPLETED, "write service"),
    "staged file, the lock is verified, completed file: the commit point",
    locked=True,
)
CONFIRM: Final = _step(
    *("confirm", (_S.READY,), _S.COMPLETED, "write service"),
    "none: the completing call failed, but the completed file is there",
)
CLOSE: Final = _step(
    *("close", (_S.COMPLETED,), _S.CLOSED, "write service"),
    "heartbeat and markers are deleted",
)
RETRY: Final = _step(
    *("retry", (_S.INFLIGHT, _S.PREPARED), _S.INFLIGHT, "write"),
    "none: after a conflict the write goes on at the same instant, on a new snapshot",
)
REMOVE: Final = _step(
    *("remove", (_S.REQUESTED, *_UNDECIDED), _S.REMOVED, "write"),
    "data files, then inflight and requested file, then markers are deleted; no trace on the timeline",
)
ROLL_BACK: Final = _step(
    *("roll back", _UNDECIDED, _S.ROLLED_BACK, "write"),
    "a rollback is requested with its plan, carried out and completed",
)
GIVE_BACK: Final = _step(
    *("give back", _UNDECIDED, _S.GIVEN_BACK, "service"),
    "files and markers of this attempt, then the inflight file are deleted; the plan stays requested",
    locked=True,
)
YIELD: Final = _step(
    *("yield", _UNDECIDED, _S.TAKEN_OVER, "service"),
    "none: another executor has the plan, or it is no longer on the timeline",
    locked=True,
)
DISCARD: Final = _step(
    *("discard", (_S.NEW, _S.PREPARED), _S.ROLLED_BACK, "service"),
    "the plan does not fit the table any more: it is rolled back off the timeline",
    locked=True,
)
REVERT: Final = _step(
    *("revert", (_S.COMPLETED,), _S.ROLLED_BACK, "write service"),
    "the lock was lost during a slow completion, and another commit collides: this one is rolled back",
    locked=True,
)

TRANSITIONS: Final = (
    *(REQUEST, CLAIM, TAKE_OVER, START, PREPARE, CHECK, PUBLISH, COMPLETE, CONFIRM, CLOSE),
    *(RETRY, REMOVE, ROLL_BACK, GIVE_BACK, YIELD, DISCARD, REVERT),
)
