"""What Spark's functions are in DataFusion where they have another name there, or another meaning for some values.

`{}` or `{0}` are the arguments. Each template is a proposal: the table of functions has those that were found equal.
"""

from __future__ import annotations

from typing import Final

_DOUBLE: Final = "CAST({0} AS DOUBLE)"
_POSITIVE: Final = "CASE WHEN CAST({0} AS DOUBLE) <= 0 THEN NULL ELSE NAME(CAST({0} AS DOUBLE)) END"
_SIZE: Final = "COALESCE(CAST(array_length({0}) AS INT), 0)"
_MOMENT: Final = "arrow_cast({0}, 'Int64')"
_UTC: Final = "'Timestamp(Microsecond, Some(\"UTC\"))'"
_FROM_END: Final = "CAST(character_length({0}) AS BIGINT) + {1}"

TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    **{name: (f"date_part('{name}', {{}})",) for name in ("year", "month", "day", "quarter", "hour", "minute")},
    "dayofmonth": ("date_part('day', {})",),
    "dayofyear": ("date_part('doy', {})",),
    "weekofyear": ("date_part('week', {})",),
    "dayofweek": ("date_part('dow', {}) + 1",),
    "weekday": ("(date_part('dow', {}) + 6) % 7",),
    "isnull": ("({} IS NULL)",),
    "isnotnull": ("({} IS NOT NULL)",),
    "lcase": ("lower({})",),
    "ucase": ("upper({})",),
    "positive": ("{}",),
    **{name: (f"{name}({_DOUBLE})",) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians")},
    **dict.fromkeys(("sign", "signum"), (f"signum({_DOUBLE})",)),
    **{name: (_POSITIVE.replace("NAME", name),) for name in ("ln", "log10", "log2")},
    "sqrt": (f"CASE WHEN {_DOUBLE} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({_DOUBLE}) END",),
    "isnan": ("coalesce(isnan({}), false)",),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), ("character_length({})", "octet_length({})")),
    "bit_length": ("octet_length({}) * 8",),
    "startswith": ("starts_with({}, {})",),
    "endswith": ("ends_with({}, {})",),
    "instr": ("strpos({}, {})",),
    **dict.fromkeys(("locate", "position", "charindex"), ("strpos({1}, {0})",)),
    "nvl2": ("CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",),
    "equal_null": ("({} IS NOT DISTINCT FROM {})",),
    **dict.fromkeys(("size", "cardinality"), (f"CASE WHEN {{0}} IS NULL THEN -1 ELSE {_SIZE} END",)),
    "array_size": (f"CASE WHEN {{0}} IS NULL THEN NULL ELSE {_SIZE} END",),
    **dict.fromkeys(("floor", "ceil", "ceiling"), ("CAST(NAME({}) AS BIGINT)", "CAST({} AS BIGINT)")),
    **dict.fromkeys(("datediff", "date_diff"), ("arrow_cast({0}, 'Int32') - arrow_cast({1}, 'Int32')",)),
    "unix_date": ("arrow_cast({}, 'Int32')",),
    "date_from_unix_date": ("arrow_cast({}, 'Date32')",),
    "unix_micros": (_MOMENT,),
    **dict.fromkeys(
        ("unix_seconds", "unix_timestamp", "to_unix_timestamp"), (f"CAST(floor({_MOMENT} / 1000000.0) AS BIGINT)",)
    ),
    "unix_millis": (f"CAST(floor({_MOMENT} / 1000.0) AS BIGINT)",),
    "timestamp_micros": (f"arrow_cast(CAST({{}} AS BIGINT), {_UTC})",),
    **dict.fromkeys(("date", "to_date"), ("CAST({} AS DATE)",)),
    **{name: (f"{name}({{}}, ' ')",) for name in ("ltrim", "rtrim")},
    "trim": ("btrim({}, ' ')",),
    "||": ("({} || {})", "array_concat({}, {})"),
    "concat": ("({} || {})", "({} || {} || {})"),
    "replace": ("CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END",),
    "reverse": ("array_reverse({})",),
    "substring": (
        "substr({0}, CASE WHEN {1} = 0 THEN 1 WHEN {1} > 0 THEN CAST({1} AS BIGINT)"
        f" WHEN {_FROM_END} < 0 THEN 1 ELSE {_FROM_END} + 1 END)",
    ),
    "sort_array": ("array_sort({}, 'ASC', 'NULLS FIRST')",),
    "array_sort": ("array_sort({}, 'ASC', 'NULLS LAST')",),
    "array_join": ("array_to_string({}, {})",),
    "element_at": ("element_at({}, {})[1]",),
    "array_position": (
        "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE"
        " coalesce(arrow_cast(array_position({0}, {1}), 'Int64'), 0) END",
    ),
    "map_contains_key": ("array_has(map_keys({0}), {1})",),
}
CASTS: Final[dict[str, str]] = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BYTEA",
    "date": "DATE",
}


def proposals(name: str, arguments: int) -> list[str]:
    """What a function with so many arguments may be in DataFusion; the same name first."""
    if name.startswith("cast to "):
        kind = CASTS[name.removeprefix("cast to ")]
        return [f"CAST({{}} AS {kind})", f"TRY_CAST({{}} AS {kind})"]
    own = f"({{}} {name} {{}})" if not name[0].isalpha() else f"{name}({', '.join(['{}'] * arguments)})"
    others = (each.replace("NAME", name.removesuffix("ing")) for each in TEMPLATES.get(name, ()))
    return [own, *(each for each in others if _places(each) == arguments)]


def _places(template: str) -> int:
    numbered = {at for at in range(10) if f"{{{at}}}" in template}
    return len(numbered) or template.count("{}")
