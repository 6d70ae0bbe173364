"""Messages of a topic as Arrow columns, and where each of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.large_binary()),
    ]
)
OFFSET, PARTITION, TIME, KEY = (f"_hoodie_kafka_source_{name}" for name in ("offset", "partition", "timestamp", "key"))
"""The columns that Hudi appends, all of which may be null here."""
PARSED: Final = 50_000
"""So many messages are parsed at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message is."""

    topic: str
    partition: int
    number: int

    @property
    def source(self) -> str:
        """The log that it is in."""
        return f"topic {self.topic}, partition {self.partition}"

    def __str__(self) -> str:
        return f"{self.source}, offset {self.number}"


def of(messages: Sequence[Any]) -> pa.RecordBatch:
    """Messages of the client, which gives out one by one."""
    columns = [
        [each.partition() for each in messages],
        [each.offset() for each in messages],
        [each.timestamp()[1] for each in messages],
        [_bytes(each.key()) for each in messages],
        [_bytes(each.value()) for each in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def in_order(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The messages partition after partition, so that a round that is repeated has the same rows in the same order."""
    table = pa.Table.from_batches(batches, SCHEMA)
    if pc.count_distinct(table.column("partition")).as_py() < 2:
        return table
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def with_values(messages: pa.Table) -> pa.Table:
    """Without those that have no value, as Hudi leaves them out: tombstones, empty and blank ones."""
    return messages.filter(pc.greater(pc.fill_null(pc.binary_length(messages.column("value")), 0), 0))


def place_of(topic: str, batch: pa.RecordBatch) -> Callable[[int], Place]:
    """Where the message of a row is."""
    partitions, offsets = batch.column("partition"), batch.column("offset")
    return lambda row: Place(topic, partitions[row].as_py(), offsets[row].as_py())


def appended(rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    """Rows with the offset, partition, time and key of their messages, which are the rows of `batch`."""
    key = batch.column("key").cast(pa.string())
    for name, column in zip(
        (OFFSET, PARTITION, TIME, KEY),
        (batch.column("offset"), batch.column("partition"), batch.column("timestamp"), key),
        strict=True,
    ):
        rows = rows.append_column(name, column)
    return rows
