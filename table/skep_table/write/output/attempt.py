"""Which attempt of which task is running: makes file names of retried, doubled and late attempts differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Task, stage and attempt number, from which write tokens are made (format guide 4.2)."""

    task: int
    stage: int
    number: int

    @property
    def write_token(self) -> str:
        """`<task>-<stage>-<attempt>`, the write token of base files."""
        return f"{self.task}-{self.stage}-{self.number}"


_current: ContextVar[Attempt | None] = ContextVar("skep_attempt", default=None)
_numbers = itertools.count()


@contextmanager
def attempt_scope(attempt: Attempt) -> Iterator[None]:
    """Declares the attempt for the tasks run within the block; runners on other machines do this."""
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)


def may_repeat() -> bool:
    """Whether the running task may have other attempts, earlier ones and at the same time."""
    return _current.get() is not None


def attempt_of(task: int) -> Attempt:
    """The running attempt of task number `task`; without a scope, a number no other attempt in this process has."""
    current = _current.get()
    return Attempt(task, 0, next(_numbers)) if current is None else Attempt(task, current.stage, current.number)
