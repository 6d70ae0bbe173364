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
from skep_format.avro.types import AvroType, UnionType, fixed_size, members_of, null_branch
from skep_format.schema import types
from skep_format.schema.types import Field, StructType

_WINDOW = 1 << 20  # bytes looked at together
_MOST_BLOCKS = 64  # of an array within an element


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
    at = _behind(StructType(members), source, places, end)
    links = np.full(reach - start, -1, np.int64)
    links[places - start] = np.where((at > end) | (at <= places), -1, at)
    listed: list[int] = links.tolist()
    return listed


def _behind_slot(field: Field, source: Bytes, at: I64, end: int) -> I64:
    if isinstance(field.type, UnionType) or not field.nullable:
        return _behind(field.type, source, at, end)
    null = 2 * null_branch(field)
    branch = source.data[np.minimum(at, end)]
    result = np.where((branch == null) & (at < end), at + 1, end + 1)
    rows = np.flatnonzero((branch == 2 - null) & (at < end))
    result[rows] = _behind(field.type, source, at[rows] + 1, end)
    return result


def _behind(kind: AvroType, source: Bytes, at: I64, end: int) -> I64:
    """Where values of `kind` that begin at `at` end: beyond `end` for what is none."""
    match kind:
        case StructType():
            rows, result = np.arange(len(at)), np.full(len(at), end + 1)
            for field in kind.fields:
                at = _behind_slot(field, source, at, end)
                inside = at <= end
                rows, at = rows[inside], at[inside]
            result[rows] = at
            return result
        case types.ListType() | types.MapType():
            return _behind_elements(members_of(kind), source, at, end)
        case UnionType():
            branch, at = _long(source, at, end)
            result = np.full(len(at), end + 1)
            for number, (_, inner) in enumerate(kind.branches):
                rows = np.flatnonzero((branch == number) & (at <= end))
                if inner is None:
                    result[rows] = at[rows]
                else:
                    result[rows] = _behind(inner, source, at[rows], end)
            return result
        case types.StringType() | types.UuidType() | types.BinaryType() | types.DecimalType(fixed_size=0):
            length, at = _long(source, at, end)
            return np.where((length < 0) | (length > end - at), end + 1, at + np.clip(length, 0, end + 1))
    if (size := fixed_size(kind)) is not None:
        return at + size
    return _long(source, at, end)[1]


def _behind_elements(members: tuple[Field, ...], source: Bytes, at: I64, end: int) -> I64:
    """Where arrays of `members` end. The links between elements are squared, so that many are followed in few steps.

    None is found for an array that reaches far beyond a window, or has more blocks than are looked at.
    """
    result = np.full(len(at), end + 1)
    rows = np.flatnonzero(at < end)
    if not len(rows):
        return result
    first = int(at[rows].min())
    last = min(end, first + 2 * _WINDOW)
    outside = last + 1 - first  # places in `steps` count from `first` on
    behind = _behind(StructType(members), source, np.arange(first, last + 1), last)
    steps = [np.append(np.minimum(behind - first, outside), outside)]
    here = at[rows]
    for _ in range(_MOST_BLOCKS):
        count, here = _long(source, here, last)
        size, items = _long(source, here, last)  # of a block that states its bytes, too
        here = np.where(count >= 0, here, np.where((size < 0) | (size > outside), last + 1, items + size))
        ended = (count == 0) & (here <= last)
        result[rows[ended]] = here[ended]
        inside = (count != 0) & (count < outside) & (here <= last)
        rows, left, here = rows[inside], np.maximum(count[inside], 0), here[inside] - first
        if not len(rows):
            break
        for bit in range(int(left.max()).bit_length()):
            if bit == len(steps):
                steps.append(steps[-1][steps[-1]])
            here = np.where(left >> bit & 1, steps[bit][here], here)
        here += first
    return result


def _long(source: Bytes, at: I64, end: int) -> tuple[I64, I64]:
    inside = np.minimum(at, end)
    words: npt.NDArray[Any] = source.words("<u8")[inside]
    value, size, unfinished = press(words)
    ninth = source.data[inside + 8] >= 0x80
    size = np.where(unfinished, np.where(ninth, 10, 9), size)
    behind = np.where(at >= end, end + 1, at + size)
    value[unfinished] = -1  # more than 2^55: no length or branch that could fit
    return value, np.minimum(behind, end + 1)
