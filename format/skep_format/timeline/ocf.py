"""Avro object container files with one record: the encoding of plans and, in layout 2, of commit metadata."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from skep_format.avro_schemas import schema_of
from skep_format.errors import FormatError

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
"""Of the marker in the header, which also ends each block."""


def read_record(data: bytes, path: str, members: Sequence[str] | None = None) -> dict[str, Any]:
    """The only record of a file, decoded by its own schema; with `members`, only these are decoded.

    FormatError naming `path` for any other file.
    """
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(data))
        schema = reader.writer_schema
        if members is not None and isinstance(schema, dict) and "fields" in schema:
            wanted = {**schema, "fields": [field for field in schema["fields"] if field["name"] in members]}
            reader = fastavro.reader(io.BytesIO(data), wanted)
        records = list(reader)  # to the end: a missing last sync marker means that the file was cut
    except Exception as error:  # fastavro raises many types on cut or damaged bytes
        raise _no_file(f"{path} is not a readable Avro file: {type(error).__name__}: {error}", data, path) from error
    if len(records) != 1 or not isinstance(records[0], dict):
        what = f"{path} is an Avro file with {len(records)} values instead of one record"
        raise FormatError(what, path=path, found=len(records), expected="one record")
    return records[0]


def check_whole(data: bytes, path: str) -> None:
    """FormatError naming `path` for bytes that are neither empty nor an Avro file with its end; decodes nothing."""
    if data and not (data.startswith(_MAGIC) and len(data) > _SYNC_BYTES and data.count(data[-_SYNC_BYTES:]) > 1):
        raise _no_file(f"{path} is not a whole Avro file", data, path)


def _no_file(message: str, data: bytes, path: str) -> FormatError:
    return FormatError(message, path=path, found=f"{len(data)} bytes", expected="an Avro object container file")


class RecordWriter:
    """`write_record` for many records of one kind: the schema is put into words once."""

    def __init__(self, record_name: str, release: str) -> None:
        import fastavro

        schema = schema_of(record_name, release)
        self._schema = fastavro.parse_schema(schema)
        out = io.BytesIO()
        fastavro.writer(out, schema, [])
        self._head = out.getvalue()  # it ends with the marker

    def write(self, record: Mapping[str, Any]) -> bytes:
        """A whole file with the record."""
        import fastavro

        body, out = io.BytesIO(), io.BytesIO()
        fastavro.schemaless_writer(body, self._schema, record)
        out.write(self._head)
        for number in (1, body.tell()):  # of records, and of their bytes
            fastavro.schemaless_writer(out, "long", number)
        out.write(body.getvalue() + self._head[-_SYNC_BYTES:])
        return out.getvalue()


def write_record(record_name: str, release: str, record: Mapping[str, Any]) -> bytes:
    """Encodes one record in the schema of a Hudi release, without members that this schema lacks."""
    import fastavro

    out = io.BytesIO()
    fastavro.writer(out, schema_of(record_name, release), [record])
    return out.getvalue()
