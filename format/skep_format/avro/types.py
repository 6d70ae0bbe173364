"""Avro types as the codec walks them: the neutral types of `skep_format.schema`, and unions of several records.

Table schemas have no other unions than with null. The records of Hudi's own (delete blocks, metadata table) have: these
are kept as a `UnionType`, which Arrow sees as a struct with one member a branch, of which at most one is not null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from skep_format.schema import arrow as schema_arrow
from skep_format.schema import types
from skep_format.schema.arrow import arrow_type
from skep_format.schema.avro import AvroParser, decimal_size
from skep_format.schema.types import NO_DEFAULT, DataType, Field, Schema, StructType


@dataclass(frozen=True, slots=True)
class UnionType:
    """Branches by number: None is null; the name is that of the branch's type without its namespace."""

    branches: tuple[tuple[str, AvroType | None], ...]


AvroType = DataType | UnionType


def arrow_of(kind: AvroType) -> pa.DataType:
    """The Arrow type of what the decoder makes of `kind`."""
    nested = (UnionType, StructType, types.ListType, types.MapType)
    return _nested(_Same(kind)) if isinstance(kind, nested) else arrow_type(kind)


class _Same:
    """A type by its identity: to compare types by their members takes as long as to make Arrow types of them."""

    __slots__ = ("kind",)

    def __init__(self, kind: AvroType) -> None:
        self.kind = kind

    def __hash__(self) -> int:
        return id(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.kind is self.kind


@lru_cache(maxsize=1024)
def _nested(same: _Same) -> pa.DataType:
    if isinstance(same.kind, UnionType):
        branches = ((name, branch) for name, branch in same.kind.branches if branch is not None)
        return pa.struct([pa.field(name, arrow_of(branch)) for name, branch in branches])
    return arrow_type(same.kind, arrow_of)


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of what the decoder makes of a field."""
    return schema_arrow.arrow_field(field, arrow_of)


def members_of(kind: types.ListType | types.MapType) -> tuple[Field, ...]:
    """What an element is made of: one value, or key and value."""
    held = types.members_of(kind)
    return held if isinstance(kind, types.ListType) else (Field("key", types.StringType(), nullable=False), *held)


def fixed_size(kind: AvroType) -> int | None:
    """How many bytes each value takes; None where that is not the same for all."""
    match kind:
        case types.FixedType():
            return kind.size
        case types.DecimalType():
            return decimal_size(kind.precision) if kind.fixed_size is None else kind.fixed_size or None
        case types.DoubleType():
            return 8
        case types.FloatType():
            return 4
    return 1 if isinstance(kind, types.BooleanType) else None


def null_branch(field: Field) -> int:
    """Which branch of a nullable field's union is null. A default that is not null is of the first branch."""
    return 1 if field.null_last or (field.default is not NO_DEFAULT and field.default is not None) else 0


def parse_record(source: str | Mapping[str, Any]) -> StructType:
    """A record's type from Avro JSON, unions of several types allowed. SchemaError for what isn't a record."""
    return _WithUnions(keeps_docs=False).record(source)


class _WithUnions(AvroParser):
    def slot(self, node: Any, namespace: str, path: str) -> tuple[Any, bool, bool]:
        if not isinstance(node, list) or (len(node) == 2 and "null" in node):
            return super().slot(node, namespace, path)
        branches: list[tuple[str, AvroType | None]] = []
        for branch in node:
            kind = None if branch == "null" else super().slot(branch, namespace, path)[0]
            name = branch if isinstance(branch, str) else str(branch.get("name", branch.get("type")))
            branches.append((name.rpartition(".")[2], kind))
        return UnionType(tuple(branches)), True, False


def as_record(schema: Schema | StructType) -> StructType:
    """The schema's columns as one struct type."""
    return schema if isinstance(schema, StructType) else StructType(schema.fields)
