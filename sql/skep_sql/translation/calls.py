"""Functions of Spark whose types or values follow rules of their own, beside the table of those compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import pyarrow as pa
from sqlglot import exp

from skep_format.schema.arrow import is_any_list
from skep_sql.parsing.statements import Node
from skep_sql.spark_release import is_spark_3
from skep_sql.translation.casts import PLAIN_SCALE, whole_seconds
from skep_sql.translation.literals import UNITS, interval_of
from skep_sql.translation.plain_parse import called
from skep_sql.translation.spark_types import UTC, cast, is_exact, is_whole, list_of
from skep_sql.translation.values import (
    VARIABLE,
    EngineValue,
    as_type,
    differs,
    failure,
    literal_text,
    made,
    named,
    pattern_of,
)

t = pa.types


class Calling(Protocol):
    """What translates the arguments of a call."""

    is_ordered: bool
    is_sorted: bool
    groups: Sequence[Node]

    def value(self, node: Node | None) -> EngineValue:
        """An argument."""

    def together(self, node: Node, values: Sequence[EngineValue]) -> tuple[pa.DataType, list[str]]:
        """Values in the type that Spark brings them to."""

    def known(self, node: Node, name: str, values: Sequence[EngineValue]) -> EngineValue:
        """By the table of functions."""

    def call_of(self, node: Node, name: str, values: list[EngineValue]) -> EngineValue:
        """By the rules of arithmetic, else by the table."""

    def function(self, node: Node, kinds: Sequence[pa.DataType]) -> EngineValue:
        """A function of variables of these types."""

    def comparison(self, node: Node) -> EngineValue:
        """A comparison of two values."""


def _first_known(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    kind, texts = translator.together(node, values)
    if not values:
        raise differs(node)
    name = pattern_of(called(node)[0], len(values))
    return made(f"COALESCE({', '.join(texts)})", kind, name, *values)


def _nullif(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    if len(nodes) != 2:
        raise differs(node)
    one, other = nodes
    same, value = translator.comparison(exp.EQ(this=one.copy(), expression=other.copy())), translator.value(one)
    text = f"CASE WHEN {same.text} THEN NULL ELSE {value.text} END"
    found = made(text, value.type, None, same, value)
    return replace(found, name=named("nullif({}, {})", value, translator.value(other)))


def _nvl2(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    if len(nodes) != 3:
        raise differs(node)
    values = [translator.value(each) for each in nodes]
    kind, texts = translator.together(node, values[1:])
    text = f"CASE WHEN {values[0].text} IS NOT NULL THEN {texts[0]} ELSE {texts[1]} END"
    return made(text, kind, "nvl2({}, {}, {})", *values)


def _array(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    if not values:
        raise differs(node)
    kind, texts = translator.together(node, values)
    name = pattern_of("array", len(values))
    return made(f"array({', '.join(texts)})", list_of(kind), name, *values)


def _named_struct(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    names = [value.literal for value in values[::2]]
    if None in names or len(values) % 2 or len({(name or "").lower() for name in names}) != len(names):
        raise differs(node)
    kind = pa.struct([(name, value.type) for name, value in zip(names, values[1::2], strict=True)])
    text = f"named_struct({', '.join(value.text for value in values)})"
    return made(text, kind, pattern_of("named_struct", len(values)), *values)


def _struct(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values, fields = [], []
    for at, each in enumerate(nodes, 1):
        is_alias = isinstance(each, exp.Alias)
        value = translator.value(each.this if is_alias else each)
        if is_alias:
            fields.append(each.alias)
        else:
            fields.append(each.name if isinstance(each, exp.Column | exp.Dot) else f"col{at}")
        values.append(replace(value, name=f"{value.name} AS {each.alias}") if is_alias and value.name else value)
    if len({each.lower() for each in fields}) != len(fields) or not fields:
        raise differs(node)
    kind = pa.struct([(name, value.type) for name, value in zip(fields, values, strict=True)])
    parts = (f"{literal_text(name)}, {value.text}" for name, value in zip(fields, values, strict=True))
    text = f"named_struct({', '.join(parts)})"
    return made(text, kind, pattern_of("struct", len(values)), *values)


def _map(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    if len(values) % 2 or not values:
        raise differs(node)
    literals = [value.literal for value in values[::2]]
    if None in literals or len(set(literals)) != len(literals):
        raise differs(node, "keys that may be equal")
    key, keys = translator.together(node, values[::2])
    item, items = translator.together(node, values[1::2])
    text = ", ".join(f"{one}, {other}" for one, other in zip(keys, items, strict=True))
    return made(f"map({text})", pa.map_(key, item), pattern_of("map", len(values)), *values)


def _size(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """That of null is -1, by ANSI's rules null."""
    values = [translator.value(each) for each in nodes]
    if len(values) != 1 or not (is_any_list(values[0].type) or t.is_map(values[0].type)):
        raise differs(node)
    text = f"size({values[0].text})"
    return made(f"coalesce({text}, -1)" if is_spark_3() else text, pa.int32(), f"{called(node)[0]}({{}})", *values)


def _contains(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Whether a list has a value; null where it has not, but null."""
    values = [translator.value(each) for each in nodes]
    if len(values) != 2 or not is_any_list(values[0].type) or values[0].type.value_type != values[1].type:
        raise differs(node)
    listed, value = (each.text for each in values)
    if not is_exact(values[1].type):
        raise differs(node, "not compared alike")
    has, null = f"array_contains({listed}, {value})", f"exists({listed}, x -> x IS NULL)"
    return made(f"({has} OR nullif({null}, true))", pa.bool_(), "array_contains({}, {})", *values)


def _element_at(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Beyond its end an array has null, by ANSI's rules an error."""
    values = [translator.value(each) for each in nodes]
    if len(values) != 2 or not is_any_list(values[0].type) or not is_whole(values[1].type) or not is_spark_3():
        return translator.known(node, "element_at", values)
    text = f"try_element_at({values[0].text}, {as_type(values[1], pa.int32())})"
    return made(text, values[0].type.value_type, "element_at({}, {})", *values)


def _sorted(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Of a sorted list it does not matter in which order its elements came."""
    before = translator.is_ordered, translator.is_sorted
    translator.is_ordered = translator.is_sorted = True
    try:
        values = [translator.value(each) for each in nodes]
    finally:
        translator.is_ordered, translator.is_sorted = before
    return translator.known(node, "sort_array", values)


def _sequence(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    if len(nodes) != 3 or not isinstance(nodes[2], exp.Interval):
        return translator.known(node, "sequence", [translator.value(each) for each in nodes])
    start, stop = (translator.value(each) for each in nodes[:2])
    number, unit = interval_of(nodes[2])
    if not (t.is_date(start.type) and t.is_date(stop.type)) or unit not in ("day", "week", "month", "year"):
        raise differs(node)
    text = f"sequence({start.text}, {stop.text}, INTERVAL '{number}' {unit.upper()})"
    return made(text, list_of(pa.date32()), f"sequence({{}}, {{}}, INTERVAL '{number}' {unit.upper()})", start, stop)


def _to_json(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    if len(values) != 1 or not _has_plain_json(values[0].type):
        raise differs(node)
    return made(f"to_json({values[0].text})", pa.string(), "to_json({})", *values)


def _over_elements(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    name = called(node)[0]
    if len(nodes) != 2:
        raise differs(node)
    value = translator.value(nodes[0])
    if not is_any_list(value.type):
        raise differs(node)
    element = value.type.value_type
    is_indexed = isinstance(nodes[1], exp.Lambda) and len(nodes[1].expressions) == 2
    if is_indexed and name not in ("transform", "filter"):
        raise differs(node)
    function = translator.function(nodes[1], [element, pa.int32()] if is_indexed else [element])
    if name != "transform" and not t.is_boolean(function.type):
        raise differs(node)
    kind = {"transform": list_of(function.type), "filter": value.type}.get(name, pa.bool_())
    return made(f"{name}({value.text}, {function.text})", kind, f"{name}({{}}, {{}})", value, function)


def _reduced(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    name = called(node)[0]
    if len(nodes) not in (3, 4):
        raise differs(node)
    value, start = translator.value(nodes[0]), translator.value(nodes[1])
    if not is_any_list(value.type):
        raise differs(node)
    merge = translator.function(nodes[2], [start.type, value.type.value_type])
    if merge.type != start.type:
        raise differs(node)
    parts = [value, start, merge]
    if len(nodes) == 4:
        parts.append(translator.function(nodes[3], [start.type]))
    identity = EngineValue("", pa.null(), f"lambdafunction({VARIABLE}, {VARIABLE})")
    shown = named(pattern_of(name, 4), *(parts if len(parts) == 4 else [*parts, identity]))
    kind = parts[-1].type if len(parts) == 4 else start.type
    return EngineValue(f"aggregate({', '.join(each.text for each in parts)})", kind, shown)


def _over_entries(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    name = called(node)[0]
    if len(nodes) != 2:
        raise differs(node)
    value = translator.value(nodes[0])
    if not t.is_map(value.type):
        raise differs(node)
    function = translator.function(nodes[1], [value.type.key_type, value.type.item_type])
    if name == "map_filter" and t.is_boolean(function.type):
        kind = value.type
    elif name == "transform_values":
        kind = pa.map_(value.type.key_type, function.type)
    else:
        raise differs(node)
    return made(f"{name}({value.text}, {function.text})", kind, f"{name}({{}}, {{}})", value, function)


def _round(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Doubles are rounded half up on the digits that Spark shows of them."""
    values = [translator.value(each) for each in nodes]
    if not values or values[0].type != pa.float64():
        return translator.call_of(node, "round", values)
    digits = values[1].literal if len(values) == 2 else "0"
    if len(values) > 2 or digits is None or not digits.isdecimal() or int(digits) > PLAIN_SCALE:
        raise differs(node)
    value = values[0].text
    found = cast(cast(cast(value, pa.string()), pa.decimal128(38, int(digits))), pa.float64())
    large = failure("a large number is rounded", value, pa.float64())
    text = f"CASE WHEN abs({value}) < 1e15 THEN {found} WHEN {value} IS NOT NULL THEN {large} END"
    return made(text, pa.float64(), f"round({{}}, {digits})", values[0])


def _constant(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:  # noqa: ARG001 - as the others
    """The numbers of Java's Math."""
    name = called(node)[0]
    if nodes:
        raise differs(node)
    return EngineValue(cast(literal_text(_NUMBERS[name]), pa.float64()), pa.float64(), f"{name.upper()}()")


_NUMBERS: Final = {"pi": "3.141592653589793", "e": "2.718281828459045"}


def _get(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """An element of an array by its place from 0; null where there is none."""
    values = [translator.value(each) for each in nodes]
    if len(values) != 2 or not is_any_list(values[0].type) or values[1].type != pa.int32():
        return translator.known(node, "get", values)
    return made(f"get({values[0].text}, {values[1].text})", values[0].type.value_type, "get({}, {})", *values)


def _base64(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Spark divides long texts into lines; these are left to it."""
    values = [translator.value(each) for each in nodes]
    if len(values) != 1 or values[0].type not in (pa.string(), pa.binary()):
        raise differs(node)
    text = values[0].text
    error = failure("a long value", f"hex({text})", pa.string())
    found = f"CASE WHEN octet_length({text}) > {_BYTES_OF_A_LINE} THEN {error} ELSE base64({text}) END"
    return made(found, pa.string(), "base64({})", *values)


_BYTES_OF_A_LINE: Final = 57


def _isnan(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    values = [translator.value(each) for each in nodes]
    if len(values) != 1 or not t.is_floating(values[0].type):
        raise differs(node)
    return made(f"coalesce(isnan({values[0].text}), false)", pa.bool_(), "isnan({})", *values)


def _moment(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Whole seconds since 1970, of times before it, too."""
    name, values = called(node)[0], [translator.value(each) for each in nodes]
    if len(values) != 1 or values[0].type != UTC:
        return translator.known(node, name, values)
    if name == "unix_timestamp":  # cuts off the fraction, which of times before 1970 is later
        text = f"(unix_micros({values[0].text}) div 1000000L)"
        return made(text, pa.int64(), "unix_timestamp({}, yyyy-MM-dd HH:mm:ss)", *values)
    return made(whole_seconds(values[0].text), pa.int64(), f"{name}({{}})", *values)


def _between_times(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Whole units between two times."""
    unit = _unit(nodes)
    if unit not in _MICROSECONDS:
        raise differs(node)
    one, other = (translator.value(each) for each in nodes[1:])
    if one.type != UTC or other.type != UTC:
        raise differs(node)
    text = f"((unix_micros({other.text}) - unix_micros({one.text})) div {_MICROSECONDS[unit]}L)"
    return made(text, pa.int64(), f"timestampdiff({nodes[0].name}, {{}}, {{}})", one, other)


def _unit(nodes: list[Node]) -> str:
    """The unit, a word, before two arguments; empty where there is none."""
    return nodes[0].name.lower() if len(nodes) == 3 and isinstance(nodes[0], exp.Column | exp.Var) else ""


def _added_time(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """A time and a constant number of units."""
    unit = _unit(nodes)
    if unit not in UNITS:
        raise differs(node)
    number, value = (translator.value(each) for each in nodes[1:])
    if number.type != pa.int32() or number.literal is None or value.type != UTC:
        raise differs(node)
    text = f"({value.text} + INTERVAL '{number.literal}' {unit.upper()})"
    return made(text, UTC, f"timestampadd({nodes[0].name}, {{}}, {{}})", number, value)


def _grouping(translator: Calling, node: Node, nodes: list[Node]) -> EngineValue:
    """Of GROUP BY with sets: whether a column is not among those of the row's set; for all columns, as bits."""
    name = called(node)[0]
    values = [translator.value(each) for each in nodes]
    shown = named(pattern_of(name, len(values)), *values)
    if name == "grouping":
        if len(values) != 1:
            raise differs(node)
        text, kind = f"grouping({values[0].text})", pa.int8()
    else:
        listed = values or [translator.value(each) for each in translator.groups]
        parts = (f"(grouping({value.text}) * {1 << at})" for at, value in enumerate(reversed(listed)))
        text, kind = " + ".join(parts), pa.int64()
        if not listed:
            raise differs(node)
    return EngineValue(cast(f"({text})", kind), kind, shown, has_aggregate=True)


def _has_plain_json(kind: pa.DataType) -> bool:
    """Whether each value of the type has one text in JSON, in both engines."""
    if is_any_list(kind):
        return _has_plain_json(kind.value_type)
    if t.is_map(kind):
        return kind.key_type == pa.string() and _has_plain_json(kind.item_type)
    if t.is_struct(kind):
        return all(_has_plain_json(each.type) for each in kind)
    return kind in (pa.bool_(), pa.int32(), pa.int64(), pa.string(), pa.date32())


_MICROSECONDS: Final = {
    "week": 604_800_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
}  # fmt: skip
CALLS: Final[Mapping[str, Callable[[Calling, Node, list[Node]], EngineValue]]] = {
    "array": _array,
    "named_struct": _named_struct,
    "struct": _struct,
    "map": _map,
    "nullif": _nullif,
    "nvl2": _nvl2,
    **dict.fromkeys(("size", "cardinality"), _size),
    "array_contains": _contains,
    "base64": _base64,
    **dict.fromkeys(_NUMBERS, _constant),
    "get": _get,
    "isnan": _isnan,
    **dict.fromkeys(("unix_timestamp", "unix_seconds"), _moment),
    "timestampdiff": _between_times,
    "timestampadd": _added_time,
    "round": _round,
    "element_at": _element_at,
    "to_json": _to_json,
    "sort_array": _sorted,
    "sequence": _sequence,
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), _first_known),
    **dict.fromkeys(("transform", "filter", "exists", "forall"), _over_elements),
    **dict.fromkeys(("aggregate", "reduce"), _reduced),
    **dict.fromkeys(("map_filter", "transform_values"), _over_entries),
    **dict.fromkeys(("grouping", "grouping_id"), _grouping),
}
