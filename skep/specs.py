"""A table as the caller describes it: what a new one is created with, or what an existing one must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from skep.schemas import SchemaLike, schema_of
from skep_table.commit.create import TableSpec
from skep_table.errors import InputError, TableMismatchError
from skep_table.options import REGISTRY, Options
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.write.merge_options import ORDERING, with_merging
from skep_table.write.settings import HIVE_STYLE, PARTITION_FIELDS, RECORD_KEY, TABLE_TYPE, check_settings

Text = str | Sequence[str]
_TYPES: Final = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}
_ARGUMENTS: Final = {
    RECORD_KEY.key: "key",
    ORDERING.key: "ordering",
    PARTITION_FIELDS.key: "partition_by",
    TABLE_TYPE.key: "type",
    HIVE_STYLE.key: "hive_style",
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
    properties: Mapping[str, str] | None = None,
    drop_untyped: bool = False,
) -> TableSpec:
    """The settings of a new table. InputError for a type that is neither cow nor mor, and for an unreadable schema."""
    spec = TableSpec(
        name=name,
        database=database,
        schema=schema_of(schema, name, drop_untyped=drop_untyped),
        record_key=texts(key or ()),
        partition_by=texts(partition_by),
        ordering=texts(ordering or ()),
        type=_table_type(type or "cow"),
        hive_style=bool(hive_style),
        properties=dict(properties or {}),
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
    properties: Mapping[str, str] | None = None,
) -> None:
    """TableMismatchError when an existing table differs from the description. What is not given may be anything."""
    given: dict[str, object] = {**(properties or {})}
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
    check_settings(config, root, Options(given), _ARGUMENTS)
    for name, value in (properties or {}).items():
        if REGISTRY.find(name) is None and config.raw.get(name) != value:
            raise TableMismatchError(
                f"the table at {root} has property {name} {config.raw.get(name, 'unset')}, not {value}",
                option=name,
                found=config.raw.get(name),
                expected=value,
            )


def _table_type(text: str) -> TableType:
    if text.lower() not in _TYPES:
        raise InputError(f"unknown table type {text!r}", option="type", found=text, expected="cow or mor")
    return _TYPES[text.lower()]


def texts(given: Text) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)
