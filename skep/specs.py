"""A table as the caller describes it: what a new one is created with, or what an existing one must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from skep.schemas import SchemaLike, schema_of
from skep_table.commit.create import TableSpec
from skep_table.errors import InputError, TableMismatchError
from skep_table.options import REGISTRY, Options
from skep_table.schema.untyped import DROP_UNTYPED
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.write.merge_options import ORDERING, with_merging
from skep_table.write.settings import (
    CHANGES,
    CHANGES_HOLD,
    HIVE_STYLE,
    PARTITION_FIELDS,
    RECORD_KEY,
    TABLE_TYPE,
    TABLE_VERSION,
    check_settings,
)

Text = str | Sequence[str]
_TYPES: Final = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}
_ARGUMENTS: Final = {
    RECORD_KEY.key: "key",
    ORDERING.key: "ordering",
    PARTITION_FIELDS.key: "partition_by",
    TABLE_TYPE.key: "type",
    HIVE_STYLE.key: "hive_style",
    CHANGES.key: "changes",
    CHANGES_HOLD.key: "changes",
}


def table_spec(
    name: str,
    schema: SchemaLike,
    *,
    database: str | None = None,
    key: Text | None = (),
    ordering: Text | None = None,
    partition_by: Text = (),
    type: str | None = None,
    hive_style: bool | None = None,
    table_version: int | None = None,
    changes: str | None = None,
    properties: Mapping[str, str] | None = None,
    options: Options | None = None,
) -> TableSpec:
    """The settings of a new table. InputError for a type that is neither cow nor mor, and for an unreadable schema.

    Where neither `table_version` nor the properties name a version, `options` decide; they also decide about columns
    without a type. `changes` is what the table keeps of them for CDC queries; None: what the properties state.
    """
    options = options or Options()
    properties = {**(properties or {}), **_capturing(changes)}
    version = _given_version(table_version, properties)
    drop_untyped = options.value(DROP_UNTYPED)
    spec = TableSpec(
        name=name,
        database=database,
        schema=schema_of(schema, name, drop_untyped=drop_untyped),
        record_key=texts(key or ()),
        partition_by=texts(partition_by),
        ordering=texts(ordering or ()),
        type=_table_type(type or "cow"),
        hive_style=bool(hive_style),
        version=options.value(TABLE_VERSION) if version is None else version,
        properties={key: text for key, text in properties.items() if REGISTRY.find(key) is not TABLE_VERSION},
    )
    return with_merging(spec, Options(properties))


def check_same(
    table: HudiTable,
    *,
    key: Text | None = (),
    ordering: Text | None = None,
    partition_by: Text = (),
    type: str | None = None,
    hive_style: bool | None = None,
    table_version: int | None = None,
    changes: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """TableMismatchError when an existing table differs from the description. What is not given may be anything."""
    given: dict[str, object] = {**(properties or {}), **_capturing(changes)}
    if key:
        given[RECORD_KEY.key] = texts(key)
    if ordering is not None:
        given[ORDERING.key] = texts(ordering)
    if partition_by:
        given[PARTITION_FIELDS.key] = texts(partition_by)
    if type is not None:
        given[TABLE_TYPE.key] = _table_type(type).value
    if hive_style is not None:
        given[HIVE_STYLE.key] = hive_style
    config, root = table.config, table.storage.root
    wanted, found = _given_version(table_version, properties), config.version
    if wanted not in (None, found):
        raise TableMismatchError(
            f"the table at {root} has version {found}, not {wanted}",
            hint="leave out table_version to use the table as it is",
            option="table_version",
            found=found,
            expected=wanted,
        )
    check_settings(config, root, Options(given), _ARGUMENTS)
    for name, value in (properties or {}).items():
        if REGISTRY.find(name) is None and config.raw.get(name) != value:
            raise TableMismatchError(
                f"the table at {root} has property {name} {config.raw.get(name, 'unset')}, not {value}",
                option=name,
                found=config.raw.get(name),
                expected=value,
            )


def _capturing(changes: str | None) -> dict[str, str]:
    """The properties of a table with change data."""
    if changes is None:
        return {}
    mode = Options({CHANGES_HOLD.key: changes}).value(CHANGES_HOLD)
    return {CHANGES.key: "true", CHANGES_HOLD.key: mode.value}


def _given_version(argument: int | None, properties: Mapping[str, str] | None) -> int | None:
    """The table version that the caller asks for. InputError where argument and properties name two."""
    named = Options(properties or {})
    stated = named.value(TABLE_VERSION) if named.is_set(TABLE_VERSION) else None
    if argument is None:
        return stated
    found: int = Options({TABLE_VERSION.key: argument}).value(TABLE_VERSION)
    if stated not in (None, found):
        raise InputError(
            f"table_version is {found} and {TABLE_VERSION.key} among the properties is {stated}",
            option="table_version",
            found=found,
            expected=stated,
        )
    return found


def _table_type(text: str) -> TableType:
    if text.lower() not in _TYPES:
        raise InputError(f"unknown table type {text!r}", option="type", found=text, expected="cow or mor")
    return _TYPES[text.lower()]


def texts(given: Text) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)
