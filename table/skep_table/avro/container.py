"""Avro object container files of many rows, written from Arrow."""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa

from skep_table.avro.encode import encode_records
from skep_table.schema.avro import avro_text
from skep_table.schema.types import Schema

_MAGIC: Final = b"Obj\x01"
_BLOCK_ROWS: Final = 4096


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


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    """A number that is not negative, zigzag and in groups of seven bits."""
    left, found = value << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
