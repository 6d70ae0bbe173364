"""Messages of JSON as rows, by a schema: plain objects, or the envelopes of Kafka Connect's converter."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.rowfiles.json_rows import json_values
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Field, Schema, StructType
from skep_stream.kafka.confluent import NO_HEADER, Values
from skep_stream.kafka.messages import place_of, refuse

_PAYLOAD: Final = "payload"
_EMPTY: Final = r'"payload"\s*:\s*null'
_BARE: Final = "not an envelope of Kafka Connect's: it has no payload"


def json_messages(
    topic: str, batch: pa.RecordBatch, *, schema: Schema, rejected: Rejected | None, enveloped: bool
) -> tuple[pa.Table, pa.RecordBatch]:
    """The rows, and their messages. InputError names topic, partition and offset of a message that does not fit."""
    envelope = Schema((Field(_PAYLOAD, StructType(schema.fields), nullable=True),), schema.name)
    read_as = envelope if enveloped else schema
    rows, taken = json_values(batch.column("value"), read_as, place_of(topic, batch), rejected)
    batch = batch if taken is None else batch.take(taken)
    return _unwrapped(rows, batch, topic, rejected) if enveloped else (rows, batch)


def json_schema_messages(
    topic: str, batch: pa.RecordBatch, *, schema: Schema, rejected: Rejected | None, enveloped: bool
) -> tuple[pa.Table, pa.RecordBatch]:
    """As `json_messages`, of those in Confluent's form. The schema is the given one, ids are passed over."""
    fits = pa.array(Values.of(batch.column("value")).schema_ids() >= 0)
    refuse(topic, batch.filter(pc.invert(fits)), NO_HEADER, rejected)
    batch = batch.filter(fits)
    if batch.num_rows:
        records = Values.of(batch.column("value")).without_headers()
        batch = batch.set_column(batch.schema.get_field_index("value"), "value", records)
    return json_messages(topic, batch, schema=schema, rejected=rejected, enveloped=enveloped)


def _unwrapped(
    rows: pa.Table, batch: pa.RecordBatch, topic: str, rejected: Rejected | None
) -> tuple[pa.Table, pa.RecordBatch]:
    """The rows within envelopes; empty ones are deletes of Kafka Connect's, which are left out as tombstones are.

    InputError for what is no envelope.
    """
    column = rows.column(_PAYLOAD).combine_chunks()
    there = pc.is_valid(column)
    without = batch.filter(pc.invert(there))
    bare = without.filter(pc.invert(pc.match_substring_regex(without.column("value"), _EMPTY)))
    refuse(topic, bare, _BARE, rejected)
    return pa.Table.from_struct_array(column.filter(there)), batch.filter(there)
