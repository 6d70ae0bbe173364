"""Messages of Protobuf as Arrow columns: names, types, defaults and nulls as in Hudi's conversion to Avro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError, SchemaError
from skep_format.options import of_option
from skep_format.schema.arrow import arrow_type
from skep_format.schema.types import (
    NO_DEFAULT,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    ListType,
    LongType,
    Schema,
    StringType,
    StructType,
    TimestampType,
)
from skep_stream.proto.options import DEPTH, TIMESTAMPS, WRAPPERS

_UNSIGNED: Final = DecimalType(20, 0, 9, "org.apache.hudi.protos.unsigned_long")
_REST: Final = StructType(
    (
        Field("descriptor_full_name", StringType(), nullable=False, default=""),
        Field("proto_bytes", BinaryType(), nullable=False, default=""),
    ),
    "org.apache.hudi.proto.recursion_overflow",
)
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("String", "Int32", "UInt32", "Int64", "UInt64", "Bool", "Bytes", "Double", "Float")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999: Protobuf has no others
_SERIALIZED: Final = methodcaller("SerializeToString", deterministic=True)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is a matter of choice in the columns of a message."""

    wrappers_as_records: bool = of_option(WRAPPERS)
    timestamps_as_records: bool = of_option(TIMESTAMPS)
    depth: int = of_option(DEPTH)


Arrays = Callable[[Sequence[Any]], pa.Array]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type, the Arrow array of values that are all there, and Avro's default."""

    type: DataType
    array: Arrays
    default: object = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    """A field of a message, and its Arrow array of messages."""

    field: Field
    read: Arrays


@dataclass(frozen=True, slots=True)
class MessageRows:
    """How messages of one type become rows."""

    schema: Schema
    _parse: Callable[[Any], Any]
    _array: Arrays

    def __call__(self, values: Sequence[Any]) -> pa.RecordBatch:
        """The rows of serialized messages. InputError where one can't be read, or does not fit its column."""
        from google.protobuf.message import DecodeError

        try:
            messages = list(map(self._parse, values))
        except DecodeError as error:
            raise InputError(f"not a message of {self.schema.name}: {error}") from error
        if not all(map(methodcaller("IsInitialized"), messages)):
            raise InputError(f"a required field of {self.schema.name} is missing")
        return pa.RecordBatch.from_struct_array(self._array(messages))


def message_rows(message: Any, shape: Shape) -> MessageRows:
    """Of the descriptor of a message. SchemaError names a field that no column can hold."""
    from google.protobuf.message_factory import GetMessageClass

    namespace = message.full_name.rpartition(".")[0]
    kind = _Columns(shape).message(message, namespace, {}, "")
    assert isinstance(kind.type, StructType)
    schema = Schema(kind.type.fields, message.name, namespace)
    return MessageRows(schema, GetMessageClass(message).FromString, kind.array)


class _Columns:
    """Walks through the types of a message. `path` is Hudi's namespace of a record, `place` the column for errors."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def message(self, message: Any, path: str, around: Mapping[str, int], place: str) -> _Kind:
        """A record; the rest as bytes where the message is within itself too often."""
        times = around.get(message.full_name, 0)
        if times >= self._shape.depth:
            return _Kind(_REST, _rest(message.full_name))
        if not message.fields:
            what = f"column {place}" if place else message.full_name
            raise SchemaError(f"{what}: a record without fields can't be written", column=place or None)
        within = {**around, message.full_name: times + 1}
        columns = [self._column(field, path, within, place) for field in message.fields]
        return _record(columns, f"{path}.{message.name}" if path else message.name)

    def _column(self, field: Any, path: str, around: Mapping[str, int], place: str) -> _Column:
        place = f"{place}.{field.name}" if place else field.name
        path = f"{path}.{field.name}" if path else field.name
        get = attrgetter(field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = self._entries(field.message_type, path, around, place)
            return _listed(field.name, kind, lambda message: sorted(get(message).items(), key=itemgetter(0)), place)
        kind = self._kind(field, path, around, place)
        if field.is_repeated:
            return _listed(field.name, kind, get, place)
        if kind.nullable or field.containing_oneof is not None:
            there = methodcaller("HasField", field.name)
            read = _checked(lambda messages: _where(list(map(there, messages)), messages, get, kind.array), place)
            return _Column(Field(field.name, kind.type, default=None), read)
        read = _checked(lambda messages: kind.array(list(map(get, messages))), place)
        return _Column(Field(field.name, kind.type, nullable=False, default=kind.default), read)

    def _kind(self, field: Any, path: str, around: Mapping[str, int], place: str) -> _Kind:
        if field.type == field.TYPE_MESSAGE:
            return self._within(field.message_type, path, around, place)
        if field.type == field.TYPE_ENUM:
            return _enum(field.enum_type)
        found = _scalars(field).get(field.type)
        if found is None:
            raise SchemaError(f"column {place}: groups can't be read, as in Hudi", column=place)
        return found

    def _within(self, message: Any, path: str, around: Mapping[str, int], place: str) -> _Kind:
        if message.full_name in _WRAPPERS and not self._shape.wrappers_as_records:
            kind, get = self._kind(message.fields[0], path, around, place), attrgetter("value")
            return _Kind(kind.type, lambda values: kind.array(list(map(get, values))), nullable=True)
        if message.full_name == _TIMESTAMP and not self._shape.timestamps_as_records:
            return _Kind(TimestampType("us"), _times, nullable=True)
        kind = self.message(message, path, around, place)
        return _Kind(kind.type, kind.array, nullable=True)

    def _entries(self, entry: Any, path: str, around: Mapping[str, int], place: str) -> _Kind:
        """A map is a list of records, each made of a pair."""
        columns = []
        for at, field in enumerate(entry.fields):
            kind = self._kind(field, f"{path}.{field.name}", around, f"{place}.{field.name}")
            stated = Field(field.name, kind.type, kind.nullable, default=None if kind.nullable else kind.default)
            columns.append(_Column(stated, _of_pairs(at, kind.array)))
        return _record(columns, f"{path}.{entry.name}")


def _of_pairs(at: int, array: Arrays) -> Arrays:
    return lambda pairs: array(list(map(itemgetter(at), pairs)))


def _record(columns: Sequence[_Column], full_name: str) -> _Kind:
    kind = StructType(tuple(column.field for column in columns), full_name)
    fields = list(arrow_type(kind))

    def array(messages: Sequence[Any]) -> pa.Array:
        return pa.StructArray.from_arrays([column.read(messages) for column in columns], fields=fields)

    return _Kind(kind, array)


def _listed(name: str, kind: _Kind, get: Callable[[Any], Sequence[Any]], place: str) -> _Column:
    listed = ListType(kind.type, kind.nullable and not isinstance(kind.type, StructType))

    def read(messages: Sequence[Any]) -> pa.Array:
        lists = list(map(get, messages))
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
        values = kind.array(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(listed))

    return _Column(Field(name, listed, nullable=False, default=[]), _checked(read, place))


def _where(there: Sequence[bool], messages: Sequence[Any], get: Callable[[Any], Any], array: Arrays) -> pa.Array:
    """An array that is null where nothing is there."""
    if all(there):
        return array(list(map(get, messages)))
    found = array(list(map(get, compress(messages, there))))
    known = np.array(there, np.bool_)
    return found.take(pa.array(np.cumsum(known) - known, mask=~known))


def _checked(read: Arrays, place: str) -> Arrays:
    """Names the column of a value that does not fit."""

    def checked(messages: Sequence[Any]) -> pa.Array:
        try:
            return read(messages)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"column {place}: {error}", column=place) from error

    return checked


def _scalars(of: Any) -> dict[int, _Kind]:
    """Of a descriptor that has the numbers of types. Numbers of fixed size without sign are Hudi's of a sign."""
    whole, long = _plain(IntType(), 0), _plain(LongType(), 0)
    return {
        **dict.fromkeys((of.TYPE_INT32, of.TYPE_SINT32, of.TYPE_SFIXED32, of.TYPE_FIXED32), whole),
        **dict.fromkeys((of.TYPE_INT64, of.TYPE_SINT64, of.TYPE_SFIXED64, of.TYPE_FIXED64, of.TYPE_UINT32), long),
        of.TYPE_UINT64: _Kind(
            _UNSIGNED, lambda values: pa.array(values, pa.uint64()).cast(arrow_type(_UNSIGNED)), "\0" * 9
        ),
        of.TYPE_BOOL: _plain(BooleanType(), False),
        of.TYPE_FLOAT: _plain(FloatType(), 0.0),
        of.TYPE_DOUBLE: _plain(DoubleType(), 0.0),
        of.TYPE_STRING: _plain(StringType(), ""),
        of.TYPE_BYTES: _plain(BinaryType(), ""),
    }


def _plain(kind: DataType, default: object) -> _Kind:
    target = arrow_type(kind)
    return _Kind(kind, lambda values: pa.array(values, target), default)


def _enum(enum: Any) -> _Kind:
    """A text, where Hudi has an enum of Avro: a value that is new in Protobuf needs no new type of the column."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    numbers, texts = pa.array(names, pa.int32()), pa.array(names.values(), pa.string())

    def array(values: Sequence[int]) -> pa.Array:
        found = pa.array(values, pa.int32())
        at = pc.index_in(found, numbers)
        if at.null_count:
            number = found.filter(at.is_null())[0].as_py()
            raise ValueError(f"{number} is no value of {enum.full_name}")
        return texts.take(at)

    first = enum.values[0].name if enum.values else NO_DEFAULT
    return _Kind(StringType(), array, first)


def _times(values: Sequence[Any]) -> pa.Array:
    seconds = np.fromiter(map(attrgetter("seconds"), values), np.int64, len(values))
    nanos = np.fromiter(map(attrgetter("nanos"), values), np.int64, len(values))
    wrong = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND) | (nanos < 0) | (nanos >= 10**9)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"{seconds[at]} s and {nanos[at]} ns are no time of Protobuf's")
    return pa.array(seconds * 10**6 + nanos // 1000).cast(pa.timestamp("us", "UTC"))


def _rest(full_name: str) -> Arrays:
    fields = list(arrow_type(_REST))

    def array(values: Sequence[Any]) -> pa.Array:
        names = pa.repeat(pa.scalar(full_name), len(values))
        rest = pa.array(list(map(_SERIALIZED, values)), pa.binary())
        return pa.StructArray.from_arrays([names, rest], fields=fields)

    return array
