"""Avro object container files with one record: how the timeline keeps plans and, from layout 2 on, commit metadata."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from skep_table.avro_schemas import schema_of
from skep_table.errors import FormatError


def read_record(data: bytes, path: str, members: Sequence[str] | None = None) -> dict[str, Any]:
    """The one record of a file, by its own schema; these `members` of it alone, where any are named. FormatError naming
    `path` for anything else."""
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(data))
        schema = reader.writer_schema
        if members is not None and isinstance(schema, dict) and "fields" in schema:
            wanted = {**schema, "fields": [field for field in schema["fields"] if field["name"] in members]}
            reader = fastavro.reader(io.BytesIO(data), wanted)
        records = list(reader)  # to the end: the last marker shows that nothing was cut off
    except Exception as error:  # the decoder fails in many ways on bytes that are cut or damaged
        raise FormatError(
            f"{path} is not a readable Avro file: {type(error).__name__}: {error}",
            path=path,
            found=f"{len(data)} bytes",
            expected="an Avro object container file",
        ) from error
    if len(records) != 1 or not isinstance(records[0], dict):
        raise FormatError(
            f"{path} is an Avro file with {len(records)} values instead of one record",
            path=path,
            found=len(records),
            expected="one record",
        )
    return records[0]


def write_record(record_name: str, release: str, record: Mapping[str, Any]) -> bytes:
    """A file with one record in the schema that a Hudi release has; members it does not know are left out."""
    import fastavro

    out = io.BytesIO()
    fastavro.writer(out, schema_of(record_name, release), [record])
    return out.getvalue()
