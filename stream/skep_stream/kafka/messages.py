"""Messages of a topic as Arrow columns, and where each of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError, SkepError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Field, IntType, LongType, Schema, StringType

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
"""The columns that Hudi appends, all of which may be null here: tables get them later, too."""
_APPENDED: Final = tuple(
    Field(name, kind, nullable=True, default=None)
    for name, kind in ((OFFSET, LongType()), (PARTITION, IntType()), (TIME, LongType()), (KEY, StringType()))
)


@dataclass(frozen=True, slots=True)
class MessagePlace:
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
        [each.key() for each in messages],
        [each.value() for each in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def once(batch: pa.RecordBatch, taken: dict[int, int], ends: Mapping[int, int]) -> pa.RecordBatch:
    """The messages between two offsets of their partitions, of which it raises `taken` to behind the last message.

    The client delivers messages a second time where it finds its place in a partition again, after a lost connection
    or while brokers confirm an offset.
    """
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    new = np.ones(batch.num_rows, np.bool_)
    for partition in np.unique(partitions).tolist():
        at = np.flatnonzero(partitions == partition)
        behind = np.maximum.accumulate(np.append(taken[partition], offsets[at] + 1))
        new[at] = (offsets[at] >= behind[:-1]) & (offsets[at] < ends[partition])
        taken[partition] = int(behind[-1])
    return batch if new.all() else batch.filter(pa.array(new))


def first_times(batch: pa.RecordBatch) -> dict[int, int]:
    """Of each partition the time of its first message; -1 where it has none."""
    found = pa.Table.from_batches([batch]).group_by("partition", use_threads=False)
    first = found.aggregate([("timestamp", "first")]).to_pydict()
    return dict(zip(first["partition"], first["timestamp_first"], strict=True))


def in_order(rows: pa.Table, of_rows: Sequence[pa.RecordBatch]) -> pa.Table:
    """Rows in the order of their messages, partition after partition: a round that is repeated has the same."""
    places = pa.Table.from_batches(of_rows)
    if pc.count_distinct(places.column("partition")).as_py() < 2:
        return rows
    return rows.take(pc.sort_indices(places, [("partition", "ascending"), ("offset", "ascending")]))


def with_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without those that have no value, as Hudi leaves them out: tombstones and empty ones."""
    return batch.filter(pc.greater(pc.fill_null(pc.binary_length(batch.column("value")), 0), 0))


def places(topic: str, batch: pa.RecordBatch) -> Iterator[MessagePlace]:
    """Where each message is."""
    return map(place_of(topic, batch), range(batch.num_rows))


def place_of(topic: str, batch: pa.RecordBatch) -> Callable[[int], MessagePlace]:
    """Where the message of a row is."""
    partitions, offsets = batch.column("partition"), batch.column("offset")
    return lambda row: MessagePlace(topic, partitions[row].as_py(), offsets[row].as_py())


def refuse(
    topic: str, batch: pa.RecordBatch, why: str, rejected: Rejected | None, cause: SkepError | None = None
) -> None:
    """Leaves messages out that can't be read. Without `rejected`, InputError for the first of them."""
    for place, value in zip(places(topic, batch), batch.column("value").to_pylist(), strict=True):
        if rejected is None:
            raise InputError(f"{place}: {why}", path=place.source, line=place.number) from cause
        rejected.add(place.source, place.number, value.decode("utf-8", "replace"), why)


def appended(rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    """Rows with the offset, partition, time and key of their messages, which are the rows of `batch`."""
    key = _as_texts(batch.column("key"))
    for name, column in zip(
        (OFFSET, PARTITION, TIME, KEY),
        (batch.column("offset"), batch.column("partition"), batch.column("timestamp"), key),
        strict=True,
    ):
        rows = rows.append_column(name, column)
    return rows


def with_appended(schema: Schema | None) -> Schema | None:
    """Columns of rows, and those of their messages."""
    if schema is None:
        return None
    known = {field.name for field in schema.fields}
    return replace(schema, fields=(*schema.fields, *(each for each in _APPENDED if each.name not in known)))


def _as_texts(keys: pa.Array) -> pa.Array:
    """Keys as Java's client makes texts of them, with U+FFFD for what is no UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if key is None else key.decode("utf-8", "replace") for key in keys.to_pylist()]
        return pa.array(texts, pa.string())
