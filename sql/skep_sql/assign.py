"""Values on their way into columns of other types, by Spark's rules of store assignment.

ANSI (the default): numbers become other numbers, fractions cut off, where the type holds them; everything plain becomes
text; nothing becomes a number, a boolean or a date but what Spark lets become one. STRICT: only what loses nothing.
Members of structs are assigned by their position, as columns are; by their names where columns are (BY NAME,
UPDATE SET *, INSERT *).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from skep_format.errors import InputError, SchemaError
from skep_format.schema.arrow import is_any_list, is_number, is_text
from skep_format.schema.exact import cast_within
from skep_format.schema.java_text import java_float
from skep_sql.protocols import QueryEngine
from skep_sql.types import arrow_text, given_text

t = pa.types


class Policy(str, Enum):
    """spark.sql.storeAssignmentPolicy."""

    ANSI = "ANSI"
    LEGACY = "LEGACY"
    STRICT = "STRICT"


_TEXTS: Final = "skep_texts"
_TEXT: Final = "text"
_WRITTEN_OUT: Final = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?$"
_MOST_DIGITS: Final = 76  # of Arrow's widest decimals
_TOO_LARGE: Final = 1e38
POLICY_KEY: Final = "spark.sql.storeassignmentpolicy"


def check_assignable(
    given: pa.DataType, wanted: pa.DataType, column: str, table: str, policy: Policy, *, by_name: bool = False
) -> None:
    """InputError where values of a type can't become values of a column's by the policy."""
    if policy is Policy.LEGACY:
        if not by_name or not t.is_nested(wanted) or _member_names(given) == _member_names(wanted):
            return
    elif _may_become(given, wanted, policy is Policy.STRICT, by_name):
        return
    why = f", and {given_text(given, column)} can't safely become it"
    raise _misfit(given, wanted, column, table, why, hint=f"cast it: CAST(… AS {arrow_text(wanted, column).upper()})")


def _misfit(
    given: pa.DataType, wanted: pa.DataType, column: str, table: str, why: str, hint: str | None = None
) -> InputError:
    found, expected = given_text(given, column), arrow_text(wanted, column)
    text = f"table {table}: column {column} is {expected}{why}"
    return InputError(text, hint=hint, column=column, found=found, expected=expected)


def _member_names(kind: pa.DataType) -> list[object]:
    """The names of members at all depths: Spark's casts, by which LEGACY assigns, take members by position."""
    return [
        (kind.field(at).name.lower() if t.is_struct(kind) else "", _member_names(kind.field(at).type))
        for at in range(kind.num_fields)
    ]


def same_members(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether structs, at all depths, have members of the same names, in whatever order and case."""
    return _fit_within(given, wanted, True, same_members) is not False


def _fit_within(
    given: pa.DataType, wanted: pa.DataType, by_name: bool, fit: Callable[[pa.DataType, pa.DataType], bool]
) -> bool | None:
    """Whether all that two structs, lists or maps hold fits; None for other types."""
    if t.is_struct(given) and t.is_struct(wanted):
        members = _members(given, wanted, by_name)
        return members is not None and all(
            fit(given.field(at).type, field.type) for at, field in zip(members, wanted, strict=True)
        )
    if is_any_list(given) and is_any_list(wanted):
        return fit(given.value_type, wanted.value_type)
    if t.is_map(given) and t.is_map(wanted):
        return fit(given.key_type, wanted.key_type) and fit(given.item_type, wanted.item_type)
    return None


def _members(given: pa.DataType, wanted: pa.DataType, by_name: bool) -> list[int] | None:
    """Which member of a given struct becomes each of the wanted one; None where there is not one for each."""
    if given.num_fields != wanted.num_fields:
        return None
    if not by_name:
        return list(range(wanted.num_fields))
    places = {field.name.lower(): at for at, field in enumerate(given)}
    found = [places.get(field.name.lower()) for field in wanted]
    members = [at for at in found if at is not None]
    return members if len(set(members)) == len(found) else None


def _may_become(given: pa.DataType, wanted: pa.DataType, strict: bool, by_name: bool) -> bool:
    if given == wanted or t.is_null(given):
        return True
    is_fit = _fit_within(given, wanted, by_name, lambda one, other: _may_become(one, other, strict, by_name))
    if is_fit is not None:
        return is_fit
    if t.is_nested(given) or t.is_nested(wanted):
        return False
    if is_text(wanted):
        return is_text(given) or not strict
    if is_number(given) and is_number(wanted):
        return not strict or _rank(given) <= _rank(wanted)
    if is_text(given):
        return False
    if t.is_binary(wanted) or t.is_fixed_size_binary(wanted):
        return bool(t.is_binary(given) or t.is_large_binary(given) or t.is_fixed_size_binary(given))
    times = (t.is_date(given) or t.is_timestamp(given)) and (t.is_date(wanted) or t.is_timestamp(wanted))
    return bool(times and (not strict or not t.is_date(wanted)))


def _rank(kind: pa.DataType) -> int:
    if t.is_floating(kind):
        return 100 + int(kind.bit_width)
    return int(kind.bit_width) if t.is_integer(kind) else 90


def assigned(
    column: pa.ChunkedArray, wanted: pa.DataType, name: str, table: str, engine: QueryEngine, *, by_name: bool = False
) -> pa.ChunkedArray:
    """The values as the column holds them. InputError for a value that its type does not hold.

    Texts become times as `engine` casts them.
    """

    def members(given: pa.DataType, kind: pa.DataType, path: str) -> list[int]:
        found = _members(given, kind, by_name)
        if found is None:
            raise _misfit(given, kind, path, table, f", and {given_text(given, path)} has other members")
        return found

    given = column.type
    if given == wanted:
        return column
    try:
        if not t.is_nested(given):
            return _plain(column, wanted, engine)

        def leaf(values: pa.Array, kind: pa.DataType, _path: str) -> pa.Array:
            return pa.concat_arrays([pa.nulls(0, kind), *_plain(pa.chunked_array([values]), kind, engine).chunks])

        chunks = [cast_within(chunk, wanted, name, leaf, members) for chunk in column.chunks]
        return pa.chunked_array(chunks, wanted)
    except (pa.ArrowException, SchemaError) as error:
        why = f", which does not hold every value given: {str(error).splitlines()[0]}"
        raise _misfit(given, wanted, name, table, why) from error


def _plain(column: pa.ChunkedArray, wanted: pa.DataType, engine: QueryEngine) -> pa.ChunkedArray:
    """Values that are not nested."""
    given = column.type
    if given == wanted or t.is_null(given):
        return column.cast(wanted)
    if is_text(wanted) and not t.is_nested(given):
        return _as_text(column)
    if is_number(given) and is_number(wanted):
        return _number(column, wanted)
    if is_text(given) and is_number(wanted):
        return _number(pc.utf8_trim_whitespace(column).cast(_parsed(wanted)), wanted)
    if t.is_timestamp(given) and t.is_date(wanted):
        return pc.floor_temporal(column, unit="day").cast(wanted, safe=False)
    if is_text(given) and (t.is_date(wanted) or t.is_timestamp(wanted)):
        return _time(column, wanted, engine)
    if (is_number(given) and t.is_temporal(wanted)) or (t.is_temporal(given) and is_number(wanted)):
        raise pa.ArrowInvalid("cast it: Arrow counts times in other units than Spark")
    return column.cast(wanted)


def _time(texts: pa.ChunkedArray, wanted: pa.DataType, engine: QueryEngine) -> pa.ChunkedArray:
    """Texts as dates or times; the engine casts what is not written out in full in its own time zone."""
    in_zone = t.is_timestamp(wanted) and wanted.tz is not None
    if (engine.in_utc or not in_zone) and pc.all(pc.match_substring_regex(texts, _WRITTEN_OUT)).as_py() is not False:
        if t.is_date(wanted):
            return pc.utf8_slice_codeunits(texts, 0, 10).cast(wanted)
        return texts.cast(pa.timestamp("us")).cast(wanted)
    kind = "DATE" if t.is_date(wanted) else "TIMESTAMP" if in_zone else "TIMESTAMP_NTZ"
    cast = exp.cast(exp.column(_TEXT, quoted=True), exp.DataType.build(kind, dialect="spark"))
    query = exp.select(exp.alias_(cast, _TEXT, quoted=True)).from_(exp.to_identifier(_TEXTS))
    found = engine.rows(query, {_TEXTS: pa.table({_TEXT: texts})}).column(0)
    lost = pc.and_(pc.is_valid(texts), pc.is_null(found))
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid(f"{texts.filter(lost)[0].as_py()!r} is no {kind.lower()}")
    return found.cast(wanted)


def _parsed(wanted: pa.DataType) -> pa.DataType:
    """What text is read as before it becomes a number of this type."""
    return (
        pa.float64() if t.is_floating(wanted) else wanted if t.is_integer(wanted) else pa.decimal128(38, wanted.scale)
    )


def _number(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Fractions are cut off where whole numbers are wanted, and rounded half up where a scale is."""
    given = column.type
    if t.is_integer(wanted):
        if t.is_floating(given):
            column = pc.trunc(column)
        elif t.is_decimal(given) and given.scale > 0:
            column = pc.trunc(column)
            return column.cast(pa.decimal128(38, 0) if given.precision - given.scale < 38 else given).cast(wanted)
        return column.cast(wanted)
    if t.is_decimal(wanted):
        if t.is_floating(given):
            column = _written_out(column)
        elif t.is_integer(given):
            column = column.cast(pa.decimal128(20, 0))
        if column.type.scale > wanted.scale:  # 99.95 becomes 100.0, which has a digit more
            wide = column.cast(pa.decimal256(_MOST_DIGITS, column.type.scale))
            column = pc.round(wide, wanted.scale, "half_towards_infinity")
        return column.cast(wanted)
    if t.is_decimal(given):
        return column.cast(pa.string()).cast(wanted)  # the nearest one; Arrow's quotient may be the next to it
    return column.cast(wanted, safe=False)  # floating: every number has a nearest one


def _written_out(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Doubles as the decimals that Java writes for them: 1.005, which is a bit less, is rounded up to 1.01."""
    doubles = column.cast(pa.float64())
    if pc.any(pc.invert(pc.less(pc.abs(doubles), _TOO_LARGE))).as_py():  # NaN, too
        raise pa.ArrowInvalid("a number that is not finite, or larger than any decimal")
    texts = pa.chunked_array([java_float(chunk) for chunk in doubles.chunks], pa.string())
    return texts.cast(pa.decimal256(_MOST_DIGITS, _MOST_DIGITS // 2), safe=False)  # later digits round nothing


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if t.is_decimal(column.type):
        return _plain_text(column)
    if t.is_floating(column.type):
        return pa.chunked_array([java_float(chunk) for chunk in column.chunks], pa.string())
    if t.is_timestamp(column.type) or t.is_binary(column.type):
        raise pa.ArrowInvalid(f"cast it: the text of {column.type} depends on the session")
    return column.cast(pa.string())


def _plain_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """All digits, never 1E-8: what is less than one gets its zeros from a number that is one more."""
    wide = column.cast(pa.decimal256(_MOST_DIGITS // 2 + 1, column.type.scale))
    size, one, zero = pc.abs(wide), pa.scalar(Decimal(1), wide.type), pa.scalar(Decimal(0), wide.type)
    small = pc.utf8_replace_slice(pc.add(size, one).cast(pa.string()), 0, 1, "0")
    signed = pc.if_else(pc.less(wide, zero), pc.binary_join_element_wise("-", small, ""), small)
    return pc.if_else(pc.less(size, one), signed, column.cast(pa.string()))
