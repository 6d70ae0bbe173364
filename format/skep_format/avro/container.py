"""Avro object container files of many rows, from Arrow and into it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import IO, Final

import pyarrow as pa

from skep_format.avro.encode import encode_records
from skep_format.errors import CorruptFileError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.avro import avro_text, parse_avro
from skep_format.schema.types import Schema

_MAGIC: Final = b"Obj\x01"
_BLOCK_ROWS: Final = 4096
_BATCH_ROWS: Final = 65_536


def container(schema: Schema, rows: pa.Table) -> bytes:
    """The rows as a file, without compression. SchemaError for rows that do not fit the schema."""
    sync = os.urandom(16)
    text = avro_text(schema).encode()
    header = [_long(2), _sized(b"avro.codec"), _sized(b"null"), _sized(b"avro.schema"), _sized(text), _long(0)]
    data, offsets = encode_records(schema, rows)
    parts = [_MAGIC, *header, sync]
    for at in range(0, rows.num_rows, _BLOCK_ROWS):
        end = min(at + _BLOCK_ROWS, rows.num_rows)
        block = data[int(offsets[at]) : int(offsets[end])]
        parts += [_long(end - at), _long(block.size), block.to_pybytes(), sync]
    return b"".join(parts)


class Container:
    """A container file: its columns, and its rows.

    CorruptFileError with the path for what is none, SchemaError for a schema that no table can have.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        import fastavro

        self._path = path
        try:
            self._records = fastavro.reader(file)
        except _BROKEN as error:
            raise CorruptFileError(f"{path} is no Avro file: {error}", path=path) from error
        self.schema = to_arrow(parse_avro(self._records.metadata["avro.schema"]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, once.

        By records: where they begin in a block is known only from their own bytes, and to find that out takes the
        columnar decoder as long as fastavro takes for the values.
        """
        try:
            while part := list(itertools.islice(self._records, _BATCH_ROWS)):
                yield pa.RecordBatch.from_pylist(part, self.schema)
        except _BROKEN as error:
            raise CorruptFileError(f"{self._path} can't be read: {error}", path=self._path) from error


# What fastavro raises for what it can't read.
_BROKEN: Final = (ValueError, EOFError, KeyError, IndexError, TypeError, pa.ArrowException)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    """A number that is not negative, zigzag and in groups of seven bits."""
    left, found = value << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
