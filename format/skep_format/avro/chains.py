"""Where the elements of a long Avro array begin: every byte is taken for a beginning, and the true ones are linked up.

An element's length is known only from its own bytes, so its successor has to be found before it can be decoded. Going
element by element would take a round of array operations for each. Instead the end of an element is worked out for all
offsets at once at which an element might begin; then following the links takes one look-up per element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from skep_format.avro.cursors import I64, Bytes, press
from skep_format.avro.types import AvroType, UnionType
from skep_format.schema.avro import decimal_size
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    Field,
    FixedType,
    FloatType,
    ListType,
    MapType,
    StringType,
    StructType,
    UuidType,
)

_WINDOW = 1 << 20  # bytes looked at together


def can_chain(kind: AvroType) -> bool:
    """Whether elements of `kind` have no arrays or maps within."""
    match kind:
        case ListType() | MapType():
            return False
        case StructType():
            return all(can_chain(field.type) for field in kind.fields)
        case UnionType():
            return all(inner is None or _has_end(inner) for _, inner in kind.branches)
    return True


def _has_end(kind: AvroType) -> bool:
    # A branch with an array within is allowed: where it is taken the chain ends, and rounds take over.
    return not isinstance(kind, (ListType, MapType))


def element_starts(members: tuple[Field, ...], source: Bytes, start: int, end: int, count: int) -> I64:
    """The beginnings of up to `count` elements from `start` on, and the end of the last as one more.

    `members` are what an element is made of, one behind the other. Fewer are returned when the bytes leave `end`, or
    a value can't be passed over this way.
    """
    found: list[int] = [start]
    while len(found) <= count:
        at = found[-1]
        reach = min(at + _WINDOW, end)
        links = _links(members, source, at, reach, end)
        before = len(found)
        place = at
        while place < reach and len(found) <= count:
            place = links[place - at]
            if place < 0:
                break
            found.append(place)
        if place < 0 or len(found) == before or place >= end:
            break
    return np.array(found, np.int64)


def _links(members: tuple[Field, ...], source: Bytes, start: int, reach: int, end: int) -> list[int]:
    """For each place from `start` to `reach`, where an element that begins there ends; −1 where none can."""
    places = np.arange(start, reach)
    if members[0].nullable and not isinstance(members[0].type, UnionType):
        places = places[(source.data[start:reach] & 0xFD) == 0]  # its first byte is a branch: 0 or 2
    at = places
    for field in members:
        at = _behind_slot(field, source, at, end)
    links = np.full(reach - start, -1, np.int64)
    links[places - start] = np.where((at > end) | (at <= places), -1, at)
    listed: list[int] = links.tolist()
    return listed


def _behind_slot(field: Field, source: Bytes, at: I64, end: int) -> I64:
    if isinstance(field.type, UnionType) or not field.nullable:
        return _behind(field.type, source, at, end)
    null_at = 1 if field.null_last else 0
    branch = source.data[np.minimum(at, end)]
    result = np.where(branch & 0xFD == 0, at + 1, end + 1)
    rows = np.flatnonzero((branch == 2 * (1 - null_at)) & (at < end))
    result[rows] = _behind(field.type, source, at[rows] + 1, end)
    return result


def _behind(kind: AvroType, source: Bytes, at: I64, end: int) -> I64:
    """Where values of `kind` that begin at `at` end: beyond `end` for what is none."""
    match kind:
        case StructType():
            for field in kind.fields:
                at = _behind_slot(field, source, at, end)
            return at
        case UnionType():
            branch, at = _long(source, at, end)
            result = np.full(len(at), end + 1)
            for number, (_, inner) in enumerate(kind.branches):
                rows = np.flatnonzero((branch == number) & (at <= end))
                if inner is None:
                    result[rows] = at[rows]
                elif can_chain(inner):
                    result[rows] = _behind(inner, source, at[rows], end)
            return result
        case StringType() | UuidType() | BinaryType() | DecimalType(fixed_size=0):
            length, at = _long(source, at, end)
            return np.where((length < 0) | (length > end - at), end + 1, at + np.clip(length, 0, end + 1))
        case DecimalType():
            return at + (kind.fixed_size or decimal_size(kind.precision))
        case FixedType():
            return at + kind.size
        case DoubleType():
            return at + 8
        case FloatType():
            return at + 4
        case BooleanType():
            return at + 1
    return _long(source, at, end)[1]


def _long(source: Bytes, at: I64, end: int) -> tuple[I64, I64]:
    inside = np.minimum(at, end)
    words: npt.NDArray[Any] = source.words("<u8")[inside]
    value, size, unfinished = press(words)
    ninth = source.data[inside + 8] >= 0x80
    size = np.where(unfinished, np.where(ninth, 10, 9), size)
    behind = np.where(at >= end, end + 1, at + size)
    value[unfinished] = -1  # more than 2^55: no length or branch that could fit
    return value, np.minimum(behind, end + 1)
