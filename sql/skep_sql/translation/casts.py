"""Casts: what Spark makes of a value in another type."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from skep_sql.parsing.statements import Node
from skep_sql.spark_release import is_spark_3
from skep_sql.translation.constants import GivenArgument
from skep_sql.translation.functions import found_function
from skep_sql.translation.plain_parse import SUFFIX
from skep_sql.translation.spark_types import (
    EXACT_DIGITS,
    LOCAL,
    UTC,
    cast,
    common,
    is_whole,
    list_of,
    narrowed,
    sql_name,
)
from skep_sql.translation.values import EngineValue, as_type, differs, failure, literal_text

t = pa.types
PLAIN_SCALE: Final = 6  # to which a decimal's text has no exponent


def cast_of(node: Node, value: EngineValue, kind: pa.DataType) -> EngineValue:
    """A value by CAST or TRY_CAST. DiffersError where it is not known to be alike."""
    word = "TRY_CAST" if node.args.get("safe") else "CAST"
    name = None if value.name is None else f"{word}({value.name} AS {sql_name(kind).upper()})"
    if t.is_decimal(value.type) and value.literal is not None and kind == pa.float64():
        return EngineValue(f"{value.literal}D", kind, name)
    if value.type == kind:
        return replace(value, literal=None)
    if t.is_null(value.type):
        return replace(value, text=as_type(value, kind), type=kind, literal=None, name=None)
    if is_whole(value.type) and value.literal is not None and is_whole(kind):  # 1L, 2S
        suffix = node.meta.get(SUFFIX)
        shown = value.literal if suffix else None if suffix is None else name
        return replace(value, text=as_type(value, kind), type=kind, name=shown)
    gives_null = node.args.get("safe") or is_spark_3()
    if t.is_floating(value.type) and t.is_decimal(kind):  # by its shortest text, as Spark rounds it
        text = narrowed(cast(cast(value.text, pa.string()), pa.decimal128(38, 18)), kind, or_null=gives_null)
        return replace(value, text=text, type=kind, name=name)
    if value.type == pa.string() and is_whole(kind) and gives_null:
        text = _whole_number(value.text, kind)
    elif t.is_floating(value.type) and kind in (pa.int32(), pa.int64()) and is_spark_3():
        text = _cut_off(value.text, kind)
    elif value.type == UTC and kind == pa.int64():
        text = whole_seconds(value.text)
    elif t.is_decimal(value.type) and kind == pa.string() and value.type.scale <= PLAIN_SCALE:
        text = cast(value.text, kind)
    else:
        is_known = found_function(f"cast to {sql_name(kind)}", [GivenArgument(value.type)]) is not None
        if not is_known and not _is_cast_alike(value.type, kind):
            raise differs(node)
        text = cast(value.text, kind) if common((value.type, kind)) == kind else narrowed(value.text, kind)
    return replace(value, text=text, type=kind, literal=None, name=name)


def type_named(node: Node) -> pa.DataType | None:
    """The type of a cast; None for one that is left to Spark."""
    kinds = exp.DataType.Type
    if node.this == kinds.DECIMAL:
        given = [int(part.name) for part in node.expressions]
        return pa.decimal128(*(given[0], given[1] if len(given) > 1 else 0)) if given else pa.decimal128(10, 0)
    if node.this in (kinds.ARRAY, kinds.LIST) and len(node.expressions) == 1:
        inner = type_named(node.expressions[0])
        return None if inner is None else list_of(inner)
    if node.expressions:
        return None
    return _TYPES.get(node.this)


_TYPES: Final = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.VARBINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMP: UTC,
    exp.DataType.Type.TIMESTAMPTZ: UTC,
    exp.DataType.Type.TIMESTAMPLTZ: UTC,
    exp.DataType.Type.TIMESTAMPNTZ: LOCAL,
}


def _is_cast_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether both engines make the same of every value, but for those of which the embedded one makes an error."""
    if is_whole(given):
        return is_whole(kind) or t.is_decimal(kind) or kind in (pa.float64(), pa.bool_(), pa.string())
    if t.is_boolean(given):
        return is_whole(kind) or kind == pa.string()
    if t.is_decimal(given):
        return bool(kind == pa.float64() and given.precision <= EXACT_DIGITS)
    return bool(t.is_floating(given) and t.is_floating(kind))


def _whole_number(text: str, kind: pa.DataType) -> str:
    """A text as a whole number; null where it has no digit, or one too many. Others are an error: they are Spark's."""
    digits = f"CASE WHEN rlike({text}, '[0-9]') THEN {failure('a text that is left to Spark', text, kind)} END"
    return f"CASE WHEN rlike({text}, '^-?[0-9]{{1,18}}$') THEN TRY_CAST({text} AS {sql_name(kind)}) ELSE {digits} END"


def _cut_off(text: str, kind: pa.DataType) -> str:
    """A double as a whole number: the nearest one where it is too large, as Java has it."""
    most = (1 << (kind.bit_width - 1)) - 1
    bounds = ((f">= {most}D", str(most)), (f"<= -{most}D", str(-most - 1)))
    whens = " ".join(f"WHEN {text} {bound} THEN {cast(literal_text(value), kind)}" for bound, value in bounds)
    return f"CASE WHEN isnan({text}) THEN {cast('0', kind)} {whens} ELSE {cast(text, kind)} END"


def whole_seconds(text: str) -> str:
    """A time as seconds since 1970, of which the fraction is cut off towards the past."""
    return f"(unix_micros({text}) div 1000000L - CASE WHEN unix_micros({text}) % 1000000L < 0L THEN 1L ELSE 0L END)"
