"""Schema providers: from files, the metastore, or the target table; and rows brought to the schema of the target."""

from __future__ import annotations

import warnings
from functools import partial

import pyarrow as pa

from skep_format.errors import InputError, OptionError, SchemaError
from skep_format.options import Option
from skep_format.schema.avro import parse_avro
from skep_format.schema.evolve import project
from skep_format.schema.types import Schema
from skep_stream import options as keys
from skep_stream.properties import read_text
from skep_stream.protocols import ReadSchemas, SchemaProvider, StreamContext


class DroppedColumnWarning(UserWarning):
    """Columns of the rows that the target's schema lacks are not written."""


def file_schemas(context: StreamContext) -> ReadSchemas:
    """FilebasedSchemaProvider: Avro schemas of source and target. OptionError for a file that can't be used."""
    source = context.options.needed(keys.SOURCE_SCHEMA_FILE, "FilebasedSchemaProvider needs")
    target = context.options.value(keys.TARGET_SCHEMA_FILE)
    return ReadSchemas.known(_read_schema(source, context), _read_schema(target, context) if target else None)


def table_schemas(context: StreamContext) -> ReadSchemas:
    """TableSchemaProvider: the columns of the target table, for source and target. InputError before there is one."""
    table = context.target.table()
    if table is None:
        raise InputError("the schema is that of the target table, which is not there yet")
    return ReadSchemas.known(table.schema())


def metastore_schemas(context: StreamContext) -> ReadSchemas:
    """HiveSchemaProvider: the columns of tables in the metastore. OptionError where no table is named;
    NoSuchTableError where one is not there."""
    options, catalog = context.options, context.catalog
    options.needed(keys.SOURCE_SCHEMA_TABLE, "HiveSchemaProvider needs")
    if catalog is None:
        raise OptionError("HiveSchemaProvider needs a metastore", option="--schemaprovider-class")

    def columns(database: Option[str], table: Option[str]) -> Schema | None:
        name = options.value(table)
        return catalog.schema(options.value(database), name).without_meta() if name else None

    made = ReadSchemas(
        partial(columns, keys.SOURCE_SCHEMA_DATABASE, keys.SOURCE_SCHEMA_TABLE),
        partial(columns, keys.TARGET_SCHEMA_DATABASE, keys.TARGET_SCHEMA_TABLE),
    )
    made.source_schema()
    made.target_schema()
    return made


def row_schemas(_context: StreamContext) -> ReadSchemas:
    """RowBasedSchemaProvider: rows state their schema."""
    return ReadSchemas.known(None)


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
            hint=f"{keys.TARGET_SCHEMA_FILE.key} states the schema of the target",
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
