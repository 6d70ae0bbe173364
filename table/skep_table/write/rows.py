"""Where keyed rows are between input and commit: the protocol that engines implement, and the one for Arrow tables.

The flow of a write (`write/flow.py`) asks rows three things: which partitions, which file groups, write these buckets.
Where the rows are meanwhile (this process, Spark's block manager) is the engine's affair.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from skep_table.runner import ReportingRunner, Runner, ThreadRunner
from skep_table.schema.types import RECORD_KEY
from skep_table.write.attempt import attempt_scope
from skep_table.write.bucket import BucketResult, write_bucket
from skep_table.write.context import WriteContext
from skep_table.write.files import announce
from skep_table.write.hashing import key_hashes
from skep_table.write.index import NEW_KEY
from skep_table.write.indexes.base import Index
from skep_table.write.indexes.moves import GlobalTagger
from skep_table.write.keyed import partition_codes, rows_by
from skep_table.write.profile import Bucket, BucketPlan

# partition path → position in its files (NEW_KEY: not found) → rows
Tagged = Mapping[str, Mapping[int, int]]


class Rows(Protocol):
    """Keyed rows of one write, evaluated once, held until released."""

    def partitions(self) -> Mapping[str, int]:
        """Partition path → rows."""
        ...

    def sample(self, most: int) -> pa.Table:
        """Some of the rows, at most so many, from all over them."""
        ...

    def tag(self, index: Index | GlobalTagger | None) -> Tagged:
        """Asks the index for every row and remembers the answers. None: all rows count as new.

        A global index may take rows away, put them into other partitions and add deletes.
        """
        ...

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        """Routes the rows to the plan's buckets and writes these."""
        ...

    def release(self) -> None: ...


class ArrowRows:
    """An Arrow table in this process; the tasks run wherever the runner runs them."""

    def __init__(self, keyed: pa.Table, runner: Runner) -> None:
        self._given = self._keyed = keyed
        self._runner = runner
        self._announced = ""  # the instant whose files were announced together
        self._split()
        self._tags = [np.full(len(positions), NEW_KEY, np.int32) for positions in self._rows]

    def _split(self) -> None:
        """Partition paths, and the positions of the rows of each."""
        self._paths, codes = partition_codes(self._keyed)
        self._rows = [positions for _, positions in rows_by(codes, len(self._paths))]

    def partitions(self) -> Mapping[str, int]:
        return {path: len(rows) for path, rows in zip(self._paths, self._rows, strict=True)}

    def sample(self, most: int) -> pa.Table:
        step = max(1, -(-self._keyed.num_rows // most))
        return self._keyed.take(pa.array(np.arange(0, self._keyed.num_rows, step)))

    def tag(self, index: Index | GlobalTagger | None) -> Tagged:
        if isinstance(index, GlobalTagger):
            self._keyed, tags = index.settle(self._given)
            self._split()
            self._tags = [tags[rows] for rows in self._rows]
        elif index is not None:
            keys = self._keyed.select(index.columns)
            tasks = [keys.take(pa.array(rows)).combine_chunks() for rows in self._rows]
            self._tags = list(self._runner.map(index.tag, tasks))
        return {path: count_tags(tags) for path, tags in zip(self._paths, self._tags, strict=True)}

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        chosen: dict[int, list[np.ndarray]] = {}
        for path, positions, tags in zip(self._paths, self._rows, self._tags, strict=True):
            route = plan.routes[path]
            hashes = np.zeros(len(positions), np.uint64)
            if len(route.inserts) > 1:
                keys = self._keyed.column(RECORD_KEY).take(pa.array(positions)).combine_chunks()
                hashes = key_hashes(keys) if not keys.null_count else positions.astype(np.uint64)
            buckets = route.buckets(tags, hashes)
            for number, rows in rows_by(buckets, len(plan.buckets)):
                chosen.setdefault(number, []).append(positions[rows])
        tasks = []
        for bucket in sorted(plan.buckets, key=lambda bucket: -bucket.rows):
            parts = chosen.get(bucket.number)
            if parts is not None:
                tasks.append((bucket, self._keyed.take(pa.array(np.concatenate(parts))).combine_chunks()))
        if isinstance(self._runner, (ThreadRunner, ReportingRunner)):  # tasks of this process, which run once
            again = self._announced == context.instant_time
            context = announce(context, [bucket for bucket, _ in tasks], again=again)
            if context.announced is not None:
                self._announced = context.instant_time
        return list(self._runner.map(partial(write_task, context), tasks))

    def release(self) -> None:
        self._given = self._keyed = self._keyed.slice(0, 0)


def count_tags(tags: np.ndarray) -> dict[int, int]:
    values, counts = np.unique(tags, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def write_task(context: WriteContext, task: tuple[Bucket, pa.Table]) -> BucketResult:
    ahead = context.announced.get(task[0].number) if context.announced is not None else None
    with contextlib.nullcontext() if ahead is None else attempt_scope(ahead.attempt):
        return write_bucket(context, *task)
