"""Views of the metastore, as Spark and Hive keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from skep.base.names import TableName
from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import StorageDescriptor
from skep_catalog.entities import TableEntry as Entry
from skep_catalog.type_text import hive_columns
from skep_format.errors import NoSuchTableError
from skep_format.schema.arrow import from_arrow
from skep_sql.protocols import StoredView

VIEW: Final = "VIRTUAL_VIEW"
# Hive's own entries of views have these classes.
_INPUT: Final = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
# What Spark records of the session that made a view, and of its query.
_SPARK: Final = "view."
_NAMESPACE: Final = "view.catalogAndNamespace.part.1"
_OUTPUTS: Final = "view.query.out.col."


def view_of_entry(entry: Entry | None) -> StoredView | None:
    """What the query of a view means; None for a table."""
    if entry is None or entry.table_type != VIEW or not entry.view_query:
        return None
    parameters, columns = entry.parameters, entry.storage.columns
    outputs = [parameters.get(f"{_OUTPUTS}{at}", "") for at in range(len(columns))]
    return StoredView(
        entry.view_query,
        tuple(column.name for column in columns),
        parameters.get(_NAMESPACE, entry.database),
        tuple(outputs) if all(outputs) else (),
        tuple(column.type for column in columns),
        tuple(column.comment or None for column in columns),
    )


def put_view(
    metastore: EntryCatalog,
    name: TableName,
    view: StoredView,
    schema: pa.Schema,
    written: str,
    *,
    comment: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Makes a view, or gives the one there is another query. What else the entry has stays."""
    named = pa.schema([field.with_name(name) for field, name in zip(schema, view.columns, strict=True)])
    columns = hive_columns(from_arrow(named).fields)
    if view.comments:
        columns = tuple(replace(column, comment=text) for column, text in zip(columns, view.comments, strict=True))
    storage = StorageDescriptor(
        columns, input_format=_INPUT, output_format=_OUTPUT, serde_library=_SERDE, serde_parameters={}
    )
    given = {**({"comment": comment} if comment is not None else {}), **(properties or {})}
    there = metastore.find_table(name.database, name.name)
    if there is None:
        made = Entry(name.database, name.name, storage, parameters=given, table_type=VIEW)
        metastore.create_table(replace(made, owner=metastore.user, view_query=view.query, view_written=written))
        return
    kept = {key: value for key, value in there.parameters.items() if not key.startswith((_SPARK, "spark.sql."))}
    changed = replace(there, storage=replace(there.storage, columns=columns), parameters={**kept, **given})
    metastore.alter_table(name.database, name.name, replace(changed, view_query=view.query, view_written=written))


def drop_view(metastore: EntryCatalog, name: TableName) -> None:
    """NoSuchTableError where there is no view of this name."""
    if view_of_entry(metastore.find_table(name.database, name.name)) is None:
        raise NoSuchTableError(f"there is no view {name}", found=str(name))
    metastore.drop_table(name.database, name.name)


def view_entries(metastore: EntryCatalog, database: str) -> list[Entry]:
    """The views of a database, by name."""
    return sorted(
        (each for each in metastore.tables_of(database) if each.table_type == VIEW), key=lambda each: each.name
    )


def view_names(metastore: EntryCatalog, database: str) -> list[str]:
    """The names of `view_entries`."""
    return [entry.name for entry in view_entries(metastore, database)]
