"""The schema of a table after a write: the table's columns, widened and extended by what the incoming rows bring."""

from __future__ import annotations

from dataclasses import replace

from skep_table.errors import SchemaError
from skep_table.schema.policy import LENIENT, NULL_FOR_MISSING, RECONCILE, Missing, SchemaPolicy
from skep_table.schema.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    EnumType,
    Field,
    FixedType,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    Schema,
    StringType,
    StructType,
    TimestampType,
    UuidType,
)


def reconcile(existing: Schema, incoming: Schema, policy: SchemaPolicy = LENIENT) -> Schema:
    """The table's schema after rows of `incoming` were written to a table of `existing`.

    Columns keep the table's order, names and nullability; new ones follow and are nullable. A type may widen
    (int → long → float → double → string, decimals to more digits); narrower incoming values are widened on write.
    `policy` says what becomes of columns that the rows lack. Raises SchemaError naming column, found and expected.
    """
    fields = _merge_fields(existing.fields, incoming.fields, "", policy)
    return replace(existing, fields=fields)


def _merge_fields(
    existing: tuple[Field, ...], incoming: tuple[Field, ...], path: str, policy: SchemaPolicy
) -> tuple[Field, ...]:
    arriving = {field.name: field for field in incoming}
    known = {field.name.lower(): field.name for field in existing}
    merged: list[Field] = []
    for field in existing:
        place = f"{path}{field.name}"
        other = arriving.get(field.name)
        if other is not None:
            merged.append(replace(field, type=_unify(field.type, other.type, place, policy)))
        elif policy.missing is Missing.NULL and field.nullable:
            merged.append(field)
        elif policy.missing is not Missing.DROPPED:
            raise SchemaError(
                f"column {place} of the table is missing in the rows",
                hint=f"{NULL_FOR_MISSING.key}=true writes nulls" if field.nullable else "it may not be null",
                column=place,
                found=tuple(arriving),
                expected=_spell(field.type),
            )
    for field in incoming:
        if field.name in known.values():
            continue
        place = f"{path}{field.name}"
        twin = known.get(field.name.lower())
        if twin is not None:
            raise SchemaError(
                f"new column {place} differs from column {path}{twin} of the table only in case",
                column=place,
                found=field.name,
                expected=twin,
                hint="metastores know columns by their lower-case names",
            )
        if not field.nullable and not policy.required_become_nullable:
            raise SchemaError(
                f"new column {place} is never null, and the rows that are there have none",
                hint=f"make it nullable, or let {RECONCILE.key}=true do so",
                column=place,
                expected="a nullable column",
            )
        known[field.name.lower()] = field.name
        merged.append(replace(field, nullable=True))
    return tuple(merged)


def _unify(existing: DataType, incoming: DataType, path: str, policy: SchemaPolicy) -> DataType:
    match existing, incoming:
        case StructType(), StructType():
            return replace(existing, fields=_merge_fields(existing.fields, incoming.fields, f"{path}.", policy))
        case ListType(), ListType():
            element = _unify(existing.element, incoming.element, f"{path}.element", policy)
            return replace(existing, element=element)
        case MapType(), MapType():
            return replace(existing, value=_unify(existing.value, incoming.value, f"{path}.value", policy))
        case DecimalType(), DecimalType():
            return _wider_decimal(existing, incoming, path)
    if _holds(existing, incoming):
        return existing
    if _widens(existing, incoming):
        return incoming
    raise SchemaError(
        f"column {path}: rows have {_spell(incoming)}, the table has {_spell(existing)}",
        column=path,
        found=_spell(incoming),
        expected=_spell(existing),
    )


_RANK: dict[type[DataType], int] = {IntType: 1, LongType: 2, FloatType: 3, DoubleType: 4}


def _holds(existing: DataType, incoming: DataType) -> bool:
    """Whether every incoming value can be written as the existing type."""
    match existing, incoming:
        case IntType(), IntType():
            return existing.bits >= incoming.bits
        case StringType(), (EnumType() | UuidType() | StringType()):
            return True
        case ((EnumType() | UuidType()), StringType()):
            return True  # Arrow has strings for both
        case FixedType(), FixedType():
            return existing.size == incoming.size
        case TimestampType(), TimestampType():
            return existing.utc == incoming.utc
    if existing == incoming:
        return True
    return _widens(incoming, existing)


def _widens(narrow: DataType, wide: DataType) -> bool:
    """Whether a column may become `wide`: Hudi's promotions."""
    match narrow, wide:
        case IntType(), IntType():
            return wide.bits >= narrow.bits
        case ((IntType() | LongType() | FloatType() | DoubleType() | DateType() | DecimalType()), StringType()):
            return True
        case BinaryType(), StringType():
            return False  # bytes need not be text
    return _RANK.get(type(narrow), 9) < _RANK.get(type(wide), 0)


def _wider_decimal(existing: DecimalType, incoming: DecimalType, path: str) -> DecimalType:
    whole, scale = existing.precision - existing.scale, existing.scale
    if incoming.scale <= scale and incoming.precision - incoming.scale <= whole:
        return existing
    if scale <= incoming.scale and whole <= incoming.precision - incoming.scale:
        return replace(incoming, full_name=existing.full_name)
    raise SchemaError(
        f"column {path}: rows have {_spell(incoming)}, the table has {_spell(existing)}; neither holds the other",
        column=path,
        found=_spell(incoming),
        expected=_spell(existing),
    )


def _spell(kind: DataType) -> str:
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case IntType():
            return {8: "byte", 16: "short", 32: "int"}[kind.bits]
        case TimestampType():
            return f"timestamp[{kind.unit}{', UTC' if kind.utc else ''}]"
    return type(kind).__name__.removesuffix("Type").lower()
