"""Log blocks as bytes: framing, rows, deletes, rollback commands (format guide 6). The reverse of `reader`."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro import encode_records
from skep_format.buffers import bytes_and_offsets
from skep_format.errors import SchemaError
from skep_format.instant_time import InstantTime
from skep_format.logfile.block import CONTENT_VERSION, MAGIC, BlockType, HeaderKey
from skep_format.logfile.deletes import delete_record_list, wrap_deletes
from skep_format.schema.avro import avro_text
from skep_format.schema.types import Schema, StructType

_FORMAT_VERSION: Final = 1
_LARGEST: Final = 0x7FFFFFFF  # lengths within a content are signed 32-bit numbers


def format_block(kind: BlockType, headers: Mapping[HeaderKey, str], content: bytes = b"") -> bytes:
    """A whole block; a log file is blocks one after the other."""
    listed = _headers(headers)
    body = struct.pack(">ii", _FORMAT_VERSION, kind) + listed + struct.pack(">q", len(content)) + content + _headers({})
    size = len(body) + 8
    return b"".join((MAGIC, struct.pack(">q", size), body, struct.pack(">q", size + len(MAGIC))))


def _headers(headers: Mapping[HeaderKey, str]) -> bytes:
    parts = [struct.pack(">i", len(headers))]
    for key, value in headers.items():
        data = value.encode()
        parts += [struct.pack(">ii", key, len(data)), data]
    return b"".join(parts)


def avro_block(
    instant_time: InstantTime,
    schema: Schema,
    rows: pa.Table | pa.RecordBatch,
    *,
    more: Mapping[HeaderKey, str] | None = None,
) -> bytes:
    """A data block of `rows`, written with `schema`, meta columns included. `more` are further headers."""
    headers = {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: avro_text(schema), **(more or {})}
    return format_block(BlockType.AVRO_DATA, headers, avro_content(schema, rows))


def avro_content(schema: Schema | StructType, rows: pa.Table | pa.RecordBatch) -> bytes:
    """Version, count, and each record behind its length."""
    data, offsets = encode_records(schema, rows)
    if len(data) + 4 * rows.num_rows + 8 > _LARGEST:
        raise SchemaError(
            f"{len(data)} bytes of rows are too many for one log block", found=len(data), expected=_LARGEST
        )
    # Record and length alternate in the answer: both are laid out at once.
    records = pa.Array.from_buffers(pa.large_binary(), rows.num_rows, [None, pa.py_buffer(offsets), data])
    lengths = np.diff(offsets).astype(">i4").view(np.uint8)
    prefixes = pa.Array.from_buffers(pa.binary(4), rows.num_rows, [None, pa.py_buffer(lengths)]).cast(pa.large_binary())
    joined = pc.binary_join_element_wise(prefixes, records, pa.scalar(b"", pa.large_binary()))
    return b"".join((struct.pack(">ii", CONTENT_VERSION, rows.num_rows), bytes_and_offsets(joined)[0].data))


def delete_block(
    instant_time: InstantTime,
    deletes: pa.Table,
    *,
    schema: Schema | None = None,
    more: Mapping[HeaderKey, str] | None = None,
) -> bytes:
    """A delete block; `deletes` as `LogBlock.deletes` returns it. A null ordering value applies whatever the order."""
    headers: dict[HeaderKey, str] = {HeaderKey.INSTANT_TIME: instant_time}
    if schema is not None:
        headers[HeaderKey.SCHEMA] = avro_text(schema)
    return format_block(BlockType.DELETE, {**headers, **(more or {})}, delete_content(deletes))


def delete_content(deletes: pa.Table) -> bytes:
    """Version, length, and the Avro list of entries."""
    data, _ = encode_records(delete_record_list(), wrap_deletes(deletes))
    return struct.pack(">ii", CONTENT_VERSION, len(data)) + data.to_pybytes()


def rollback_block(instant_time: InstantTime, target_instant_time: InstantTime) -> bytes:
    """A command block: what `target_instant_time` wrote before it in the slice does not count any more."""
    headers = {
        HeaderKey.INSTANT_TIME: instant_time,
        HeaderKey.TARGET_INSTANT_TIME: target_instant_time,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return format_block(BlockType.COMMAND, headers)
