"""Blocks of change data: records of an operation, a key, and the rows before and after it (format guide 15.3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from skep_format.avro.types import arrow_of
from skep_format.instant_time import InstantTime
from skep_format.logfile.block import BlockType, HeaderKey
from skep_format.logfile.writer import avro_content, format_block
from skep_format.schema.avro import to_avro
from skep_format.schema.types import Field, Schema, StringType, StructType, cached_by_schema

INSERT, UPDATE, DELETE = "i", "u", "d"
OP, KEY, TIME, BEFORE, AFTER = "op", "record_key", "ts_ms", "before", "after"
_IMAGES: Final = (BEFORE, AFTER)
_WITH_IMAGES, _WITHOUT_IMAGES = "CDC", "Record"


def change_block(instant_time: InstantTime, schema: Schema, fields: Sequence[str], rows: pa.Table) -> bytes:
    """A block of changes that have `fields`; `schema` is that of the images, whose type is `image_type(schema)`."""
    headers = {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: _text(schema, fields)}
    return format_block(BlockType.CDC_DATA, headers, avro_content(_record(schema, fields), rows))


@cached_by_schema
def image_type(schema: Schema) -> pa.DataType:
    """A row before or after a change, as Arrow has it."""
    return arrow_of(StructType(schema.fields))


def _record(schema: Schema, fields: Sequence[str]) -> StructType:
    row, text = StructType(schema.fields), StringType()
    null_last = not _has_images(fields)
    return StructType(
        tuple(Field(name, row if name in _IMAGES else text, nullable=True, null_last=null_last) for name in fields)
    )


def _text(schema: Schema, fields: Sequence[str]) -> str:
    """The Avro schema as Hudi writes it: a second image refers to the record of the first by its name."""
    if not _has_images(fields):
        columns = [{"name": name, "type": ["string", "null"]} for name in fields]
        return _compact({"type": "record", "name": _WITHOUT_IMAGES, "fields": columns})
    image: Any = to_avro(schema)
    namespace = image.pop("namespace", None)
    printed = []
    for name in fields:
        kind: Any = "string"
        if name in _IMAGES:
            kind, image = image, schema.name
        printed.append({"name": name, "type": ["null", kind], "doc": "", "default": None})
    named = {"namespace": namespace} if namespace else {}
    return _compact({"type": "record", "name": _WITH_IMAGES, **named, "fields": printed})


def _has_images(fields: Sequence[str]) -> bool:
    return any(name in _IMAGES for name in fields)


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
