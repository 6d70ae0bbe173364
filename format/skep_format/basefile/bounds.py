"""Bounds of floating-point numbers in the footers that Arrow writes: none where a column chunk holds NaN.

Arrow leaves NaN out of the bounds, and readers for which NaN is the greatest number, as for Spark, then leave out row
groups with rows that they look for (format guide 5.7). Arrow can do without bounds for whole files only, and what later
rows hold is not known when a file begins: so the footer is corrected, which is Thrift in the compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile.encoding import leaf_values, leaves

Chunk = tuple[int, int]  # the number of the row group, and of the column in it

# Fields of `parquet.thrift`.
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS, _NULL_COUNT = 4, 1, 3, 12, 3
_STOP: Final = 0
_BOOLEANS: Final = (1, 2)  # their values are in the types themselves, but for those of lists
_BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 3, (4, 5, 6), 7, 8, (9, 10), 12
_LONG: Final = 6


class FooterSink:
    """The output of one Parquet writer, which it is given in place of `sink`, with the footer corrected."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self._groups = 0
        self._with_nan: set[Chunk] = set()
        self._footer: bytearray | None = None
        self.closed = False

    def add(self, rows: pa.Table) -> None:
        """Takes note of a row group that is written."""
        number = 0
        for field, column in zip(rows.schema, rows.columns, strict=True):
            floats = [pa.types.is_floating(kind) for _, kind in leaves(field.name, field.type)]
            if any(floats):
                for chunk in column.chunks:
                    found = (number + at for at, values in enumerate(leaf_values(chunk)) if _holds_nan(values))
                    self._with_nan.update((self._groups, at) for at in found)
            number += len(floats)
        self._groups += 1

    def hold(self) -> None:
        """Before the Parquet writer is closed."""
        if self._with_nan:
            self._footer = bytearray()

    def release(self) -> None:
        """After the Parquet writer is closed: its footer is written without the bounds."""
        if self._footer is not None:
            written, self._footer = bytes(self._footer), None
            (size,) = struct.unpack("<I", written[-8:-4])
            footer = _without_bounds(written[-8 - size : -8], self._with_nan)
            self._sink.write(written[: -8 - size] + footer + struct.pack("<I", len(footer)) + written[-4:])

    def write(self, data: bytes) -> int:
        """As files have it, like all that follows."""
        if self._footer is None:
            return self._sink.write(data)
        self._footer += data
        return len(data)

    def tell(self) -> int:
        """Where the next byte is written."""
        return self._sink.tell() + len(self._footer or b"")

    def flush(self) -> None:
        """Of what is not held back."""
        self._sink.flush()


def _holds_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _without_bounds(footer: bytes, chunks: Collection[Chunk]) -> bytes:
    parts, kept = [], 0
    for chunk, start, nulls, end in _statistics(_Compact(footer)):
        if chunk in chunks:
            field = bytes([_NULL_COUNT << 4 | _LONG]) + nulls if nulls else b""
            parts += [footer[kept:start], field, bytes([_STOP])]
            kept = end
    return b"".join([*parts, footer[kept:]])


def _statistics(footer: _Compact) -> Iterator[tuple[Chunk, int, bytes, int]]:
    """Of each chunk: where its statistics begin, the bytes of the number of nulls, where they end."""
    for _ in footer.fields(_ROW_GROUPS):
        for group in range(footer.length()):
            for _ in footer.fields(_COLUMNS):
                for column in range(footer.length()):
                    for _ in footer.fields(_META_DATA):
                        for _ in footer.fields(_STATISTICS):
                            start, nulls = footer.at, b""
                            for _ in footer.fields(_NULL_COUNT):
                                nulls = footer.integer()
                            yield (group, column), start, nulls, footer.at


class _Compact:
    """A place in bytes of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self, wanted: int) -> Iterator[None]:
        """Reads a struct, and stops at the value of one field, which the caller reads."""
        field = 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else _signed(self._varint())
            if field == wanted:
                yield
            else:
                self._skip(kind & 0x0F)

    def length(self) -> int:
        """Of a list, before its elements."""
        return self._list()[0]

    def integer(self) -> bytes:
        """The bytes of an integer."""
        start = self.at
        self._varint()
        return self._data[start : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        return self._varint() if head >> 4 == 0x0F else head >> 4, head & 0x0F

    def _skip(self, kind: int, *, in_list: bool = False) -> None:
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            size = self._varint()
            self.at += size
        elif kind == _STRUCT:
            for _ in self.fields(_STOP):
                pass
        elif kind in _LISTS:
            size, element = self._list()
            for _ in range(size):
                self._skip(element, in_list=True)
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BYTE or (kind in _BOOLEANS and in_list):
            self.at += 1
        elif kind not in _BOOLEANS:
            raise ValueError(f"type {kind} at byte {self.at} of a Parquet footer is not known")


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)
