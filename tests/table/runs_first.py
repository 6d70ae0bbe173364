"""A runner before whose first tasks something else happens, as another writer's commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from skep_format.runner import ThreadRunner

A, R = TypeVar("A"), TypeVar("R")


class RunsFirst(ThreadRunner):
    """Runs `action` once: behind the beginning of a write that is given this runner, and before its files."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action
        self.has_run = False

    def map(self, function: Callable[[A], R], tasks: Iterable[A]) -> Sequence[R]:
        if not self.has_run:
            self.has_run = True
            self._action()
        return super().map(function, tasks)
