"""bulk_insert of rows that are arranged first: by Spark where it can, else by one shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skep_format.errors import InputError
from skep_format.runner import ThreadRunner
from skep_table.write.context import WriteContext
from skep_table.write.keyed import Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.planning.write_settings import WriteSettings
from skep_writer.edge import Batches, binary_column, map_frame, pack, slots, small_batches, unpack
from skep_writer.writing.estimate import fitting_batches
from skep_writer.writing.ordered import ordered
from skep_writer.writing.spark_rows import SparkRows
from skep_writer.writing.streamed import PartitionWriters, stream
from skep_writer.writing.tasks import RESULTS, ROUTED, arrivals, collect_results, cut_by_code, payloads_of, result_row

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
            return collect_results(map_frame(frame, _Keyed(keyer, context), RESULTS))
    rows = SparkRows(frame, keyer, settings, ThreadRunner())
    try:
        with small_batches(frame.sparkSession):
            bounds = _bounds(rows.payloads, arrangement, count) if arrangement.by_range else None
            cut = map_frame(rows.payloads, _Cut(arrangement, slots(count), bounds), ROUTED)
            together = cut.repartition(count, "slot").sortWithinPartitions("slot", "arrival").select("payload")
            return collect_results(map_frame(together, _Arranged(context), RESULTS))
    finally:
        rows.release()


def _bounds(payloads: DataFrame, arrangement: Arrangement, count: int) -> pa.Table | None:
    sampled = map_frame(payloads, _Sample(arrangement.columns), _SAMPLE).collect()
    tables = [pa.ipc.open_stream(row.payload).read_all() for row in sampled]
    return arrangement.bounds(pa.concat_tables(tables).combine_chunks(), count) if tables else None


class _Sample:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for batch in batches:
            for value in batch.column(0):
                table = unpack(value).select(self._columns)
                # evenly from all over the payload; the same rows whenever the task runs
                at = np.linspace(0, table.num_rows - 1, min(_SAMPLED_ROWS, table.num_rows)).astype(np.int64)
                yield pa.table([binary_column([pack(table.take(pa.array(at)))])], schema=_SAMPLE)


class _Cut:
    """Payloads are cut up by the task to which the arrangement sends each row."""

    def __init__(self, arrangement: Arrangement, slot_of: Sequence[int], bounds: pa.Table | None) -> None:
        self._arrangement = arrangement
        self._slot_of = np.array(slot_of, np.int32)
        self._bounds = bounds

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for arrival, value in zip(arrivals(), payloads_of(batches), strict=False):
            table = unpack(value)
            codes = self._arrangement.parts(table, len(self._slot_of), self._bounds)
            yield cut_by_code(table, codes, self._slot_of, arrival)


class _Arranged:
    """All rows of a task in the arrangement's order, written into new files of their partitions."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        yield from self._written([unpack(value) for value in payloads_of(batches)])

    def _written(self, tables: list[pa.Table]) -> Iterator[pa.Table]:
        from pyspark import TaskContext

        if not tables:
            return
        assert self._context.arrangement is not None
        rows = self._context.arrangement.sort(pa.concat_tables(tables).combine_chunks())
        task = TaskContext.get()
        with ExitStack() as stack:
            writers = PartitionWriters(self._context, task.partitionId() if task else 0, stack)
            writers.write(rows)
            results = writers.close()
        yield from map(result_row, results)


class _Keyed(_Arranged):
    """The same for batches of the caller's frame: no shuffle, each task sorts what it has."""

    def __init__(self, keyer: Keyer, context: WriteContext) -> None:
        super().__init__(context)
        self._keyer = keyer

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        try:
            tables = [self._keyer.keyed(batch) for batch in batches if batch.num_rows]
        except InputError as error:
            yield result_row(error)
            return
        yield from self._written(tables)
