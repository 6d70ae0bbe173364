"""The writes of this process to one table in turns: in the order in which they came, and small ones together.

Nothing waits for others to come: while one write commits, those that arrive meanwhile queue, and the first of them
takes along those that can be one commit with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from skep_format.errors import InputError, RowErrors, UnsupportedError, ValidationError, WriteError
from skep_table.write.joint import Part
from skep_table.write.result import WriteResult

MOST_PARTS: Final = 256
MOST_BYTES: Final = 32 << 20

_OF_ONE: Final = (InputError, RowErrors, UnsupportedError, ValidationError)
"""Errors that the rows or the statement of one part may have caused."""

Outcome = WriteResult | Exception | None
Together = Callable[[Sequence[Part]], Sequence[Outcome]]


@dataclass(eq=False)
class _Turn:
    """One call. `owner`: equal for calls that may be one commit, as they write with the same options and hooks."""

    part: Part | None
    owner: Hashable
    alone: Callable[[], WriteResult]
    outcome: Outcome = field(default=None, init=False)

    @property
    def kind(self) -> Hashable | None:
        return None if self.part is None else self.part.kind

    @property
    def bytes(self) -> int:
        return 0 if self.part is None else self.part.bytes

    def joins(self, first: _Turn) -> bool:
        kind = self.kind
        return kind is not None and kind == first.kind and self.owner == first.owner


class WriteTurns:
    """The queue of one table. Each call returns once its own write is committed, or raises its own error."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []
        self._writer: int | None = None  # the thread that commits

    def take(
        self, part: Part | None, owner: Hashable, alone: Callable[[], WriteResult], together: Together
    ) -> WriteResult:
        """Commits by `alone`, in its turn, or as one of the parts that `together` commits, here or in another thread.

        A write that a write of the same thread makes (a hook's) is carried out at once.
        """
        if self._writer == threading.get_ident():
            return alone()
        turn = _Turn(part, owner, alone)
        group = self._wait(turn)
        if group:
            try:
                _carry_out(group, together)
            finally:
                self._end(group)
        if isinstance(turn.outcome, Exception):
            raise turn.outcome
        assert turn.outcome is not None
        return turn.outcome

    def _wait(self, turn: _Turn) -> list[_Turn]:
        """The turns that this thread carries out, its own first; none where another thread has carried out its own."""
        with self._changed:
            self._waiting.append(turn)
            try:
                self._changed.wait_for(lambda: turn.outcome is not None or self._is_next(turn))
            except BaseException:  # an interrupt: what another thread has taken along is not withdrawn
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    self._changed.notify_all()
                raise
            if turn.outcome is not None:
                return []
            self._writer = threading.get_ident()
            group = _group(self._waiting)
            self._waiting = [each for each in self._waiting if each not in group]
            return group

    def _is_next(self, turn: _Turn) -> bool:
        return self._writer is None and bool(self._waiting) and self._waiting[0] is turn

    def _end(self, group: Sequence[_Turn]) -> None:
        """Those without an outcome are the next ones, in their order."""
        with self._changed:
            self._writer = None
            self._waiting = [*(each for each in group[1:] if each.outcome is None), *self._waiting]
            self._changed.notify_all()


def _group(waiting: Sequence[_Turn]) -> list[_Turn]:
    """The first, and those after it that can be one commit with it."""
    first = waiting[0]
    found, size = [first], first.bytes
    for each in waiting[1:]:
        if len(found) < MOST_PARTS and each.joins(first):
            size += each.bytes
            if size > MOST_BYTES:
                break
            found.append(each)
    return found


def _carry_out(group: Sequence[_Turn], together: Together) -> None:
    """Gives the turns their outcomes; those of a joint commit that wait for the next one get none."""
    if len(group) == 1:
        _alone(group[0])
        return
    parts = [each.part for each in group if each.part is not None]
    try:
        outcomes = together(parts)
    except _OF_ONE:  # which fails alone: nothing was committed
        for each in group:
            _alone(each)
        return
    except Exception as error:
        outcomes = [error] * len(group)
    except BaseException as error:
        left = WriteError(
            "the writer that committed this write with its own was interrupted; whether it took effect is"
            " in the history of the table"
        )
        left.__cause__ = error
        for each in group[1:]:
            each.outcome = left
        raise
    for each, outcome in zip(group, outcomes, strict=True):
        each.outcome = outcome
    if group[0].outcome is None:  # the first never waits for the next commit, whatever it is
        _alone(group[0])


def _alone(turn: _Turn) -> None:
    try:
        turn.outcome = turn.alone() if turn.part is None else turn.part.context.run(turn.alone)
    except Exception as error:
        turn.outcome = error


_TURNS: WeakValueDictionary[str, WriteTurns] = WeakValueDictionary()
_GUARD: Final = threading.Lock()


def turns_of(root: str) -> WriteTurns:
    """The queue of this process for the table at a base path, as long as somebody holds it."""
    with _GUARD:
        return _TURNS.setdefault(root, WriteTurns())
