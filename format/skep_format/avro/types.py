"""Avro types as the codec walks them: the neutral types of `skep_format.schema`, and unions of several records.

Table schemas have no other unions than with null. The records of Hudi's own (delete blocks, metadata table) have: these
are kept as a `UnionType`, which Arrow sees as a struct with one member a branch, of which at most one is not null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.schema.arrow import arrow_type
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import (
    NO_DEFAULT,
    DataType,
    Field,
    ListType,
    MapType,
    Schema,
    StructType,
)


@dataclass(frozen=True, slots=True)
class UnionType:
    """Branches by number: None is null; the name is that of the branch's type without its namespace."""

    branches: tuple[tuple[str, AvroType | None], ...]


AvroType = DataType | UnionType


def arrow_of(kind: AvroType) -> pa.DataType:
    """The Arrow type of what the decoder makes of `kind`."""
    return _nested(_Same(kind)) if isinstance(kind, (UnionType, StructType, ListType, MapType)) else arrow_type(kind)


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
    match kind := same.kind:
        case UnionType():
            return pa.struct([pa.field(name, arrow_of(branch)) for name, branch in kind.branches if branch is not None])
        case StructType():
            return pa.struct([arrow_field(field) for field in kind.fields])
        case ListType():
            return pa.list_(pa.field("element", arrow_of(kind.element), kind.element_nullable))
        case MapType():
            return pa.map_(pa.string(), pa.field("value", arrow_of(kind.value), kind.value_nullable))
    return arrow_type(kind)


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field, its comment in the metadata."""
    metadata = {b"comment": field.doc.encode()} if field.doc else None
    return pa.field(field.name, arrow_of(field.type), field.nullable, metadata)


def null_branch(field: Field) -> int:
    """Which branch of a nullable field's union is null. A default that is not null is of the first branch."""
    return 1 if field.null_last or (field.default is not NO_DEFAULT and field.default is not None) else 0


def parse_record(source: str | Mapping[str, Any]) -> StructType:
    """A record's type from Avro JSON, unions of several types allowed. SchemaError for what isn't a record."""
    try:
        document = json.loads(source) if isinstance(source, str) else source
        kind = _Parser().type(document, "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"not an Avro schema: {error!r}", found=str(source)[:200], expected="record") from error
    if not isinstance(kind, StructType):
        raise SchemaError("an Avro schema is a record", found=str(document)[:200], expected="record")
    return kind


class _Parser:
    """Walks records and unions; whatever contains neither is left to the parser of table schemas."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, node: Any, namespace: str) -> AvroType:
        if isinstance(node, str):
            return self._named.get(node) or self._named.get(f"{namespace}.{node}") or _leaf(node)
        if isinstance(node, list):
            return self._union(node, namespace)
        kind = node.get("type")
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind == "array":
            element, nullable, null_last = self._slot(node["items"], namespace)
            return ListType(element, nullable, null_last=null_last)  # type: ignore[arg-type]
        if kind == "map":
            value, nullable, null_last = self._slot(node["values"], namespace)
            return MapType(value, nullable, null_last=null_last)  # type: ignore[arg-type]
        if kind == "record":
            return self._record(node, namespace)
        return _leaf(node)

    def _record(self, node: Mapping[str, Any], namespace: str) -> StructType:
        name = str(node.get("name"))
        inner = str(node.get("namespace", name.rpartition(".")[0] or namespace))
        full_name = name if "." in name else f"{inner}.{name}"
        fields = []
        for item in node.get("fields", ()):
            kind, nullable, null_last = self._slot(item["type"], inner)
            default = item.get("default", NO_DEFAULT)
            fields.append(Field(item["name"], kind, nullable, None, default, null_last=null_last))  # type: ignore[arg-type]
        self._named[full_name] = result = StructType(tuple(fields), full_name)
        return result

    def _slot(self, node: Any, namespace: str) -> tuple[AvroType, bool, bool]:
        if isinstance(node, list) and len(node) == 2 and "null" in node:
            at = node.index("null")
            return self.type(node[1 - at], namespace), True, at == 1
        kind = self.type(node, namespace)
        return kind, isinstance(kind, UnionType), False

    def _union(self, node: list[Any], namespace: str) -> UnionType:
        branches: list[tuple[str, AvroType | None]] = []
        for branch in node:
            if branch == "null":
                branches.append(("null", None))
                continue
            name = branch if isinstance(branch, str) else str(branch.get("name", branch.get("type")))
            branches.append((name.rpartition(".")[2], self.type(branch, namespace)))
        return UnionType(tuple(branches))


def _leaf(node: Any) -> DataType:
    record = {"type": "record", "name": "leaf", "fields": [{"name": "value", "type": node}]}
    return parse_avro(record).fields[0].type


def as_record(schema: Schema | StructType) -> StructType:
    """The schema's columns as one struct type."""
    return schema if isinstance(schema, StructType) else StructType(schema.fields)
