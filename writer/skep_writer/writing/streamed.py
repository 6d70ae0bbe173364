"""Rows that are written as they come: every task fills new files of its own, one for each partition that it meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_format.errors import InputError
from skep_table.write.context import WriteContext
from skep_table.write.keyed import Keyer, partition_codes, rows_by
from skep_table.write.output.bucket import BucketResult, InsertWriter
from skep_table.write.output.files import RowNumbers
from skep_table.write.planning.profile import Bucket, new_file_id
from skep_writer.edge import Batches, map_frame
from skep_writer.writing.tasks import RESULTS, collect_results, result_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GATHERED_BYTES = 32 << 20
# Files that one task keeps open at most; the longest unused one is ended when another is needed.
_OPEN_FILES = 256


def stream(frame: DataFrame, keyer: Keyer, context: WriteContext) -> list[BucketResult]:
    """bulk_insert in one pass: every task writes its own new files, one open file for each partition it meets."""
    return collect_results(map_frame(frame, partial(_stream, keyer, context), RESULTS))


def _stream(keyer: Keyer, context: WriteContext, batches: Batches) -> Iterator[pa.Table]:
    """Batches of the caller's frame go straight into new files of their partitions."""
    try:
        results = written(context, _gathered(map(keyer.keyed, batches)))
    except InputError as error:
        yield result_row(error)
    else:
        yield from map(result_row, results)


def written(context: WriteContext, tables: Iterable[pa.Table]) -> list[BucketResult]:
    """What became of keyed rows in new files of their partitions."""
    from pyspark import TaskContext

    task = TaskContext.get()
    with ExitStack() as stack:
        writers = PartitionWriters(context, task.partitionId() if task else 0, stack)
        for keyed in tables:
            writers.write(keyed)
        return writers.close()


class PartitionWriters:
    """The open files of one task, one for each partition."""

    def __init__(self, context: WriteContext, task: int, stack: ExitStack) -> None:
        self._context = context
        self._task = task
        self._stack = stack
        self._numbers = RowNumbers()
        self._open: dict[str, InsertWriter] = {}
        self._results: list[BucketResult] = []

    def write(self, keyed: pa.Table) -> None:
        """Writes keyed rows into the open files of their partitions, opening those that are not."""
        paths, codes = partition_codes(keyed)
        for code, rows in rows_by(codes, len(paths)):
            self._writer(paths[code]).write(keyed if len(paths) == 1 else keyed.take(pa.array(rows)))

    def close(self) -> list[BucketResult]:
        """Closes all files, and returns the results: one for each file group that was written."""
        return [*self._results, *map(InsertWriter.result, self._open.values())]

    def _writer(self, path: str) -> InsertWriter:
        writer = self._open.pop(path, None)
        if writer is None:
            if len(self._open) >= _OPEN_FILES:
                self._results.append(self._open.pop(next(iter(self._open))).result())
            bucket = Bucket(self._task, path, new_file_id())
            writer = self._stack.enter_context(InsertWriter(self._context, bucket, self._numbers))
        self._open[path] = writer  # now the one used last
        return writer


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables combined to some size: kernels over few rows cost more for the call than for the rows."""
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
