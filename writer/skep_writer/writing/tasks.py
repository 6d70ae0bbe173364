"""What Python workers do with the rows of a write: each is a function of batches that travels to a task."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skep_format.errors import InputError, KeyFieldError, SkepError
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.hashes import key_hashes
from skep_table.merge.rows import POSITION
from skep_table.write.context import WriteContext
from skep_table.write.keyed import Keyer, partition_codes, rows_by, unnamed
from skep_table.write.output.bucket import BucketResult, write_bucket
from skep_table.write.planning.profile import Bucket, BucketPlan
from skep_table.write.planning.profile import pack as pack_tasks
from skep_table.write.tags import Located
from skep_writer.edge import Batches, binary_column, pack, slots, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREPARED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int64()),
        pa.field("paths", pa.list_(pa.string())),
        pa.field("counts", pa.list_(pa.int64())),
        pa.field("unnamed", pa.int64()),
        pa.field("error", pa.binary()),
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


def prepare(keyer: Keyer, batches: Batches) -> Iterator[pa.Table]:
    """Batches of the caller's frame become payloads of keyed rows. Bad input is carried to the driver as a value."""
    pending: list[pa.Table] = []
    size = 0
    ids = arrivals()
    for batch in batches:
        if not batch.num_rows:
            continue
        try:
            pending.append(keyer.keyed(batch))
        except InputError as error:
            yield row_of(PREPARED, error=pickle.dumps(error))
            if isinstance(error, KeyFieldError):
                continue  # goes on counting
            return
        size += pending[-1].nbytes
        if size >= _PAYLOAD_BYTES:
            yield from _prepared(pending, ids)
            pending, size = [], 0
    if pending:
        yield from _prepared(pending, ids)


def _prepared(tables: list[pa.Table], ids: Iterator[int]) -> Iterator[pa.Table]:
    for table in pieces(pa.concat_tables(tables)):
        paths, codes = partition_codes(table)
        counts = np.bincount(codes, minlength=len(paths)).tolist()
        payload = pack(table)
        found = {"size": payload.size, "paths": paths, "counts": counts, "unnamed": unnamed(table)}
        yield row_of(PREPARED, id=next(ids), payload=payload, **found)


def route(plan: BucketPlan, slot_of: np.ndarray[Any, np.dtype[np.int32]], batches: Batches) -> Iterator[pa.Table]:
    """Columns id, payload and, where rows are tagged, tags and positions: payloads are cut up by bucket, for the task
    that writes it.

    The ids order the pieces of a bucket as the rows arrived.
    """
    for id_, payload, *found in rows_in(batches):
        table = unpack(payload)
        located = _located(*found) if found else Located.new(table.num_rows)
        chosen = _buckets(plan, table, located)
        if located.positions is not None:
            table = table.append_column(POSITION, pa.array(located.positions))
        yield cut_by_code(table, chosen, slot_of, id_.as_py())


def _buckets(plan: BucketPlan, table: pa.Table, located: Located) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The bucket of each row."""
    paths, codes = partition_codes(table)
    chosen = np.empty(table.num_rows, np.int32)
    keys = table.column(RECORD_KEY).combine_chunks()
    for code, rows in rows_by(codes, len(paths)):
        of_path = plan.routes[paths[code]]
        hashes = np.zeros(len(rows), np.uint64)
        if len(of_path.inserts) > 1:
            # keys that are made while writing spread by their place
            hashes = rows.astype(np.uint64) if keys.null_count else key_hashes(keys.take(pa.array(rows)))
        chosen[rows] = of_path.buckets(located.tags[rows], hashes)
    return chosen


def write(context: WriteContext, buckets: Sequence[Bucket], batches: Batches) -> Iterator[pa.Table]:
    """The sorted pieces of a task's buckets come in; each bucket is written as one file, or more when it rolls over."""
    for number, of_bucket in groupby(rows_in(batches), lambda row: row[0].as_py()):
        rows = pa.concat_tables([unpack(payload) for _, payload in of_bucket]).combine_chunks()
        try:
            yield result_row(write_bucket(context, buckets[number], rows))
        except InputError as error:
            yield result_row(error)


def _located(tags: pa.BinaryScalar, positions: pa.BinaryScalar) -> Located:
    known = positions.as_buffer()
    return Located(np.frombuffer(tags.as_buffer(), np.int32), None if known is None else np.frombuffer(known, np.int64))


def balanced(weights: Sequence[int], tasks: int) -> tuple[Sequence[int], np.ndarray[Any, np.dtype[np.int32]]]:
    """The slots of so many tasks at most, and for each of the weights that of the task which has it."""
    packed = pack_tasks(weights, tasks) or [[]]
    numbers = slots(len(packed))
    slot_of = np.full(len(weights), numbers[0], np.int32)
    for task, positions in enumerate(packed):
        slot_of[positions] = numbers[task]
    return numbers, slot_of


def arrivals() -> Iterator[int]:
    """Numbers for the payloads of this task, in whose order the rows of all tasks arrived."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return itertools.count((task.partitionId() if task else 0) << 32)


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in their order, in tables that are small enough to be payloads."""
    count = max(1, -(-rows.nbytes // (2 * _PAYLOAD_BYTES)))
    step = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step).combine_chunks()


def rows_in(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """The rows of all batches, as Arrow's values."""
    for batch in batches:
        yield from zip(*batch.columns, strict=True)


def payloads_of(batches: Batches) -> Iterator[pa.BinaryScalar]:
    """The values of the first column, one after the other: packed tables."""
    for batch in batches:
        yield from batch.column(0)


def joined_payloads(rows: Sequence[Any]) -> pa.Table:
    """The rows of all packed tables, each the column `payload` of a row of Spark."""
    return pa.concat_tables(pa.ipc.open_stream(row.payload).read_all() for row in rows)


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


def row_of(schema: pa.Schema, **values: object) -> pa.Table:
    """A table of one row in the types of `schema`. Columns without a value are null."""
    columns = []
    for field in schema:
        value = values.get(field.name)
        if isinstance(value, pa.Buffer):
            columns.append(binary_column([value]))
        else:
            columns.append(pa.array([value], field.type))
    return pa.table(columns, schema=schema)


def result_row(result: BucketResult | InputError) -> pa.Table:
    """A row of RESULTS: of a file, or of an error that trying again would not help."""
    return row_of(RESULTS, result=pickle.dumps(result))


def buffer_of(numbers: np.ndarray[Any, Any] | None, kind: type[np.integer[Any]]) -> pa.Buffer | None:
    """The bytes of an array in a type; None for none."""
    return None if numbers is None else pa.py_buffer(np.ascontiguousarray(numbers, kind))


def collect_results(frame: DataFrame) -> list[BucketResult]:
    """Runs the frame's stage, and returns what its tasks wrote. Raises the SkepError that a task returned."""
    results: list[BucketResult] = []
    for row in frame.collect():
        result = pickle.loads(row.result)
        if isinstance(result, SkepError):
            raise result
        results.append(result)
    return results
