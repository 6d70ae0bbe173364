"""Arithmetic as Spark has it: types of results, digits of decimals. What is too large, or divided by zero, is an error
of the engine: whether it is one of Spark depends on its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from skep_format.schema.arrow import is_number
from skep_sql.parsing.statements import Node
from skep_sql.translation.spark_types import (
    EXACT_DIGITS,
    MOST_DIGITS,
    adjusted,
    cast,
    common,
    decimal,
    decimal_of,
    is_whole,
    narrowed,
)
from skep_sql.translation.values import DiffersError, EngineValue, as_type, differs, made

t = pa.types
SIGNS: Final = ("+", "-", "*", "/", "%", "div")
_WIDER: Final = {8: pa.int64(), 16: pa.int64(), 32: pa.int64(), 64: pa.decimal128(38, 0)}
_MORE_DIGITS: Final = 4  # of a quotient than of the dividend; the engine cuts off what is behind them


def arithmetic(node: Node, sign: str, left: EngineValue, right: EngineValue) -> EngineValue:
    """DiffersError where the types are no numbers, or digits would be lost."""
    kinds, name = (left.type, right.type), f"({{}} {sign} {{}})"
    if not all(map(is_number, kinds)):
        raise differs(node)
    if any(map(t.is_decimal, kinds)) and not any(map(t.is_floating, kinds)) and sign != "div":
        return _of_decimals(node, sign, left, right)
    if sign == "div":
        if not all(map(is_whole, kinds)):
            raise differs(node)
        return made(f"({as_type(left, pa.int64())} div {as_type(right, pa.int64())})", pa.int64(), name, left, right)
    if sign == "/" or any(map(t.is_floating, kinds)):
        is_single = sign != "/" and all(kind == pa.float32() or is_whole(kind) for kind in kinds)
        kind = pa.float32() if is_single else pa.float64()
        over, under = (as_type(value, kind) if is_single else double(value) for value in (left, right))
        return made(f"({over} {sign} {under})", kind, name, left, right)
    kind = common(kinds)
    if kind is None:
        raise differs(node)
    wide = _WIDER[kind.bit_width] if sign != "%" else kind
    text = f"({as_type(left, wide)} {sign} {as_type(right, wide)})"
    return made(text if sign == "%" else narrowed(text, kind), kind, name, left, right)


def negated(node: Node, value: EngineValue) -> EngineValue:
    """A number with the other sign."""
    if t.is_decimal(value.type) or t.is_floating(value.type):
        return made(f"(- {value.text})", value.type, "(- {})", value)
    if not is_whole(value.type):
        raise differs(node)
    wide = _WIDER[value.type.bit_width]
    return made(narrowed(f"(- {as_type(value, wide)})", value.type), value.type, "(- {})", value)


def rounded(node: Node, name: str, values: Sequence[EngineValue]) -> EngineValue:
    """A decimal to some digits, half up, or to a whole number below or above."""
    kind = values[0].type
    if name == "round":
        digits = values[1].literal if len(values) == 2 else "0"
        if len(values) > 2 or digits is None or not digits.isdecimal():
            raise differs(node)
        scale = min(kind.scale, int(digits))
        found = decimal(kind.precision - kind.scale + scale + 1, scale)
        if found is None:
            raise differs(node)
        return made(cast(values[0].text, found), found, f"round({{}}, {digits})", values[0])
    found = decimal(kind.precision - kind.scale + 1, 0)
    if len(values) != 1 or found is None:
        raise differs(node)
    shown = f"{name.upper() if name != 'ceiling' else name}({{}})"
    return made(cast(f"{name}({values[0].text})", found), found, shown, values[0])


def double(value: EngineValue) -> str:
    """A number as a double. DiffersError for a decimal whose nearest double engines may disagree about."""
    if t.is_decimal(value.type) and value.literal is None and value.type.precision > EXACT_DIGITS:
        raise DiffersError(f"{value.text} (a decimal of more than 15 digits as a double)")
    return as_type(value, pa.float64())


def _of_decimals(node: Node, sign: str, left: EngineValue, right: EngineValue) -> EngineValue:
    one, other = _as_decimal(left), _as_decimal(right)
    if one is None or other is None:
        raise differs(node)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    scale = max(one.scale, other.scale)
    name = f"({{}} {sign} {{}})"
    if sign == "/":
        digits = max(6, one.scale + other.precision + 1)
        kind = adjusted(one.precision - one.scale + other.scale + digits, digits)
        return made(divided(as_type(left, one), one, as_type(right, other), kind), kind, name, left, right)
    if sign == "*":
        kind = adjusted(one.precision + other.precision + 1, one.scale + other.scale)
        if one.scale + other.scale > MOST_DIGITS:
            raise differs(node, "more digits than a decimal has")
        return made(narrowed(f"({as_type(left, one)} * {as_type(right, other)})", kind), kind, name, left, right)
    if sign == "%":
        wide = decimal(whole + scale, scale)
        kind = decimal(min(one.precision - one.scale, other.precision - other.scale) + scale, scale)
        if wide is None or kind is None:
            raise differs(node, "more digits than a decimal has")
        text = cast(f"({as_type(left, wide)} % {as_type(right, wide)})", kind)
        return made(text, kind, name, left, right)
    kind, wide = adjusted(whole + scale + 1, scale), pa.decimal128(min(MOST_DIGITS, whole + scale + 1), scale)
    text = narrowed(f"({as_type(left, wide)} {sign} {as_type(right, wide)})", kind)
    return made(text, kind, name, left, right)


def divided(left: str, one: pa.DataType, right: str, kind: pa.DataType) -> str:
    """A quotient of decimals: the engine cuts digits off, and a cast rounds by the first that is cut off."""
    scale = max(one.scale, kind.scale + 1 - _MORE_DIGITS)
    return narrowed(f"({cast(left, pa.decimal128(38, scale))} / {right})", kind)


def _as_decimal(value: EngineValue) -> pa.DataType | None:
    """The decimal that Spark makes of a side of an operation: of a whole constant, one with just its digits."""
    if value.literal is not None and is_whole(value.type):
        return pa.decimal128(len(value.literal.removeprefix("-").lstrip("0")) or 1, 0)
    return decimal_of(value.type)
