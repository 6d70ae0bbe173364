"""Casts that keep every value: rows of other types in the types of a table, or an error that names the first misfit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InexactValueError, SchemaError
from skep_format.options import boolean, of_option, option
from skep_format.schema.arrow import is_any_list, is_text
from skep_format.schema.java_text import java_float

LOSSY = option(
    "skep.write.lossy.casts",
    boolean,
    False,
    "Values that a column's type cannot hold exactly are rounded, and long columns become double where fractions"
    " arrive; never key, partition and ordering columns",
)

TEXT = option(
    "skep.write.columns.become.text",
    boolean,
    False,
    "Columns of numbers, decimals and dates become text for good where text arrives that is none of their values, as"
    " Hudi has it; else such a write is refused",
)

Column: TypeAlias = pa.Array | pa.ChunkedArray
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True)
class Casts:
    """How one write brings rows to the types of its table. Columns are named by their dotted path.

    `fixed` columns keep the table's type and exact values whatever the options: those that make keys, partition
    paths and the order of rows. `widened` columns get a wider type, because a value did not fit the one they had.
    `lossy` allows rounding in all columns that are not fixed. `text` lets columns become text where text arrives.
    """

    fixed: frozenset[str] = frozenset()
    widened: frozenset[str] = frozenset()
    lossy: bool = of_option(LOSSY)
    text: bool = of_option(TEXT)


EXACT = Casts()


def cast_exactly(column: Column, target: pa.DataType, path: str, casts: Casts = EXACT) -> Column:
    """`column` as `target`; struct members are matched by name, and missing ones are null.

    A NaN is null in an integer column. InexactValueError for a value that `target` does not hold exactly, SchemaError
    for types that have nothing in common; both name the member (`a.b`, `list.element`, `map.value`) by its path.
    """
    if column.type == target and not _has_required(target):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, target, path, casts) for chunk in column.chunks], target)
    return _cast(column, target, path, casts)


Leaf: TypeAlias = Callable[[pa.Array, pa.DataType, str], pa.Array]
Members: TypeAlias = Callable[[pa.DataType, pa.DataType, str], Sequence[int | None]]
"""Which member of a given struct becomes each member of the wanted one; None: null. The text is the struct's path."""


def _cast(array: pa.Array, target: pa.DataType, path: str, casts: Casts) -> pa.Array:
    return cast_within(
        array, target, path, lambda values, kind, at: _cast_leaf(values, kind, at, casts), _members_by_name
    )


def _members_by_name(found: pa.DataType, target: pa.DataType, _path: str) -> list[int | None]:
    places = {field.name: at for at, field in enumerate(found)}
    return [places.get(field.name) for field in target]


def cast_within(array: pa.Array, target: pa.DataType, path: str, leaf: Leaf, members: Members) -> pa.Array:
    """`array` as `target`, whose plain values are cast by `leaf`, however deep they are within structs, lists and maps.

    SchemaError for a null in a member that is required.
    """
    t = pa.types
    found = array.type
    if found == target and not _has_required(target):
        return array
    if t.is_null(found):
        return pa.nulls(len(array), target)
    if t.is_dictionary(found):
        return cast_within(array.cast(found.value_type), target, path, leaf, members)
    if t.is_run_end_encoded(found):
        return cast_within(pc.run_end_decode(array), target, path, leaf, members)
    if t.is_struct(found) and t.is_struct(target):
        return _cast_struct(array, target, path, leaf, members)
    if is_any_list(found) and t.is_list(target):
        return _cast_list(array, target, path, leaf, members)
    if t.is_map(found) and t.is_map(target):
        return _cast_map(array, target, path, leaf, members)
    return leaf(array, target, path)


def _cast_struct(array: pa.Array, target: pa.DataType, path: str, leaf: Leaf, members: Members) -> pa.Array:
    given, children = array.flatten(), []
    for at, field in zip(members(array.type, target, path), target, strict=True):
        place = f"{path}.{field.name}"
        if at is not None:
            child = cast_within(given[at], field.type, place, leaf, members)
        else:
            child = pa.nulls(len(array), field.type)
        children.append(child if field.nullable else _required(child, array, place))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _cast_list(array: pa.Array, target: pa.DataType, path: str, leaf: Leaf, members: Members) -> pa.Array:
    # flattened: without the elements of other slices and of null lists
    elements = cast_within(pc.list_flatten(array), target.value_type, f"{path}.element", leaf, members)
    if not target.value_field.nullable:
        elements = _required(elements, None, f"{path}.element")
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return pa.ListArray.from_arrays(_offsets(array, lengths), elements, type=target)


def _cast_map(array: pa.Array, target: pa.DataType, path: str, leaf: Leaf, members: Members) -> pa.Array:
    if array.offset or array.null_count:
        array = array.take(pa.array(np.arange(len(array))))  # without the entries of other slices and of null maps
    keys = cast_within(array.keys, target.key_type, f"{path}.key", leaf, members)
    items = cast_within(array.items, target.item_type, f"{path}.value", leaf, members)
    if not target.item_field.nullable:
        items = _required(items, None, f"{path}.value")
    return pa.MapArray.from_arrays(_offsets(array, np.diff(array.offsets)), keys, items, type=target)


def _offsets(array: pa.Array, lengths: Any) -> pa.Array:
    """Where each list begins, null for null lists."""
    ends = np.cumsum(np.asarray(lengths))
    missing = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(np.concatenate([[0], ends]), pa.int32(), mask=missing)


@lru_cache(maxsize=1024)
def _has_required(kind: pa.DataType) -> bool:
    """Whether a value within values of this type may not be null."""
    t = pa.types
    if t.is_struct(kind):
        return any(not field.nullable or _has_required(field.type) for field in kind)
    if t.is_map(kind):
        return not kind.item_field.nullable or _has_required(kind.item_type)
    if t.is_list(kind):
        return not kind.value_field.nullable or _has_required(kind.value_type)
    return False


def _required(values: pa.Array, structs: pa.Array | None, path: str) -> pa.Array:
    """`values` of a member that is never null, without the nulls below null structs."""
    if not values.null_count:
        return values
    wrong = values.is_null() if structs is None else pc.and_(values.is_null(), structs.is_valid())
    rows = pc.sum(wrong).as_py()
    if rows:
        raise SchemaError(f"column {path} is required and null in {rows} rows", column=path, rows=rows)
    kind = values.type
    if pa.types.is_struct(kind):
        children = [values.field(at) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, values.values, type=kind)
    return pa.Array.from_buffers(kind, len(values), [None, *values.buffers()[1:]], 0, values.offset)


def _cast_leaf(array: pa.Array, target: pa.DataType, path: str, casts: Casts) -> pa.Array:
    rounds = casts.lossy and path not in casts.fixed and _is_rounding(array.type, target)
    cast = _rounded if rounds else _exact
    try:
        return cast(array, target)
    except _REFUSED as error:
        value = _first_misfit(array, lambda part: cast(part, target))
        if value is None:
            raise SchemaError(
                f"column {path}: a {array.type} does not fit the table's {target}: {error}",
                column=path,
                found=str(array.type),
                expected=str(target),
            ) from error
        raise InexactValueError(
            f"column {path}: {value} of type {array.type} does not fit the table's {target} exactly",
            hint=_hint(array.type, target, path, casts),
            column=path,
            found=str(array.type),
            expected=str(target),
            value=value,
        ) from error


def _hint(found: pa.DataType, target: pa.DataType, path: str, casts: Casts) -> str | None:
    if path in casts.fixed:
        return "key, partition and ordering columns keep their type; cast the column before the write"
    if _is_rounding(found, target) or (pa.types.is_floating(found) and pa.types.is_integer(target)):
        return f"{LOSSY.key}=true rounds values, and makes a column of whole numbers double where fractions arrive"
    if is_text(found):
        return f"{TEXT.key}=true makes the column text for good, as Hudi does"
    return None


def _first_misfit(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> str | None:
    """The first value that does not cast, as text. None when it is the types that do not."""
    if not _refuses(cast, array) or _refuses(cast, array.slice(0, 0)):
        return None
    return _shown(array.slice(first_refused(array, cast), 1))


def first_refused(values: Column, convert: Callable[[Any], object]) -> int:
    """The place of the first value for which `convert` raises an error of Arrow, where there is one."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _refuses(convert, values.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return low


def _refuses(cast: Callable[[Any], object], array: Column) -> bool:
    try:
        cast(array)
    except _REFUSED:
        return True
    return False


def _shown(value: pa.Array) -> str:
    try:
        text = value.cast(pa.string())[0].as_py()  # instants have nanoseconds that Python has not
    except _REFUSED:
        text = str(value[0])
    return repr(text) if pa.types.is_string(value.type) or pa.types.is_large_string(value.type) else str(text)


def _is_rounding(found: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value of one type has a nearest value of the other."""
    t = pa.types
    number = t.is_integer(found) or t.is_floating(found)
    return bool((number and t.is_floating(target)) or (t.is_timestamp(found) and t.is_timestamp(target)))


def _rounded(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(target):
        return _without_zone(array, target).cast(target, safe=False)
    return array.cast(target, safe=False)


def _exact(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Raises an Arrow error where a value or the type does not fit."""
    t = pa.types
    found = array.type
    if t.is_integer(target) and t.is_floating(found):
        return _whole_numbers(array, target)
    if t.is_floating(target) and t.is_integer(found):
        return _floats(array, target)
    if t.is_floating(target) and t.is_floating(found):
        return _narrower_floats(array, target)
    if t.is_floating(target) and t.is_decimal(found):
        raise pa.ArrowNotImplementedError("few decimals are floats")
    if t.is_decimal(target) and t.is_integer(found):
        return array.cast(pa.decimal128(20, 0)).cast(target)
    if t.is_decimal(target) and t.is_floating(found):
        return _exact(_whole_numbers(array, pa.int64()), target)
    if t.is_string(target) and t.is_floating(found):
        return java_float(array)
    if t.is_timestamp(target) and t.is_timestamp(found):
        return _without_zone(array, target).cast(target)
    if (t.is_date(target) and t.is_timestamp(found)) or (is_text(found) and not is_text(target)):
        return _there_and_back(array, target)
    return array.cast(target)


def _without_zone(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Instants in UTC, as tables have them."""
    if (array.type.tz is None) != (target.tz is None):
        raise pa.ArrowNotImplementedError("only one of the two is in a time zone")
    return array.cast(pa.timestamp(array.type.unit, target.tz))


def _require(holds: Any) -> None:
    """ArrowInvalid unless all are true; null counts as true."""
    if pc.all(holds).as_py() is False:
        raise pa.ArrowInvalid("a value would change")


def _whole_numbers(array: pa.Array, target: pa.DataType) -> pa.Array:
    values = array.cast(pa.float64())
    values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    bits = target.bit_width - (1 if pa.types.is_signed_integer(target) else 0)
    least = -(2.0**bits) if pa.types.is_signed_integer(target) else 0.0
    # compared as floats: 2^63 is one, and the greatest int64 is not
    _require(pc.and_(pc.greater_equal(values, least), pc.less(values, 2.0**bits)))
    _require(pc.equal(pc.floor(values), values))
    return values.cast(target)


def _floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    whole = array.cast(pa.int64())
    floats = whole.cast(target, safe=False)
    back = floats.cast(pa.float64())
    _require(pc.less(back, 2.0**63))
    _require(pc.equal(back.cast(pa.int64(), safe=False), whole))
    return floats


def _narrower_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    floats = array.cast(target, safe=False)
    if target.bit_width < array.type.bit_width:
        back = floats.cast(array.type)
        _require(pc.or_(pc.equal(back, array), pc.and_(pc.is_nan(back), pc.is_nan(array))))
    return floats


def _there_and_back(array: pa.Array, target: pa.DataType) -> pa.Array:
    cast = array.cast(target)
    _require(pc.equal(cast.cast(array.type), array))
    return cast
