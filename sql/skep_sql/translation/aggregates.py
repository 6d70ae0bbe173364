"""Aggregates and functions of windows: what is called in the engine, and what is made of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from skep_sql.parsing.statements import Node
from skep_sql.translation.arithmetic import divided, double
from skep_sql.translation.constants import GivenArgument
from skep_sql.translation.functions import AGGREGATE, WINDOW, found_function, is_known
from skep_sql.translation.spark_types import (
    cast,
    is_exact,
    is_plain,
    is_whole,
    list_of,
    narrowed,
)
from skep_sql.translation.values import NAN, EngineValue, as_type, differs, failure, named, pattern_of

t = pa.types


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`calls`: functions over rows; `pattern`: what is made of their answers, `{0}` of the first.

    `name` is that of the column without a window or a filter.
    """

    calls: tuple[str, ...]
    type: pa.DataType
    name: str | None
    pattern: str = "{0}"

    def text(self, suffix: str = "") -> str:
        """With what follows each call: FILTER, OVER."""
        return self.pattern.format(*(f"{call}{suffix}" for call in self.calls))


def aggregate(node: Node, name: str, values: Sequence[EngineValue], *, is_distinct: bool) -> Aggregate:
    """DiffersError for one that is not known to be alike."""
    shown = named(pattern_of(_OTHER_NAMES.get(name, name), len(values)), *values)
    if is_distinct and shown is not None:
        shown = shown.replace("(", "(DISTINCT ", 1)
    if is_distinct:
        if not all(is_exact(value.type) for value in values):
            raise differs(node, "not grouped alike")
        if name == "count":
            return Aggregate((f"count(DISTINCT {', '.join(value.text for value in values)})",), pa.int64(), shown)
        if name != "sum":
            raise differs(node)
    if name in ("max_by", "min_by") and not (len(values) == 2 and _has_one_order(values[1].type)):
        raise differs(node, "not ordered alike")
    make = _BY_HAND.get(name)
    found = make(name, values[0]) if make is not None and len(values) == 1 else None
    if found is not None:
        calls = (call.replace("(", "(DISTINCT ", is_distinct) for call in found.calls)
        return Aggregate(tuple(calls), found.type, shown, found.pattern)
    if is_distinct:
        raise differs(node)
    return _of_table(node, name, values, AGGREGATE)


def of_window(node: Node, name: str, values: Sequence[EngineValue]) -> Aggregate:
    """A function that needs a window."""
    if name in ("rank", "dense_rank"):
        return Aggregate((f"{name}()",), pa.int32(), None, cast("{0}", pa.int32()))
    if name in ("percent_rank", "cume_dist"):
        return Aggregate((f"{name}()",), pa.float64(), None)
    return _of_table(node, name, values, WINDOW)


def _has_one_order(kind: pa.DataType) -> bool:
    """Whether max_by was compared over values of the type, and all of them have their place in its order."""
    return is_exact(kind) and kind not in (pa.bool_(), pa.int8(), pa.binary())


def window_name(
    name: str, shown: str | None, values: Sequence[EngineValue], parts: Sequence[str], orders: Sequence[str]
) -> str | None:
    """Spark's name of a column that is a function over a window without a frame of its own."""
    to_here = "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if name in _RANKS:
        shown = f"{name.upper() if name in WITHOUT_ARGUMENTS else name}({_listed(values[: name == 'ntile'])})"
        frame = f"ROWS {to_here}"
    elif name in ("lag", "lead"):
        names = [value.name for value in values] + ["1", "NULL"][max(0, len(values) - 1) :]
        offset = f"{'-' if name == 'lag' else ''}{names[1]} FOLLOWING"
        shown = None if None in names else f"{name}({', '.join(map(str, names))})"
        frame = f"ROWS BETWEEN {offset} AND {offset}"
    elif orders:
        frame = f"RANGE {to_here}"
    else:
        frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    if name in ("cume_dist", "nth_value"):
        shown = f"{name}({_listed(values)})"
    return None if shown is None else f"{shown}{over(parts, orders, frame)}"


def over(parts: Sequence[str], orders: Sequence[str], frame: str) -> str:
    """What follows a function over a window."""
    clauses = [
        f"PARTITION BY {', '.join(parts)}" if parts else "",
        f"ORDER BY {', '.join(orders)}" if orders else "",
        frame,
    ]
    return f" OVER ({' '.join(each for each in clauses if each)})"


def _listed(values: Sequence[EngineValue]) -> str:
    return ", ".join(str(value.name) for value in values)


def is_aggregate(name: str) -> bool:
    """Whether a function of this name is one over rows."""
    return name in _BY_HAND or is_known(name, AGGREGATE)


def is_of_window(name: str) -> bool:
    """Whether a function of this name needs a window."""
    return (is_known(name, WINDOW) or name in (*WITHOUT_ARGUMENTS, "cume_dist")) and not is_aggregate(name)


def _of_table(node: Node, name: str, values: Sequence[EngineValue], role: str) -> Aggregate:
    found = found_function(name, [GivenArgument(value.type, value.literal) for value in values], role)
    if found is None:
        raise differs(node)
    kind = found.type or values[0].type
    call = f"{name}({', '.join(value.text for value in values)})"
    return Aggregate((call,), kind, named(found.name, *values), cast("{0}", kind) if found.is_cast else "{0}")


def _count(_name: str, value: EngineValue) -> Aggregate:
    return Aggregate((f"count({value.text})",), pa.int64(), None)


def _sum(_name: str, value: EngineValue) -> Aggregate | None:
    if t.is_decimal(value.type):
        kind = pa.decimal128(min(38, value.type.precision + 10), value.type.scale)
        if value.type.precision <= 28:
            return Aggregate((f"sum({value.text})",), kind, None)
        # The engine does not see that a sum has more digits than there are.
        most = f"CAST('1e{37 - kind.scale}' AS double)"
        error = failure("a sum of more digits", "{1}", kind)
        calls = (f"sum({value.text})", f"sum(abs(CAST({value.text} AS double)))")
        return Aggregate(calls, kind, None, f"CASE WHEN {{1}} >= {most} THEN {error} ELSE {{0}} END")
    if is_whole(value.type):  # in digits of which it has enough, or else it is an error
        call = f"sum({cast(value.text, pa.decimal128(20, 0))})"
        return Aggregate((call,), pa.int64(), None, narrowed("{0}", pa.int64()))
    if t.is_floating(value.type):
        return Aggregate((f"sum({as_type(value, pa.float64())})",), pa.float64(), None)
    return None


def _avg(name: str, value: EngineValue) -> Aggregate | None:
    if t.is_decimal(value.type):
        summed = _sum(name, value)
        if summed is None:
            return None
        found = pa.decimal128(value.type.precision + 4, value.type.scale + 4)
        text = divided("{0}", summed.type, cast("nullif({1}, 0)", pa.decimal128(20, 0)), found)
        return Aggregate((*summed.calls, f"count({value.text})"), found, None, text)
    if is_whole(value.type) or t.is_floating(value.type):
        return Aggregate((f"avg({double(value)})",), pa.float64(), None)
    return None


def _extreme(name: str, value: EngineValue) -> Aggregate | None:
    if t.is_floating(value.type):  # NaN is the greatest number; the engine leaves it out
        calls = (f"{name}({value.text})", f"{_WHETHER[name]}(isnan({value.text}))")
        return Aggregate(calls, value.type, None, f"CASE WHEN {{1}} THEN {cast(NAN, value.type)} ELSE {{0}} END")
    return Aggregate((f"{name}({value.text})",), value.type, None) if is_exact(value.type) else None


_WHETHER: Final = {"max": "bool_or", "min": "bool_and"}


def _collected(name: str, value: EngineValue) -> Aggregate | None:
    is_alike = is_exact(value.type) if name == "collect_set" else is_plain(value.type)
    call = f"{_OTHER_NAMES.get(name, name)}({value.text})"
    return Aggregate((call,), list_of(value.type), None) if is_alike else None


def _same(name: str, value: EngineValue) -> Aggregate:
    return Aggregate((f"{name}({value.text})",), value.type, None)


OF_ORDER: Final = ("first", "last", "any_value", "collect_list", "array_agg", "first_value", "last_value")
"""Aggregates whose answer depends on the order of rows."""
OF_ANY_ORDER: Final = "collect_set"  # whose answer has an order that no rows have
_OTHER_NAMES: Final = {"array_agg": "collect_list"}
_BY_HAND: Final[Mapping[str, Callable[[str, EngineValue], Aggregate | None]]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("first", "last", "any_value", "first_value", "last_value"), _same),
    **dict.fromkeys(("collect_list", "array_agg", "collect_set"), _collected),
}
WITHOUT_ARGUMENTS: Final = ("rank", "dense_rank", "percent_rank")  # Spark drops those that are given
_RANKS: Final = ("row_number", "ntile", *WITHOUT_ARGUMENTS)
