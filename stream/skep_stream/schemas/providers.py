"""Schema providers: from files, the metastore, or the target table; and rows brought to the schema of the target."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pyarrow as pa

from skep_format.errors import InputError, OptionError, SchemaError
from skep_format.schema.avro import parse_avro
from skep_format.schema.evolve import project
from skep_format.schema.types import Schema
from skep_stream.options import (
    SOURCE_SCHEMA_DATABASE,
    SOURCE_SCHEMA_FILE,
    SOURCE_SCHEMA_TABLE,
    TARGET_SCHEMA_DATABASE,
    TARGET_SCHEMA_FILE,
    TARGET_SCHEMA_TABLE,
)
from skep_stream.properties import read_text
from skep_stream.protocols import MetastoreCatalog, SchemaProvider, StreamContext


class DroppedColumnWarning(UserWarning):
    """Columns of the rows that the target's schema lacks are not written."""


@dataclass(frozen=True, slots=True)
class GivenSchemas:
    """Schemas that are there: those of files."""

    source: Schema | None
    target: Schema | None = None

    def source_schema(self) -> Schema | None:
        """The columns of the source."""
        return self.source

    def target_schema(self) -> Schema | None:
        """The columns of the target, where they are stated."""
        return self.target


def file_schemas(context: StreamContext) -> GivenSchemas:
    """FilebasedSchemaProvider: Avro schemas of source and target. OptionError for a file that can't be used."""
    source = context.options.value(SOURCE_SCHEMA_FILE)
    target = context.options.value(TARGET_SCHEMA_FILE)
    if not source:
        raise OptionError(f"FilebasedSchemaProvider needs {SOURCE_SCHEMA_FILE.key}", option=SOURCE_SCHEMA_FILE.key)
    return GivenSchemas(_read_schema(source, context), _read_schema(target, context) if target else None)


def table_schemas(context: StreamContext) -> GivenSchemas:
    """TableSchemaProvider: the columns of the target table, for source and target. InputError before there is one."""
    table = context.target.table()
    if table is None:
        raise InputError("the schema is that of the target table, which is not there yet")
    return GivenSchemas(table.schema())


@dataclass(frozen=True, slots=True)
class MetastoreSchemas:
    """The columns of tables in the metastore, read again at each use: a stream that goes on follows them."""

    catalog: MetastoreCatalog
    source: tuple[str, str]
    target: tuple[str, str] | None = None

    def source_schema(self) -> Schema:
        """The columns of the source."""
        return self.catalog.schema(*self.source).without_meta()

    def target_schema(self) -> Schema | None:
        """The columns of the target, where it has a table of its own."""
        return self.catalog.schema(*self.target).without_meta() if self.target else None


def metastore_schemas(context: StreamContext) -> MetastoreSchemas:
    """HiveSchemaProvider. OptionError where no table is named; NoSuchTableError where one is not there."""
    options = context.options
    source, target = options.value(SOURCE_SCHEMA_TABLE), options.value(TARGET_SCHEMA_TABLE)
    if not source:
        raise OptionError(f"HiveSchemaProvider needs {SOURCE_SCHEMA_TABLE.key}", option=SOURCE_SCHEMA_TABLE.key)
    if context.catalog is None:
        raise OptionError("HiveSchemaProvider needs a metastore", option="--schemaprovider-class")
    made = MetastoreSchemas(
        context.catalog,
        (options.value(SOURCE_SCHEMA_DATABASE), source),
        (options.value(TARGET_SCHEMA_DATABASE), target) if target else None,
    )
    made.source_schema()
    made.target_schema()
    return made


def row_schemas(_context: StreamContext) -> GivenSchemas:
    """RowBasedSchemaProvider: rows state their schema."""
    return GivenSchemas(None)


def _read_schema(path: str, context: StreamContext) -> Schema:
    try:
        return parse_avro(read_text(path, context.options)).without_meta()
    except SchemaError as error:
        raise SchemaError(f"{path}: {error.message}", hint=error.hint, **{**error.fields, "path": path}) from error


def to_target(
    rows: pa.Table, schemas: SchemaProvider | None, *, transformed: bool, fills: bool = True
) -> tuple[pa.Table, Schema | None]:
    """Rows in the columns of the target, and its schema; as they are where no schema is stated.

    Without a schema of its own the target has that of the source. Columns that it lacks are left out, with a warning.
    InputError where transformed rows lack columns of the source's schema: that is not the target's then. `fills`:
    columns that rows lack are null in them; else the rows go without.
    """
    target = schemas.target_schema() if schemas is not None else None
    source = schemas.source_schema() if schemas is not None else None
    schema = target or source
    if schema is None:
        return rows, None
    known = {field.name for field in schema.fields}
    missing = [field.name for field in schema.fields if field.name not in rows.schema.names]
    if transformed and fills and target is None and missing:
        raise InputError(
            f"the transformed rows lack column {missing[0]} of the source's schema, which is the target's as well",
            hint=f"{TARGET_SCHEMA_FILE.key} states the schema of the target",
            column=missing[0],
        )
    dropped = [name for name in rows.schema.names if name not in known]
    if dropped:
        warnings.warn(
            f"columns {', '.join(dropped)} are not in the target's schema and are left out",
            DroppedColumnWarning,
            stacklevel=2,
        )
    there = schema if fills else schema.without(missing)
    return _with_required(project(rows, there), there), schema


def _with_required(rows: pa.Table, schema: Schema) -> pa.Table:
    for field, column in zip(schema.fields, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise InputError(f"column {field.name} is required, and has no value in some rows", column=field.name)
    return rows
