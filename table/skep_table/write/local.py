"""Writing without Spark: frames of this process, tasks on threads."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import pyarrow as pa

from skep_format.runner import ReportingRunner, Runner
from skep_table.hooks import CommitHook
from skep_table.query.ahead import in_order
from skep_table.table import HudiTable
from skep_table.write.context import Memory, WriteContext
from skep_table.write.flow import TableWriter
from skep_table.write.input.given import matched_schema, row_input
from skep_table.write.input.row_input import RenamedInput, RowInput, pieces
from skep_table.write.joint import NothingToCommitError, Part, source_of
from skep_table.write.keyed import Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.output.streamed import BulkInsert
from skep_table.write.planning.operation import deletion_of
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.result import WriteResult
from skep_table.write.rows import PIECE_BYTES, ArrowRows, KeyedBatch, KeyedRows


class ArrowEngine:
    """Frames in this process; the tasks go to the runner."""

    def __init__(self, runner: Runner, settings: WriteSettings) -> None:
        self._runner = runner
        self._memory = settings.memory
        self._case_sensitive = settings.case_sensitive is not False

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def take(self, frame: object, columns: pa.Schema) -> RowInput:
        rows = row_input(frame, self._memory.max_bytes, self._memory.folder)
        matched = rows.schema if self._case_sensitive else matched_schema(rows.schema, columns)
        return rows if matched == rows.schema else RenamedInput(rows, matched)

    def schema(self, frame: object) -> pa.Schema:
        return row_input(frame).schema

    def rows(self, frame: object, keyer: Keyer) -> KeyedRows:
        rows = row_input(frame)
        memory = self._memory_for(rows)
        return ArrowRows(keyed_batches(rows, keyer, memory), self._runner, memory)

    def stream(self, frame: object, keyer: Keyer, context: WriteContext) -> list[BucketResult] | None:
        """Rows of which one is to be chosen for each key are held first."""
        if context.combine:
            return None
        rows = row_input(frame)
        memory = self._memory_for(rows)
        return BulkInsert(context, self._runner, memory).write(keyed_batches(rows, keyer, memory))

    def _memory_for(self, rows: RowInput) -> Memory:
        """Rows that are in memory already are not spilled."""
        return replace(self._memory, max_bytes=sys.maxsize) if rows.in_memory else self._memory


def keyed_batches(rows: RowInput, keyer: Keyer, memory: Memory) -> Iterator[KeyedBatch]:
    """The rows with their keys, in their order; a few batches ahead on threads."""
    tables = pieces(rows.batches(), min(PIECE_BYTES, memory.max_bytes // 8))

    def keyed(table: pa.Table) -> Iterator[KeyedBatch]:
        return iter(KeyedBatch.of(keyer.keyed(table)))

    first, second = next(tables, None), next(tables, None)
    if first is None or second is None:
        yield from keyed(rows.schema.empty_table() if first is None else first)
        return
    yield from in_order(itertools.chain([first, second], tables), keyed, min(4, os.cpu_count() or 1))


class LocalWriter(TableWriter):
    """Writes Arrow tables (and pandas and polars frames) with threads of this process."""

    def __init__(
        self, table: HudiTable, hooks: Sequence[CommitHook] = (), create: Callable[[], object] | None = None
    ) -> None:
        context = table.context
        runner = ReportingRunner(context.runner, partial(context.events.progress, "write.tasks"))
        settings = WriteSettings.of(context.options)
        self._runner = runner
        super().__init__(table, ArrowEngine(runner, settings), settings, hooks, create)

    def together(self, parts: Sequence[Part]) -> list[WriteResult | Exception | None]:
        """One commit of parts of one kind. For each its result, its error, or None where it waits for the next commit.

        Raises what a write raises for all of them: then none is committed.
        """
        operation, source = source_of(self._engine, parts, self._runner, self._settings.memory)
        if self._settings.deletes_rows:
            operation = deletion_of(operation)
        try:
            result = self._run(operation, source)
            source.count()
        except NothingToCommitError:
            return [part.error for part in parts]
        is_shared = sum(part.counts is not None for part in parts) > 1
        return [
            part.error if part.counts is None else replace(result, own=part.counts) if is_shared else result
            for part in parts
        ]
