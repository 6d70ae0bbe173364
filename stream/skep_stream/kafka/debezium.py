"""Changes that Debezium recorded of MySQL and PostgreSQL, as flat rows with the columns that Hudi gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError
from skep_format.rowfiles.rejected import Rejected
from skep_stream.kafka.messages import places
from skep_stream.kafka.source import Decode

_DELETE: Final = "d"
_OF_ROWS: Final = ("c", "r", "u", "i", _DELETE)
_COMMON: Final = {
    "_change_operation_type": "op",
    "_upstream_event_processed_ts_ms": "ts_ms",
    "db_shard_source_partition": "source.name",
}
POSTGRES: Final = {
    **_COMMON,
    "db_schema_source_partition": "source.schema",
    "_event_origin_ts_ms": "source.ts_ms",
    "_event_tx_id": "source.txId",
    "_event_lsn": "source.lsn",
    "_event_xmin": "source.xmin",
}
MYSQL: Final = {
    **_COMMON,
    "_event_origin_ts_ms": "source.ts_ms",
    "_event_bin_file": "source.file",
    "_event_pos": "source.pos",
    "_event_row": "source.row",
}
_FILE, _POSITION = "_event_bin_file", "_event_pos"
_SEQUENCE: Final = "_event_seq"
"""Of MySQL: the number of its log file and the position there, by which its payload class compares."""


def changed_rows(
    topic: str,
    batch: pa.RecordBatch,
    *,
    envelopes: Decode,
    columns: Mapping[str, str],
    rejected: Rejected | None,
) -> tuple[pa.Table, pa.RecordBatch]:
    """Envelopes as rows, and their messages: what a row is after a change, and was before a delete, behind columns of
    the event. InputError for messages that are no changes of rows."""
    rows, kept = envelopes(topic, batch)
    if not rows.num_rows:
        return rows.select([]), kept
    operations = _member(rows, "op").combine_chunks()
    fits = pc.fill_null(pc.is_in(operations, value_set=pa.array(_OF_ROWS, operations.type)), False)
    others = pc.invert(fits)
    for place, operation in zip(places(topic, kept.filter(others)), operations.filter(others).to_pylist(), strict=True):
        why = f"operation {operation!r} of Debezium is no change of a row"
        if rejected is None:
            raise InputError(f"{place}: {why}", path=place.source, line=place.number, found=operation)
        rejected.add(place.source, place.number, "", why)
    return flattened(rows.filter(fits), columns), kept.filter(fits)


def flattened(rows: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """Envelopes as flat rows. InputError where they lack a column of the event."""
    deleted = pc.equal(_member(rows, "op"), _DELETE)
    before, after = _member(rows, "before"), _member(rows, "after")
    found = {name: _member(rows, path) for name, path in columns.items()}
    for field in after.type:
        found[field.name] = pc.if_else(deleted, pc.struct_field(before, field.name), pc.struct_field(after, field.name))
    if _FILE in columns:
        found[_SEQUENCE] = _sequence(found[_FILE], found[_POSITION])
    return pa.table(found)


def _sequence(files: pa.ChunkedArray, positions: pa.ChunkedArray) -> pa.ChunkedArray:
    if files.null_count or positions.null_count:
        raise InputError("a change of MySQL has no log file, or no position in it", column=_SEQUENCE)
    numbers = pc.replace_substring_regex(files, r"^.*\.", "")
    return pc.binary_join_element_wise(numbers, positions.cast(pa.string()), ".")


def _member(rows: pa.Table, path: str) -> pa.ChunkedArray:
    name, _, inner = path.partition(".")
    column = rows.column(name) if name in rows.schema.names else None
    if column is not None and inner:
        known = pa.types.is_struct(column.type) and column.type.get_field_index(inner) >= 0
        column = pc.struct_field(column, inner) if known else None
    if column is None:
        raise InputError(f"the messages are no changes of Debezium's connector: there is no {path}", column=path)
    return column
