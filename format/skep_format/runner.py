"""Where tasks run: threads here, Spark in `skep_writer`; the same functions on either."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Runner(Protocol):
    """Runs one function over many tasks. Functions and tasks may travel to other machines: both must pickle."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        """Results in the order of the tasks. The first error is raised, after running tasks have ended."""


class ThreadRunner:
    """Runs tasks on threads of this process. Arrow kernels and I/O release the interpreter lock."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(32, (os.cpu_count() or 1) + 4)

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        listed = list(tasks)
        if len(listed) <= 1 or self.threads == 1:
            return [function(task) for task in listed]
        with ThreadPoolExecutor(min(self.threads, len(listed)), thread_name_prefix="skep") as pool:
            return list(pool.map(function, listed))


class ReportingRunner:
    """Calls `report(ended, total)` after each task. Functions run in this process only: the wrapper does not pickle."""

    def __init__(self, runner: Runner, report: Callable[[int, int], object]) -> None:
        self._runner = runner
        self._report = report

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        listed = list(tasks)
        ended = itertools.count(1)

        def run(task: T) -> R:
            result = function(task)
            self._report(next(ended), len(listed))
            return result

        return self._runner.map(run, listed)
