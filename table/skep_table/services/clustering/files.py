"""Rewriting one group of a clustering: its slices are read, their rows put in order, and written as new file groups.

A function of plain values, independent of Spark. Rows keep their meta columns but for the file name. Without
sort columns rows pass through; with them they are held, on disk where they are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.names import MarkerType
from skep_format.options import Options
from skep_format.timeline.metadata import WriteStat
from skep_table.services.clustering.options import CURVE, SORT_COLUMNS
from skep_table.services.clustering.row_order import order_of
from skep_table.services.clustering.row_spool import RowSpool
from skep_table.services.strategies import ExecutionStrategy
from skep_table.slices import read_slice
from skep_table.slices.history import history_until
from skep_table.slices.options import MERGE_BYTES, SPILL_FOLDER
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.context import WriteContext
from skep_table.write.output.files import BaseFiles, renamed
from skep_table.write.planning.profile import Bucket, new_file_id


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Slices of one partition that become `outputs` files."""

    number: int
    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What all groups of one clustering share."""

    table: HudiTable
    context: WriteContext
    params: Mapping[str, str]
    strategy: ExecutionStrategy | None = None


def cluster_group(job: ClusterJob, task: GroupTask) -> tuple[WriteStat, ...]:
    """Writes the group's rows into new file groups; none when it has no rows."""
    rows = itertools.chain.from_iterable(map(partial(_rows, job), task.slices))
    if job.strategy is not None:
        return _write(job, task, job.strategy(rows, job.params), _rows_in_footers(job, task))
    given = Options(job.params)
    columns = given.value(SORT_COLUMNS)
    if not columns:
        return _write(job, task, rows, _rows_in_footers(job, task))
    options = job.table.options
    with RowSpool(columns, options.value(MERGE_BYTES), options.value(SPILL_FOLDER)) as spool:
        for batch in rows:
            spool.add(batch)
        curve = given.value(CURVE) if given.is_set(CURVE) else options.value(CURVE)
        return _write(job, task, spool.ordered(partial(order_of, curve=curve)), spool.rows)


def _rows(job: ClusterJob, slice_: FileSlice) -> Iterator[pa.RecordBatch]:
    history = history_until(job.table, job.context.instant_time)
    return read_slice(job.table, slice_, schema=job.context.schema.with_meta(), history=history)


def _rows_in_footers(job: ClusterJob, task: GroupTask) -> int:
    """About as many rows as there are: inserts that lie in logs are not counted."""
    paths = [slice_.base_file.path for slice_ in task.slices if slice_.base_file is not None]
    return sum(read_footer(job.table.storage, path).num_rows for path in paths)


def _write(job: ClusterJob, task: GroupTask, batches: Iterator[pa.RecordBatch], rows: int) -> tuple[WriteStat, ...]:
    bucket = Bucket(task.number, task.partition_path, new_file_id())
    files = BaseFiles(job.context, bucket)
    prefix = bucket.file_id.rpartition("-")[0]
    stats = []
    share = max(1, -(-rows // task.outputs))
    for number, parts in itertools.groupby(_numbered(batches, share), key=itemgetter(0)):
        with files.open(f"{prefix}-{number}", MarkerType.CREATE) as file:
            for _, batch in parts:
                file.writer.write(renamed(batch, file.name))
        stats.append(files.stat(file, num_inserts=file.rows))
    return tuple(stats)


def _numbered(batches: Iterator[pa.RecordBatch], share: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches cut where a file ends, each with the number of its file."""
    at = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            count = min(batch.num_rows - start, share - at % share)
            yield at // share, batch.slice(start, count)
            at += count
            start += count
