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


def _step(line: str) -> Transition:
    name, sources, target, kinds, lock, effect = map(str.strip, line.split("|"))
    states, of = frozenset(map(CommitState, sources.split(", "))), frozenset(map(CommitKind, kinds.split(", ")))
    return Transition(name, states, CommitState(target), of, lock == "held", effect)


# transition | from | to | of | lock | on storage
_TABLE: Final = """\
request | new | requested | write | held |\
 failed writes of others are rolled back; heartbeat, requested file
claim | new | inflight | service | held |\
 heartbeat, open sign with the executor's claim, inflight file
take over | new | inflight | service | held |\
 heartbeat; files and markers of the executor that died are deleted; open sign with the claim
start | requested | inflight | write |  |\
 open sign, inflight file with the planned file groups; then markers and data files
prepare | inflight | prepared | write, service |  |\
 participants prepare: data files are synced, index entries written
check | prepared | checked | write, service | held |\
 none: heartbeat, ownership of the instant, conflicts and columns are compared with the table as it is
publish | checked | ready | write, service | held |\
 participants commit: the open sign and files of losing task attempts are deleted, the metadata table is updated
complete | ready | completed | write, service | held |\
 staged file, the lock is verified, completed file: the commit point
confirm | ready | completed | write, service |  |\
 none: the completing call failed, but the completed file is there
close | completed | closed | write, service |  |\
 heartbeat and markers are deleted
retry | inflight, prepared | inflight | write |  |\
 none: after a conflict the write goes on at the same instant, on a new snapshot
remove | requested, inflight, prepared, checked, ready | removed | write |  |\
 data files, then inflight and requested file, then markers are deleted; no trace on the timeline
roll back | inflight, prepared, checked, ready | rolled back | write |  |\
 a rollback is requested with its plan, carried out and completed
give back | inflight, prepared, checked, ready | given back | service | held |\
 files and markers of this attempt, then the inflight file are deleted; the plan stays requested
yield | inflight, prepared, checked, ready | taken over | service | held |\
 none: another executor has the plan, or it is no longer on the timeline
discard | new, prepared | rolled back | service | held |\
 the plan does not fit the table any more: it is rolled back off the timeline
revert | completed | rolled back | write, service | held |\
 the lock was lost during a slow completion, and another commit collides: this one is rolled back
"""

TRANSITIONS: Final = tuple(map(_step, _TABLE.splitlines()))
REQUEST, CLAIM, TAKE_OVER, START, PREPARE, CHECK, PUBLISH, COMPLETE, CONFIRM, CLOSE = TRANSITIONS[:10]
RETRY, REMOVE, ROLL_BACK, GIVE_BACK, YIELD, DISCARD, REVERT = TRANSITIONS[10:]
