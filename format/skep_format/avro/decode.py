"""Avro binary records into Arrow columns: field by field over all records at once, without a loop over rows.

A record's fields have no fixed place, so each record has a cursor, and a field is decoded for all records before the
next one is. Columns that nobody asked for are skipped: the cursors move, nothing is built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.avro.chains import element_starts
from skep_format.avro.cursors import I64, U8, Bytes, Cursors
from skep_format.avro.types import (
    AvroType,
    UnionType,
    arrow_field,
    arrow_of,
    as_record,
    fixed_size,
    members_of,
    null_branch,
)
from skep_format.buffers import bytes_and_offsets
from skep_format.errors import CorruptFileError
from skep_format.schema import types
from skep_format.schema.types import Field, Schema, StructType

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]

# Records decoded at once: their bytes and the cursors' arrays should stay in the processor's cache.
_CHUNK_ROWS = 16_384
_CHUNK_BYTES = 64 << 20
# Elements that take no bytes (empty records) can claim any number of themselves; more than this is taken for damage.
_MAX_EMPTY_ELEMENTS = 1 << 20
# Arrays of so many elements are worth the search for their beginnings, which takes as long as some rounds over all.
_LONG = 64
_ROUNDS_OF_SEARCH = 4


def decode_records(
    schema: Schema | StructType,
    data: Any,
    starts: I64,
    lengths: I64,
    *,
    columns: Collection[str] | None = None,
    path: str | None = None,
    offset: int = 0,
) -> pa.RecordBatch:
    """The records at `starts` in `data`, written with `schema`, as one batch with the schema's columns in order.

    `columns` keeps only these. `path` and `offset` (where `data` begins in it) are for errors. Starts must ascend.
    Raises CorruptFileError when a record isn't exactly one value of the schema.
    """
    batches = list(decode_batches(schema, data, starts, lengths, columns=columns, path=path, offset=offset))
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def decode_values(
    schema: Schema | StructType,
    values: pa.Array,
    *,
    columns: Collection[str] | None = None,
    path: str | None = None,
    offset: int = 0,
) -> pa.RecordBatch:
    """As `decode_records`, for records that are the values of a binary array without nulls."""
    data, offsets = bytes_and_offsets(values)
    starts, lengths = offsets[:-1], np.diff(offsets)
    return decode_records(schema, data, starts, lengths, columns=columns, path=path, offset=offset)


def decode_batches(
    schema: Schema | StructType,
    data: Any,
    starts: I64,
    lengths: I64,
    *,
    columns: Collection[str] | None = None,
    path: str | None = None,
    offset: int = 0,
) -> Iterator[pa.RecordBatch]:
    """As `decode_records`, in batches of some thousand records; at least one, which may be empty."""
    record = as_record(schema)
    wanted = [columns is None or field.name in columns for field in record.fields]
    arrow = pa.schema([arrow_field(field) for field, want in zip(record.fields, wanted, strict=True) if want])
    view = np.frombuffer(data, np.uint8)
    starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
    ends = starts + lengths
    if len(starts) and ((lengths < 0).any() or ends[-1] > len(view) or (starts[1:] < ends[:-1]).any() or starts[0] < 0):
        raise CorruptFileError(
            f"{path or 'Avro data'}: records that overlap or reach beyond their block at byte {offset}",
            path=path,
            offset=offset,
        )
    for first, last in _chunks(starts, ends):
        base = int(starts[first]) if last > first else 0
        stop = int(ends[last - 1]) if last > first else 0
        source = Bytes(view[base:stop], path, offset + base)
        cursors = Cursors(source, starts[first:last] - base, ends[first:last] - base)
        arrays = []
        for field, want in zip(record.fields, wanted, strict=True):
            if want:
                arrays.append(_field(field, cursors))
            else:
                _skip_field(field, cursors)
        left = cursors.at != cursors.end
        if left.any():
            cursors.fail("bytes after the end of a record", left)
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow) if arrays else _columnless(last - first)


def _columnless(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _chunks(starts: I64, ends: I64) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(starts):
        last = min(first + _CHUNK_ROWS, len(starts))
        in_reach = int(np.searchsorted(ends, starts[first] + _CHUNK_BYTES, side="right"))
        last = max(first + 1, min(last, in_reach))
        yield first, last
        first = last
    if not len(starts):
        yield 0, 0


def _field(field: Field, cursors: Cursors) -> pa.Array:
    """A value that may be null by a union of two branches."""
    values, valid = _read_slot(field, cursors, _value)
    if valid is None:
        return values
    return pa.nulls(len(cursors), arrow_of(field.type)) if values is None else _spread(values, valid)


def _read_slot(field: Field, cursors: Cursors, read: Callable[[AvroType, Cursors], T]) -> tuple[T | None, Mask | None]:
    """What `read` returns of the values that are not null (None: all are), and which are not (None: all are)."""
    kind = field.type
    if not field.nullable or isinstance(kind, UnionType):
        return read(kind, cursors), None
    valid = _validity(null_branch(field), cursors)
    return (read(kind, cursors), None) if valid.all() else (_read_some(kind, cursors, valid, read), valid)


def _read_some(kind: AvroType, cursors: Cursors, taken: Mask, read: Callable[[AvroType, Cursors], T]) -> T | None:
    rows = np.nonzero(taken)[0]
    if not len(rows):
        return None
    some = cursors.take(rows)
    found = read(kind, some)
    cursors.put_back(rows, some)
    return found


def _validity(null_at: int, cursors: Cursors) -> Mask:
    branch = cursors.byte()
    if len(branch) and int(branch.max()) > 2:
        # Java writes the branch in one byte; what else it could be is no branch of two.
        cursors.fail("an impossible branch of a union with null", branch > 2)
    odd = (branch & 1).astype(np.bool_)
    if odd.any():
        cursors.fail("an impossible branch of a union with null", odd)
    valid: Mask = branch != 2 * null_at
    return valid


def _spread(values: pa.Array, valid: Mask) -> pa.Array:
    """Values of the valid rows, nulls between them."""
    places = np.cumsum(valid, dtype=np.int32) - np.int32(1)
    return values.take(pa.array(places, mask=~valid))


def _value(kind: AvroType, cursors: Cursors) -> pa.Array:
    match kind:
        case types.StringType() | types.UuidType():
            return cursors.text()
        case types.LongType():
            return pa.array(cursors.long())
        case types.IntType() | types.DateType() | types.TimeType(unit="ms"):
            return _plain(arrow_of(kind), cursors.int())
        case types.TimestampType() | types.TimeType():
            return _plain(arrow_of(kind), cursors.long())
        case types.DoubleType():
            return pa.array(cursors.number("<f8"))
        case types.FloatType():
            return pa.array(cursors.number("<f4"))
        case types.BooleanType():
            return _booleans(cursors)
        case types.DecimalType():
            return _decimals(kind, cursors)
        case types.BinaryType():
            return cursors.gather(*cursors.span())
        case types.FixedType():
            flat = cursors.fixed(kind.size)
            return pa.Array.from_buffers(arrow_of(kind), len(cursors), [None, pa.py_buffer(np.ascontiguousarray(flat))])
        case types.EnumType():
            return _symbols(kind, cursors)
        case StructType():
            if not kind.fields:
                return pa.array([{}] * len(cursors), pa.struct([]))
            members = [_field(field, cursors) for field in kind.fields]
            return pa.StructArray.from_arrays(members, fields=list(arrow_of(kind)))
        case types.ListType() | types.MapType():
            return _elements(kind, cursors)
        case UnionType():
            return _union(kind, cursors)


def _plain(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Numbers as a type of the same width."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def _booleans(cursors: Cursors) -> pa.Array:
    byte = cursors.byte()
    wrong = byte > 1
    if wrong.any():
        cursors.fail("a boolean that is neither 0 nor 1", wrong)
    return pa.array(byte.view(np.bool_))


def _symbols(kind: types.EnumType, cursors: Cursors) -> pa.Array:
    number = cursors.int()
    wrong = (number < 0) | (number >= len(kind.symbols))
    if wrong.any():
        cursors.fail("a symbol that its enum has not", wrong)
    return pa.array(kind.symbols, pa.string()).take(pa.array(number))


def _decimals(kind: types.DecimalType, cursors: Cursors) -> pa.Array:
    size = fixed_size(kind)
    unscaled = np.empty((len(cursors), 16), np.uint8)
    if size:
        _widen(cursors.fixed(size), unscaled, slice(None), cursors)
    else:
        start, length = cursors.span()
        for width in np.unique(length).tolist():
            rows = np.nonzero(length == width)[0]
            if not width:
                cursors.fail("a decimal without bytes", length == 0)
            _widen(cursors.source.data[start[rows, None] + np.arange(width)], unscaled, rows, cursors)
    values = pa.Array.from_buffers(arrow_of(kind), len(cursors), [None, pa.py_buffer(unscaled)], null_count=0)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        too_long = [
            abs(int.from_bytes(value.tobytes(), "little", signed=True)) >= 10**kind.precision for value in unscaled
        ]
        cursors.fail(f"a decimal of more than {kind.precision} digits", np.array(too_long))
    return values


def _widen(big_endian: U8, target: U8, rows: Any, cursors: Cursors) -> None:
    """Signed big-endian integers of any width into rows of 16 little-endian bytes."""
    width = big_endian.shape[1]
    sign = (big_endian[:, 0].view(np.int8) >> 7).view(np.uint8)[:, None]
    if width > 16:
        sign_bit = (big_endian[:, width - 16].view(np.int8) >> 7).view(np.uint8)[:, None]
        if (big_endian[:, : width - 16] != sign).any() or (sign_bit != sign).any():
            cursors.fail("a decimal of more than 38 digits", np.ones(len(cursors), np.bool_))
        big_endian, width = big_endian[:, width - 16 :], 16
    wide = np.empty((len(big_endian), 16), np.uint8)
    wide[:, width:] = sign
    wide[:, :width] = big_endian[:, ::-1]
    target[rows] = wide


def _union(kind: UnionType, cursors: Cursors) -> pa.Array:
    """A struct with one member a branch; null where the branch is null."""
    branch = cursors.long()
    wrong = (branch < 0) | (branch >= len(kind.branches))
    if wrong.any():
        cursors.fail("a branch that its union has not", wrong)
    members = []
    valid = np.ones(len(cursors), np.bool_)
    for number, (_, inner) in enumerate(kind.branches):
        taken = branch == number
        if inner is None:
            valid &= ~taken
            continue
        values = _read_some(inner, cursors, taken, _value)
        members.append(pa.nulls(len(cursors), arrow_of(inner)) if values is None else _spread(values, taken))
    fields = list(arrow_of(kind))
    return pa.StructArray.from_arrays(members, fields=fields, mask=pa.array(~valid))


# -- arrays and maps: in rounds, each taking one element of every record that has one more -----------------------------


def _elements(kind: types.ListType | types.MapType, cursors: Cursors) -> pa.Array:
    members = members_of(kind)
    rounds = _Rounds(cursors, members)
    parts = [[_field(member, some) for member in members] for some in rounds]
    columns = [
        rounds.in_order([part[at] for part in parts], arrow_of(member.type)) for at, member in enumerate(members)
    ]
    made = pa.ListArray if isinstance(kind, types.ListType) else pa.MapArray
    return made.from_arrays(rounds.offsets(), *columns, type=arrow_of(kind))


class _Rounds:
    """Iterates over cursors at the first, second, … elements of an array or map, block counts read between them.

    Long arrays are not taken element by element: where theirs begin is worked out first, and they come in one round.
    """

    def __init__(self, cursors: Cursors, members: tuple[Field, ...]) -> None:
        self._cursors, self._members = cursors, members
        self._smallest = sum(_smallest(field.type, field.nullable) for field in members)
        self._owners: list[I64] = []

    def __iter__(self) -> Iterator[Cursors]:
        cursors = self._cursors
        rows = np.arange(len(cursors))
        left = np.zeros(len(cursors), np.int64)
        while True:
            fresh = rows[left[rows] == 0]
            if len(fresh):
                left[fresh] = self._counts(fresh)
                long = fresh[left[fresh] >= _LONG]
                for row in long[left[long] >= len(long) * _ROUNDS_OF_SEARCH].tolist():
                    yield from self._chain(row, left)
            rows = rows[left[rows] > 0]
            if not len(rows):
                return
            some = cursors.take(rows)
            yield some
            cursors.put_back(rows, some)
            self._owners.append(rows)
            left[rows] -= 1

    def _chain(self, row: int, left: I64) -> Iterator[Cursors]:
        """All but the last of a row's elements, as far as they can be found: the last one is left to a round."""
        source, start, end = self._cursors.source, int(self._cursors.at[row]), int(self._cursors.end[row])
        starts = element_starts(self._members, source, start, end, int(left[row]) - 1)
        begins, ends = starts[:-1].copy(), starts[1:]
        if not len(begins):
            return
        some = Cursors(source, begins, ends)
        yield some
        strayed = some.at != ends
        if strayed.any():
            some.fail("elements that overlap", strayed)
        self._cursors.at[row] = ends[-1]
        self._owners.append(np.full(len(begins), row))
        left[row] -= len(begins)

    def _counts(self, rows: I64) -> I64:
        some = self._cursors.take(rows)
        count = _block(some)
        limit = (some.end - some.at) // self._smallest if self._smallest else np.int64(_MAX_EMPTY_ELEMENTS)
        wrong = count > limit
        if wrong.any():
            some.fail("more elements than its record can hold", wrong)
        self._cursors.put_back(rows, some)
        return count

    def offsets(self) -> pa.Array:
        sizes = np.zeros(len(self._cursors), np.int64)
        for rows in self._owners:
            sizes += np.bincount(rows, minlength=len(sizes))
        return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))

    def in_order(self, parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
        """The rounds' elements, in the order of records instead of rounds."""
        if not parts:
            return pa.array([], kind)
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(self._owners), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))


def _block(cursors: Cursors) -> I64:
    """The number of elements in the next block of an array or map. A negative one has the block's bytes behind it."""
    count = cursors.long()
    negative = np.nonzero(count < 0)[0]
    if len(negative):
        some = cursors.take(negative)
        size = some.long()
        wrong = (size < 0) | (size > some.end - some.at) | (count[negative] == np.iinfo(np.int64).min)
        if wrong.any():
            some.fail("a block that its record can't hold", wrong)
        cursors.put_back(negative, some)
        count[negative] = -count[negative]
    return count


def _smallest(kind: AvroType, nullable: bool) -> int:
    """The least number of bytes a value takes; 0 only for fixed types and records without any."""
    if nullable:
        return 1
    if isinstance(kind, StructType):
        return sum(_smallest(field.type, field.nullable) for field in kind.fields)
    size = fixed_size(kind)
    return 1 if size is None else size


def _skip_field(field: Field, cursors: Cursors) -> None:
    _read_slot(field, cursors, _skip)


def _skip(kind: AvroType, cursors: Cursors) -> None:
    if (size := fixed_size(kind)) is not None:
        cursors.move(size)
        return
    match kind:
        case types.StringType() | types.UuidType() | types.BinaryType() | types.DecimalType():
            cursors.span()
        case StructType():
            for field in kind.fields:
                _skip_field(field, cursors)
        case types.ListType() | types.MapType():
            for some in _Rounds(cursors, members := members_of(kind)):
                for member in members:
                    _skip_field(member, some)
        case UnionType():
            _union(kind, cursors)
        case _:
            cursors.long()
