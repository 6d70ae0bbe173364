"""Engines for the queries of statements: Spark, and DuckDB for queries that mean the same to both."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlglot import exp

from skep.rows import Rows
from skep.spark import SparkHolder
from skep.sql import SqlResult
from skep.sql_filters import filter_on
from skep_sql.columns import names_used
from skep_sql.meaning import differs
from skep_sql.protocols import Relation
from skep_table.errors import InputError
from skep_table.write.given import arrow_table, row_input

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame


class LakeEngine:
    """Spark where the caller gave a session or one runs; else DuckDB where it is there and a query suits it.

    `spark` starts a session for the queries that need one.
    """

    def __init__(self, spark: SparkHolder) -> None:
        self._holder = spark
        self._spark = SparkEngine(spark)
        self._duckdb = DuckEngine()

    def _of(self, query: exp.Query, relations: Mapping[str, Relation]) -> SparkEngine | DuckEngine:
        if self._holder.is_started or not DuckEngine.is_there() or any(map(_is_spark, relations.values())):
            return self._spark
        if differs(query) is not None:
            return self._spark
        try:
            self._duckdb.schema(query, relations)
        except InputError:
            return self._spark  # by Spark's rules it may be right, and its error is better
        return self._duckdb

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        return self._of(query, relations).schema(query, relations)

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        return self._of(query, relations).rows(query, relations)

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """See `Engine`."""
        return self._of(query, relations).frame(query, relations)

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        return self._of(query, relations).numbered(query, relations, column)

    def explained(self, query: exp.Query, relations: Mapping[str, Relation]) -> str:
        """See `Engine`. Spark's plan, where a session runs; none is started for it."""
        if self._holder.is_started:
            return SqlResult(*self._spark.planned(query, relations)).explain()
        reads = {id(each): each for each in reads_needed(query, relations).values() if isinstance(each, Rows)}
        return "\n".join(str(rows.files_chosen()) for rows in reads.values())


class SparkEngine:
    """Spark SQL. Each relation is a temporary view while a query is analysed: a session's own ones are not touched."""

    def __init__(self, holder: SparkHolder) -> None:
        self._holder = holder

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        from skep_writer import frame_schema

        return frame_schema(self.frame(query, relations))

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        from skep_writer import collect_arrow

        frame = self.frame(query, relations)
        with _query_errors(query):
            return collect_arrow(frame)

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> DataFrame:
        """See `Engine`."""
        return self.planned(query, relations)[0]

    def planned(self, query: exp.Query, relations: Mapping[str, Relation]) -> tuple[DataFrame, Sequence[Rows]]:
        """The answer as a frame, and the reads of tables that it is made of."""
        session, frames = self._holder.session, {}
        needed = reads_needed(query, relations)
        try:
            for name, relation in needed.items():
                if id(relation) not in frames:
                    frames[id(relation)] = self._frame_of(relation)
                frames[id(relation)].createOrReplaceTempView(name)
            with _query_errors(query):
                frame = session.sql(query.sql("spark"))
        finally:
            for name in relations:  # the plan of the answer holds the frames themselves
                session.catalog.dropTempView(name)
        reads = {id(relation): relation for relation in needed.values() if isinstance(relation, Rows)}
        return frame, tuple(reads.values())

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        from skep_writer import numbered

        return numbered(self.frame(query, relations), column)

    def _frame_of(self, relation: Relation) -> Any:
        if isinstance(relation, Rows):
            return relation.to_spark()
        if _is_spark(relation):
            return relation
        from skep_writer import arrow_frame

        return arrow_frame(self._holder.session, arrow_table(relation))


class DuckEngine:
    """DuckDB in this process. Relations are copied into temporary tables, which it keeps on disk where they are big."""

    @staticmethod
    def is_there() -> bool:
        """Whether DuckDB is installed."""
        import importlib.util

        return importlib.util.find_spec("duckdb") is not None

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        with self._connected(reads_needed(query, relations), empty=True) as connection, _query_errors(query):
            return _rows(connection, query).schema

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        with self._connected(reads_needed(query, relations)) as connection, _query_errors(query):
            return _rows(connection, query)

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """See `Engine`."""
        return self.rows(query, relations)

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        rows = self.rows(query, relations)
        return rows.append_column(column, pa.array(range(rows.num_rows), pa.int64()))

    @contextmanager
    def _connected(
        self, relations: Mapping[str, Relation], *, empty: bool = False
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        import duckdb

        connection = duckdb.connect()
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for name, relation in relations.items():
                given = row_input(relation)
                if empty:
                    connection.register(name, given.schema.empty_table())
                    continue
                source = f"{name}_{uuid.uuid4().hex[:4]}"
                connection.register(source, pa.RecordBatchReader.from_batches(given.schema, given.batches()))
                connection.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM "{source}"')
                connection.unregister(source)
            yield connection
        finally:
            connection.close()


def reads_needed(query: exp.Query, relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """The relations, of reads the columns and rows that the query can need. Equal reads are one object."""
    used = names_used(query)
    nodes: dict[str, list[exp.Table]] = defaultdict(list)
    for node in query.find_all(exp.Table):
        nodes[node.name].append(node)
    needed: dict[str, Relation] = {}
    reads: dict[tuple[int, str | None], Rows] = {}
    for name, relation in relations.items():
        needed[name] = relation
        if isinstance(relation, Rows):
            where = filter_on(nodes[name][0], relation.schema) if len(nodes[name]) == 1 else None
            needed[name] = reads.setdefault((id(relation), where), relation.narrowed(used).filtered(where))
    return needed


def _rows(connection: duckdb.DuckDBPyConnection, query: exp.Query) -> pa.Table:
    """DuckDB hands columns that are null all through over as whole numbers."""
    answer = connection.sql(query.sql("duckdb"))
    rows: pa.Table = answer.to_arrow_table()
    for at, kind in enumerate(answer.types):
        if str(kind).strip('"') == "NULL":
            rows = rows.set_column(at, rows.schema.names[at], pa.nulls(rows.num_rows))
    return rows


def _is_spark(relation: Relation) -> bool:
    from skep_writer.session import is_spark_frame

    return bool(is_spark_frame(relation))


_ANALYSIS: Final = ("AnalysisException", "ParseException")
_VALUES: Final = ("NumberFormatException", "ArithmeticException", "SparkRuntimeException", "DateTimeException")


@contextmanager
def _query_errors(query: exp.Query) -> Iterator[None]:
    """InputError for queries that do not fit their tables, and for values that an expression can't take."""
    try:
        yield
    except Exception as error:
        module, name = type(error).__module__.partition(".")[0], type(error).__name__
        if name in _ANALYSIS or (module in ("duckdb", "_duckdb") and name != "IOException") or name in _VALUES:
            text = str(error).strip().partition("\n")[0]
            raise InputError(f"the query does not fit the tables: {text}", found=query.sql("spark")) from error
        raise
