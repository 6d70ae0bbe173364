"""Where the rows of a write come from: a frame, evaluated once, or the table itself as a write finds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from skep_format.errors import InputError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.timeline.metadata import WriteOperation
from skep_table.keys import KeyGenerator
from skep_table.merge.rows import POSITION
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.query.request import Where
from skep_table.table import HudiTable
from skep_table.write.context import WriteContext
from skep_table.write.input.row_input import RowInput
from skep_table.write.keyed import ChangeKeyer, Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.partial import SetColumns
from skep_table.write.planning.plan import WritePlan
from skep_table.write.rows import KeyedRows

if TYPE_CHECKING:
    from typing_extensions import Self


_WHERE_A_ROW_IS = (RECORD_KEY, PARTITION_PATH, FILE_NAME)


class FrameEngine(Protocol):
    """Where frames live and tasks run."""

    def running(self) -> AbstractContextManager[None]:
        """Around each write, from its plan to the hooks behind its commit."""

    def take(self, frame: object, columns: pa.Schema) -> object:
        """A caller's frame as one that can be read repeatedly, for a table of these columns.

        InputError for what is no frame. Columns and members of structs whose names differ from the table's in case only
        get its names where case does not count.
        """

    def schema(self, frame: object) -> pa.Schema:
        """The columns of a frame that was taken."""

    def rows(self, frame: object, keyer: Keyer) -> KeyedRows:
        """The rows of a frame that was taken, with their keys. Their `release` frees what it holds.

        KeyFieldError and SchemaError: see `Keyer.keyed`.
        """

    def stream(self, frame: object, keyer: Keyer, context: WriteContext, /) -> list[BucketResult] | None:
        """Writes all rows into new files in one pass, for bulk_insert.

        None when the engine has to hold all rows first.
        """


class RowSource(ABC):
    """The rows of one write, for as many tries as it needs. Leaving its block releases them."""

    is_steady = True  # whether every try has the same rows
    sets: SetColumns | None = None
    """The columns that count, where others stay as they are in the table; None for whole rows."""
    replaces: frozenset[str] = frozenset()
    """The partitions whose rows a write that replaces also replaces where it has no row for them."""

    def __init__(self, engine: FrameEngine) -> None:
        self._engine = engine
        self._rows: KeyedRows | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    @abstractmethod
    def schema(self, table: HudiTable) -> pa.Schema:
        """The columns of the rows, for a write on this snapshot of the table. Called before all others."""

    @abstractmethod
    def rows(self, plan: WritePlan, table: HudiTable) -> KeyedRows:
        """The rows with their keys. `table` is the snapshot on which the write is based."""

    def prepare(self, plan: WritePlan) -> None:  # noqa: B027 - what is computed from the table is not known before
        """Does what is possible before the instant is requested, so that the instant is pending for a shorter time."""

    def check(self, plan: WritePlan) -> None:
        """Evaluates all rows: raises what a write raises for rows that can't be written. InputError.

        Rows of a plan that streams are evaluated again by the write, others are held for it.
        """
        self.prepare(plan)

    def stream(self, plan: WritePlan, context: WriteContext) -> list[BucketResult] | None:
        """See FrameEngine."""
        del plan, context
        return None

    def release(self) -> None:
        """Frees the rows that are held; may be called again."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.release()


class Frame(RowSource):
    """A caller's frame, for a table as a write first sees it. Its rows are evaluated once.

    `partial`: columns of the table that it lacks stay as they are.
    """

    def __init__(self, engine: FrameEngine, frame: object, *, partial: bool = False) -> None:
        super().__init__(engine)
        self._given = self._frame = frame
        self._is_taken, self._is_partial = False, partial

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if isinstance(self._frame, RowInput) and self._frame is not self._given:
            self._frame.release()

    def schema(self, table: HudiTable) -> pa.Schema:
        if not self._is_taken:
            self._frame, self._is_taken = self._engine.take(self._given, to_arrow(table.schema())), True
            if self._is_partial:
                self.sets = SetColumns(frozenset(self._engine.schema(self._frame).names), only=True)
        return self._engine.schema(self._frame)

    def prepare(self, plan: WritePlan) -> None:
        if not plan.streams and self._rows is None:
            self._rows = self._engine.rows(self._frame, plan.keyer)

    def check(self, plan: WritePlan) -> None:
        self._rows = self._engine.rows(self._frame, plan.checking_keyer)
        if plan.streams:
            self.release()

    def rows(self, plan: WritePlan, table: HudiTable) -> KeyedRows:  # noqa: ARG002 - the same for every snapshot
        if self._rows is None:
            self._rows = self._engine.rows(self._frame, plan.keyer)
        return self._rows

    def stream(self, plan: WritePlan, context: WriteContext) -> list[BucketResult] | None:
        return self._engine.stream(self._frame, plan.keyer, context)


class Computed(RowSource):
    """Rows that are computed from the table as each try finds it: updates, deletes and new rows of one commit.

    `compute` returns an Arrow table with the record key, partition path and file name that a stored row was read with
    (all three null for a new row), the data columns as they are to be, and DELETED. With `deletes` all its rows are
    deleted, and it returns `columns_that_find` only. With `sets` it also returns PARTIAL: which rows are stored ones of
    which only the columns `sets` are changed. `compute_set` is called instead where those need no others: it may leave
    them out, but for ordering and partition columns. Where the table `has_positions` it may return POSITION, too,
    which is NOT_HELD for a new row whose key no stored row has.
    """

    is_steady = False

    def __init__(
        self,
        engine: FrameEngine,
        compute: Callable[[HudiTable], pa.Table],
        *,
        deletes: bool = False,
        sets: Collection[str] | None = None,
        compute_set: Callable[[HudiTable], pa.Table] | None = None,
    ) -> None:
        super().__init__(engine)
        self.sets = None if sets is None else SetColumns(frozenset(sets), only=False)
        self._compute, self._compute_set = compute, compute_set or compute
        self._deletes = deletes

    def schema(self, table: HudiTable) -> pa.Schema:
        """That of the table."""
        schema = table.schema().with_meta()
        return to_arrow(schema.select(columns_that_find(table)) if self._deletes else schema)

    def rows(self, plan: WritePlan, table: HudiTable) -> KeyedRows:
        self.release()
        keyer, compute = plan.keyer, self._compute
        if not self._deletes:
            kept = () if plan.partial is None else plan.partial.kept_in_files
            compute = self._compute_set if kept else self._compute
            keyer = ChangeKeyer(
                generator=keyer.generator,
                target=keyer.target,
                prepped=True,
                casts=keyer.casts,
                ambiguous=keyer.ambiguous,
                marks_partial=plan.partial is not None,
                kept=kept,
                unordered=tuple(name.partition(".")[0] for name in plan.rule.ordering_fields),
            )
        rows = compute(table)
        if POSITION in rows.schema.names and plan.index.is_global:  # it may put rows elsewhere
            rows = rows.drop_columns(POSITION)
        self._rows = self._engine.rows(rows, replace(keyer, placed=POSITION in rows.schema.names))
        return self._rows


class Recomputed(RowSource):
    """Whole rows that are computed from the table as each try finds it, and replace those of some partitions.

    `compute` returns an Arrow table with the data columns. InputError where a row belongs to another partition.
    """

    is_steady = False

    def __init__(
        self, engine: FrameEngine, compute: Callable[[HudiTable], pa.Table], partitions: Collection[str]
    ) -> None:
        super().__init__(engine)
        self._compute = compute
        self.replaces = frozenset(partitions)

    def schema(self, table: HudiTable) -> pa.Schema:
        """The data columns of the table."""
        return to_arrow(table.schema())

    def rows(self, plan: WritePlan, table: HudiTable) -> KeyedRows:
        self.release()
        self._rows = rows = self._engine.rows(self._compute(table), plan.keyer)
        others = sorted(set(rows.partitions()) - self.replaces)
        if others:
            expected = ", ".join(sorted(map(repr, self.replaces)))
            problem = f"rows of partition {expected} belong to {others[0]!r} by their columns, and can't replace it"
            raise table.error(InputError, problem, found=others[0], expected=expected)
        return rows


def matching(where: Where) -> Callable[[HudiTable], pa.Table]:
    """Computes the rows for which a predicate holds, with the columns by which they are deleted."""

    def compute(table: HudiTable) -> pa.Table:
        positions = has_positions(table)
        columns = (*columns_that_find(table), *((POSITION,) if positions else ()))
        request = ReadRequest(columns=columns, where=where, options=table.options, positions=positions)
        return read(table, request).to_arrow()

    return compute


def has_positions(table: HudiTable) -> bool:
    """Whether stored rows are changed by the positions in base files that they were read at, and not by their keys."""
    return table.config.populate_meta_fields and not table.config.is_mor and table.unwritten is None


def deleting(table: HudiTable) -> WriteOperation:
    """How rows that a predicate matched are deleted: by file, or by key in tables without meta columns."""
    return WriteOperation.DELETE_PREPPED if table.config.populate_meta_fields else WriteOperation.DELETE


def columns_that_find(table: HudiTable) -> tuple[str, ...]:
    """The columns by which stored rows are deleted again: where they are, or what their keys are made from."""
    if table.config.populate_meta_fields:
        return _WHERE_A_ROW_IS
    generator, schema = KeyGenerator.of(table.config), table.schema()
    fields = (*generator.record_fields, *generator.partition_fields)
    return tuple(dict.fromkeys(name if name in schema else name.partition(".")[0] for name in fields))
