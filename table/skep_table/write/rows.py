"""Where keyed rows are between input and commit: the protocol that engines implement, and the one for Arrow tables.

The flow of a write (`write/flow.py`) calls three methods of the rows: `partitions`, `tag`, `write`.
The engine decides where the rows are meanwhile: in this process, or in Spark's block manager.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.batching import in_groups
from skep_format.runner import ReportingRunner, Runner, ThreadRunner
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import LocalStorage, Storage
from skep_table.keys.hashes import key_hashes
from skep_table.merge.rows import POSITION
from skep_table.write.context import Memory, WriteContext
from skep_table.write.indexes.tagging import Tagging, locate
from skep_table.write.input.row_input import pieces
from skep_table.write.keyed import partition_codes, rows_by, unnamed
from skep_table.write.output.attempt import attempt_scope
from skep_table.write.output.bucket import BucketResult, write_bucket
from skep_table.write.output.files import announce
from skep_table.write.planning.profile import Bucket, BucketPlan
from skep_table.write.row_store import ARRIVAL, RowStore
from skep_table.write.tags import HELD, Located, Positions, Tags

PIECE_BYTES: Final = 32 << 20  # rows that pass a kernel at once
_TASKS_AT_ONCE: Final = 4
_LEAST_ROW_GROUP: Final = 8 << 20
_MANY_ROWS: Final = 4_096  # in a batch; batches with fewer are joined, since writing takes some time for each
T = TypeVar("T")
R = TypeVar("R")
# Other bits of a key's hash than those that spread inserts over buckets.
_PLACES: Final = np.uint64(1 << 32)

# partition path → position in its files (NEW_KEY: not found) → rows
Tagged = Mapping[str, Mapping[int, int]]


class KeyedRows(Protocol):
    """Keyed rows of one write, evaluated once, held until released."""

    def partitions(self) -> Mapping[str, int]:
        """Partition path → rows."""

    @property
    def all_named(self) -> bool:
        """Whether every row names the file that it was read from, as prepped rows do, or is known to be new."""

    def sample(self, most: int) -> pa.Table:
        """Some of the rows, at most so many, from all over them."""

    def keys(self, most: int) -> pa.Array | None:
        """The record keys; None where they are more than `most`, not made yet, or not in this process."""

    def tag(self, tagging: Tagging | None) -> Tagged:
        """Looks up every row and keeps the tags. None: all rows count as new.

        A global index may drop rows, move them to other partitions and add deletes.
        """

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        """Routes the rows to the plan's buckets and writes these."""

    def release(self) -> None:
        """Frees memory and temporary files; the rows can't be used after it."""


class ArrowRows:
    """Rows of this process; the tasks run wherever the runner runs them. Beyond `memory` they lie on disk."""

    def __init__(self, keyed: Iterable[KeyedBatch], runner: Runner, memory: Memory | None = None) -> None:
        self._runner = runner
        self._memory = memory or Memory(sys.maxsize)
        self.all_named = True
        self._announced = ""  # the instant whose files were announced together
        self._given: RowStore[str] = self._new_store()
        try:
            for batch in keyed:
                self._given.add(*batch)
                self.all_named = self.all_named and not unnamed(batch.rows)
        except BaseException:
            self._given.close()
            raise
        self._rows = self._given
        self._found: dict[str, Located] = {}

    def _new_store(self) -> RowStore[str]:
        return RowStore(self._memory.max_bytes, self._memory.folder)

    def partitions(self) -> Mapping[str, int]:
        return self._rows.labels

    def sample(self, most: int) -> pa.Table:
        return self._rows.sample(most)

    def keys(self, most: int) -> pa.Array | None:
        if sum(self._given.labels.values()) > most:
            return None
        parts = [each.column(0) for path in self._given.labels for each in self._given.batches(path, (RECORD_KEY,))]
        keys = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
        return None if keys.null_count else keys

    def tag(self, tagging: Tagging | None) -> Tagged:
        if tagging is None:
            self._found = {path: Located.new(rows) for path, rows in self._rows.labels.items()}
        else:
            found = self._located(tagging) if tagging.relocation is None else self._relocated(tagging)
            self._found = {path: Located.joined(parts) for path, parts in found.items()}
        return {path: count_tags(located.tags) for path, located in self._found.items()}

    def tags_of(self, path: str) -> Tags:
        """The tags of the rows of a partition, in the order in which they came, once they have some.

        Not where a global index has put rows elsewhere.
        """
        return self._found[path].tags

    def _located(self, tagging: Tagging) -> dict[str, list[Located]]:
        """Each candidate file is read once, where the keys of all rows fit into memory; else once in each turn."""
        parts: dict[str, list[Located]] = {}
        for turn in self._turns(tagging.look_up.columns):
            keyed = pa.concat_tables(table for _, table in turn).combine_chunks()
            _, found = tagging.settled(keyed, locate(tagging, keyed, self._runner))
            start = 0
            for path, table in turn:
                parts.setdefault(path, []).append(found.of(slice(start, start + table.num_rows)))
                start += table.num_rows
        return parts

    def _turns(self, columns: Sequence[str]) -> Iterator[list[tuple[str, pa.Table]]]:
        """The rows of all partitions, of some columns, in lists that fit into memory."""
        rows, memory = self._rows, self._memory
        tables = ((path, table) for path in rows.labels for table in StoredRows(rows, path, memory, columns=columns))
        return in_groups(tables, lambda each: each[1].nbytes, memory.max_bytes)

    def _relocated(self, tagging: Tagging) -> dict[str, list[Located]]:
        """All rows of some keys at once: a global index may put rows into other partitions."""
        if self._rows is not self._given:
            self._rows.close()
        self._rows = self._new_store()
        parts: dict[str, list[Located]] = {}
        for rows in self._by_key():
            combined = tagging.combined(rows)
            settled, found = tagging.settled(combined, locate(tagging, combined, self._runner))
            start = 0
            for batch in KeyedBatch.of(settled):
                part = found.of(slice(start, start + len(batch.codes)))
                start += len(batch.codes)
                self._rows.add(*batch)
                for code, at in rows_by(batch.codes, len(batch.paths)):
                    parts.setdefault(batch.paths[code], []).append(part.of(at))
        return parts

    def _by_key(self) -> Iterator[pa.Table]:
        """All rows as they were given, each key in one table; one table where they fit into memory."""
        for rows in by_key(self._given.numbered(), self._given.bytes, self._memory):
            yield rows.sort_by(ARRIVAL).drop_columns(ARRIVAL)

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        buckets: RowStore[int] = RowStore(self._memory.max_bytes, self._memory.folder)
        try:
            rows = self._routed(plan, buckets)
            if self._rows.is_spilled:
                context = within(context, self._memory)
            tasks = [
                (bucket, rows[bucket.number].read(context, bucket))
                for bucket in sorted(plan.buckets, key=lambda bucket: -bucket.rows)
                if bucket.number in rows
            ]
            if _is_of_this_process(self._runner):  # its tasks run once
                again = self._announced == context.instant_time
                context = announce(context, [bucket for bucket, _ in tasks], again=again)
                if context.announced is not None:
                    self._announced = context.instant_time
            write = partial(write_task, context)
            return few_at_once(self._runner, write, tasks, context.storage, spilled=self._rows.is_spilled)
        finally:
            buckets.close()

    def _routed(self, plan: BucketPlan, buckets: RowStore[int]) -> dict[int, _Routed]:
        """Bucket number → where its rows are: all those of a partition, or a part that is added to `buckets`."""
        found: dict[int, _Routed] = {}
        for path in self._rows.labels:
            route, located = plan.routes[path], self._found[path]
            hashes = self._hashes(path) if len(route.inserts) > 1 else np.zeros(len(located.tags), np.uint64)
            numbers = route.buckets(located.tags, hashes)
            distinct = np.unique(numbers)
            if len(distinct) == 1 and distinct[0] >= 0:
                found[int(distinct[0])] = _Routed(self._rows, path, located.positions)
                continue
            labels = [number for number in distinct.tolist() if number >= 0]
            codes = (np.searchsorted(distinct, numbers) - (len(distinct) - len(labels))).astype(np.int32)
            self._rows.split(path, buckets, labels, codes)
            for code, rows in rows_by(codes, len(labels)):
                found[labels[code]] = _Routed(buckets, labels[code], located.of(rows).positions)
        return found

    def _hashes(self, path: str) -> npt.NDArray[np.uint64]:
        """Of the keys of a partition; rows whose keys are made while they are written are spread by their position."""
        parts = []
        start = 0
        for batch in self._rows.batches(path, (RECORD_KEY,)):
            keys = batch.column(0)
            positions = np.arange(start, start + len(keys), dtype=np.uint64)
            parts.append(positions if keys.null_count else key_hashes(keys))
            start += len(keys)
        return np.concatenate(parts)

    def release(self) -> None:
        self._given.close()
        self._rows.close()


class _Routed(NamedTuple):
    """Where the rows of a bucket are, and their positions where they are known."""

    store: RowStore[Any]
    label: str | int
    positions: Positions | None

    def read(self, context: WriteContext, bucket: Bucket) -> StoredRows:
        positions = self.positions if bucket.base is not None else None
        return StoredRows(self.store, self.label, context.memory, combine=context.combine, positions=positions)


class KeyedBatch(NamedTuple):
    """A batch of keyed rows, the partition paths in it, and for each row the position of its own."""

    rows: pa.RecordBatch
    paths: list[str]
    codes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, keyed: pa.Table) -> list[KeyedBatch]:
        """Keyed rows in as few batches as hold them."""
        batches = keyed.combine_chunks().to_batches()
        return [cls(rows, *partition_codes(pa.Table.from_batches([rows]))) for rows in batches]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one label in tables, read when they are iterated; pickled, they are these tables.

    At least one table: all rows in one where they fit into memory, else in several; with `combine` each key in one.
    `positions`, by row, become a helper column; rows that have one keep what it states beyond these.
    """

    store: RowStore[Any]
    label: str | int
    memory: Memory
    columns: Sequence[str] | None = None
    combine: bool = False
    positions: Positions | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        batches = self._batches()
        size = self.store.size(self.label)
        if not self.store.is_spilled or size <= self.memory.max_bytes:
            held = pa.Table.from_batches(list(batches))
            as_is = not self.combine and held.num_rows >= _MANY_ROWS * held.column(0).num_chunks
            yield held if as_is else held.combine_chunks()
        elif self.combine:
            yield from by_key(batches, size, self.memory)
        else:
            yield from pieces(batches, min(self.memory.max_bytes, PIECE_BYTES))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in self.store.batches(self.label, self.columns):
            if self.positions is None:
                yield batch
            else:
                part = self.positions[start : start + batch.num_rows]
                start += batch.num_rows
                yield _placed(batch, part)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _placed(rows: pa.RecordBatch, positions: Positions) -> pa.RecordBatch:
    at = rows.schema.get_field_index(POSITION)
    if at < 0:
        return rows.append_column(POSITION, pa.array(positions))
    known = np.where(positions == HELD, rows.column(at).to_numpy(), positions)
    return rows.set_column(at, POSITION, pa.array(known))


def by_key(batches: Iterable[pa.RecordBatch], size: int, memory: Memory) -> Iterator[pa.Table]:
    """Rows of `size` bytes in tables that fit into memory, all rows of a key in one of them, in their order."""
    count = -(-2 * size // memory.max_bytes) if size > memory.max_bytes else 1
    if count == 1:
        yield pa.Table.from_batches(list(batches)).combine_chunks()
        return
    parts: RowStore[int] = RowStore(0, memory.folder)
    try:
        for batch in batches:
            parts.add(batch, range(count), (key_hashes(batch.column(RECORD_KEY)) // _PLACES % count).astype(np.int32))
        for number in sorted(parts.labels):
            yield pa.Table.from_batches(list(parts.batches(number))).combine_chunks()
    finally:
        parts.close()


def count_tags(tags: np.ndarray) -> dict[int, int]:
    """Tag → rows."""
    values, counts = np.unique(tags, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def within(context: WriteContext, memory: Memory) -> WriteContext:
    """The context of tasks that share `memory`, a few of them at a time, which also bounds their row groups."""
    shared = memory.shared(_TASKS_AT_ONCE)
    files = replace(context.files, block_bytes=min(context.files.block_bytes, max(_LEAST_ROW_GROUP, shared.max_bytes)))
    return replace(context, memory=shared, files=files)


def few_at_once(
    runner: Runner, function: Callable[[T], R], tasks: Sequence[T], storage: Storage, *, spilled: bool
) -> list[R]:
    """The results of tasks, of which only a few run at a time in this process: of rows that are spilled, so that each
    has its part of the memory; on this machine's disks, which are not waited for, since each thread has memory of its
    own, which is zeroed for it.
    """
    at_once = _TASKS_AT_ONCE if spilled else len(tasks)
    if isinstance(storage, LocalStorage):
        at_once = min(at_once, (os.cpu_count() or 1) + 1)
    if at_once >= len(tasks) or not _is_of_this_process(runner):
        return list(runner.map(function, tasks))
    permits = threading.Semaphore(at_once)

    def limited(task: T) -> R:
        with permits:
            return function(task)

    return list(runner.map(limited, tasks))


def _is_of_this_process(runner: Runner) -> bool:
    return isinstance(runner, (ThreadRunner, ReportingRunner))


def write_task(context: WriteContext, task: tuple[Bucket, Iterable[pa.Table]]) -> BucketResult:
    """One bucket, as the attempt as which its first file was announced."""
    ahead = context.announced.get(task[0].number) if context.announced is not None else None
    with contextlib.nullcontext() if ahead is None else attempt_scope(ahead.attempt):
        return write_bucket(context, *task)
