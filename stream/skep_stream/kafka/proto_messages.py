"""Messages of Protobuf as rows: Confluent's form, by types of a registry or a file, or plain ones of one type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Schema
from skep_stream.kafka.confluent import HEADER, NO_HEADER, Rows
from skep_stream.kafka.parts import Parts, Read
from skep_stream.proto.columns import MessageRows, Shape, message_rows
from skep_stream.proto.registered import RegisteredTypes

Indexes = tuple[int, ...]
_FIRST: Final[Indexes] = (0,)
_NO_INDEXES: Final = "not a message of Confluent's: the place of its type in the schema can't be read"
_MOST_BYTES: Final = 10  # of a number


@dataclass(frozen=True, slots=True)
class OneType:
    """All messages are of one type. With `indexes`, its place, they are in Confluent's form; ids are passed over."""

    rows: MessageRows
    indexes: Indexes | None = None

    @property
    def framed(self) -> bool:
        """Whether messages are in Confluent's form."""
        return self.indexes is not None

    def rows_of(self, _number: int, indexes: Indexes) -> MessageRows:
        """SchemaError for messages of another type."""
        if self.indexes is not None and indexes != self.indexes:
            found, expected = (".".join(map(str, each)) for each in (indexes, self.indexes))
            name = self.rows.schema.name
            why = f"this is message {found} of its schema, not {name}, which is {expected}"
            raise SchemaError(why, found=found, expected=expected)
        return self.rows


@dataclass(frozen=True, slots=True)
class OfRegistry:
    """The types of messages by the ids of schemas and the places in them."""

    types: RegisteredTypes
    shape: Shape
    framed: bool = True
    _known: dict[tuple[int, Indexes], MessageRows] = field(default_factory=dict, compare=False, repr=False)

    def rows_of(self, number: int, indexes: Indexes) -> MessageRows:
        """SchemaError for an id that the registry does not have, and for a schema that is not Protobuf's."""
        if (number, indexes) not in self._known:
            self._known[number, indexes] = message_rows(self.types.message(number, indexes), self.shape)
        return self._known[number, indexes]


@dataclass(frozen=True, slots=True)
class ProtoMessages:
    """How messages are read, as rows of `target` or of the columns of their types."""

    types: OneType | OfRegistry
    target: Schema | None
    rejected: Rejected | None = None

    def __call__(self, topic: str, batch: pa.RecordBatch) -> tuple[pa.Table, pa.RecordBatch]:
        """The rows, and their messages.

        InputError names topic, partition and offset of a message that can't be read; with `rejected` it is left out.
        """
        parts = Parts.of(topic, batch, self.rejected)
        return parts.rows(self._by_type(parts), self.target)

    def _by_type(self, parts: Parts) -> Iterator[tuple[Read, Rows]]:
        if not self.types.framed:
            yield _reader(self.types.rows_of(0, ()), parts, 0), np.arange(len(parts.values.starts))
            return
        numbers = parts.values.schema_ids()
        parts.refuse(np.flatnonzero(numbers < 0), NO_HEADER)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            for indexes, header, rows in _by_indexes(parts, np.flatnonzero(numbers == number)):
                try:
                    found = self.types.rows_of(number, indexes)
                except SchemaError as error:
                    parts.refuse(rows, error.message, error)
                else:
                    yield _reader(found, parts, header), rows


def _reader(found: MessageRows, parts: Parts, header: int) -> Read:
    values, data = parts.values, parts.values.data.data  # a view of the bytes of all messages

    def read(rows: Rows) -> pa.RecordBatch:
        starts, ends = (values.starts[rows] + header).tolist(), values.ends[rows].tolist()
        return found([data[start:end] for start, end in zip(starts, ends, strict=True)])

    return read


def _by_indexes(parts: Parts, rows: Rows) -> Iterator[tuple[Indexes, int, Rows]]:
    """Messages by the places of their types, and where they begin: one 0 stands for the first type, as is usual."""
    values = parts.values
    longer = values.starts[rows] + HEADER < values.ends[rows]
    parts.refuse(rows[~longer], _NO_INDEXES)
    rows = rows[longer]
    is_first = values.data[values.starts[rows] + HEADER] == 0
    if is_first.any():
        yield _FIRST, HEADER + 1, rows[is_first]
    groups: dict[tuple[Indexes, int], list[int]] = {}
    for row in rows[~is_first].tolist():
        found = _indexes(values.data[values.starts[row] + HEADER : values.ends[row]].tobytes())
        if found is None:
            parts.refuse(np.array([row]), _NO_INDEXES)
        else:
            groups.setdefault(found, []).append(row)
    for (indexes, length), same in groups.items():
        yield indexes, HEADER + length, np.array(same)


def _indexes(data: bytes) -> tuple[Indexes, int] | None:
    """How many there are, then each, as signed numbers; and how many bytes these take. None for what is none."""
    try:
        number, at = _number(data, 0)
        found = []
        for _ in range(number):
            index, at = _number(data, at)
            found.append(index)
    except IndexError:
        return None
    return None if number < 1 or min(found) < 0 else (tuple(found), at)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, at + _MOST_BYTES):
        value |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return (value >> 1) ^ -(value & 1), place + 1
    raise IndexError
