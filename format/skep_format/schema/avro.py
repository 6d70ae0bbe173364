"""Avro JSON and the neutral schema: `parse_avro` and `to_avro`, with Hudi's naming of nested types (format guide 5.2).

Attributes that change no byte of the encoding (`avro.java.string`, aliases, unknown logical types) are tolerated and
dropped. Avro has no byte or short: an IntType of 8 or 16 bits comes back with 32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from skep_format.errors import SchemaError
from skep_format.schema import types
from skep_format.schema.types import NO_DEFAULT, DataType, Field, Schema, StructType, cached_by_schema

_PRIMITIVES: dict[str, DataType] = {
    "boolean": types.BooleanType(),
    "int": types.IntType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "bytes": types.BinaryType(),
    "string": types.StringType(),
}

_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): types.DateType(),
    ("int", "time-millis"): types.TimeType("ms"),
    ("long", "time-micros"): types.TimeType("us"),
    ("long", "timestamp-millis"): types.TimestampType("ms"),
    ("long", "timestamp-micros"): types.TimestampType("us"),
    ("long", "local-timestamp-millis"): types.TimestampType("ms", utc=False),
    ("long", "local-timestamp-micros"): types.TimestampType("us", utc=False),
    ("string", "uuid"): types.UuidType(),
}

_PRIMITIVE_NAMES: dict[DataType, str] = {kind: name for name, kind in _PRIMITIVES.items()}
_LOGICAL_NAMES: dict[DataType, tuple[str, str]] = {kind: names for names, kind in _LOGICAL.items()}


def parse_avro(source: str | Mapping[str, Any]) -> Schema:
    """The schema of a record, from Avro JSON (text or parsed).

    Raises SchemaError, with the column, for text that is not an Avro record and for types skep can't hold: unions other
    than with null, recursive records, nanosecond timestamps.
    """
    record = AvroParser().record(source)
    namespace, _, name = (record.full_name or "").rpartition(".")
    return Schema(record.fields, name=name, namespace=namespace)


def to_avro(schema: Schema) -> dict[str, Any]:
    """The Avro schema as JSON-able dict.

    Nested types keep the names they were parsed with; new ones get theirs from the field's place.
    """
    printer = _Printer()
    root = f"{schema.namespace}.{schema.name}" if schema.namespace else schema.name
    printed: dict[str, Any] = {"type": "record", "name": schema.name}
    if schema.namespace:
        printed["namespace"] = schema.namespace
    printed["fields"] = [printer.field(field, root, field.name) for field in schema.fields]
    return printed


@cached_by_schema
def avro_text(schema: Schema) -> str:
    """`to_avro` as compact JSON: the text of footers, log headers and commit metadata."""
    return json.dumps(to_avro(schema), separators=(",", ":"), ensure_ascii=False)


def decimal_size(precision: int) -> int:
    """The smallest number of bytes that holds every decimal of `precision` digits: Hudi's size of the fixed."""
    return ((10**precision - 1).bit_length() + 8) // 8


def _document(source: str | Mapping[str, Any]) -> Any:
    if not isinstance(source, str):
        return source
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not an Avro schema: {error}", found=source[:200], expected="JSON") from error


def _brief(node: object) -> str:
    text = json.dumps(node, default=str)
    return text if len(text) <= 200 else text[:200] + "…"


class AvroParser:
    """Walks a schema's JSON; knows the named types met so far, which later places may refer to."""

    def __init__(self, *, keeps_docs: bool = True) -> None:
        self._named: dict[str, DataType | None] = {}  # None: being defined
        self._keeps_docs = keeps_docs

    def record(self, source: str | Mapping[str, Any]) -> StructType:
        """The type of a record. SchemaError for what is none."""
        document = _document(source)
        if not isinstance(document, Mapping) or document.get("type") != "record":
            raise SchemaError("an Avro schema of a table is a record", found=_brief(document), expected="record")
        record = self._define(document, "", "")
        assert isinstance(record, StructType)
        return record

    def _define(self, node: Mapping[str, Any], namespace: str, path: str) -> DataType:
        """A record, enum or fixed: the types Avro knows by name."""
        name = node.get("name")
        if not isinstance(name, str) or not name:
            raise _unsupported(path, node, "a name")
        full_name = name if "." in name else _qualified(node.get("namespace", namespace) or "", name)
        if full_name in self._named:
            raise SchemaError(f"column {path}: Avro type {full_name} is defined twice", column=path, found=full_name)
        self._named[full_name] = None
        inner = full_name.rpartition(".")[0]
        kind = node["type"]
        result: DataType
        if kind == "record":
            result = StructType(self._fields(node, inner, path), full_name)
        elif kind == "enum":
            symbols = node.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(item, str) for item in symbols):
                raise _unsupported(path, node, "a list of symbols")
            result = types.EnumType(tuple(symbols), full_name)
        else:
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise _unsupported(path, node, "a size in bytes")
            decimal = _decimal(node, path, size, full_name)
            result = decimal or types.FixedType(size, full_name)
        self._named[full_name] = result
        return result

    def _fields(self, node: Mapping[str, Any], namespace: str, path: str) -> tuple[Field, ...]:
        found = node.get("fields")
        if not isinstance(found, list):
            raise _unsupported(path, node, "a list of fields")
        fields: list[Field] = []
        names: set[str] = set()
        for item in found:
            name = item.get("name") if isinstance(item, Mapping) else None
            if not isinstance(name, str) or "type" not in item:
                raise _unsupported(path, item, "a field with name and type")
            place = f"{path}.{name}" if path else name
            if name in names:
                raise SchemaError(f"column {place} occurs twice", column=place)
            names.add(name)
            kind, nullable, null_last = self.slot(item["type"], namespace, place)
            default = item.get("default", NO_DEFAULT)
            doc = item.get("doc") if self._keeps_docs else None
            fields.append(Field(name, kind, nullable, doc, default, null_last=null_last))
        return tuple(fields)

    def slot(self, node: Any, namespace: str, path: str) -> tuple[DataType, bool, bool]:
        """A type where null may be one of two branches: the type, nullable, and whether null comes last."""
        if not isinstance(node, list):
            return self._type(node, namespace, path), False, False
        others = [branch for branch in node if branch != "null" and branch != {"type": "null"}]
        if len(node) != 2 or len(others) != 1:
            raise _unsupported(path, node, "a type, or a union of null and a type")
        return self._type(others[0], namespace, path), True, node[0] is others[0]

    def _type(self, node: Any, namespace: str, path: str) -> DataType:
        if isinstance(node, str):
            return self._reference(node, namespace, path)
        if not isinstance(node, Mapping):
            raise _unsupported(path, node, "an Avro type")
        kind = node.get("type")
        if kind in ("record", "enum", "fixed"):
            return self._define(node, namespace, path)
        if kind == "array":
            element, nullable, null_last = self.slot(node.get("items"), namespace, path)
            return types.ListType(element, nullable, null_last=null_last)
        if kind == "map":
            value, nullable, null_last = self.slot(node.get("values"), namespace, path)
            return types.MapType(value, nullable, null_last=null_last)
        logical = node.get("logicalType")
        if logical is None or not isinstance(kind, str):
            return self._type(kind, namespace, path)
        if kind == "bytes" and (decimal := _decimal(node, path, 0, None)):
            return decimal
        if kind == "long" and logical in ("timestamp-nanos", "local-timestamp-nanos"):
            raise _unsupported(path, logical, "microseconds or milliseconds")
        return _LOGICAL.get((kind, str(logical))) or self._type(kind, namespace, path)

    def _reference(self, name: str, namespace: str, path: str) -> DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full_name = name if "." in name else _qualified(namespace, name)
        if full_name not in self._named:
            raise _unsupported(path, name, "a known Avro type")
        known = self._named[full_name]
        if known is None:
            raise _unsupported(path, f"{full_name}, which contains itself", "a type that does not contain itself")
        return known


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _decimal(node: Mapping[str, Any], path: str, size: int, full_name: str | None) -> types.DecimalType | None:
    if node.get("logicalType") != "decimal":
        return None
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        raise _unsupported(path, node, "a decimal with 0 ≤ scale ≤ precision")
    if precision > 38:
        raise _unsupported(path, f"decimal({precision},{scale})", "at most 38 digits")
    if size and size < decimal_size(precision):
        raise _unsupported(path, node, f"a fixed of at least {decimal_size(precision)} bytes")
    return types.DecimalType(precision, scale, size, full_name)


def _unsupported(path: str, found: object, expected: str) -> SchemaError:
    where = f"column {path}" if path else "the record"
    return SchemaError(
        f"{where}: Avro type {_brief(found)} is not supported; expected {expected}",
        column=path or None,
        found=_brief(found),
        expected=expected,
    )


class _Printer:
    """Prints types; a named type that was printed before is referred to by name, as Avro demands."""

    def __init__(self) -> None:
        self._printed: dict[str, DataType] = {}

    def field(self, field: Field, parent: str, path: str) -> dict[str, Any]:
        printed: dict[str, Any] = {"name": field.name}
        kind = self._type(field.type, parent, field.name, path)
        default = field.default
        has_value = default is not NO_DEFAULT and default is not None  # which is one of the first branch
        null_last = has_value or (field.null_last and default is NO_DEFAULT)
        printed["type"] = self._slot(kind, field.nullable, null_last)
        if field.nullable and not null_last:
            default = None
        if field.doc is not None:
            printed["doc"] = field.doc
        if default is not NO_DEFAULT:
            printed["default"] = default
        return printed

    def _slot(self, kind: Any, nullable: bool, null_last: bool) -> Any:
        if not nullable:
            return kind
        return [kind, "null"] if null_last else ["null", kind]

    def _type(self, kind: DataType, parent: str, name: str, path: str) -> Any:
        match kind:
            case StructType() | types.EnumType() | types.FixedType():
                # Hudi's Spark converter: records after their field, fixed types `fixed` below it.
                own = f"{parent}.{name}.fixed" if isinstance(kind, types.FixedType) else f"{parent}.{name}"
                return self._named(kind, kind.full_name or own, path)
            case types.DecimalType(fixed_size=0):
                return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            case types.DecimalType():
                return self._named(kind, kind.full_name or f"{parent}.{name}.fixed", path)
            case types.ListType():
                element = self._type(kind.element, parent, name, path)
                return {"type": "array", "items": self._slot(element, kind.element_nullable, kind.null_last)}
            case types.MapType():
                value = self._type(kind.value, parent, name, path)
                return {"type": "map", "values": self._slot(value, kind.value_nullable, kind.null_last)}
            case types.IntType():
                return "int"
        if kind in _LOGICAL_NAMES:
            physical, logical = _LOGICAL_NAMES[kind]
            return {"type": physical, "logicalType": logical}
        return _PRIMITIVE_NAMES[kind]

    def _named(self, kind: DataType, full_name: str, path: str) -> Any:
        if full_name in self._printed:
            if self._printed[full_name] == kind:
                return full_name
            raise SchemaError(
                f"column {path}: another type has its Avro name {full_name} already", column=path, found=full_name
            )
        self._printed[full_name] = kind
        namespace, _, name = full_name.rpartition(".")
        printed: dict[str, Any] = {"name": name}
        if namespace:
            printed["namespace"] = namespace
        match kind:
            case StructType():
                fields = [self.field(field, full_name, f"{path}.{field.name}") for field in kind.fields]
                return {"type": "record", **printed, "fields": fields}
            case types.EnumType():
                return {"type": "enum", **printed, "symbols": list(kind.symbols)}
            case types.FixedType():
                return {"type": "fixed", **printed, "size": kind.size}
            case types.DecimalType():
                size = kind.fixed_size or decimal_size(kind.precision)
                logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
                return {"type": "fixed", **printed, "size": size, **logical}
