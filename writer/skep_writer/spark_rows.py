"""Keyed rows of a Spark frame: prepared, tagged, routed and written in Python workers as whole Arrow tables.

    frame → prepare (keys, partition paths; persisted) → tag (persisted) → route → one shuffle by task → write

Between the steps the driver sees counts only. The shuffle moves one binary value for each bucket of each batch. The
rows of a small frame come to the driver once they are prepared: each further job would take longer than its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skep_table.errors import InputError, KeyFieldError, SkepError
from skep_table.keys.generator import null_key_error
from skep_table.options import Options
from skep_table.runner import Runner
from skep_table.schema.types import RECORD_KEY
from skep_table.write.bucket import BucketResult, InsertWriter, write_bucket
from skep_table.write.context import WriteContext
from skep_table.write.files import RowNumbers
from skep_table.write.frame import lists_with_nulls
from skep_table.write.hashing import key_hashes
from skep_table.write.index import NEW_KEY
from skep_table.write.indexes.base import Index
from skep_table.write.indexes.moves import GlobalTagger, tagged_counts
from skep_table.write.keyed import Keyer, partition_codes, rows_by
from skep_table.write.options import COLLECTED_BYTES, ROWS_PER_BATCH, TAGGED_LEVEL
from skep_table.write.profile import Bucket, BucketPlan, new_file_id
from skep_table.write.profile import pack as pack_tasks
from skep_table.write.rows import ArrowRows, Rows, Tagged
from skep_writer.edge import Batches, binary_column, fitting_batches, map_frame, pack, slots, small_batches, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREPARED = pa.schema(
    [
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int64()),
        pa.field("paths", pa.list_(pa.string())),
        pa.field("counts", pa.list_(pa.int64())),
        pa.field("error", pa.binary()),
    ]
)
TAGGED = pa.schema(
    [
        pa.field("payload", pa.binary()),
        pa.field("tags", pa.binary()),
        pa.field("paths", pa.list_(pa.string())),
        pa.field("positions", pa.list_(pa.int64())),
        pa.field("counts", pa.list_(pa.int64())),
    ]
)
ROUTED = pa.schema(
    [
        pa.field("slot", pa.int32()),
        pa.field("bucket", pa.int32()),
        pa.field("arrival", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
RESULTS = pa.schema([pa.field("result", pa.binary())])

# A payload is cut when it grows past this: a binary value of Spark ends at 2 GB, and batches hold several.
_PAYLOAD_BYTES = 8 << 20
_GATHERED_BYTES = 32 << 20
# Files that one task keeps open at most; the longest unused one is ended when another is needed.
_OPEN_FILES = 256
# Rows that one task tags with a global index, which looks into all files of the table for them.
_ROWS_A_TAGGING = 250_000
# The weight of a base file against the rows merged into it, when buckets are balanced over tasks.
_TASK_BYTES = 512 << 20


def frame_rows(frame: DataFrame, keyer: Keyer, options: Options, runner: Runner) -> Rows:
    """The rows of a Spark frame for one write, held where that costs least. `runner` is for those the driver holds."""
    rows = SparkRows(frame, keyer, options)
    if rows.size > options.value(COLLECTED_BYTES):
        return rows
    try:
        return ArrowRows(rows.collect(), runner)
    finally:
        rows.release()


class SparkRows:
    """Rows held by Spark. `size` is in bytes of Arrow data."""

    def __init__(self, frame: DataFrame, keyer: Keyer, options: Options) -> None:
        from pyspark import StorageLevel

        self._spark = frame.sparkSession
        self._level = getattr(StorageLevel, options.value(TAGGED_LEVEL))
        self._parallelism = self._spark.sparkContext.defaultParallelism
        self._schema = keyer.schema
        self._held: list[DataFrame] = []
        self._tagged: DataFrame | None = None
        try:
            with fitting_batches(frame, options.value(ROWS_PER_BATCH)):
                self._prepared = self._hold(map_frame(frame, _Prepare(keyer), PREPARED))
                self._partitions, self.size = _counted(self._prepared, keyer)
        except BaseException:
            self.release()
            raise

    def _hold(self, frame: DataFrame) -> DataFrame:
        held = frame.persist(self._level)
        self._held.append(held)
        return held

    def _drop(self, frame: DataFrame | None) -> None:
        if frame is not None:
            self._held.remove(frame)
            frame.unpersist()

    def collect(self) -> pa.Table:
        """All rows, in the order of the frame's partitions."""
        if not self._partitions:
            return self._schema.empty_table()
        payloads = [row.payload for row in self._prepared.select("payload").collect()]
        return pa.concat_tables(pa.ipc.open_stream(payload).read_all() for payload in payloads)

    def partitions(self) -> Mapping[str, int]:
        return self._partitions

    def tag(self, index: Index | GlobalTagger | None) -> Tagged:
        if index is None:
            return {path: {NEW_KEY: rows} for path, rows in self._partitions.items()}
        with small_batches(self._spark):
            if isinstance(index, GlobalTagger):
                # rows of one key meet in one task, from whatever partitions of the table they are
                count = max(1, min(2 * self._parallelism, -(-sum(self._partitions.values()) // _ROWS_A_TAGGING)))
                cut = map_frame(self.payloads, _ByKey(slots(count)), ROUTED)
                together = cut.repartition(count, "slot").sortWithinPartitions("slot", "arrival").select("payload")
                tagged = map_frame(together, _Settle(index), TAGGED)
            else:
                tagged = map_frame(self.payloads, _Tag(index), TAGGED)
            self._drop(self._tagged)  # of a try before this one
            self._tagged = self._hold(tagged)
            counted = self._tagged.select("paths", "positions", "counts").collect()
        found: dict[str, dict[int, int]] = {}
        for row in counted:
            for path, position, count in zip(row.paths, row.positions, row.counts, strict=True):
                counts = found.setdefault(path, {})
                counts[position] = counts.get(position, 0) + count
        return found

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        if not plan.buckets:
            return []
        weights = [
            bucket.rows * 1024 + (bucket.base.size_bytes if bucket.base and not bucket.to_log else 0)
            for bucket in plan.buckets
        ]
        wanted = max(2 * self._parallelism, -(-sum(weights) // _TASK_BYTES))
        tasks = pack_tasks(weights, wanted)
        numbers = slots(len(tasks))
        slot_of = np.zeros(len(plan.buckets), np.int32)
        for task, positions in enumerate(tasks):
            slot_of[positions] = numbers[task]
        with small_batches(self._spark):
            source = self.payloads if self._tagged is None else self._tagged.select("payload", "tags")
            routed = map_frame(source, _Route(plan, slot_of), ROUTED)
            sorted_rows = routed.repartition(len(tasks), "slot").sortWithinPartitions("bucket", "arrival")
            written = map_frame(sorted_rows.select("bucket", "payload"), _Write(context, plan.buckets), RESULTS)
            return collect_results(written)

    @property
    def payloads(self) -> DataFrame:
        """One column: tables of keyed rows, as binary values."""
        return self._prepared.select("payload")

    def release(self) -> None:
        while self._held:
            self._held.pop().unpersist()


def _counted(prepared: DataFrame, keyer: Keyer) -> tuple[dict[str, int], int]:
    """Rows by partition path, and bytes of all."""
    counts: dict[str, int] = {}
    null_keys = size = 0
    for row in prepared.select("size", "paths", "counts", "error").collect():
        if row.error is not None:
            error = pickle.loads(row.error)
            if not (isinstance(error, KeyFieldError) and error.fields.get("column") == _key_columns(keyer)):
                raise error
            null_keys += int(str(error.fields["rows"]))
            continue
        size += row.size
        for path, count in zip(row.paths, row.counts, strict=True):
            counts[path] = counts.get(path, 0) + count
    if null_keys:
        raise null_key_error(keyer.generator.record_fields, null_keys)
    return counts, size


def _key_columns(keyer: Keyer) -> str:
    return ", ".join(keyer.generator.record_fields)


def write_stream(frame: DataFrame, keyer: Keyer, context: WriteContext, options: Options) -> list[BucketResult]:
    """bulk_insert in one pass: every task writes its own new files, one open file for each partition it meets."""
    with fitting_batches(frame, options.value(ROWS_PER_BATCH)):
        return collect_results(map_frame(frame, _Stream(keyer, context), RESULTS))


def collect_results(frame: DataFrame) -> list[BucketResult]:
    results: list[BucketResult] = []
    for row in frame.collect():
        result = pickle.loads(row.result)
        if isinstance(result, SkepError):
            raise result
        results.append(result)
    return results


class _Stream:
    """Batches of the caller's frame go straight into new files of their partitions."""

    def __init__(self, keyer: Keyer, context: WriteContext) -> None:
        self._keyer = keyer
        self._context = context

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        from pyspark import TaskContext

        task = TaskContext.get()
        number = task.partitionId() if task else 0
        try:
            with ExitStack() as stack:
                writers = PartitionWriters(self._context, number, stack)
                for keyed in _gathered(map(self._keyer.keyed, batches)):
                    writers.write(keyed)
                results = writers.close()
        except InputError as error:
            yield _row(RESULTS, result=pickle.dumps(error))  # trying again would not help
            return
        for result in results:
            yield _row(RESULTS, result=pickle.dumps(result))


class PartitionWriters:
    """The open files of one task, one for each partition."""

    def __init__(self, context: WriteContext, task: int, stack: ExitStack) -> None:
        self._context = context
        self._task = task
        self._stack = stack
        self._numbers = RowNumbers()
        self._open: dict[str, InsertWriter] = {}
        self._odd: set[str] = set()
        self._results: list[BucketResult] = []

    def write(self, keyed: pa.Table) -> None:
        self._odd.update(lists_with_nulls(keyed))
        paths, codes = partition_codes(keyed)
        for code, rows in rows_by(codes, len(paths)):
            self._writer(paths[code]).write(keyed if len(paths) == 1 else keyed.take(pa.array(rows)))

    def close(self) -> list[BucketResult]:
        odd = tuple(sorted(self._odd))
        self._results += [BucketResult(tuple(writer.close()), odd) for writer in self._open.values()]
        return self._results

    def _writer(self, path: str) -> InsertWriter:
        writer = self._open.pop(path, None)
        if writer is None:
            if len(self._open) >= _OPEN_FILES:
                unused = self._open.pop(next(iter(self._open)))
                self._results.append(BucketResult(tuple(unused.close())))
            bucket = Bucket(self._task, path, new_file_id())
            writer = self._stack.enter_context(InsertWriter(self._context, bucket, self._numbers))
        self._open[path] = writer  # now the one used last
        return writer


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together to some size: kernels over few rows cost more for the call than for the rows."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size >= _GATHERED_BYTES:
            yield pa.concat_tables(held).combine_chunks()
            held, size = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


class _Prepare:
    """Batches of the caller's frame become payloads of keyed rows. Bad input is carried to the driver as a value."""

    def __init__(self, keyer: Keyer) -> None:
        self._keyer = keyer

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        pending: list[pa.Table] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                pending.append(self._keyer.keyed(batch))
            except InputError as error:
                yield _row(PREPARED, error=pickle.dumps(error))
                if isinstance(error, KeyFieldError):
                    continue  # goes on counting
                return
            size += pending[-1].nbytes
            if size >= _PAYLOAD_BYTES:
                yield from self._payloads(pending)
                pending, size = [], 0
        if pending:
            yield from self._payloads(pending)

    @staticmethod
    def _payloads(tables: list[pa.Table]) -> Iterator[pa.Table]:
        whole = pa.concat_tables(tables)
        pieces = -(-whole.nbytes // (2 * _PAYLOAD_BYTES))
        rows = -(-whole.num_rows // max(1, pieces))
        for start in range(0, whole.num_rows, rows):
            table = whole.slice(start, rows).combine_chunks()
            paths, codes = partition_codes(table)
            counts = np.bincount(codes, minlength=len(paths)).tolist()
            payload = pack(table)
            yield _row(PREPARED, payload=payload, size=payload.size, paths=paths, counts=counts)


class _Tag:
    """Payloads get, beside them, the position of each row's file."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        # All keys of the task are looked up together: each candidate file is read once.
        payloads = [value for batch in batches for value in batch.column(0)]
        tables = [unpack(value).select(self._index.columns) for value in payloads]
        if not tables:
            return
        tags = self._index.tag(pa.concat_tables(tables))
        start = 0
        for value, table in zip(payloads, tables, strict=True):
            end = start + table.num_rows
            yield _tagged_row(value.as_buffer(), table, tags[start:end])
            start = end


class _ByKey:
    """Payloads are cut up by the hash of their keys."""

    def __init__(self, slot_of: Sequence[int]) -> None:
        self._slot_of = np.array(slot_of, np.int32)

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        from pyspark import TaskContext

        task = TaskContext.get()
        arrival = (task.partitionId() if task else 0) << 32
        for batch in batches:
            for value in batch.column(0):
                table = unpack(value)
                parts = key_hashes(table.column(RECORD_KEY).combine_chunks()) % np.uint64(len(self._slot_of))
                yield cut_by_code(table, parts.astype(np.int32), self._slot_of, arrival)
                arrival += 1


class _Settle:
    """All rows of a task's keys at once: what a global index says of them."""

    def __init__(self, tagger: GlobalTagger) -> None:
        self._tagger = tagger

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        tables = [unpack(value) for batch in batches for value in batch.column(0)]
        if not tables:
            return
        rows, tags = self._tagger.settle(pa.concat_tables(tables).combine_chunks())
        pieces = max(1, -(-rows.nbytes // (2 * _PAYLOAD_BYTES)))
        step = max(1, -(-rows.num_rows // pieces))
        for start in range(0, rows.num_rows, step):
            part, part_tags = rows.slice(start, step).combine_chunks(), tags[start : start + step]
            yield _tagged_row(pack(part), part, part_tags)


class _Route:
    """Payloads are cut up by bucket, and each piece is given the slot of the task that writes its bucket."""

    def __init__(self, plan: BucketPlan, slot_of: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        self._plan = plan
        self._slot_of = slot_of

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        from pyspark import TaskContext

        task = TaskContext.get()
        arrival = (task.partitionId() if task else 0) << 32
        for batch in batches:
            for at in range(batch.num_rows):
                tags = batch.column(1)[at].as_buffer() if batch.num_columns > 1 else None
                yield self._pieces(unpack(batch.column(0)[at]), tags, arrival)
                arrival += 1

    def _pieces(self, table: pa.Table, tag_bytes: pa.Buffer | None, arrival: int) -> pa.Table:
        tags = np.full(table.num_rows, NEW_KEY, np.int32) if tag_bytes is None else np.frombuffer(tag_bytes, np.int32)
        paths, codes = partition_codes(table)
        chosen = np.empty(table.num_rows, np.int32)
        keys = table.column(RECORD_KEY).combine_chunks()
        for code, rows in rows_by(codes, len(paths)):
            route = self._plan.routes[paths[code]]
            hashes = np.zeros(len(rows), np.uint64)
            if len(route.inserts) > 1:
                # keys that are made while writing spread by their place
                hashes = rows.astype(np.uint64) if keys.null_count else key_hashes(keys.take(pa.array(rows)))
            chosen[rows] = route.buckets(tags[rows], hashes)
        return cut_by_code(table, chosen, self._slot_of, arrival)


class _Write:
    """The sorted pieces of a task's buckets come in; each bucket is written as one file, or more when it rolls over."""

    def __init__(self, context: WriteContext, buckets: Sequence[Bucket]) -> None:
        self._context = context
        self._buckets = buckets

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        number: int | None = None
        pieces: list[pa.Table] = []
        for batch in batches:
            for at in range(batch.num_rows):
                found = batch.column(0)[at].as_py()
                if number is not None and found != number:
                    yield self._write(number, pieces)
                    pieces = []
                number = found
                pieces.append(unpack(batch.column(1)[at]))
        if number is not None:
            yield self._write(number, pieces)

    def _write(self, number: int, pieces: list[pa.Table]) -> pa.Table:
        try:
            result: BucketResult | SkepError = write_bucket(
                self._context, self._buckets[number], pa.concat_tables(pieces).combine_chunks()
            )
        except InputError as error:
            result = error  # trying again would not help
        return _row(RESULTS, result=pickle.dumps(result))


def _tagged_row(payload: pa.Buffer, table: pa.Table, tags: np.ndarray[Any, np.dtype[np.int32]]) -> pa.Table:
    triples = [
        (path, tag, count) for path, counts in tagged_counts(table, tags).items() for tag, count in counts.items()
    ]
    paths, positions, counts = zip(*triples, strict=True)
    return _row(
        TAGGED,
        payload=payload,
        tags=pa.py_buffer(np.ascontiguousarray(tags)),
        paths=list(paths),
        positions=list(positions),
        counts=list(counts),
    )


def cut_by_code(
    table: pa.Table,
    codes: np.ndarray[Any, np.dtype[np.int32]],
    slot_of: np.ndarray[Any, np.dtype[np.int32]],
    arrival: int,
) -> pa.Table:
    """A row for each code that occurs, with the rows of the table that have it."""
    numbers, payloads = [], []
    for number, rows in rows_by(codes, len(slot_of)):
        numbers.append(number)
        payloads.append(pack(table.take(pa.array(rows))))
    return pa.table(
        [
            pa.array(slot_of[numbers], pa.int32()),
            pa.array(numbers, pa.int32()),
            pa.array([arrival] * len(numbers), pa.int64()),
            binary_column(payloads),
        ],
        schema=ROUTED,
    )


def _row(schema: pa.Schema, **values: object) -> pa.Table:
    columns = []
    for field in schema:
        value = values.get(field.name)
        if isinstance(value, pa.Buffer):
            columns.append(binary_column([value]))
        else:
            columns.append(pa.array([value], field.type))
    return pa.table(columns, schema=schema)
