"""Partial updates: rows of which only some columns count; what they lack stays as it is in the table.

In merge-on-read tables of newer versions they are log blocks of just these columns (format guide 14.4). A row whose key
the table does not hold, or holds no more, is written whole, its other columns null: readers would complete it from what
lies below, a deleted row among that. In a copy-on-write table the rows that a statement computes need no other columns
either: the stored rows have them, and where all rows of a row group keep a column, it is not even decoded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import InputError, SchemaError, UnsupportedError
from skep_format.schema.types import RECORD_KEY, Schema
from skep_table.keys.text import single
from skep_table.merge import Fill, MergeRule, latest_per_key
from skep_table.merge.rows import HAS, PARTIAL, as_mask
from skep_table.table import HudiTable
from skep_table.write.output.held import in_base_file, keys_in_rows, may_delete

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SetColumns:
    """The columns that a write sets. `only`: its rows have no others, so it is refused where it would set those too.

    Otherwise the rows are whole, and are written so where partial updates are not possible.
    """

    names: Collection[str]
    only: bool


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """What the tasks of a write need: `names` are the columns that it sets, `kept` those that stay, in table order.

    `required` are kept columns that may not be null, and that its rows lack. `table` is set where every row is partial:
    the keys that it holds are then looked up; else the rows are marked (PARTIAL). `in_files`: marked rows are stored
    ones, whose base files are rewritten.
    """

    names: tuple[str, ...]
    kept: tuple[str, ...]
    required: tuple[str, ...] = ()
    table: HudiTable | None = None
    in_files: bool = False

    @classmethod
    def of(
        cls, table: HudiTable, sets: SetColumns, schema: Schema, rule: MergeRule, *, moves_rows: bool
    ) -> PartialUpdate | None:
        """By the columns `schema` after the write. None for a write of whole rows.

        `moves_rows`: the index may put a row into another partition. Where the rows have only the columns that are set:
        UnsupportedError for a table that can't have partial updates, InputError where nothing is set.
        """
        in_logs = table.config.is_mor
        problem = None
        if rule.merger is not None or {rule.log.fill, rule.base.fill} != {Fill.NOTHING}:
            by = table.config.payload_class or table.config.merge_mode
            problem = f"its merge rule ({by}) completes rows by itself"
        elif in_logs and not table.format.reads.has_partial_updates:
            problem = f"log files of table version {table.config.version} hold whole rows"
        elif sets.only and moves_rows:
            problem = "its index moves rows between partitions, for which they have to be whole"
        if problem is not None:
            if sets.only:
                problem = f"no partial updates: {problem}"
                raise table.error(UnsupportedError, problem, hint="UPDATE or MERGE INTO sets columns of any table")
            return None
        keys = set(table.config.record_key_fields) if table.config.populate_meta_fields else set()
        names = tuple(name for name in schema.names() if name in sets.names and name not in keys)
        kept = tuple(name for name in schema.names() if name not in sets.names and name not in keys)
        if not sets.only:
            if not in_logs:
                # a stored row that stays in its partition has the values of its path, whether they are set or not
                fixed = {*keys, *table.config.partition_fields}
                names = tuple(name for name in names if name not in fixed)
                kept = tuple(name for name in schema.names() if name not in names)
                return cls(names, kept, in_files=True) if not rule.marks_deletes(schema) else None
            return cls(names, kept) if kept else None
        if not names:
            raise table.error(InputError, "a partial update sets no column but the record key")
        required = tuple(name for name in kept if not schema[name].nullable)
        return cls(names, kept, required, table) if kept else None

    @property
    def kept_in_files(self) -> tuple[str, ...]:
        """The columns that base files keep of the rows that are marked; none where rows are completed by helpers."""
        return self.kept if self.in_files else ()

    def flags(self, rows: pa.Table) -> Mask:
        """Which rows are partial updates, whether the table holds their keys or not."""
        if PARTIAL not in rows.schema.names:
            return np.full(rows.num_rows, self.table is not None)
        return as_mask(rows.column(PARTIAL))

    def in_slice(self, rows: pa.Table, partition_path: str, file_id: str) -> Mask:
        """As `flags`, without those whose key the file slice holds no row of."""
        flags = self.flags(rows)
        if self.table is None or not flags.any():
            return flags
        slices = self.table.view().slices(partition_path)
        slice_ = next((each for each in slices if each.file_id == file_id), None)
        if slice_ is None:
            return np.zeros(rows.num_rows, np.bool_)
        if in_base_file(rows) and not may_delete(self.table, slice_):
            return flags
        keys = single(rows.column(RECORD_KEY))
        return flags & keys_in_rows(self.table, slice_, keys)

    def marked(self, rows: pa.Table, flags: Mask) -> pa.Table:
        """Rows with the helper columns by which a merge knows what they bring."""
        whole = pa.chunked_array([pa.array(~flags)])
        for name in self.kept:
            if name in rows.schema.names:
                rows = rows.append_column(pa.field(HAS + name, pa.bool_()), whole)
        return rows

    def merging(self, rows: pa.Table, columns: pa.Table) -> pa.Table:
        """`columns`, those that are written of `rows`, with the helper columns by which they are merged into a file."""
        flags = self.flags(rows)
        return columns.append_column(PARTIAL, pa.array(flags)) if self.in_files else self.marked(columns, flags)

    def latest(self, rows: pa.Table, rule: MergeRule) -> pa.Table:
        """One row a key, as `latest_per_key`; a partial one over a whole one is whole."""
        flags = self.flags(rows)
        if PARTIAL not in rows.schema.names or flags.all() or not flags.any():
            return latest_per_key(rows, rule)
        merged = latest_per_key(self.marked(rows, flags), rule)
        has = [name for name in merged.schema.names if name.startswith(HAS)]
        whole = np.logical_and.reduce([as_mask(merged.column(name)) for name in has], initial=True)
        at = merged.schema.get_field_index(PARTIAL)
        flags = pa.chunked_array([pa.array(np.broadcast_to(~whole, merged.num_rows))])
        return merged.set_column(at, merged.schema.field(at), flags).drop_columns(has)

    def check_new(self, rows: int) -> None:
        """SchemaError where so many rows can't be added, since they lack columns that may not be null."""
        if rows and self.required:
            raise SchemaError(
                f"{rows} rows of a partial update have keys that the table does not hold, and column"
                f" {self.required[0]}, which may not be null, is not among theirs",
                hint="add the column, or update stored keys only",
                column=self.required[0],
                rows=rows,
            )
