"""Changes of a table's columns by id (schema on read): what ALTER TABLE may do to a schema, by Hudi's rules.

Columns are named by their dotted paths: `s.x` in a struct, `l.element`, `m.value`, `m.value.x`. Names are found in any
case. Key, partition and ordering columns keep their names and types, but for keys of int, which may become long: their
texts stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from skep_format.errors import InputError, SchemaError
from skep_format.schema import types
from skep_format.schema.history import SchemaVersion, next_version
from skep_format.schema.reconcile import check_name, check_new, spell
from skep_format.schema.types import META_FIELDS, NO_DEFAULT, DataType, Field, Schema, StructType, holding, members_of

Fields: TypeAlias = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """`name` is the new name, without the path."""

    column: str
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Files keep its values; no reader that knows the history returns them again."""

    column: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`column` is the path of the new column. `after` names the column before it: None is at the end, '' in front."""

    column: str
    type: DataType
    doc: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeType:
    """int → long → float → double → decimal → string; a decimal to more digits; date to string and back."""

    column: str
    type: DataType


@dataclass(frozen=True, slots=True)
class CommentColumn:
    """A comment in the place of the one that it has."""

    column: str
    doc: str


@dataclass(frozen=True, slots=True)
class AllowNull:
    """A column that was never null may be null from now on."""

    column: str


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """`after` as of AddColumn."""

    column: str
    after: str


ColumnChange: TypeAlias = RenameColumn | DropColumn | AddColumn | ChangeType | CommentColumn | AllowNull | MoveColumn


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """Columns, by path, that keys, partition paths and the order of rows are made of."""

    keys: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def check(self, path: str, change: ColumnChange, kind: DataType) -> None:
        """InputError for a change of name or type of one of them, or of what it is in."""
        if isinstance(change, (AddColumn, CommentColumn, AllowNull, MoveColumn)):
            return
        met = {name for name in self.keys | self.others if _overlap(name, path)}
        wider = isinstance(change, ChangeType) and isinstance(change.type, types.LongType)
        if met and not (wider and isinstance(kind, types.IntType) and met <= self.keys):
            raise InputError(
                f"column {path}: cannot support apply changes for primaryKey/CombineKey/partitionKey: keys, partition"
                " paths and the order of rows are made of it",
                column=path,
            )


def column_at(schema: Schema, path: str) -> Field:
    """A column by its path, in any case. InputError where there is none."""
    return _along(schema.fields, path)[-1]


def has_column(schema: Schema, path: str) -> bool:
    """Whether a path leads to a column."""
    try:
        column_at(schema, path)
    except InputError:
        return False
    return True


def changed(schema: Schema, changes: Iterable[ColumnChange], fixed: FixedColumns) -> Schema:
    """The data columns after the changes. SchemaError and InputError, with the column, for one that Hudi refuses."""
    for change in changes:
        schema = replace(schema, fields=_changed(schema.fields, change, fixed))
    return schema


def changed_ids(
    version: SchemaVersion, before: Schema, changes: Iterable[ColumnChange], after: Schema, version_id: int
) -> SchemaVersion:
    """The ids of the columns `after` the changes of `before`, both with meta columns: columns keep theirs under other
    names, and the paths of new ones get new ids even where a column of that name was dropped."""
    ids = dict(version.ids)
    for change in changes:
        path = _resolved(before.fields, change.column) if not isinstance(change, AddColumn) else None
        if isinstance(change, RenameColumn) and path is not None:
            ids = _renamed(ids, path, f"{path.rpartition('.')[0]}.{change.name}".lstrip("."))
        elif isinstance(change, DropColumn) and path is not None:
            ids = {each: number for each, number in ids.items() if not _is_within(each, path)}
        before = replace(before, fields=_changed(before.fields, change, FixedColumns()))
    highest = max((version.max_id, *version.ids.values()))
    return next_version(SchemaVersion(version.version_id, ids, highest), after, version_id)


def _renamed(ids: Mapping[str, int], path: str, new: str) -> dict[str, int]:
    return {new + each[len(path) :] if _is_within(each, path) else each: number for each, number in ids.items()}


def _is_within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")


def _overlap(one: str, other: str) -> bool:
    return _is_within(one, other) or _is_within(other, one)


def _changed(fields: Fields, change: ColumnChange, fixed: FixedColumns) -> Fields:
    if isinstance(change, AddColumn):
        return _added(fields, change)
    path = _resolved(fields, change.column)
    if path in META_FIELDS:
        raise InputError(f"cannot modify hudi meta col: {path}", column=path)
    parent, _, name = path.rpartition(".")
    holder = _holder(fields, parent)
    field = members_of(holder)[_at(members_of(holder), name, path)]
    fixed.check(path, change, field.type)

    def edit(members: Fields) -> Fields:
        at = _at(members, name, path)
        rest = (*members[:at], *members[at + 1 :])
        match change:
            case RenameColumn():
                _check_named(holder, path)
                _check_new(members, change.name, parent)
                new = replace(members[at], name=change.name, type=_unnamed(members[at].type))
                return (*members[:at], new, *members[at + 1 :])
            case DropColumn():
                _check_named(holder, path)
                if not rest or (not parent and all(each.name in META_FIELDS for each in rest)):
                    raise InputError(f"column {path} is the only one there: it can't be dropped", column=path)
                return rest
            case MoveColumn():
                _check_named(holder, path)
                return _placed(rest, members[at], change.after, parent, path)
            case ChangeType():
                _check_default(members[at], path)
                new = replace(members[at], type=_retyped(members[at].type, change.type, path))
            case CommentColumn():
                _check_named(holder, path)
                new = replace(members[at], doc=change.doc)
            case AllowNull():
                new = replace(members[at], nullable=True)
        return (*members[:at], new, *members[at + 1 :])

    return _edited(fields, parent.split(".") if parent else [], edit)


def _added(fields: Fields, change: AddColumn) -> Fields:
    parent, _, name = change.column.rpartition(".")
    if parent:
        parent = _resolved(fields, parent)
        kind = _holder(fields, parent)
        if not isinstance(kind, StructType):
            raise SchemaError(
                f"cannot add column {name} to {parent}: only structs have members",
                column=change.column,
                found=spell(kind),
                expected="struct",
            )

    def edit(members: Fields) -> Fields:
        _check_new(members, name, parent)
        new = Field(name, _unnamed(change.type), doc=change.doc, default=None)
        check_new(new, f"{parent}." if parent else "")
        return (*members, new) if change.after is None else _placed(members, new, change.after, parent, change.column)

    return _edited(fields, parent.split(".") if parent else [], edit)


def _placed(members: Fields, field: Field, after: str, parent: str, path: str) -> Fields:
    """`members` with one more, behind the one that is named `after`."""
    if not after:
        if not parent:
            raise SchemaError(
                "forbid adjust top-level columns position by using through first syntax: the meta columns are there",
                column=path,
                hint="AFTER a column",
            )
        return (field, *members)
    place, _, name = after.rpartition(".")
    if place and place.lower() != parent.lower():
        raise SchemaError(f"column {path} can't come after {after}: it is not in the same struct", column=path)
    at = _at(members, name, after)
    return (*members[: at + 1], field, *members[at + 1 :])


def _check_new(members: Fields, name: str, parent: str) -> None:
    place = f"{parent}.{name}" if parent else name
    if not name or "." in name:
        raise InputError(f"{place!r} can't be the name of a column", found=name)
    check_name(name, f"{parent}." if parent else "")
    if not parent and name in META_FIELDS:
        raise InputError(f"cannot modify hudi meta col: {name}", column=name)
    if any(each.name.lower() == name.lower() for each in members):
        raise InputError(f"column {place} is there already", column=place, found=name)


def _check_named(holder: DataType | None, path: str) -> None:
    """Elements of lists and values of maps have no names of their own."""
    if isinstance(holder, (types.ListType, types.MapType)):
        raise InputError(f"{path} is what a {spell(holder)} holds: only its type changes", column=path)


def _check_default(field: Field, path: str) -> None:
    if field.default is not NO_DEFAULT and field.default is not None:
        raise SchemaError(
            f"column {path} has the default {field.default!r}, which is of its type: the type can't be changed",
            column=path,
        )


def _retyped(found: DataType, wanted: DataType, path: str) -> DataType:
    if found == wanted:
        return found
    if any(isinstance(kind, (StructType, types.ListType, types.MapType)) for kind in (found, wanted)) or not may_become(
        found, wanted
    ):
        raise SchemaError(
            f"column {path}: cannot update origin type: {spell(found)} to a incompatibility type: {spell(wanted)}",
            column=path,
            found=spell(found),
            expected="a type that holds all its values",
        )
    return wanted


_TEXT: Final = types.StringType
_MAY_BECOME: Final[Mapping[type, tuple[type, ...]]] = {
    types.IntType: (types.LongType, types.FloatType, types.DoubleType, types.DecimalType, _TEXT),
    types.LongType: (types.FloatType, types.DoubleType, types.DecimalType, _TEXT),
    types.FloatType: (types.DoubleType, types.DecimalType, _TEXT),
    types.DoubleType: (types.DecimalType, _TEXT),
    types.DecimalType: (_TEXT,),
    types.DateType: (_TEXT,),
    _TEXT: (types.DateType, types.DecimalType),
}


def may_become(found: DataType, wanted: DataType) -> bool:
    """Whether Hudi reads values of one type as those of another."""
    if isinstance(found, types.DecimalType) and isinstance(wanted, types.DecimalType):
        whole, wider = found.precision - found.scale, wanted.precision - wanted.scale
        return wanted.scale >= found.scale and wider >= whole
    return isinstance(wanted, _MAY_BECOME.get(type(found), ()))


def _unnamed(kind: DataType) -> DataType:
    """Without the Avro names of nested types, which are made of the names of columns."""
    if members := members_of(kind):
        kind = holding(kind, tuple(replace(each, type=_unnamed(each.type)) for each in members))
    if isinstance(kind, (StructType, types.EnumType, types.FixedType, types.DecimalType)):
        return replace(kind, full_name=None)
    return kind


def _resolved(fields: Fields, path: str) -> str:
    """The path with its names as the columns have them. InputError for one that leads nowhere."""
    return ".".join(each.name for each in _along(fields, path))


def _along(fields: Fields, path: str) -> list[Field]:
    """The columns on the way to a column."""
    found: list[Field] = []
    for step in path.split("."):
        members = members_of(found[-1].type) if found else fields
        found.append(members[_at(members, step, path)])
    return found


def _holder(fields: Fields, parent: str) -> DataType:
    return column_at(Schema(fields), parent).type if parent else StructType(fields)


def _at(members: Fields, name: str, path: str) -> int:
    exact = [at for at, each in enumerate(members) if each.name == name]
    found = exact or [at for at, each in enumerate(members) if each.name.lower() == name.lower()]
    if not found:
        raise InputError(
            f"no column {path}; there {'is' if len(members) == 1 else 'are'}:"
            f" {', '.join(each.name for each in members) or 'none'}",
            column=path,
            found=name,
        )
    return found[0]


def _edited(fields: Fields, steps: list[str], edit: Callable[[Fields], Fields]) -> Fields:
    """`fields` with an edit of what the column at the end of `steps` holds."""
    if not steps:
        return edit(fields)
    at = _at(fields, steps[0], ".".join(steps))
    members = _edited(members_of(fields[at].type), steps[1:], edit)
    return (*fields[:at], replace(fields[at], type=holding(fields[at].type, members)), *fields[at + 1 :])
