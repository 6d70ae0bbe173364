"""bulk_insert of rows that are arranged first: by Spark where it can, else by one shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skep_format.errors import InputError
from skep_format.runner import ThreadRunner
from skep_table.write.context import WriteContext
from skep_table.write.keyed import Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.planning.write_settings import WriteSettings
from skep_writer.edge import Batches, map_frame, pack, slots, small_batches, unpack
from skep_writer.writing import tasks as worker
from skep_writer.writing.estimate import fitting_batches
from skep_writer.writing.ordered import ordered
from skep_writer.writing.spark_rows import SparkRows
from skep_writer.writing.streamed import stream, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLED_ROWS = 512  # of each payload, or of all rows when these are few
_SAMPLE = pa.schema([pa.field("payload", pa.binary())])


def write_arranged(
    frame: DataFrame, keyer: Keyer, context: WriteContext, settings: WriteSettings
) -> list[BucketResult]:
    """What the tasks wrote. Raises what they do."""
    arrangement = context.arrangement
    assert arrangement is not None
    count = arrangement.tasks or frame.sparkSession.sparkContext.defaultParallelism
    by_spark = ordered(frame, keyer, arrangement, count)
    if by_spark is not None or not arrangement.shuffles:
        with fitting_batches(frame, settings.rows_per_batch):
            if by_spark is not None:
                return stream(by_spark, keyer, context)
            return worker.collect_results(map_frame(frame, partial(_keyed, keyer, context), worker.RESULTS))
    rows = SparkRows(frame, keyer, settings, ThreadRunner())
    try:
        with small_batches(frame.sparkSession):
            bounds = _bounds(rows.payloads, arrangement, count) if arrangement.by_range else None
            cut = map_frame(
                rows.payloads, partial(_cut, arrangement, np.array(slots(count), np.int32), bounds), worker.ROUTED
            )
            together = cut.repartition(count, "slot").sortWithinPartitions("slot", "arrival").select("payload")
            return worker.collect_results(map_frame(together, partial(_arranged, context), worker.RESULTS))
    finally:
        rows.release()


def _bounds(payloads: DataFrame, arrangement: Arrangement, count: int) -> pa.Table | None:
    sampled = map_frame(payloads, partial(_sampled, arrangement.columns), _SAMPLE).collect()
    return arrangement.bounds(worker.joined_payloads(sampled).combine_chunks(), count) if sampled else None


def _sampled(columns: Sequence[str], batches: Batches) -> Iterator[pa.Table]:
    for value in worker.payloads_of(batches):
        table = unpack(value).select(list(columns))
        # evenly from all over the payload; the same rows whenever the task runs
        at = np.linspace(0, table.num_rows - 1, min(_SAMPLED_ROWS, table.num_rows)).astype(np.int64)
        yield worker.row_of(_SAMPLE, payload=pack(table.take(pa.array(at))))


def _cut(
    arrangement: Arrangement, slot_of: np.ndarray[Any, np.dtype[np.int32]], bounds: pa.Table | None, batches: Batches
) -> Iterator[pa.Table]:
    """Payloads are cut up by the task to which the arrangement sends each row."""
    for arrival, value in zip(worker.arrivals(), worker.payloads_of(batches), strict=False):
        table = unpack(value)
        yield worker.cut_by_code(table, arrangement.parts(table, len(slot_of), bounds), slot_of, arrival)


def _arranged(context: WriteContext, batches: Batches) -> Iterator[pa.Table]:
    """All rows of a task in the arrangement's order, written into new files of their partitions."""
    yield from _in_order(context, [unpack(value) for value in worker.payloads_of(batches)])


def _keyed(keyer: Keyer, context: WriteContext, batches: Batches) -> Iterator[pa.Table]:
    """The same for batches of the caller's frame: no shuffle, each task sorts what it has."""
    try:
        tables = [keyer.keyed(batch) for batch in batches if batch.num_rows]
    except InputError as error:
        yield worker.result_row(error)
        return
    yield from _in_order(context, tables)


def _in_order(context: WriteContext, tables: list[pa.Table]) -> Iterator[pa.Table]:
    if tables:
        assert context.arrangement is not None
        rows = context.arrangement.sort(pa.concat_tables(tables).combine_chunks())
        yield from map(worker.result_row, written(context, [rows]))
