"""SQL over the tables of a lake: names are looked up in the metastore, Spark answers from skep's own reader.

Each table that the query names becomes a temporary view under a name of its own while the query is analysed: views and
tables that a caller's session has are never touched.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlglot import exp

from skep.names import TableName
from skep.sql_filters import filter_on
from skep_catalog.entries import View, view_of
from skep_sql.columns import names_used
from skep_table.errors import InputError, StorageError
from skep_table.query.cleaned import DELETED

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skep.rows import Rows
    from skep.table import Table
    from skep_catalog.client import Metastore


class Tables(Protocol):
    """Where a query's tables are looked up, and the session that answers it."""

    @property
    def database(self) -> str:
        """The database of names without one."""

    @property
    def metastore(self) -> Metastore:
        """The metastore that has the entries of the tables."""

    @property
    def spark(self) -> SparkSession:
        """The session that runs the query."""

    def table(self, name: str) -> Table:
        """NoSuchTableError when the metastore has no such table."""


class Result(ABC):
    """Rows as an Arrow table, and in the forms that are made of one."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """As a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """As a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())


class SqlResult(Result):
    """The answer of a query, run by Spark each time one of these is called."""

    def __init__(self, frame: DataFrame, scans: Sequence[Rows] = ()) -> None:
        self._frame = frame
        self._scans = tuple(scans)

    def __repr__(self) -> str:
        return f"SqlResult({', '.join(self._frame.columns)})"

    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame."""
        return self._frame

    def to_arrow(self) -> pa.Table:
        """As an Arrow table. StorageError when files were cleaned meanwhile."""
        from skep_writer import collect_arrow

        with _files_there():
            return collect_arrow(self._frame)

    def explain(self) -> str:
        """How many files are read of each table, the filter that chose them, and Spark's plan. Lists the tables."""
        lines = [str(rows.files_chosen()) for rows in self._scans]
        return "\n".join([*lines, "", str(self._frame._jdf.queryExecution().toString())])

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        with _files_there():
            self._frame.show(limit, truncate=False)


@contextmanager
def _files_there() -> Iterator[None]:
    """StorageError where files of the result were cleaned after the query was planned."""
    try:
        yield
    except Exception as error:
        if not any(sign in str(error) for sign in _MISSING_FILE):
            raise
        raise StorageError(
            f"a file that the query reads was {DELETED}",
            hint="run the query again; hoodie.cleaner.commits.retained has to outlast the longest query",
        ) from error


# Part of the errors of Spark's reader and of skep's tasks for a deleted file.
_MISSING_FILE: Final = ("FileNotFoundException", "FILE_NOT_EXIST", DELETED)


def run(query: str, tree: exp.Query, lake: Tables) -> SqlResult:
    """The result of a query, whose `tree` is changed. InputError, and NoSuchTableError for an unknown table."""
    common = {common.alias.lower() for common in tree.find_all(exp.CTE)}
    used = names_used(tree)
    opened: dict[TableName, Rows] = {}
    views: dict[tuple[TableName, str | None], str] = {}
    scans: list[Rows] = []
    for node in list(tree.find_all(exp.Table)):
        if not isinstance(node.this, exp.Identifier) or (not node.db and node.name.lower() in common):
            continue  # a function, or a name of this query's own
        if node.catalog:
            raise InputError(f"{node.sql('spark')}: tables are named database.table", found=node.sql("spark"))
        name = TableName.parse(f"{node.db}.{node.name}" if node.db else node.name, lake.database)
        if name not in opened:
            table = lake.table(str(name))
            opened[name] = table.read(query=_query(lake, name, table))  # one snapshot for all references
        rows = opened[name].narrowed(used).filtered(filter_on(node, opened[name].schema))
        key = name, rows.where
        if key not in views:
            views[key] = f"skep_{name.name}_{uuid.uuid4().hex[:8]}"
            rows.to_spark().createOrReplaceTempView(views[key])
            scans.append(rows)
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=node.this.quoted)))
        node.set("this", exp.to_identifier(views[key]))
        node.set("db", None)
    session = lake.spark
    try:
        return SqlResult(session.sql(tree.sql("spark")), scans)
    except Exception as error:
        if type(error).__name__ in ("AnalysisException", "ParseException"):
            raise InputError(f"the query does not fit the tables: {str(error).strip()}", found=query) from error
        raise
    finally:
        for view in views.values():  # the plan of the answer holds the frames themselves
            session.catalog.dropTempView(view)


def _query(lake: Tables, name: TableName, table: Table) -> str:
    """What engines answer under a name: the read-optimized view of a merge-on-read table, or the snapshot."""
    entry = lake.metastore.table(name.database, name.name)
    view = view_of(entry, table.hudi.config)
    return "read_optimized" if view is View.READ_OPTIMIZED else "snapshot"
