"""What executes the table of transitions: the state of one commit, and the binding of methods to transitions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from skep_format.timeline.instant import Instant
from skep_table.commit.states import CommitKind, CommitState, Transition
from skep_table.commit.writable import take_lock_over
from skep_table.table import HudiTable

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="CommitMachine")
Step = Callable[Concatenate[C, P], R]


def transition(step: Transition) -> Callable[[Step[C, P, R]], Step[C, P, R]]:
    """Binds a method to a transition: it runs from the transition's sources only, and its target is reached when the
    method returns. After an exception the state is as before."""

    def bind(method: Step[C, P, R]) -> Step[C, P, R]:
        @functools.wraps(method)
        def run(commit: C, /, *args: P.args, **named: P.kwargs) -> R:
            commit._enter(step)
            answer = method(commit, *args, **named)
            commit.state = step.target
            return answer

        return run

    return bind


class CommitMachine:
    """The state of one instant under way, which changes by transitions only.

    `table` is the snapshot that the commit is based on. `instant` is set by the first transition of a write.
    """

    kind: ClassVar[CommitKind]
    instant: Instant

    def __init__(self, table: HudiTable) -> None:
        self.table = table
        self.state = CommitState.NEW
        self._locked = False

    def _enter(self, step: Transition) -> None:
        """Before each transition: an AssertionError where the protocol does not allow it here."""
        allowed = self.state in step.sources and self.kind in step.kinds and (self._locked or not step.locked)
        if not allowed:
            place = "with" if self._locked else "without"
            raise AssertionError(f"a {self.kind.value} may not {step.name!r} from {self.state} {place} the lock")
        time = self.instant.requested_time if hasattr(self, "instant") else None
        self.table.context.events.emit("commit.transition", transition=step.name, source=self.state.value, instant=time)

    @contextmanager
    def _exclusive(self, timeout_seconds: float | None = None) -> Iterator[tuple[HudiTable, str]]:
        """Holds the table's lock, and yields a snapshot taken under it and the lock's id.

        A completion that an earlier holder has staged fails from then on.
        """
        with self.table.context.locked(timeout_seconds) as lock_id:
            self._locked = True
            try:
                yield take_lock_over(self.table), lock_id
            finally:
                self._locked = False
