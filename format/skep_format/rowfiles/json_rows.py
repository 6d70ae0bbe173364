"""Files and messages of JSON as Arrow tables, by a schema; errors name the line.

Arrow reads what has values of the schema's kinds. Parts with other values are read line by line, or message by message,
by the rules of `json_values`: numbers as texts, times as texts, maps, and whatever is wrong.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from skep_format.buffers import as_array, joined_lines
from skep_format.errors import InputError
from skep_format.rowfiles.json_values import UnfitValueError, members, parsed
from skep_format.rowfiles.rejected import Line, RecordPlace, Rejected
from skep_format.schema.arrow import arrow_type, to_arrow
from skep_format.schema.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntType,
    ListType,
    LongType,
    Schema,
    StringType,
    StructType,
    TimestampType,
)

_BLOCK_BYTES: Final = 16 << 20  # a line has to fit
_PART: Final = 1024  # values that are read each by itself where Arrow can't read one of them
_NULL_ROW: Final = rb"(?:\A|[\n}])\s*n"
_NO_NUMBER: Final = r"[:,\[]\s*-?(?:NaN|Inf)"

_OBJECT: Final = r"\A\s*\{(?s:.*)\}\s*\z"
"""At least one object, and no part of one."""


def read_json(data: Any, schema: pa.Schema | None = None, **parsing: Any) -> pa.Table:
    """All objects, by Arrow, whose errors these are. `parsing` are its options."""
    return arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, **parsing),
    )


def may_have_null_rows(data: Any) -> bool:
    """Whether a null may be in the place of an object: Arrow makes a row of it, or ends the process."""
    return bool(pc.match_substring_regex(as_array(data), _NULL_ROW)[0].as_py())


def json_rows(name: str, data: bytes, schema: Schema, rejected: Rejected | None = None) -> pa.Table:
    """The rows of one file, in the schema's columns; other fields are left out, as Hudi does.

    InputError names file, line and column of the first value that does not fit; with `rejected` such lines are left
    out and added there.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    rows = _read_by_arrow(data, schema)
    if rows is not None:
        return rows
    lines = pc.list_flatten(pc.split_pattern(as_array(data), "\n"))
    return _read_in_parts(lines, schema, lambda at: Line(name, at + 1), rejected)[0]


def json_values(
    values: pa.Array, schema: Schema, place_of: Callable[[int], RecordPlace], rejected: Rejected | None = None
) -> tuple[pa.Table, pa.Array | None]:
    """As `json_rows`, of values with one object each; `place_of` is called with the number of a value, from 0 on.

    Also which values are rows, where not all of them are.
    """
    values = values.cast(pa.large_binary())
    rows = _read_each_by_arrow(values, schema)
    if rows is not None:
        return rows, None
    rows, kept = _read_in_parts(values, schema, place_of, rejected)
    return rows, pa.array(kept, pa.int64())


def _read_each_by_arrow(values: pa.Array, schema: Schema) -> pa.Table | None:
    """One row of each value. None where Arrow can't read one of them, or would find other numbers of rows in them."""
    if not pc.all(pc.match_substring_regex(values, _OBJECT)).as_py():
        return None
    rows = _read_by_arrow(joined_lines(values), schema, lines=False)
    return rows if rows is not None and rows.num_rows == len(values) else None


def _read_in_parts(
    values: pa.Array, schema: Schema, place_of: Callable[[int], RecordPlace], rejected: Rejected | None
) -> tuple[pa.Table, list[int]]:
    """The rows, and the numbers of their values: many at a time by Arrow, or where it can't, each by itself.

    Blank ones are passed over.
    """
    numbers = pc.indices_nonzero(pc.match_substring_regex(values, r"\S"))
    tables, kept = [to_arrow(schema).empty_table()], list[int]()
    for start in range(0, len(numbers), _PART):
        part = numbers.slice(start, _PART)
        some, places = values.take(part), part.to_pylist()
        rows = _read_each_by_arrow(some, schema)
        if rows is None:
            rows, places = _read_each(zip(places, some.to_pylist(), strict=True), schema, place_of, rejected)
        tables.append(rows)
        kept += places
    return pa.concat_tables(tables), kept


def _read_by_arrow(data: Any, schema: Schema, lines: bool = True) -> pa.Table | None:
    """None where a value is of another kind than its column, or not within its range. `lines`: each has whole rows."""
    wanted = to_arrow(schema)
    stored = [_stored(field.type) for field in schema.fields]
    if None in stored:
        return None
    read_as = pa.schema([pa.field(field.name, kind) for field, kind in zip(wanted, stored, strict=True)])
    try:
        text = as_array(data, kind=pa.large_string())
        text.validate(full=True)  # Arrow takes any bytes for text
        if may_have_null_rows(data) or pc.match_substring_regex(text, _NO_NUMBER)[0].as_py():
            return None
        table = read_json(data, read_as, unexpected_field_behavior="ignore", newlines_in_values=not lines)
        columns = [table.column(field.name).cast(field.type) for field in wanted]
    except pa.ArrowException:
        return None
    rows = pa.Table.from_arrays(columns, schema=wanted)
    fits = all(
        _fits(column, field.type, field.nullable) for column, field in zip(rows.columns, schema.fields, strict=True)
    )
    return rows if fits else None


def _fits(column: pa.ChunkedArray | pa.Array, kind: DataType, nullable: bool) -> bool:
    """Whether required values are there, and no number was beyond the range of its column: Arrow makes it infinite."""
    if not nullable and column.null_count:
        return False
    match kind:
        case FloatType() | DoubleType():
            return not pc.any(pc.is_inf(column)).as_py()
        case ListType():
            return _fits(pc.list_flatten(column), kind.element, kind.element_nullable)
        case StructType():
            return all(_fits(pc.struct_field(column, field.name), field.type, True) for field in kind.fields)
    return True


def _stored(kind: DataType, within: bool = False) -> pa.DataType | None:
    """The type that Arrow reads the JSON of a column as; None where it reads none. `within` others times are unread."""
    match kind:
        case BooleanType() | IntType() | LongType() | FloatType() | DoubleType() | StringType():
            return arrow_type(kind)
        case TimestampType() if not within:
            return pa.int64()
        case DateType() if not within:
            return pa.int32()
        case ListType():
            element = _stored(kind.element, within=True)
            return None if element is None else pa.list_(element)
        case StructType() if all(field.nullable for field in kind.fields):  # only the reader of lines checks others
            members = [(field.name, _stored(field.type, within=True)) for field in kind.fields]
            return None if any(found is None for _, found in members) else pa.struct(members)
    return None


def _read_each(
    lines: Iterable[tuple[int, bytes]],
    schema: Schema,
    place_of: Callable[[int], RecordPlace],
    rejected: Rejected | None,
) -> tuple[pa.Table, list[int]]:
    """The rows, and the numbers of their lines."""
    wanted = to_arrow(schema)
    columns: dict[str, list[Any]] = {field.name: [] for field in schema.fields}
    kept: list[int] = []
    for number, line in lines:
        try:
            row = _row(line, schema)
        except ValueError as error:
            place = place_of(number)
            if rejected is None:
                raise _as_input_error(place, error) from error
            rejected.add(place.source, place.number, line.decode("utf-8", "replace"), str(error))
            continue
        kept.append(number)
        for field, values in columns.items():
            values.append(row[field])
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in wanted], schema=wanted), kept


def _as_input_error(place: RecordPlace, error: ValueError) -> InputError:
    facts = {}
    if isinstance(error, UnfitValueError):
        facts = {"column": error.column, "found": error.found, "expected": error.expected}
    return InputError(f"{place}: {error}", path=place.source, line=place.number, **facts)


def _row(line: bytes, schema: Schema) -> dict[str, Any]:
    """ValueError for a line that is no row."""
    try:
        row = _parsed(line)
        if not isinstance(row, Mapping):
            raise ValueError("not a JSON object")
        return members(row, schema.fields)
    except RecursionError:
        raise ValueError("values are nested too deeply") from None


def _parsed(line: bytes) -> Any:
    try:
        return parsed(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"this is not in UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
