"""Messages of Protobuf as rows: Confluent's form, by types of a registry or a file, or plain ones of one type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Schema
from skep_stream.kafka.confluent import HEADER, Rows
from skep_stream.kafka.parts import MessagePart, Parts
from skep_stream.proto.columns import MessageRows

Indexes = tuple[int, ...]
_FIRST: Final[Indexes] = (0,)
_NO_INDEXES: Final = "not a message of Confluent's: the place of its type in the schema can't be read"
_MOST_BYTES: Final = 10  # of a number


TypeOf = Callable[[int, Indexes], MessageRows]
"""The type of messages, by the id of its file and its place there. SchemaError for none."""


def one_type(rows: MessageRows, place: Indexes) -> TypeOf:
    """All messages are of the type at one place; ids are passed over."""

    def type_of(_number: int, indexes: Indexes) -> MessageRows:
        if indexes != place:
            found, expected = (".".join(map(str, each)) for each in (indexes, place))
            why = f"this is message {found} of its schema, not {rows.schema.name}, which is {expected}"
            raise SchemaError(why, found=found, expected=expected)
        return rows

    return type_of


def proto_messages(
    topic: str,
    batch: pa.RecordBatch,
    *,
    types: TypeOf | MessageRows,
    target: Schema | None,
    rejected: Rejected | None,
) -> tuple[pa.Table, pa.RecordBatch]:
    """The rows, of `target` or of the columns of their types, and their messages: plain ones of one type, or in
    Confluent's form by the types of their ids and places.

    InputError names topic, partition and offset of a message that can't be read; with `rejected` it is left out.
    """
    parts = Parts.of(topic, batch, rejected)
    if isinstance(types, MessageRows):
        return parts.rows([MessagePart(partial(_records, types), 0, parts.every)], target)
    return parts.rows(_by_type(parts, types), target)


def _by_type(parts: Parts, types: TypeOf) -> Iterator[MessagePart]:
    for number, same in parts.by_id():
        for indexes, header, rows in _by_indexes(parts, same):
            found = parts.fitting(rows, partial(types, number, indexes))
            if found is not None:
                yield MessagePart(partial(_records, found), header, rows)


def _records(found: MessageRows, data: npt.NDArray[np.uint8], starts: Rows, ends: Rows) -> pa.RecordBatch:
    view = data.data  # of the bytes of all messages
    return found([view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])


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
