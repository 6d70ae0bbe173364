"""The schema of a table after a write: the table's columns, widened and extended by what the incoming rows bring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from skep_format.errors import SchemaError
from skep_format.schema import types
from skep_format.schema.exact import Casts
from skep_format.schema.policy import (
    CASE_SENSITIVE,
    LENIENT,
    NULL_FOR_MISSING,
    RECONCILE,
    Missing,
    SchemaPolicy,
    hint_of_case,
)
from skep_format.schema.types import META_FIELDS, DataType, Field, Schema, StructType, members_of

_NUMBERS: Final = (types.IntType, types.LongType, types.FloatType, types.DoubleType)
# Of columns that do not change their types: which values may be in them, if each fits.
_CAST_ONE_BY_ONE: Final = (
    ((types.IntType, types.LongType, types.DecimalType), (*_NUMBERS, types.DecimalType)),
    ((types.FloatType, types.DoubleType), _NUMBERS),
    ((types.IntType, types.LongType, types.DateType), (types.StringType,)),
    ((types.StringType,), (types.IntType, types.LongType, types.DateType)),
)


def reconcile(existing: Schema, incoming: Schema, policy: SchemaPolicy = LENIENT, casts: Casts | None = None) -> Schema:
    """The table's schema after rows of `incoming` were written to a table of `existing`.

    Columns keep the table's order, names and nullability; new ones follow and are nullable. A type may widen where no
    stored value changes (int → long, int and float → double, numbers → string, decimals to more digits).
    `policy` decides about columns that the rows lack. Raises SchemaError naming column, found and expected.

    `casts` is for rows that are still to be written: their values are cast to the table's type one by one, so that a
    column of whole numbers stays one when floats arrive, unless it is among those to be widened, and none becomes text
    unless that is asked for. None: both schemas have rows that are stored.
    """
    fields = _merge_fields(existing.fields, incoming.fields, "", policy, casts)
    return replace(existing, fields=fields)


def check_new(field: Field, path: str = "") -> None:
    """SchemaError for a new column, or a member of it, that can't have its name. `path` to it ends in a dot."""
    check_name(field.name, path)
    _check_members(field.type, f"{path}{field.name}.")


def check_name(name: str, path: str = "") -> None:
    """SchemaError for a name that Avro forbids, in which tables keep their schemas: Hudi opens no table with another.

    And for a data column that differs from one of Hudi's meta columns only in case.
    """
    if not name or not all(map(_is_for_names, name)) or name[0].isdecimal():
        raise SchemaError(
            f"column {path}{name}: Avro, in which tables keep their schemas, has no name {name!r}",
            hint="rename the column: letters, digits and _, and no digit in front",
            column=f"{path}{name}",
            found=name,
            expected="a name of Avro",
        )
    if not path and name not in META_FIELDS and name.lower() in META_FIELDS:
        raise SchemaError(
            f"column {name} differs from Hudi's meta column {name.lower()} only in case",
            hint="metastores know columns by their lower-case names: rename the column",
            column=name,
            found=name,
            expected="another name",
        )


def _is_for_names(character: str) -> bool:
    """As Avro for Java decides, which looks at UTF-16 units and takes letters of all languages."""
    return character <= "\uffff" and (character == "_" or character.isalpha() or character.isdecimal())


def _check_members(kind: DataType, path: str) -> None:
    for member in members_of(kind):
        if isinstance(kind, StructType):
            check_name(member.name, path)
        _check_members(member.type, f"{path}{member.name}.")


def check_fixed(existing: Schema, incoming: Schema, names: Iterable[str]) -> None:
    """SchemaError for columns (dotted for members of structs) of types whose values never fit those of the table."""
    for name in names:
        stored, given = existing.fields_to(name), incoming.fields_to(name)
        if stored and given:
            _fixed(stored[-1].type, given[-1].type, name)


def _merge_fields(
    existing: tuple[Field, ...], incoming: tuple[Field, ...], path: str, policy: SchemaPolicy, casts: Casts | None
) -> tuple[Field, ...]:
    arriving = {field.name: field for field in incoming}
    known = {field.name.lower(): field.name for field in existing}
    merged: list[Field] = []
    for field in existing:
        place = f"{path}{field.name}"
        other = arriving.get(field.name)
        if other is not None:
            merged.append(replace(field, type=_unify(field.type, other.type, place, policy, casts)))
        elif (policy.missing is Missing.KEPT and not path) or (policy.missing is Missing.NULL and field.nullable):
            merged.append(field)
        elif policy.missing is not Missing.DROPPED or _is_fixed(place, casts):
            raise SchemaError(
                f"column {place} of the table is missing in the rows",
                hint=hint_of_case(field.name, arriving)
                or (f"{NULL_FOR_MISSING.key}=true writes nulls" if field.nullable else "it may not be null"),
                column=place,
                found=tuple(arriving),
                expected=spell(field.type),
            )
    for field in incoming:
        if field.name in known.values():
            continue
        place = f"{path}{field.name}"
        check_new(field, path)
        twin = known.get(field.name.lower())
        if twin is not None:
            raise SchemaError(
                f"new column {place} differs from column {path}{twin} of the table only in case",
                column=place,
                found=field.name,
                expected=twin,
                hint=f"{CASE_SENSITIVE.key}=false takes it for that one; metastores know columns in lower case only",
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


def _is_fixed(place: str, casts: Casts | None) -> bool:
    """Whether keys, partition paths or the order of rows are made of a column, or of a member of it."""
    return casts is not None and any(name == place or name.startswith(f"{place}.") for name in casts.fixed)


def _unify(existing: DataType, incoming: DataType, path: str, policy: SchemaPolicy, casts: Casts | None) -> DataType:
    if casts is not None and path in casts.fixed:
        return _fixed(existing, incoming, path)
    match existing, incoming:
        case StructType(), StructType():
            fields = _merge_fields(existing.fields, incoming.fields, f"{path}.", policy, casts)
            return replace(existing, fields=fields)
        case types.ListType(), types.ListType():
            element = _unify(existing.element, incoming.element, f"{path}.element", policy, casts)
            return replace(existing, element=element)
        case types.MapType(), types.MapType():
            return replace(existing, value=_unify(existing.value, incoming.value, f"{path}.value", policy, casts))
        case types.DecimalType(), types.DecimalType():
            return _wider_decimal(existing, incoming, path, casts)
    if isinstance(existing, _NUMBERS) and isinstance(incoming, _NUMBERS):
        return _wider_number(existing, incoming, path, casts)
    if _holds(existing, incoming):
        return existing
    if _becomes_text(existing, incoming):
        # text by mistake would change the column for good: values that are the column's are taken as such
        return incoming if casts is None or casts.text else existing
    raise _refused(existing, incoming, path)


def _refused(existing: DataType, incoming: DataType, path: str, why: str = "", hint: str | None = None) -> SchemaError:
    return SchemaError(
        f"column {path}: rows have {spell(incoming)}, the table has {spell(existing)}{why}",
        hint=hint,
        column=path,
        found=spell(incoming),
        expected=spell(existing),
    )


def _fixed(existing: DataType, incoming: DataType, path: str) -> DataType:
    """The type of a column that does not change. SchemaError where no value of `incoming` has one way to be in it."""
    if any(isinstance(existing, kinds) and isinstance(incoming, given) for kinds, given in _CAST_ONE_BY_ONE):
        return existing
    match existing, incoming:
        case (types.DateType(), types.TimestampType(utc=False)) | (types.StringType(), types.DecimalType(scale=0)):
            return existing
    if _holds(existing, incoming) and not _becomes_text(incoming, existing):
        return existing
    raise _refused(
        existing,
        incoming,
        path,
        ", which it keeps: keys, partition paths and the order of rows are made of it",
        f"cast the column to {spell(existing)}",
    )


def _holds(existing: DataType, incoming: DataType) -> bool:
    """Whether every incoming value can be written as the existing type."""
    match existing, incoming:
        case types.StringType(), (types.EnumType() | types.UuidType() | types.StringType()):
            return True
        case ((types.EnumType() | types.UuidType()), types.StringType()):
            return True  # Arrow has strings for both
        case types.FixedType(), types.FixedType():
            return existing.size == incoming.size
        case types.TimestampType(), types.TimestampType():
            return existing.utc == incoming.utc
        case types.TimeType(), types.TimeType():
            return True
    return existing == incoming or _becomes_text(incoming, existing)


def _becomes_text(kind: DataType, text: DataType) -> bool:
    """Whether a column may become text: Hudi's promotions. Bytes need not be text."""
    return isinstance(text, types.StringType) and isinstance(kind, (*_NUMBERS, types.DateType, types.DecimalType))


def _wider_number(existing: DataType, incoming: DataType, path: str, casts: Casts | None) -> DataType:
    if _is_exact(incoming, existing):
        return existing
    if _is_whole(existing) == _is_whole(incoming):
        return incoming
    if casts is None:
        if _is_exact(existing, types.DoubleType()) and _is_exact(incoming, types.DoubleType()):
            return types.DoubleType()
        raise _refused(existing, incoming, path, ", and no type holds the values of both")
    if path in casts.widened and (casts.lossy or _is_exact(existing, types.DoubleType())):
        return types.DoubleType()
    return existing


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, (types.IntType, types.LongType))


def _is_exact(narrow: DataType, wide: DataType) -> bool:
    """Whether a number type holds every value of another one."""
    match narrow, wide:
        case types.IntType(), types.IntType():
            return wide.bits >= narrow.bits
        case (types.IntType(), (types.LongType() | types.DoubleType())) | (types.FloatType(), types.DoubleType()):
            return True
    return narrow == wide


def _wider_decimal(
    existing: types.DecimalType, incoming: types.DecimalType, path: str, casts: Casts | None
) -> types.DecimalType:
    whole, scale = existing.precision - existing.scale, existing.scale
    if incoming.scale <= scale and incoming.precision - incoming.scale <= whole:
        return existing
    if scale <= incoming.scale and whole <= incoming.precision - incoming.scale:
        return replace(incoming, full_name=existing.full_name)
    if casts is not None:
        return existing
    raise _refused(existing, incoming, path, "; neither holds the other")


def spell(kind: DataType) -> str:
    """A type as errors name it."""
    match kind:
        case types.DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case types.IntType():
            return {8: "byte", 16: "short", 32: "int"}[kind.bits]
        case types.TimestampType():
            return f"timestamp[{kind.unit}{', UTC' if kind.utc else ''}]"
    return type(kind).__name__.removesuffix("Type").lower()
