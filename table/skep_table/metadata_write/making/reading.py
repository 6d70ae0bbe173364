"""Reads what files and slices hold for the indexes of a new metadata table: by threads, or by Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from skep_format.batching import in_groups
from skep_format.runner import Runner, ThreadRunner
from skep_table.query.ahead import in_order

T = TypeVar("T")
R = TypeVar("R")

# Of one job on Spark, whose results are in memory at once.
_TASKS: Final = 1024
_BYTES: Final = 1 << 30


def each_read(runner: Runner, read: Callable[[T], R], tasks: Iterable[T], size: Callable[[T], int]) -> Iterator[R]:
    """What `read` returns for each task, in their order, with few results in memory.

    `size` is that of the files of a task in bytes, which its result does not exceed.
    """
    if isinstance(runner, ThreadRunner):
        yield from in_order(tasks, lambda task: iter((read(task),)), runner.threads)
        return
    for portion in in_groups(tasks, size, _BYTES, _TASKS):
        yield from runner.map(read, portion)
