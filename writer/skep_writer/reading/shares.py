"""The tasks of a read in shares: each share is what one Spark task reads, as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from skep_table.query import cdc, execute
from skep_table.query.cleaned import files_there
from skep_table.query.filters.predicate import Predicate
from skep_table.query.plan import ReadTask, Scan
from skep_table.view import FileSlice
from skep_table.write.input.conform import conform

Task: TypeAlias = "ReadTask | cdc.ChangeTask"

_TASKS_PER_CORE = 4


def task_shares(tasks: Sequence[Task], cores: int) -> list[bytes]:
    """The tasks of a read in a few shares a core, each as bytes for `rows_of_share`."""
    return [pickle.dumps(share) for share in _shares(tasks, cores * _TASKS_PER_CORE)]


def rows_of_share(
    share: bytes | pa.Buffer, target: pa.Schema, predicate: Predicate | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some tasks, in exactly the columns of `target`, some of the tasks' own.

    Rows that fail `predicate` are left out of the answers of scans.
    """
    held: Scan | None = None
    for task in pickle.loads(share):
        if isinstance(task, cdc.ChangeTask):
            table, answer = task.table, cdc.run(task)
        else:
            if task.scan is not held:  # the tasks of a share have one scan
                held, scan = task.scan, _narrowed(task.scan, target, predicate)
            table, answer = scan.table, execute.run(replace(task, scan=scan))
        with files_there(table):
            for rows in answer:
                yield from conform(rows, target).combine_chunks().to_batches()


def _narrowed(scan: Scan, target: pa.Schema, predicate: Predicate | None) -> Scan:
    both = scan.predicate if predicate is None else predicate.also(scan.predicate)
    return replace(scan, columns=tuple(target.names), predicate=both)


def _shares(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """At most `count` runs of tasks of about the same weight, in order; a task's weight is its bytes and an opening."""
    weights = [bytes_of(task) + (1 << 20) for task in tasks]
    target = max(1, -(-sum(weights) // count))
    shares: list[list[Task]] = []
    filled = target
    for task, weight in zip(tasks, weights, strict=True):
        if filled + weight // 2 >= target:
            shares.append([])
            filled = 0
        shares[-1].append(task)
        filled += weight
    return shares


def bytes_of(task: Task) -> int:
    """The size of the files that a task reads."""
    slices: tuple[FileSlice | None, ...] = (task.slice,) if isinstance(task, ReadTask) else (task.before, task.after)
    return sum(found.size_bytes for found in slices if found is not None)
