"""A table as the caller describes it: what a new one is created with, or what an existing one must have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from skep.base.schemas import SchemaLike, schema_of
from skep_format.errors import InputError, OptionError, TableMismatchError
from skep_format.options import Option, Options
from skep_format.schema.untyped import DROP_UNTYPED
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec
from skep_table.table import HudiTable
from skep_table.write.planning.merge_options import ORDERING, with_merging
from skep_table.write.planning.settings import (
    CHANGES,
    CHANGES_HOLD,
    DATABASE_NAME,
    HIVE_STYLE,
    PARTITION_FIELDS,
    RECORD_KEY,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    TYPE_WORDS,
    URL_ENCODE,
    check_settings,
    metadata_with,
    settings_among,
    spec_of,
    stored_settings,
)

Text = str | Sequence[str]
Version = int | Literal["newest"]
"""A table version, or the newest one with what Hudi makes of a new table by default."""
_ARGUMENTS: Final = {
    TABLE_NAME.key: "the table's name",
    DATABASE_NAME.key: "the table's database",
    RECORD_KEY.key: "key",
    ORDERING.key: "ordering",
    PARTITION_FIELDS.key: "partition_by",
    TABLE_TYPE.key: "type",
    HIVE_STYLE.key: "hive_style",
    URL_ENCODE.key: "url_encode",
    TABLE_VERSION.key: "table_version",
    CHANGES.key: "changes",
    CHANGES_HOLD.key: "changes",
}


def table_spec(
    name: str,
    schema: SchemaLike,
    *,
    database: str | None = None,
    properties: Mapping[str, str] | None = None,
    options: Options | None = None,
    metadata: Collection[str] = (),
    **arguments: Any,
) -> TableSpec:
    """The settings of a new table. InputError for a type that is neither cow nor mor, for an unreadable schema, and
    where arguments and properties contradict each other.

    `arguments` are those of `Lake.create_table`. Where neither they nor the properties name a version, `options`
    decide; they also decide about columns without a type. Properties that are no settings are left out. `metadata`
    are partitions of the metadata table that the first write makes.
    """
    options = options or Options()
    stated, _ = settings_among(properties or {})
    stated.check()
    columns = schema_of(schema, name, drop_untyped=options.value(DROP_UNTYPED))
    given = _joined(stated, {TABLE_NAME: name, DATABASE_NAME: database, **_described(**arguments)})
    if not given.is_set(TABLE_VERSION):
        given = given.with_values({TABLE_VERSION.key: options.get(TABLE_VERSION.key, TABLE_VERSION.default)})
    spec = spec_of(given, name, columns, options)
    return with_merging(
        replace(
            spec,
            database=database,
            properties={**metadata_with(metadata), **stored_settings(given), **spec.properties},
        ),
        given,
    )


def check_same(table: HudiTable, *, properties: Mapping[str, str] | None = None, **arguments: Any) -> None:
    """TableMismatchError when an existing table differs from the description. What is not given may be anything."""
    stated, _ = settings_among(properties or {})
    given = _joined(stated, _described(**arguments))
    config, root = table.config, table.storage.root
    wanted, found = given.value(TABLE_VERSION) if given.is_set(TABLE_VERSION) else None, config.version
    if wanted not in (None, found):
        raise TableMismatchError(
            f"the table at {root} has version {found}, not {wanted}",
            hint="leave out table_version to use the table as it is",
            option="table_version",
            found=found,
            expected=wanted,
        )
    check_settings(config, root, given, _ARGUMENTS)


def _described(
    *,
    key: Text | None = (),
    ordering: Text | None = None,
    partition_by: Text = (),
    type: str | None = None,
    hive_style: bool | None = None,
    url_encode: bool | None = None,
    table_version: Version | None = None,
    changes: str | None = None,
) -> dict[Option[Any], object]:
    """Arguments as options; None and an empty text for what is not given."""
    mode = None if changes is None else Options({CHANGES_HOLD.key: changes}).value(CHANGES_HOLD).value
    return {
        RECORD_KEY: texts(key or ()) or None,
        ORDERING: None if ordering is None else texts(ordering),
        PARTITION_FIELDS: texts(partition_by) or None,
        TABLE_TYPE: None if type is None else _table_type(type).value,
        HIVE_STYLE: hive_style,
        URL_ENCODE: url_encode,
        TABLE_VERSION: table_version,
        CHANGES: None if changes is None else True,
        CHANGES_HOLD: mode,
    }


def _joined(stated: Options, arguments: Mapping[Option[Any], object]) -> Options:
    """Properties and arguments together. OptionError where they contradict each other."""
    found: dict[str, object] = {}
    for known, value in arguments.items():
        if value is None:
            continue
        given = Options({known.key: value})
        if not stated.is_set(known):
            found[known.key] = value
        elif _plain(known, stated) != _plain(known, given):
            name = _ARGUMENTS[known.key]
            raise OptionError(
                f"{name} is {given[known.key] or 'nothing'} and {known.key} among the properties is"
                f" {stated[known.key] or 'nothing'}",
                option=name,
                found=given[known.key],
                expected=stated[known.key],
            )
        elif known is PARTITION_FIELDS and ":" in given[known.key]:
            found[known.key] = value
    return stated.with_values(found)


def _plain(known: Option[Any], options: Options) -> object:
    """A value for comparisons: partition columns may have types, and names any case."""
    value = options.value(known)
    if known is PARTITION_FIELDS:
        return tuple(field.partition(":")[0] for field in value)
    return value.lower() if known in (TABLE_NAME, DATABASE_NAME) else value


def _table_type(text: str) -> TableType:
    if text.lower() not in TYPE_WORDS:
        raise InputError(f"unknown table type {text!r}", option="type", found=text, expected="cow or mor")
    return TableType(TYPE_WORDS[text.lower()])


def texts(given: Text) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)
