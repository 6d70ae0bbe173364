"""What a condition leaves of a Parquet file: row groups by their statistics, and of these rows, by the columns that it
looks at; the other columns are read where rows are left.

Parquet can't be entered in the middle of a column chunk, but a chunk can be left early, and text that is stored in a
dictionary is decoded for the rows that are left alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile.encryption import ParquetKeys

STEP_ROWS: Final = 32_768
# Where more of the rows are left than one of so many, reading all columns at once takes less time.
_FEW: Final = 4


def parquet_file(
    source: pa.NativeFile,
    metadata: pq.FileMetaData | None,
    encoded: Sequence[str] = (),
    keys: ParquetKeys | None = None,
) -> pq.ParquetFile:
    """A file as all rows are read: INT96 times of Java have nanoseconds and overflow before 1677; microseconds hold all
    that Hudi can. Columns `encoded` come with their dictionaries. `keys` are those of an encrypted file.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata if keys is None else None,  # what decrypts the pages comes with the footer
        read_dictionary=encoded,
        coerce_int96_timestamp_unit="us",
        pre_buffer=True,
        decryption_properties=None if keys is None else keys.reading(),
    )


class RowCondition(Protocol):
    """What rows have to fulfil, over columns of the types that the file has them in."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that it looks at."""

    @property
    def expression(self) -> pc.Expression | None:
        """What must hold wherever it holds, for statistics of row groups; None where that is nothing."""

    @property
    def rows_at_once(self) -> int:
        """For how many rows `mask` is called, at most; STEP_ROWS where a call has no cost of its own."""

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """True, false or null for each row."""


class Statistics:
    """Those of a file's row groups, and a condition over them, by Arrow's own reading of the two."""

    def __init__(self, source: pa.NativeFile, expression: pc.Expression, keys: ParquetKeys | None = None) -> None:
        import pyarrow.dataset as ds

        options = None if keys is None else ds.ParquetFragmentScanOptions(decryption_properties=keys.reading())
        self._fragment = ds.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(source)
        self._expression = expression

    @classmethod
    def of(
        cls, source: pa.NativeFile, condition: RowCondition | None, keys: ParquetKeys | None = None
    ) -> Statistics | None:
        """None where no statistics could exclude the condition. `keys` are those of an encrypted file."""
        expression = None if condition is None else condition.expression
        return None if expression is None else cls(source, expression, keys)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The file's."""
        return self._fragment.metadata

    def groups_left(self) -> list[int]:
        """Row groups whose statistics can't exclude the condition."""
        try:
            left = self._fragment.subset(self._expression)
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
        ):  # the condition names a column, or compares with a type, that this file has not
            left = self._fragment
        return [group.id for group in left.row_groups]


@dataclass(frozen=True, slots=True)
class _Left:
    """The rows of a row group for which the condition is true, with the columns that it looks at."""

    mask: pa.BooleanArray
    rows: pa.Table


def matching_rows(
    file: pq.ParquetFile,
    group: int,
    condition: RowCondition,
    columns: Sequence[str],
    batch_rows: int,
    with_dictionaries: Callable[[Sequence[str]], pq.ParquetFile],
    numbers: RowPositions | None = None,
) -> Iterator[pa.RecordBatch] | None:
    """The rows of a row group that fulfil the condition, in `columns` of the file; None where it has to be read whole:
    it is small beside the rows that the condition takes at once, too many rows fulfil it, or there is no other column.
    `with_dictionaries` opens the file for reading text columns with the dictionaries that they have. `numbers` are
    added to the rows.
    """
    others = [name for name in columns if name not in condition.columns]
    if not others or file.metadata.row_group(group).num_rows * _FEW <= condition.rows_at_once:
        return None
    left = _left(file, group, condition)
    if left is None:
        return None
    if not left.rows.num_rows:
        return iter(())
    found = _others(with_dictionaries(others), file.schema_arrow, group, others, left)
    for field, column in zip(left.rows.schema, left.rows.columns, strict=True):
        found = found.append_column(field, column)
    rows = found.select(columns)
    if numbers is not None:
        rows = rows.append_column(numbers.field, numbers.of((group,)).filter(left.mask))
    return iter(rows.combine_chunks().to_batches(max_chunksize=batch_rows))


def _left(file: pq.ParquetFile, group: int, condition: RowCondition) -> _Left | None:
    masks: list[pa.Array] = []
    kept: list[pa.RecordBatch] = []
    seen, found, step = 0, 0, condition.rows_at_once
    for batch in file.iter_batches(step, row_groups=[group], columns=list(condition.columns)):
        masks.append(pc.fill_null(condition.mask(batch), False))
        kept.append(_filtered(batch, masks[-1]))
        seen, found = seen + batch.num_rows, found + kept[-1].num_rows
        if found * _FEW > max(seen, step // _FEW):
            return None
    return _Left(pa.concat_arrays(masks), pa.Table.from_batches(kept))


def _others(file: pq.ParquetFile, plain: pa.Schema, group: int, columns: Sequence[str], left: _Left) -> pa.Table:
    """The rows that are left, of which there are some, in other columns."""
    schema = pa.schema([plain.field(name) for name in columns])
    last, start = pc.indices_nonzero(left.mask)[-1].as_py(), 0
    found: list[pa.RecordBatch] = []
    for batch in file.iter_batches(STEP_ROWS, row_groups=[group], columns=list(columns)):
        found.append(_filtered(batch, left.mask.slice(start, batch.num_rows)))
        start += batch.num_rows
        if start > last:
            break
    rows = pa.Table.from_batches(found)
    return pa.table([rows.column(field.name).cast(field.type) for field in schema], schema=schema)


def _filtered(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """Column by column: Arrow takes the rows of a batch one by one."""
    return pa.RecordBatch.from_arrays([column.filter(mask) for column in batch.columns], schema=batch.schema)


@dataclass(frozen=True, slots=True)
class RowPositions:
    """The numbers of a file's rows as a column: from 0 on, over all its row groups."""

    name: str
    starts: Sequence[int]
    """Of each row group the number of its first row; then that of all rows."""

    @classmethod
    def of_file(cls, name: str, metadata: pq.FileMetaData) -> RowPositions:
        rows = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        return cls(name, (0, *itertools.accumulate(rows)))

    @property
    def field(self) -> pa.Field:
        """That of the column."""
        return pa.field(self.name, pa.int64())

    def of(self, groups: Sequence[int]) -> pa.Array:
        """Those of the rows of some row groups."""
        return pa.array(np.concatenate([np.arange(*self.starts[at : at + 2]) for at in groups]))

    def added(self, batches: Iterator[pa.RecordBatch], groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Batches of all rows of some row groups, with the column."""
        numbers, start = self.of(groups), 0
        for batch in batches:
            yield batch.append_column(self.field, numbers.slice(start, batch.num_rows))
            start += batch.num_rows
