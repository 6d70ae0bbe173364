"""Writes of several callers as one commit: each gets its own counts, or its own error.

A commit has parts of one kind. Frames go in one after the other, if no two of them have a key in common. Statements
are computed in their order, each on the snapshot of the commit with what those before it change; what they change
last is written. A part that can't be computed so waits for the next commit.
"""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError
from skep_format.runner import Runner
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.timeline.metadata import WriteOperation
from skep_table.merge.rows import DELETED, PARTIAL, mark_deleted
from skep_table.query.plan import plan
from skep_table.query.read import read
from skep_table.query.request import ReadRequest
from skep_table.query.unwritten import UnwrittenRowsError, places, with_later
from skep_table.table import HudiTable, Unwritten
from skep_table.write.context import Memory
from skep_table.write.input.given import row_input
from skep_table.write.input.row_input import RowInput
from skep_table.write.input.source import Computed, FrameEngine, RowSource
from skep_table.write.planning.options import Duplicates
from skep_table.write.planning.plan import WritePlan
from skep_table.write.result import RowCounts, WriteResult
from skep_table.write.rows import ArrowRows, KeyedBatch, KeyedRows

if TYPE_CHECKING:
    from skep_table.write.flow import TableWriter

_SMALL_BYTES: Final = 4 << 20
_FRAMES: Final = (WriteOperation.UPSERT, WriteOperation.INSERT, WriteOperation.DELETE)


@dataclass(eq=False, kw_only=True)
class Part(ABC):
    """One write: called with a writer it is a commit of its own.

    `context` is that of the caller, in which its code runs in whichever thread commits it. `counts` and `error` are
    what became of it in a commit with others; neither where it waits for the next one.
    """

    context: contextvars.Context = field(default_factory=contextvars.copy_context, repr=False)
    counts: RowCounts | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)

    @abstractmethod
    def __call__(self, writer: TableWriter) -> WriteResult:
        """Commits it alone."""

    @property
    @abstractmethod
    def kind(self) -> Hashable | None:
        """Equal for parts that can be one commit; None where it has to be alone."""

    @property
    def bytes(self) -> int:
        """Of the rows that it brings."""
        return 0

    def clear(self) -> None:
        """Before a try."""
        self.counts = self.error = None


@dataclass(eq=False)
class ChangePart(Part):
    """Updates, deletes and new rows that are computed: see `TableWriter.change`."""

    kind = WriteOperation.UPSERT_PREPPED
    compute: Callable[[HudiTable], pa.Table]
    sets: Collection[str] | None = None
    compute_set: Callable[[HudiTable], pa.Table] | None = None

    def __call__(self, writer: TableWriter) -> WriteResult:
        return writer.change(self.compute, self.sets, self.compute_set)


@dataclass(eq=False)
class RemovalPart(Part):
    """Stored rows that are found and deleted: see `TableWriter.delete_computed`."""

    kind = WriteOperation.DELETE_PREPPED
    compute: Callable[[HudiTable], pa.Table]

    def __call__(self, writer: TableWriter) -> WriteResult:
        return writer.delete_computed(self.compute)


@dataclass(eq=False)
class FramePart(Part):
    """The rows of a frame by an operation."""

    operation: WriteOperation
    frame: object

    def __post_init__(self) -> None:
        if self.operation in _FRAMES:
            self.frame = row_input(self.frame)

    def __call__(self, writer: TableWriter) -> WriteResult:
        return writer.write(self.operation, self.frame)

    @property
    def kind(self) -> Hashable | None:
        """Frames of the same columns, whose rows are in memory."""
        if not isinstance(self.frame, RowInput) or not self.frame.in_memory:
            return None
        return self.operation, tuple(self.frame.schema.names), tuple(self.frame.schema.types)

    @property
    def bytes(self) -> int:
        return self.frame.table().nbytes if isinstance(self.frame, RowInput) and self.frame.in_memory else 0


_ComputedPart = ChangePart | RemovalPart


class JointChanges(Computed):
    """The rows that several statements change, each computed with what those before it change."""

    def __init__(self, engine: FrameEngine, parts: Sequence[_ComputedPart]) -> None:
        super().__init__(engine, self._all, deletes=parts[0].kind is WriteOperation.DELETE_PREPPED)
        self._parts = parts

    def _all(self, table: HudiTable) -> pa.Table:
        """NothingToCommitError where every part failed."""
        changes: pa.Table | None = None
        held = _small(table) if len(self._parts) > 1 else None
        for part in self._parts:
            part.clear()
            before = mark_deleted(changes) if changes is not None and self._deletes else changes
            try:
                rows = part.context.run(part.compute, table.with_unwritten(Unwritten(before, held)))
                changes, part.counts = self._joined(changes, rows), _counts(rows, deletes=self._deletes)
            except UnwrittenRowsError:
                continue
            except Exception as error:
                part.error = error
        if changes is None:
            raise NothingToCommitError
        return changes

    def count(self) -> None:
        """Each part has its counts already."""

    def _joined(self, changes: pa.Table | None, rows: pa.Table) -> pa.Table:
        if PARTIAL in rows.schema.names:
            rows = rows.drop_columns(PARTIAL)  # whole rows, as parts may set different columns
        return rows if changes is None else with_later(changes, rows.select(changes.schema.names).cast(changes.schema))


class JointFrames(RowSource):
    """The rows of several frames of the same columns."""

    def __init__(self, engine: FrameEngine, parts: Sequence[FramePart], runner: Runner, memory: Memory) -> None:
        super().__init__(engine)
        self._parts, self._runner, self._memory = parts, runner, memory
        self._made: ArrowRows | None = None
        self._taken: list[tuple[FramePart, list[KeyedBatch]]] = []

    def schema(self, table: HudiTable) -> pa.Schema:  # noqa: ARG002 - the same for every snapshot
        return row_input(self._parts[0].frame).schema

    def prepare(self, plan: WritePlan) -> None:
        if self._rows is None:
            self._rows = self._made = self._keyed(plan)

    def rows(self, plan: WritePlan, table: HudiTable) -> KeyedRows:  # noqa: ARG002 - the same for every snapshot
        self.prepare(plan)
        assert self._rows is not None
        return self._rows

    def _keyed(self, plan: WritePlan) -> ArrowRows:
        """NothingToCommitError where no part has rows that fit the table."""
        self._taken, seen = [], pa.array([], pa.string())
        drops = plan.duplicates is not Duplicates.NONE or plan.settings.commit_on_errors
        is_alone = drops or plan.index.is_global  # the counts are those of the commit
        by_key = plan.keyer.generator.record_fields and (plan.combines or plan.traits.finds_keys)
        for part in self._parts:
            part.clear()
            if is_alone and self._taken:
                continue
            try:
                keyed = part.context.run(plan.checking_keyer.keyed, row_input(part.frame).table())
            except Exception as error:
                part.error = error
                continue
            if by_key:
                keys = places(keyed)
                combines = len(keys.unique()) < len(keys)
                if self._taken and (combines or pc.any(pc.is_in(keys, seen)).as_py()):
                    continue
                seen, is_alone = pa.concat_arrays([seen, keys]), is_alone or combines
            self._taken.append((part, KeyedBatch.of(keyed)))
        if not self._taken:
            raise NothingToCommitError
        return ArrowRows((batch for _, batches in self._taken for batch in batches), self._runner, self._memory)

    def count(self) -> None:
        """Gives each part its counts, once its rows are written: by the files in which their keys were found."""
        assert self._made is not None
        starts: dict[str, int] = {}
        for part, batches in self._taken:
            found = total = 0
            for batch in batches:
                total += len(batch.codes)
                for code, path in enumerate(batch.paths):
                    rows, start = int((batch.codes == code).sum()), starts.get(path, 0)
                    starts[path] = start + rows
                    found += int((self._made.tags_of(path)[start : start + rows] >= 0).sum())
            deletes = part.operation is WriteOperation.DELETE
            part.counts = RowCounts(deleted=found) if deletes else RowCounts(total - found, found)


class NothingToCommitError(InputError):
    """No part of a joint commit can be committed; each has its own error."""

    def __init__(self) -> None:
        super().__init__("no part of the commit can be committed")


def _small(table: HudiTable) -> pa.Table | None:
    """The rows of a small table, which each of many statements would else read by itself.

    Without partitions: one folder is listed, and not those that no statement names.
    """
    if table.config.partition_fields:
        return None
    tasks = plan(table, ReadRequest())
    if sum(task.slice.size_bytes for task in tasks) > _SMALL_BYTES:
        return None
    columns = (RECORD_KEY, PARTITION_PATH, FILE_NAME, *table.schema().names())
    return read(table, ReadRequest(columns=columns)).to_arrow()


def _counts(rows: pa.Table, *, deletes: bool) -> RowCounts:
    """Of the rows that a statement changes."""
    if deletes:
        return RowCounts(deleted=rows.num_rows)
    deleted = pc.sum(rows.column(DELETED)).as_py() or 0
    inserted = rows.column(FILE_NAME).null_count
    return RowCounts(inserted, rows.num_rows - deleted - inserted, deleted)


def source_of(
    engine: FrameEngine, parts: Sequence[Part], runner: Runner, memory: Memory
) -> tuple[WriteOperation, JointChanges | JointFrames]:
    """How the parts, which are of one kind, are written."""
    first = parts[0]
    if isinstance(first, FramePart):
        frames = [each for each in parts if isinstance(each, FramePart)]
        return first.operation, JointFrames(engine, frames, runner, memory)
    computed = [each for each in parts if isinstance(each, _ComputedPart)]
    return computed[0].kind, JointChanges(engine, computed)
