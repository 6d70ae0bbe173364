"""Rewriting one group of a clustering: its slices are read, their rows put in order, and written as new file groups.

A function of plain values, independent of Spark. Rows keep their meta columns but for the file name. Without
sort columns rows pass through; with them they are held, on disk where they are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from skep_format.basefile import OpenBaseFile, can_copy, open_base, read_footer
from skep_format.names import MarkerType
from skep_format.options import Options
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import WriteStat
from skep_table.keys.ring_targets import RingTargets
from skep_table.keys.stored import StoredKeys
from skep_table.services.clustering.options import CURVE, SORT_COLUMNS
from skep_table.services.clustering.row_order import RowSpool, order_of
from skep_table.services.rewriting import candidate_of
from skep_table.services.strategies import ExecutionStrategy
from skep_table.slices import read_slice
from skep_table.slices.history import history_until
from skep_table.slices.options import MERGE_BYTES, SPILL_FOLDER
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.context import WriteContext
from skep_table.write.output.files import BaseFiles, OpenFile, renamed
from skep_table.write.planning.profile import Bucket, new_file_id

# Row groups whose pages have less than this part of the bytes that a row group is written from are joined with others.
_SMALL: Final = 0.125


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Slices of one partition that become `outputs` files; `targets`: the hash of a key decides which."""

    number: int
    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int
    targets: RingTargets | None = None


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What all groups of one clustering share."""

    table: HudiTable
    instant: Instant
    context: WriteContext
    params: Mapping[str, str]
    strategy: ExecutionStrategy | None = None


class _RowGroup(NamedTuple):
    """A row group of an open base file, to be copied."""

    held: OpenBaseFile
    number: int
    num_rows: int


def cluster_group(job: ClusterJob, task: GroupTask) -> tuple[WriteStat, ...]:
    """Writes the group's rows into new file groups; none when it has no rows."""
    rows = itertools.chain.from_iterable(map(partial(_rows, job), task.slices))
    if task.targets is not None:
        return _write_by_hash(job, task, task.targets, _in_order(job, rows))
    if job.strategy is not None:
        return _write(job, task, job.strategy(rows, job.params), _rows_in_footers(job, task))
    given = Options(job.params)
    columns = given.value(SORT_COLUMNS)
    if not columns:
        parts = itertools.chain.from_iterable(map(partial(_parts, job), task.slices))
        return _write(job, task, parts, _rows_in_footers(job, task))
    with _spool(job, columns) as spool:
        return _write(job, task, _ordered(job, spool, rows), spool.rows)


def _spool(job: ClusterJob, columns: Sequence[str]) -> RowSpool:
    options = job.table.options
    return RowSpool(columns, options.value(MERGE_BYTES), options.value(SPILL_FOLDER))


def _ordered(job: ClusterJob, spool: RowSpool, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, which the spool takes first, in the plan's order."""
    for batch in rows:
        spool.add(batch)
    given = Options(job.params)
    curve = given.value(CURVE) if given.is_set(CURVE) else job.table.options.value(CURVE)
    return spool.ordered(partial(order_of, curve=curve))


def _in_order(job: ClusterJob, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in the plan's order, if it has one."""
    columns = Options(job.params).value(SORT_COLUMNS)
    if not columns:
        yield from rows
        return
    with _spool(job, columns) as spool:
        yield from _ordered(job, spool, rows)


def _write_by_hash(
    job: ClusterJob, task: GroupTask, targets: RingTargets, rows: Iterator[pa.RecordBatch]
) -> tuple[WriteStat, ...]:
    """A file for each target that gets rows."""
    files = BaseFiles(job.context, Bucket(task.number, task.partition_path, targets.file_ids[0]))
    keys = StoredKeys.of(job.table.config, job.context.schema)
    found: dict[int, OpenFile] = {}
    with ExitStack() as stack:
        for batch in rows:
            places = targets.of_keys(keys.of_rows(batch))
            for place in np.unique(places).tolist():
                if place not in found:
                    opened = files.open(targets.file_ids[place], MarkerType.CREATE)
                    found[place] = stack.enter_context(opened)
                file = found[place]
                file.writer.write(renamed(batch.filter(pa.array(places == place)), file.name))
    return tuple(files.stat(found[place], num_inserts=found[place].rows) for place in sorted(found))


def _rows(job: ClusterJob, slice_: FileSlice) -> Iterator[pa.RecordBatch]:
    history = history_until(job.table, job.context.instant_time)
    return read_slice(job.table, slice_, schema=job.context.schema.with_meta(), history=history)


def _parts(job: ClusterJob, slice_: FileSlice) -> Iterator[pa.RecordBatch | _RowGroup]:
    """The rows of a slice that stay in their order: its row groups as they are, but for those that are small.

    A row group is to be written before the next part is taken.
    """
    base, schema, options = slice_.base_file, job.context.schema.with_meta(), job.context.files
    if base is None or slice_.log_files or not candidate_of(job.table, slice_, job.context.instant_time).is_plain:
        yield from _rows(job, slice_)
        return
    with open_base(job.table.storage, base.path, base.known_size) as held:
        if not can_copy(held, schema, options) or held.row_groups is None:
            yield from _rows(job, slice_)
            return
        for number, size in enumerate(held.row_groups.sizes):
            rows = held.row_groups.rows[number]
            if size >= options.block_bytes * _SMALL:
                yield _RowGroup(held, number, rows)
            else:
                yield from held.rows(schema=schema, groups=(number,), batch_rows=max(1, rows))


def _rows_in_footers(job: ClusterJob, task: GroupTask) -> int:
    """About as many rows as there are: inserts that lie in logs are not counted."""
    paths = [slice_.base_file.path for slice_ in task.slices if slice_.base_file is not None]
    return sum(read_footer(job.table.storage, path).num_rows for path in paths)


def _write(
    job: ClusterJob, task: GroupTask, parts: Iterator[pa.RecordBatch | _RowGroup], rows: int
) -> tuple[WriteStat, ...]:
    bucket = Bucket(task.number, task.partition_path, new_file_id())
    files = BaseFiles(job.context, bucket)
    prefix = bucket.file_id.rpartition("-")[0]
    stats = []
    share = max(1, -(-rows // task.outputs))
    for number, of_file in itertools.groupby(_numbered(parts, share), key=itemgetter(0)):
        with files.open(f"{prefix}-{number}", MarkerType.CREATE) as file:
            for _, part in of_file:
                if isinstance(part, _RowGroup):
                    file.writer.copy(part.held, part.number)
                else:
                    file.writer.write(renamed(part, file.name))
        stats.append(files.stat(file, num_inserts=file.rows))
    return tuple(stats)


def _numbered(
    parts: Iterator[pa.RecordBatch | _RowGroup], share: int
) -> Iterator[tuple[int, pa.RecordBatch | _RowGroup]]:
    """Batches cut where a file ends, and row groups whole, each with the number of its file."""
    at = 0
    for part in parts:
        if isinstance(part, _RowGroup):
            yield (at + part.num_rows // 2) // share, part
            at += part.num_rows
            continue
        start = 0
        while start < part.num_rows:
            count = min(part.num_rows - start, share - at % share)
            yield at // share, part.slice(start, count)
            at += count
            start += count
