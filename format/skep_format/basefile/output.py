"""The output of one Parquet writer: row groups that are copied come between its own, and its footer is corrected.

Arrow leaves NaN out of the bounds of floating-point numbers, and readers for which NaN is the greatest number, as for
Spark, then leave out row groups with rows that they look for (format guide 5.7). Arrow can do without bounds for whole
files only, and what later rows hold is not known when a file begins: so such bounds are taken out of the footer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import parquet_metadata as parquet
from skep_format.basefile.encoding import ENCODED_TEXT, NEVER_FILTERED, leaf_values, leaves
from skep_format.basefile.key_filter import with_filter
from skep_format.basefile.row_groups import ColumnPages, RowGroup, moved_index
from skep_format.basefile.thrift import I32, I64, STRUCT, Struct


@dataclass(frozen=True, slots=True)
class _Own:
    """A row group of the writer: how many bytes later it is than the writer counts, and by the numbers of columns, what
    its footer is to state of their values.
    """

    later: int
    statistics: Mapping[int, Struct | None]


@dataclass(frozen=True, slots=True)
class _Copied:
    """A row group of another file, and where each of its column chunks begins in this one."""

    group: RowGroup
    starts: tuple[int, ...]

    def chunks(self) -> list[tuple[ColumnPages, int, Struct]]:
        """The pages of each column, how many bytes later they are than in their own file, and what that makes of what
        the footer states of them.
        """
        found = []
        for column, start in zip(self.group.columns, self.starts, strict=True):
            later = start - parquet.chunk_start(column.chunk)
            found.append((column, later, parquet.moved_chunk(column.chunk, later)))
        return found


class ParquetOutput:
    """What one Parquet writer is given in place of `sink`."""

    def __init__(self, sink: IO[bytes], *, encrypted: bool = False) -> None:
        self._sink, self._encrypted = sink, encrypted
        self._groups: list[_Own | _Copied] = []
        self._own_bytes = 0  # as the writer counts them
        self._held: bytearray | None = None
        self._key_filter: bytes | None = None
        self.footer: bytes | None = None
        """What the file ends with, but for its filter of keys, where that is not what the writer wrote."""
        self.closed = False
        self.states_texts = False
        """Whether the writer leaves out the statistics of text with a dictionary, of which Arrow's take long."""

    def add(self, rows: pa.Table) -> None:
        """Takes note of a row group that the writer has written."""
        if self._encrypted:
            return
        self._groups.append(
            _Own(self._sink.tell() - self._own_bytes, corrected_statistics(rows, texts=self.states_texts))
        )

    def copy(self, group: RowGroup) -> None:
        """Writes a row group of another file, behind those that the writer has written."""
        if not self._sink.tell():
            self._sink.write(parquet.MAGIC)
        starts = []
        for column in group.columns:
            starts.append(self._sink.tell())
            self._sink.write(column.data)
        self._groups.append(_Copied(group.without_data(), tuple(starts)))

    def hold(self, key_filter: bytes | None = None) -> None:
        """Before the writer is closed. `key_filter`: the text that belongs in the place of an empty one, but in an
        encrypted file.
        """
        self._key_filter = key_filter
        if self._encrypted or self._corrects or key_filter is not None:
            self._held = bytearray()

    @property
    def _corrects(self) -> bool:
        """Whether the writer's footer does not state what is in the file."""
        return any(isinstance(each, _Copied) or each.statistics for each in self._groups)

    def release(self) -> None:
        """After the writer is closed: in place of its footer, that of all row groups is written, with the filter."""
        if self._held is None:
            return
        written, self._held = bytes(self._held), None
        if self._encrypted:  # it can't be read here, and has nothing to be corrected
            self._sink.write(written)
            self.footer = written
            return
        if self._corrects:
            written = self.footer = self._corrected(written)
        for piece in [written] if self._key_filter is None else with_filter(written, self._key_filter):
            self._sink.write(piece)

    def _corrected(self, written: bytes) -> bytes:
        """The footer of all row groups, made of the writer's, before which what belongs there is written."""
        footer, size = parquet.footer_of(written)
        behind = self._sink.tell() - (self._own_bytes - len(written))
        self._sink.write(written[:-size])  # the filters of the writer's own row groups
        own = iter(parquet.groups_of(footer))
        groups = []
        copied: list[tuple[ColumnPages, int, Struct]] = []
        for each in self._groups:
            if isinstance(each, _Copied):
                chunks = each.chunks()
                copied += chunks
                groups.append(parquet.group_with(each.group.struct, [chunk for _, _, chunk in chunks]))
            else:
                groups.append(_own_group(next(own), each, behind))
        self._write_apart(copied)
        return parquet.footer_bytes(parquet.with_groups(footer, groups))

    def _write_apart(self, copied: Sequence[tuple[ColumnPages, int, Struct]]) -> None:
        """The filters and indexes of copied column chunks, each kind together as readers expect it."""
        for column, _, chunk in copied:
            if column.bloom_filter:
                where = I64, self._sink.tell()
                size = I32, self._sink.write(column.bloom_filter)
                parquet.meta_data(chunk).update({parquet.BLOOM_FILTER: where, parquet.BLOOM_FILTER_BYTES: size})
        for column, _, chunk in copied:
            if column.column_index:
                where = I64, self._sink.tell()
                size = I32, self._sink.write(column.column_index)
                chunk.update({parquet.COLUMN_INDEX: where, parquet.COLUMN_INDEX_BYTES: size})
        for column, later, chunk in copied:
            if column.offset_index is not None:
                where = I64, self._sink.tell()
                size = I32, self._sink.write(moved_index(column.offset_index, later))
                chunk.update({parquet.OFFSET_INDEX: where, parquet.OFFSET_INDEX_BYTES: size})

    def write(self, data: bytes) -> int:
        """As files have it, like all that follows."""
        if self.closed:  # a buffer in front of it is dropped
            return len(data)
        if self._held is not None:
            self._held += data
        else:
            # A file that begins with a copied row group has its first bytes already.
            copied = bool(self._groups) and isinstance(self._groups[0], _Copied)
            present = max(0, len(parquet.MAGIC) - self._own_bytes) if copied else 0
            self._sink.write(memoryview(data)[present:])
        self._own_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """Where the next byte is written."""
        return self._sink.tell() + len(self._held or b"")

    def flush(self) -> None:
        """Of what is not held back."""
        self._sink.flush()

    def close(self) -> None:
        """What is written later goes nowhere."""
        self.closed = True


def _own_group(group: Struct, own: _Own, behind: int) -> Struct:
    """A row group of the writer, whose filters are `behind` bytes later than the writer counts."""
    chunks = [parquet.moved_chunk(chunk, own.later, behind) for chunk in parquet.chunks_of(group)]
    correct_statistics(chunks, own.statistics)
    return parquet.group_with(group, chunks)


def correct_statistics(chunks: Sequence[Struct], statistics: Mapping[int, Struct | None]) -> None:
    """Of column chunks by their numbers: None takes the bounds out."""
    for number, stated in statistics.items():
        meta = parquet.meta_data(chunks[number])
        if stated is None:
            parquet.leave_out_bounds(meta)
        else:
            meta[parquet.STATISTICS] = STRUCT, stated


def corrected_statistics(rows: pa.Table, *, texts: bool) -> dict[int, Struct | None]:
    """By the numbers of the columns of a file of these rows: None where they hold NaN, without which their bounds are.

    `texts`: and the statistics of text with a dictionary, all of whose values occur.
    """
    found: dict[int, Struct | None] = {}
    number = 0
    for field, column in zip(rows.schema, rows.columns, strict=True):
        floats = [pa.types.is_floating(kind) for _, kind in leaves(field.name, field.type)]
        if any(floats):
            for chunk in column.chunks:
                nans = (number + at for at, values in enumerate(leaf_values(chunk)) if _holds_nan(values))
                found.update(dict.fromkeys(nans))
        elif texts and field.type == ENCODED_TEXT and field.name not in NEVER_FILTERED:
            found[number] = _text_statistics(column)
        number += len(floats)
    return found


def _text_statistics(column: pa.ChunkedArray) -> Struct:
    ends = pc.min_max(pa.chunked_array([chunk.dictionary.cast(pa.binary()) for chunk in column.chunks])).as_py()
    bounds = None if ends["min"] is None else (ends["min"], ends["max"])
    return parquet.text_statistics(column.null_count, bounds)


def _holds_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())
