"""Updates as HFiles, whose values are records in the schema of one Hudi release (format guide 7.4 and 7.5); base files,
which a new partition begins with and each compaction writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro import encode_records, parse_record
from skep_format.avro_schemas import schema_of
from skep_format.errors import KeyFieldError
from skep_format.hfile import MAX_KEY_BYTES, HFileWriter, format_hfile
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName, BaseFormat, join
from skep_format.schema.types import META_FIELDS, StructType
from skep_format.timeline.metadata import WriteStat
from skep_table.table import HudiTable

_RECORD: Final = "HoodieMetadataRecord"
_FEW_ENTRIES: Final = 1 << 13
"""Of more, the members that are null in the records of some partitions would take memory."""


@dataclass(frozen=True)
class RecordSchema:
    """The schema of a release: `text` as commits state it, `file_text` as files do, with Hudi's meta columns."""

    text: str
    file_text: str
    type: StructType


@lru_cache(maxsize=8)
def record_schema(release: str) -> RecordSchema:
    """The schema of the records of a release."""
    record = schema_of(_RECORD, release)
    meta: list[Any] = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_FIELDS]
    file_text = _json({**record, "fields": [*meta, *record["fields"]]})
    return RecordSchema(_json(record), file_text, parse_record(file_text))


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":"))


def hfile_of(entries: pa.RecordBatch, schema: RecordSchema) -> bytes:
    """An HFile of entries, which ascend by their keys."""
    return format_hfile(entries["key"], entries["value"], file_info(schema))


def check_keys(own: HudiTable, partition: str, keys: pa.Array) -> None:
    """KeyFieldError for a key that HFiles, and so this metadata table, can't hold."""
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > MAX_KEY_BYTES:
        table = own.config.name.removesuffix("_metadata")
        raise KeyFieldError.of_table(
            table,
            f"a key of {longest} bytes is too long for {partition} of the metadata table, whose files hold keys of at"
            f" most {MAX_KEY_BYTES} bytes",
            hint="take shorter keys, or a table without this index",
            partition=partition,
            found=longest,
            expected=f"≤ {MAX_KEY_BYTES}",
        )


def entries_of(puts: pa.Table, schema: RecordSchema) -> pa.RecordBatch:
    """The puts of an update as the entries of an HFile, with columns `key` and `value`."""
    (entries,) = entries_of_each([puts], schema)
    return entries


def entries_of_each(puts: Sequence[pa.Table], schema: RecordSchema) -> list[pa.RecordBatch]:
    """As `entries_of` for each of the puts. Few of several partitions are encoded together: what that takes depends on
    the members of their records, and most have the same.
    """
    if len(puts) > 1 and sum(map(len, puts)) > _FEW_ENTRIES:
        return [entries_of(each, schema) for each in puts]
    rows = pa.concat_tables(map(_members, puts), promote_options="default").combine_chunks()
    data, offsets = encode_records(schema.type, rows)
    values = pa.Array.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), data])
    entries, start = [], 0
    for each in puts:
        of_each = values.slice(start, len(each))
        entries.append(pa.RecordBatch.from_arrays([each["key"].combine_chunks(), of_each], ["key", "value"]))
        start += len(each)
    return entries


def _members(puts: pa.Table) -> pa.Table:
    """The records with those of their members that are set; their key is the HFile's."""
    record = puts["record"].combine_chunks()
    members = dict(zip((field.name for field in record.type), record.flatten(), strict=True))
    return pa.table({"key": pa.array([""] * len(puts), pa.string()), **members})


def file_info(schema: RecordSchema) -> dict[str, bytes]:
    """What an HFile states of its values."""
    return {"schema": schema.file_text.encode()}


FIRST_TOKEN: Final = "0-0-0"  # Hudi's token of the files that begin a file group


def write_base(
    own: HudiTable,
    partition: str,
    file_id: str,
    time: InstantTime,
    puts: Iterable[pa.Table],
    schema: RecordSchema,
    token: str = FIRST_TOKEN,
) -> WriteStat | None:
    """Writes the base file of a slice of a file group, and its stat; no file, and None, without records.

    `puts` are those of an update, piece by piece, and ascend by their keys. The file is durable after a `sync`.
    """
    pieces = (piece for piece in puts if len(piece))
    first = next(pieces, None)
    if first is None:
        return None
    path = join(partition, str(BaseFileName(file_id, token, time, BaseFormat.HFILE)))
    with own.storage.open_write(path) as sink:
        writer = HFileWriter(sink, file_info(schema))
        for piece in chain([first], pieces):
            check_keys(own, partition, piece["key"])
            writer.add(*entries_of(piece, schema).columns)
        writer.close()
    return WriteStat(
        file_id=file_id,
        path=path,
        partition_path=partition,
        num_writes=writer.entries,
        total_write_bytes=writer.size_bytes,
        file_size_in_bytes=writer.size_bytes,
    )
