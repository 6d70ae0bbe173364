"""Avro object container files of many rows, from Arrow and into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Final

import numpy as np
import pyarrow as pa

from skep_format.avro.decode import decode_records
from skep_format.avro.encode import encode_records
from skep_format.errors import CorruptFileError
from skep_format.protobuf import format_varint
from skep_format.schema.arrow import to_arrow
from skep_format.schema.avro import avro_text, parse_avro
from skep_format.schema.types import Field, ListType, Schema, StructType

_MAGIC: Final = b"Obj\x01"
_BLOCK_ROWS: Final = 4096
_BATCH_BYTES: Final = 4 << 20  # decoded together


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
            self._blocks = fastavro.block_reader(file)
        except _BROKEN as error:
            raise CorruptFileError(f"{path} is no Avro file: {error}", path=path) from error
        fields = parse_avro(self._blocks.metadata["avro.schema"])
        self.schema = to_arrow(fields)
        rows = ListType(StructType(fields.fields), element_nullable=False)
        self._block = Schema((Field("rows", rows, nullable=False),))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, once. A block is an array of records, which has its count before it, and zero behind."""
        some, size = list[bytes](), 0
        try:
            for block in self._blocks:
                if block.num_records:
                    some.append(_long(block.num_records) + block.bytes_.getvalue() + _long(0))
                    size += len(some[-1])
                if size >= _BATCH_BYTES:
                    yield self._decoded(some)
                    some, size = [], 0
        except _BROKEN as error:
            raise CorruptFileError(f"{self._path} can't be read: {error}", path=self._path) from error
        if some:
            yield self._decoded(some)

    def _decoded(self, blocks: list[bytes]) -> pa.RecordBatch:
        lengths = np.array([len(each) for each in blocks])
        data = b"".join(blocks)
        rows = decode_records(self._block, data, np.cumsum(lengths) - lengths, lengths, path=self._path)
        return pa.RecordBatch.from_arrays(rows.column(0).flatten().flatten(), schema=self.schema)


# What fastavro raises for what it can't read.
_BROKEN: Final = (ValueError, EOFError, KeyError, IndexError, TypeError, pa.ArrowException)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    """A number that is not negative, zigzag and in groups of seven bits."""
    return format_varint(value << 1)
