"""Rows that are written as they come: into open files of new groups, one for each partition that they meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from skep_format.runner import Runner
from skep_table.write.context import Memory, WriteContext
from skep_table.write.keyed import rows_by
from skep_table.write.output.bucket import BucketResult, InsertWriter
from skep_table.write.output.files import announce
from skep_table.write.planning.profile import Bucket, new_file_id
from skep_table.write.row_store import RowStore
from skep_table.write.rows import KeyedBatch, StoredRows, few_at_once, within, write_task

_LEAST_ROW_GROUP: Final = 8 << 20  # bytes of Arrow data that an open file should have room for


class BulkInsert:
    """Writes keyed rows into new file groups. Rows that fit into memory are written when all are there, by partition.

    When they don't, the largest partitions get open files, which take their rows as they come, with row groups as large
    as memory allows; rows of other partitions are kept on disk and written in the end. Sorted rows all are.
    """

    def __init__(self, context: WriteContext, runner: Runner, memory: Memory) -> None:
        self._context = context
        self._runner = runner
        self._memory = memory
        self._numbers = itertools.count()
        self._rest: RowStore[str] = RowStore(memory.max_bytes, memory.folder)
        self._open: dict[str, InsertWriter] = {}
        self._most_open = max(1, memory.max_bytes // _LEAST_ROW_GROUP)

    def write(self, keyed: Iterator[KeyedBatch]) -> list[BucketResult]:
        """Raises what reading, keying and storage raise; files that are open are then deleted."""
        try:
            with ExitStack() as stack:
                return self._written(keyed, stack)
        finally:
            self._rest.close()

    def _written(self, keyed: Iterator[KeyedBatch], stack: ExitStack) -> list[BucketResult]:
        waiting: list[KeyedBatch] = []
        size = 0
        streams = False
        for batch in keyed:
            if self._context.arrangement is not None:
                self._rest.add(*batch)
            elif streams:
                self._pass_on(batch, stack)
            else:
                waiting.append(batch)
                size += batch.rows.nbytes
                if size > self._memory.max_bytes:
                    streams = True
                    while waiting:
                        self._pass_on(waiting.pop(0), stack)
        for batch in waiting:
            self._rest.add(*batch)
        results = [*self._runner.map(InsertWriter.result, list(self._open.values()))] if self._open else []
        return [*results, *self._write_rest()]

    def _pass_on(self, batch: KeyedBatch, stack: ExitStack) -> None:
        """Rows of open partitions into their files, the others to disk."""
        groups = sorted(rows_by(batch.codes, len(batch.paths)), key=lambda group: -len(group[1]))
        for code, _ in groups:
            path = batch.paths[code]
            if path not in self._open and path not in self._rest.labels and len(self._open) < self._most_open:
                bucket = Bucket(next(self._numbers), path, new_file_id())
                self._open[path] = stack.enter_context(InsertWriter(self._context, bucket))
        tasks = [
            (self._open[path], batch.rows, rows) for code, rows in groups if (path := batch.paths[code]) in self._open
        ]
        self._runner.map(_write_some, tasks)
        self._flush_largest()
        if len(tasks) < len(groups):
            codes = batch.codes.copy()
            for code, rows in groups:
                if batch.paths[code] in self._open:
                    codes[rows] = -1
            self._rest.spill()
            self._rest.add(batch.rows, batch.paths, codes)

    def _flush_largest(self) -> None:
        files = sorted(self._open.values(), key=lambda each: -each.held_bytes)
        held = sum(each.held_bytes for each in files)
        flushed = []
        for each in files:
            if held <= self._memory.max_bytes // 2:
                break
            held -= each.held_bytes
            flushed.append(each)
        if flushed:
            self._runner.map(InsertWriter.flush, flushed)

    def _write_rest(self) -> list[BucketResult]:
        spilled = self._rest.is_spilled
        context = within(self._context, self._memory) if spilled else self._context
        tasks: list[tuple[Bucket, StoredRows]] = []
        for path, rows in self._rest.labels.items():
            bucket = Bucket(next(self._numbers), path, new_file_id(), rows=rows)
            tasks.append((bucket, StoredRows(self._rest, path, context.memory)))
        tasks.sort(key=lambda task: -task[0].rows)
        context = announce(context, [bucket for bucket, _ in tasks])
        write = partial(write_task, context)
        return few_at_once(self._runner, write, tasks, context.storage, spilled=spilled)


def _write_some(task: tuple[InsertWriter, pa.RecordBatch, np.ndarray]) -> None:
    writer, batch, rows = task
    writer.write(pa.Table.from_batches([batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))]))
