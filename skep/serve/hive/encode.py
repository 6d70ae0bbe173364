"""Arrow tables as the row sets and schemas of HiveServer2's protocol, column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from TCLIService import ttypes
from thrift.Thrift import TType

from skep_format.buffers import bytes_and_offsets
from skep_format.json_text import ROWS, Spelling, decimal_text, json_values
from skep_format.schema.arrow import is_any_list, is_text

COLUMNAR: Final = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6
_TYPE: Final = ttypes.TTypeId
_t: Final = pa.types


@dataclass(frozen=True, slots=True)
class Encoding:
    """How values of an Arrow type travel: Hive's type, the member of TColumn, and the values as that member's type."""

    type_id: int
    member: str
    values: Callable[[pa.Array], pa.Array]


def kind_of(kind: pa.DataType) -> Encoding:
    """Types that Hive has none for travel as text, unsigned numbers as the next wider ones."""
    if _t.is_dictionary(kind):
        return kind_of(kind.value_type)
    for fits, found in _KINDS:
        if fits(kind):
            return found
    return _STRING


def table_schema(schema: pa.Schema) -> Any:
    """Names and types, by position from 1."""
    columns = []
    for number, field in enumerate(schema, 1):
        entry = ttypes.TPrimitiveTypeEntry(kind_of(field.type).type_id, _qualifiers(field.type))
        columns.append(
            ttypes.TColumnDesc(
                field.name,
                ttypes.TTypeDesc([ttypes.TTypeEntry(primitiveEntry=entry)]),
                number,
                (field.metadata or {}).get(b"comment", b"").decode("utf-8", "replace") or None,
            )
        )
    return ttypes.TTableSchema(columns)


def _qualifiers(kind: pa.DataType) -> Any:
    if kind == pa.uint64():
        precision, scale = 20, 0
    elif _t.is_decimal(kind):
        precision, scale = kind.precision, kind.scale
    else:
        return None
    number = ttypes.TTypeQualifierValue
    return ttypes.TTypeQualifiers({"precision": number(i32Value=precision), "scale": number(i32Value=scale)})


def row_set(table: pa.Table, offset: int, protocol: int) -> Any:
    """Columns from version 6 of the protocol on, before it rows."""
    columns = [_values(table.column(number)) for number in range(table.num_columns)]
    if protocol < COLUMNAR:
        return ttypes.TRowSet(startRowOffset=offset, rows=_rows(columns, table.num_rows))
    made = [ttypes.TColumn(**{member: Packed(member, values)}) for member, values in columns]
    return ttypes.TRowSet(startRowOffset=offset, rows=[], columns=made)


def _values(column: pa.ChunkedArray) -> tuple[str, pa.Array]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of a column without chunks, in some releases
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if _t.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = kind_of(array.type)
    return kind.member, kind.values(array)


def _rows(columns: list[tuple[str, pa.Array]], count: int) -> list[Any]:
    cells = []
    for column, values in columns:
        make = _MEMBERS[column].cell
        member = "stringVal" if column == "binaryVal" else column
        plain = values.to_pylist()
        if column == "binaryVal":
            plain = [None if value is None else value.decode("utf-8", "replace") for value in plain]
        cells.append([ttypes.TColumnValue(**{member: make(value)}) for value in plain])
    return [ttypes.TRow(list(row)) for row in zip(*cells, strict=True)] if cells else [ttypes.TRow([])] * count


class Packed:
    """A column as its bytes in Thrift's binary protocol, in the place of the generated struct of its member: a list of
    values, with a filler where they are null, and the bits of the nulls, lowest first."""

    def __init__(self, member: str, values: pa.Array) -> None:
        found = _MEMBERS[member]
        self._element = found.element
        self._size = len(values)
        self._nulls = b""
        if values.null_count:
            self._nulls = np.packbits(np.asarray(values.is_null(), dtype=bool), bitorder="little").tobytes()
            values = pc.fill_null(values, pa.scalar(found.filler, values.type))
        self._data = found.pack(values)

    def write(self, protocol: Any) -> None:
        """As generated code is called for its members."""
        protocol.writeFieldBegin("values", TType.LIST, 1)
        protocol.writeListBegin(self._element, self._size)
        protocol.trans.write(self._data)
        protocol.writeFieldBegin("nulls", TType.STRING, 2)
        protocol.writeBinary(self._nulls)
        protocol.writeFieldStop()


def _numbers(kind: str) -> Callable[[pa.Array], bytes]:
    return lambda values: np.asarray(values).astype(kind).tobytes()


def _with_lengths(values: pa.Array) -> bytes:
    """Each value behind its length."""
    data, offsets = bytes_and_offsets(values)
    lengths = np.diff(offsets)
    out = np.empty(len(data) + 4 * len(lengths), np.uint8)
    is_data = np.ones(len(out), bool)
    places = (offsets[:-1] + 4 * np.arange(len(lengths)))[:, None] + np.arange(4)
    out[places] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    is_data[places] = False
    out[is_data] = data
    return out.tobytes()


@dataclass(frozen=True, slots=True)
class WireKind:
    """A member of TColumn: the cell of rows, Thrift's type of an element, the filler, and how values become bytes."""

    cell: Callable[..., Any]
    element: int
    filler: object
    pack: Callable[[pa.Array], bytes]


_MEMBERS: Final = {
    "boolVal": WireKind(ttypes.TBoolValue, TType.BOOL, False, lambda values: _numbers("u1")(values.cast(pa.uint8()))),
    "byteVal": WireKind(ttypes.TByteValue, TType.BYTE, 0, _numbers("i1")),
    "i16Val": WireKind(ttypes.TI16Value, TType.I16, 0, _numbers(">i2")),
    "i32Val": WireKind(ttypes.TI32Value, TType.I32, 0, _numbers(">i4")),
    "i64Val": WireKind(ttypes.TI64Value, TType.I64, 0, _numbers(">i8")),
    "doubleVal": WireKind(ttypes.TDoubleValue, TType.DOUBLE, 0.0, _numbers(">f8")),
    "stringVal": WireKind(ttypes.TStringValue, TType.STRING, "", _with_lengths),
    "binaryVal": WireKind(ttypes.TStringValue, TType.STRING, b"", _with_lengths),
}


# -- values


def _cast(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.cast(kind)


def _floats(array: pa.Array) -> pa.Array:
    """Through their shortest text: 0.1 as a float is 0.1 as a double, as Hive has it."""
    return array.cast(pa.large_string()).cast(pa.float64())


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string())


def _date(array: pa.Array) -> pa.Array:
    return array.cast(pa.date32()).cast(pa.large_string())


def timestamp_text(array: pa.Array) -> pa.Array:
    """`yyyy-MM-dd HH:mm:ss[.f]` without zeros at the end; instants in UTC."""
    unit = array.type.unit
    local = array.cast(pa.int64()).cast(pa.timestamp(unit))
    text = local.cast(pa.large_string())
    return text if unit == "s" else pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")


def _interval(array: pa.Array) -> pa.Array:
    """`d hh:mm:ss.nnnnnnnnn`, as Hive and Spark print intervals of days and times."""
    micros = pc.abs(array.cast(pa.duration("us")).cast(pa.int64()))
    parts, rest = [], micros
    for unit in (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000):
        parts.append(pc.divide(rest, unit))
        rest = pc.subtract(rest, pc.multiply(parts[-1], unit))
    days, *others = parts
    sign = pc.if_else(pc.less(array.cast(pa.int64()), 0), "-", "")
    clock = pc.binary_join_element_wise(*(_digits(part, 2) for part in others), ":")
    whole = pc.binary_join_element_wise(sign, days.cast(pa.string()), "")
    return pc.binary_join_element_wise(whole, " ", clock, ".", _digits(rest, 6), "000", "")


def _digits(values: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(values.cast(pa.string()), width, "0")


def _quoted(text: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    def quoted(array: pa.Array) -> pa.Array:
        mark, none = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
        return pc.binary_join_element_wise(mark, text(array).cast(pa.large_string()), mark, none)

    return quoted


_NESTED: Final = Spelling(
    ROWS.floats,
    decimal_text,
    _quoted(_date),
    _quoted(timestamp_text),
    ROWS.binaries,
    ROWS.strings,
    comma=",",
    colon=":",
    sort_map_keys=False,
)
"""As Hive prints lists, maps and structs: numbers bare, all else quoted, binary values as base64."""


def _nested(array: pa.Array) -> pa.Array:
    return json_values(array, _NESTED)


def _any(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(test(kind) for test in tests)


def _is(*kinds: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda kind: kind in kinds


def _as_text(type_id: int, text: Callable[[pa.Array], pa.Array]) -> Encoding:
    return Encoding(type_id, "stringVal", lambda array: text(array).cast(pa.large_string()))


def _number(type_id: int, member: str, kind: pa.DataType) -> Encoding:
    return Encoding(type_id, member, _cast(kind))


_STRING: Final = _as_text(_TYPE.STRING_TYPE, _text)
_BINARY: Final = Encoding(_TYPE.BINARY_TYPE, "binaryVal", _cast(pa.large_binary()))
_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Encoding], ...]] = (
    (is_text, _STRING),
    (_is(pa.bool_()), _number(_TYPE.BOOLEAN_TYPE, "boolVal", pa.bool_())),
    (_is(pa.int8()), _number(_TYPE.TINYINT_TYPE, "byteVal", pa.int8())),
    (_is(pa.int16(), pa.uint8()), _number(_TYPE.SMALLINT_TYPE, "i16Val", pa.int16())),
    (_is(pa.int32(), pa.uint16()), _number(_TYPE.INT_TYPE, "i32Val", pa.int32())),
    (_is(pa.int64(), pa.uint32()), _number(_TYPE.BIGINT_TYPE, "i64Val", pa.int64())),
    (_is(pa.uint64()), _as_text(_TYPE.DECIMAL_TYPE, _text)),
    (_is(pa.float64()), _number(_TYPE.DOUBLE_TYPE, "doubleVal", pa.float64())),
    (_is(pa.float16(), pa.float32()), Encoding(_TYPE.FLOAT_TYPE, "doubleVal", _floats)),
    (_any(_t.is_binary, _t.is_large_binary, _t.is_fixed_size_binary, _t.is_binary_view), _BINARY),
    (_t.is_decimal, _as_text(_TYPE.DECIMAL_TYPE, decimal_text)),
    (_t.is_date, _as_text(_TYPE.DATE_TYPE, _date)),
    (_t.is_timestamp, _as_text(_TYPE.TIMESTAMP_TYPE, timestamp_text)),
    (_t.is_duration, _as_text(_TYPE.STRING_TYPE, _interval)),
    (is_any_list, _as_text(_TYPE.ARRAY_TYPE, _nested)),
    (_t.is_map, _as_text(_TYPE.MAP_TYPE, _nested)),
    (_t.is_struct, _as_text(_TYPE.STRUCT_TYPE, _nested)),
    (_t.is_null, _as_text(_TYPE.NULL_TYPE, _text)),
)
