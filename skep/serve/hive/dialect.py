"""What Hive's clients expect in another form than Spark's: lists of tables, types, errors for missing tables."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_catalog.entities import partition_name
from skep_format.errors import FormatError, NoSuchTableError, SkepError
from skep_sql.parsing.statements import Describe, DescribeQuery, Show, Statement
from skep_sql.protocols import TableCatalog
from skep_sync.values import Extractor, partition_values

_LISTS: Final = ("tables", "views")


def as_hive_rows(statement: Statement, rows: pa.Table, catalog: TableCatalog) -> pa.Table:
    """The names of tables in one column, the first one: SQLAlchemy's dialect takes the first column for the name. Of
    types those that the protocol has: to clients of Hive a time without a zone is a timestamp, too. Partitions by the
    names that they have in the metastore, `k=v/…`, whatever their folders: Superset takes the values from them."""
    if isinstance(statement, Show) and statement.what == "partitions" and statement.name is not None:
        return rows.set_column(0, rows.schema.field(0), _partition_names(rows, str(statement.name), catalog))
    if isinstance(statement, Show) and statement.what in _LISTS:
        return rows.select([1]).rename_columns(["tab_name"])
    if isinstance(statement, DescribeQuery) or (isinstance(statement, Describe) and statement.kind == "table"):
        end = pc.index(rows.column(0), "").as_py()  # of the rows for columns, before the details of the table
        types = rows.column(1).slice(0, rows.num_rows if end < 0 else end)
        types = pc.replace_substring_regex(types, r"timestamp_ntz([,>]|$)", r"timestamp\1")
        rest = rows.column(1).slice(len(types))
        return rows.set_column(1, rows.schema.field(1), pa.chunked_array([*types.chunks, *rest.chunks], pa.string()))
    return rows


def _partition_names(rows: pa.Table, name: str, catalog: TableCatalog) -> pa.Array:
    facts, config = catalog.facts(name), catalog.table(name).hudi.config
    keys = () if facts is None else facts.partition_columns
    extractor = Extractor.fitting(len(keys), hive_style=config.hive_style)
    names = []
    for path in rows.column(0).to_pylist():
        try:
            names.append(partition_name(keys, partition_values(path, extractor, keys, decode=config.url_encode)))
        except FormatError:  # by the sync's rules it is no partition of the entry
            names.append(path)
    return pa.array(sorted(names), pa.string())


def as_hive_words(error: SkepError) -> str:
    """The message. SQLAlchemy's dialect knows by Hive's words that a table is not there."""
    table = error.fields.get("table")
    if isinstance(error, NoSuchTableError) and table:
        return f"{error} (SemanticException: Table not found {table})"
    return str(error)
