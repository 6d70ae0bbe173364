"""A new table as users describe it, made into the settings that it is created with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from skep.schemas import SchemaLike, schema_of
from skep_table.commit.create import TableSpec
from skep_table.errors import InputError
from skep_table.table_config import TableType

Text = str | Sequence[str]
_TYPES: Final = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}


def table_spec(
    name: str,
    schema: SchemaLike,
    *,
    database: str | None = None,
    key: Text = (),
    ordering: str | None = None,
    partition_by: Text = (),
    type: str = "cow",
    hive_style: bool = False,
    properties: Mapping[str, str] | None = None,
) -> TableSpec:
    """InputError for a type that is neither cow nor mor, and for a schema that can't be understood."""
    if type.lower() not in _TYPES:
        raise InputError(f"table {name}: unknown type {type!r}", option="type", found=type, expected="cow or mor")
    return TableSpec(
        name=name,
        database=database,
        schema=schema_of(schema, name),
        record_key=texts(key),
        partition_by=texts(partition_by),
        ordering=ordering,
        type=_TYPES[type.lower()],
        hive_style=hive_style,
        properties=dict(properties or {}),
    )


def texts(given: Text) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
