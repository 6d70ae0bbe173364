"""Rows of an older schema read by a newer one: `project` casts by name, with the promotions that Hudi knows.

Nested types are rebuilt around their buffers, so only the leaves whose type changed are computed; a column that needs
nothing is passed on as it is. What Hudi can't promote is a SchemaError with column, found and expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SchemaError
from skep_format.schema.arrow import arrow_type, is_any_list, is_bytes, is_text, to_arrow
from skep_format.schema.java_text import java_float
from skep_format.schema.types import NO_DEFAULT, DataType, Field, ListType, MapType, Schema, StructType

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)
SourceNames = Mapping[str, "str | None"]
_NO_RENAMES: SourceNames = {}


def project(rows: RowsT, target: Schema, names: SourceNames = _NO_RENAMES, *, encoded: bool = False) -> RowsT:
    """`rows` with the columns and types of `target`: columns by name, missing ones filled with their default or null.

    `names` maps columns (dotted path in `target`) to the other name under which the rows hold them, None for not at
    all (from `schema/history.py`). `encoded`: columns keep their dictionaries where the values need no cast. Raises
    SchemaError for a type that does not promote to the target's, a value that does not fit it, and a required column
    that is missing.
    """
    wanted = to_arrow(target)
    if not names and rows.schema.equals(wanted):
        return rows
    columns: list[Any] = []
    for field, arrow_field in zip(target.fields, wanted, strict=True):
        source = names.get(field.name, field.name)
        at = -1 if source is None else rows.schema.get_field_index(source)
        if at < 0:
            columns.append(_absent(field, arrow_field.type, rows.num_rows, field.name))
            continue
        column = rows.column(at)
        if column.type == arrow_field.type and not any(key.startswith(f"{field.name}.") for key in names):
            columns.append(column)
        elif encoded and pa.types.is_dictionary(column.type) and column.type.value_type == arrow_field.type:
            columns.append(column)
            wanted = wanted.set(len(columns) - 1, arrow_field.with_type(column.type))
        elif isinstance(column, pa.ChunkedArray):
            chunks = [_cast(chunk, field.type, field.name, names) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, arrow_field.type))
        else:
            columns.append(_cast(column, field.type, field.name, names))
    if isinstance(rows, pa.Table):
        return pa.Table.from_arrays(columns, schema=wanted)
    if not columns:
        return rows.select([])
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _absent(field: Field, kind: pa.DataType, length: int, path: str) -> pa.Array:
    if field.default is not NO_DEFAULT and field.default is not None:
        try:
            return pa.repeat(_default(field.default, kind), length)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
            raise SchemaError(
                f"column {path}: default {field.default!r} is not a {kind}", column=path, expected=str(kind)
            ) from error
    if not field.nullable and length:
        raise SchemaError(
            f"column {path} is required and missing in the rows",
            column=path,
            found="no such column",
            expected=str(kind),
        )
    return pa.nulls(length, kind)


def _default(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and (pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        value = value.encode("latin-1")  # Avro's JSON spells bytes as code points
    if isinstance(value, str) and pa.types.is_decimal(kind):
        value = Decimal(int.from_bytes(value.encode("latin-1"), "big", signed=True)).scaleb(-kind.scale)
    if pa.types.is_temporal(kind):
        return pa.scalar(value, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.scalar(value, kind)


def _cast(array: pa.Array, kind: DataType, path: str, names: SourceNames) -> pa.Array:
    found = array.type
    target = arrow_type(kind)
    if isinstance(array, pa.ExtensionArray):
        return _cast(array.storage, kind, path, names)
    if pa.types.is_dictionary(found):
        return _cast(array.dictionary_decode(), kind, path, names)
    if pa.types.is_run_end_encoded(found):
        return _cast(pc.run_end_decode(array), kind, path, names)
    if pa.types.is_null(found):
        return pa.nulls(len(array), target)
    match kind:
        case StructType() if pa.types.is_struct(found):
            return _cast_struct(array, kind, target, path, names)
        case ListType() if is_any_list(found):
            if not pa.types.is_list(found):
                array = array.cast(pa.list_(found.value_field))
            return around(array, target, _cast(array.values, kind.element, f"{path}.element", names))
        case MapType() if pa.types.is_map(found):
            keys, items = array.keys, _cast(array.items, kind.value, f"{path}.value", names)
            keys = keys if pa.types.is_string(keys.type) else _cast_leaf(keys, pa.string(), f"{path}.key")
            entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
            return around(array, target, entries)
    return array if found == target else _cast_leaf(array, target, path)


def _cast_struct(array: pa.Array, kind: StructType, target: pa.DataType, path: str, names: SourceNames) -> pa.Array:
    children = []
    for field, arrow_field in zip(kind.fields, target, strict=True):
        place = f"{path}.{field.name}"
        source = names.get(place, field.name)
        at = -1 if source is None else array.type.get_field_index(source)
        if at < 0:
            children.append(_absent(field, arrow_field.type, len(array), place))
        else:
            children.append(_cast(array.field(at), field.type, place, names))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def around(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    """A list or map with other elements, of the type `target` then."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, array.offset, [child])


def _cast_leaf(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    found = array.type
    t = pa.types
    if found == target:
        return array
    try:
        if t.is_floating(found) and t.is_float64(target):
            return widened_float(array)
        if t.is_string(target):
            return _to_text(array, path)
        if t.is_timestamp(found) and t.is_timestamp(target):
            # A value without zone counts as UTC, and the other way round: the number stays.
            return array.cast(pa.timestamp(found.unit, target.tz), safe=False).cast(target)
        if _promotes(found, target):
            return array.cast(target, safe=not (t.is_integer(found) and t.is_floating(target)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _misfit(path, found, target, str(error)) from error
    raise _misfit(path, found, target)


def _promotes(found: pa.DataType, target: pa.DataType) -> bool:
    t = pa.types
    number = t.is_integer(found) or t.is_floating(found)
    text = is_text(found)
    if t.is_integer(target):
        return t.is_integer(found)  # narrower only where every value fits
    if t.is_floating(target):
        return number
    if t.is_decimal(target):
        return number or text or t.is_decimal(found)
    if t.is_date(target):
        return text or t.is_date(found) or t.is_timestamp(found)
    if t.is_binary(target) or t.is_fixed_size_binary(target):
        return text or is_bytes(found) or t.is_fixed_size_binary(found)
    if t.is_time(target):
        return t.is_time(found)
    return bool(t.is_boolean(target) and t.is_boolean(found))


def widened_float(array: pa.Array) -> pa.Array:
    """A float column as doubles by way of the shortest decimal text, as Hudi does: 1.87, not 1.8700000047683716."""
    if pa.types.is_float64(array.type):
        return array
    single = array.cast(pa.float32())
    return single.cast(pa.string()).cast(pa.float64())


def floats_widened_exactly(rows: pa.RecordBatch, target: Schema) -> pa.RecordBatch:
    """`rows` whose float columns are doubles already where `target` has doubles, with the values that they have."""
    for at, column in enumerate(rows.schema):
        if pa.types.is_float32(column.type) and column.name in target:
            kind = arrow_type(target[column.name].type)
            if pa.types.is_float64(kind):
                rows = rows.set_column(at, column.with_type(kind), rows.column(at).cast(kind))
    return rows


def _to_text(array: pa.Array, path: str) -> pa.Array:
    t = pa.types
    kind = array.type
    if t.is_floating(kind):
        return java_float(array)
    plain = (is_text, is_bytes, t.is_fixed_size_binary, t.is_integer, t.is_date32, t.is_decimal)
    if any(is_kind(kind) for is_kind in plain):
        return array.cast(pa.string())
    raise _misfit(path, kind, pa.string())


def _misfit(path: str, found: pa.DataType, target: pa.DataType, why: str | None = None) -> SchemaError:
    reason = f" ({why})" if why else ""
    return SchemaError(
        f"column {path}: found {found}, which does not fit the expected {target}{reason}",
        column=path,
        found=str(found),
        expected=str(target),
    )
