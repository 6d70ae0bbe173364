"""Rows with their record key and partition path, as two columns in front of the table's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError
from skep_format.schema.exact import EXACT, Casts
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.keys import KeyGenerator
from skep_table.keys.generator import check_unambiguous
from skep_table.keys.text import column_of, single
from skep_table.merge.rows import DELETED, PARTIAL, POSITION, Mask, as_mask
from skep_table.write.input.conform import conform
from skep_table.write.tags import HELD, NOT_HELD

_KEY_FIELDS = (pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string()))
_PLACE_FIELD = pa.field(FILE_NAME, pa.string())
_POSITION_FIELD = pa.field(POSITION, pa.int64())


@dataclass(frozen=True, slots=True)
class Keyer:
    """Turns batches of the caller's rows into keyed rows of the table: `target` are the data columns to be kept.

    Without record fields keys are made when the rows are written, and are null until then. `prepped` rows bring key,
    partition path and the name of their file in the meta columns with which they were read. `ambiguous`: takes values
    whose key or path other values may have, too. `ordering`: fields that may not be null. `placed`: prepped rows have
    their positions in that file, where these are known.
    """

    generator: KeyGenerator
    target: pa.Schema
    prepped: bool = False
    casts: Casts = EXACT
    ambiguous: bool = False
    ordering: tuple[str, ...] = ()
    placed: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of keyed rows: key, partition path, for prepped rows their file, then the table's columns, and
        their position."""
        places = (_PLACE_FIELD,) if self.prepped else ()
        return pa.schema([*_KEY_FIELDS, *places, *self.target, *self._position_fields])

    @property
    def _position_fields(self) -> tuple[pa.Field, ...]:
        return (_POSITION_FIELD,) if self.placed else ()

    def _positions(self, rows: pa.RecordBatch | pa.Table) -> list[pa.ChunkedArray]:
        return [pc.fill_null(_chunked(rows.column(field.name)), HELD) for field in self._position_fields]

    def keyed(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """KeyFieldError for rows without key or with an ambiguous one, SchemaError for values that don't fit."""
        # Keys are made from the columns in the table's types, as a Hudi writer does.
        data = conform(rows, self.target, self.casts)
        if self.ordering:
            _check_ordering(data, self.ordering)
        if self.prepped:
            columns = [*_meta_columns(rows), *data.columns, *self._positions(rows)]
            return pa.Table.from_arrays(columns, schema=self.schema)
        if not self.ambiguous:
            check_unambiguous(self.generator, data)
        if self.generator.record_fields:
            keys = self.generator.record_keys(data)
        else:
            keys = pa.nulls(data.num_rows, pa.string())
        paths = self.generator.partition_paths(data)
        return pa.Table.from_arrays([_chunked(keys), _chunked(paths), *data.columns], schema=self.schema)


def comparable(rows: pa.Table, ordering: Sequence[str]) -> pa.ChunkedArray | None:
    """Which rows the merge rule can compare: those with a value in each ordering field; None for all of them."""
    valid = None
    for name in ordering:
        found = pc.is_valid(column_of(rows, name))
        valid = found if valid is None else pc.and_(valid, found)
    return None if valid is None or pc.all(valid).as_py() is not False else valid


def _check_ordering(rows: pa.Table, ordering: Sequence[str]) -> None:
    valid = comparable(rows, ordering)
    if valid is not None:
        missing = rows.num_rows - pc.sum(valid).as_py()
        raise KeyFieldError(
            f"{missing} rows without ordering value: column {', '.join(ordering)} is null",
            column=", ".join(ordering),
            rows=missing,
        )


@dataclass(frozen=True, slots=True)
class ChangeKeyer(Keyer):
    """For rows of `Changes`: prepped rows, new rows that name no file, and rows that only delete a stored one.

    New rows get key and path from their columns. A delete brings no value in `unordered`, the ordering columns: it
    always takes effect. `marks_partial`: rows keep the mark of partial updates. `kept` columns may be missing in
    stored rows.
    """

    unordered: tuple[str, ...] = ()
    marks_partial: bool = False
    kept: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Key, path, file name, the columns kept, and the marks."""
        marks = [pa.field(name, pa.bool_()) for name in self._marks]
        return pa.schema([*_KEY_FIELDS, _PLACE_FIELD, *self._of_stored, *marks, *self._position_fields])

    @property
    def _of_stored(self) -> pa.Schema:
        return pa.schema([each.with_nullable(each.nullable or each.name in self.kept) for each in self.target])

    @property
    def _marks(self) -> tuple[str, ...]:
        return (DELETED, PARTIAL) if self.marks_partial else (DELETED,)

    def keyed(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """Errors are those of `Keyer.keyed`, for the new rows."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        is_new = pc.is_null(table.column(FILE_NAME))
        stored, new = table.filter(pc.invert(is_new)), table.filter(is_new)
        return pa.concat_tables([self._stored(stored), self._new(new)]) if len(new) else self._stored(stored)

    def _stored(self, rows: pa.Table) -> pa.Table:
        data, is_deleted = conform(rows, self._of_stored, self.casts), rows.column(DELETED)
        columns = [
            pc.if_else(is_deleted, pa.scalar(None, field.type), column) if field.name in self.unordered else column
            for field, column in zip(self.target, data.columns, strict=True)
        ]
        marks = [rows.column(name) for name in self._marks]
        every = [*_meta_columns(rows), *columns, *marks, *self._positions(rows)]
        return pa.Table.from_arrays(every, schema=self.schema)

    def _new(self, rows: pa.Table) -> pa.Table:
        keyed = Keyer(self.generator, self.target, casts=self.casts, ambiguous=self.ambiguous).keyed(rows)
        count = keyed.num_rows
        columns = dict(zip(keyed.schema.names, keyed.columns, strict=True))
        columns[FILE_NAME] = pa.chunked_array([pa.nulls(count, pa.string())])
        columns |= {name: pa.chunked_array([pa.repeat(False, count)]) for name in self._marks}
        columns |= dict(zip((field.name for field in self._position_fields), self._positions(rows), strict=True))
        return pa.Table.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _meta_columns(rows: pa.RecordBatch | pa.Table) -> list[pa.ChunkedArray]:
    """Key, partition path and file name of rows that were read with them. KeyFieldError for rows without."""
    missing = [field.name for field in (*_KEY_FIELDS, _PLACE_FIELD) if field.name not in rows.schema.names]
    if missing:
        raise KeyFieldError(
            f"rows of a prepped write need column {missing[0]}", column=missing[0], found=tuple(rows.schema.names)
        )
    columns = [_chunked(rows.column(field.name)).cast(field.type) for field in (*_KEY_FIELDS, _PLACE_FIELD)]
    for name, column in zip((RECORD_KEY, PARTITION_PATH), columns, strict=False):
        if column.null_count:
            raise KeyFieldError(
                f"column {name} is null in {column.null_count} rows", column=name, rows=column.null_count
            )
    return columns


def _chunked(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def named(names: pa.Array | pa.ChunkedArray) -> Mask:
    """Which prepped rows name the file that they were read from, by their column of file names; the others are new."""
    return as_mask(pc.not_equal(names, ""))


def unnamed(rows: pa.RecordBatch | pa.Table) -> int:
    """How many keyed rows name no file, and are not known to be in none."""
    if FILE_NAME not in rows.schema.names:
        return rows.num_rows
    known = named(rows.column(FILE_NAME))
    if POSITION in rows.schema.names:
        known |= as_mask(pc.equal(rows.column(POSITION), NOT_HELD))
    return rows.num_rows - int(known.sum())


_FEW_CODES: Final = 1 << 15


def rows_by(codes: npt.NDArray[np.int32], count: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """(code, positions of its rows in their order) for each code below `count` that occurs."""
    # numpy sorts integers of 16 bits by radix, in a fifth of the time
    order = np.argsort(codes.astype(np.int16) if count < _FEW_CODES else codes, kind="stable")
    ordered = codes[order]
    ends = np.flatnonzero(np.diff(ordered, append=count))  # the cost depends on the rows, not on `count`
    start = 0
    for end, code in zip((ends + 1).tolist(), ordered[ends].tolist(), strict=True):
        if 0 <= code < count:
            yield code, order[start:end]
        start = end


def partition_codes(keyed: pa.Table) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The partition paths that occur, and for each row the position of its own."""
    encoded = single(keyed.column(PARTITION_PATH)).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
