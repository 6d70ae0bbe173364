"""What Hive's clients expect in another form than Spark's: lists of tables, errors for tables that there are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skep_sql.statements import Show, Statement
from skep_table.errors import NoSuchTableError

if TYPE_CHECKING:
    from skep_table.errors import SkepError

_LISTS: Final = ("tables", "views")


def as_hive_lists(statement: Statement, rows: pa.Table) -> pa.Table:
    """The names of tables in one column, the first one: SQLAlchemy's dialect takes the first column for the name."""
    if isinstance(statement, Show) and statement.what in _LISTS:
        return rows.select([1]).rename_columns(["tab_name"])
    return rows


def as_hive_words(error: SkepError) -> str:
    """The message. SQLAlchemy's dialect knows by Hive's words that a table is not there."""
    table = error.fields.get("table")
    if isinstance(error, NoSuchTableError) and table:
        return f"{error} (SemanticException: Table not found {table})"
    return str(error)
