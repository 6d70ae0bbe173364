"""Conditions of a table's own calls: skep's reader takes those that it takes as Spark does, an engine the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from sqlglot import exp

from skep.query.engines import EngineChoice, LakeEngine, SparkEngine
from skep.query.rows import EMBEDDED_BYTES, Rows
from skep.query.spark import SparkHolder
from skep_format.errors import PredicateError
from skep_format.schema.arrow import to_arrow
from skep_sql.bind import Scope, bind, given_rows
from skep_sql.execution.change import matching
from skep_sql.parsing.parse import parse_expression
from skep_sql.protocols import TableCatalog, TargetTable
from skep_table.query.filters.predicate import Predicate
from skep_table.query.filters.text import parse_predicate
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.input.source import matching as found_by_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GIVEN: Final = "skep_given"


class _NoTables:
    """The catalog of expressions that name no other tables."""

    database = ""

    def looking_once(self) -> AbstractContextManager[None]:
        return nullcontext()

    def facts(self, name: str) -> None: ...

    def databases(self) -> list[str]:
        return []

    def table_names(self, database: str | None) -> list[str]:  # noqa: ARG002 - there are none
        return []


NO_TABLES: Final[TableCatalog] = _NoTables()  # type: ignore[assignment]


def is_for_engine(where: str, table: HudiTable, spark: SparkHolder) -> bool:
    """Whether an engine has to find the rows: skep's own reader may find others than Spark, or none.

    PredicateError for a text that is no condition, and for a column that is not there.
    """
    try:
        predicate = parse_predicate(where, to_arrow(table.schema().with_meta()))
    except PredicateError as error:
        if not error.is_unsupported:
            raise
        return True
    return not predicate.is_alike(in_utc=LakeEngine(spark).in_utc)


class MatchingRead(Rows):
    """The rows of a read for which an engine finds that a condition holds."""

    def __init__(self, table: HudiTable, request: ReadRequest, spark: SparkHolder) -> None:
        super().__init__(table, replace(request, where=None, limit=None), spark)
        self._where = str(request.where or "")
        self._limit = request.limit
        self._batches = self._matching
        self._count = lambda: sum(batch.num_rows for batch in self._matching())
        whole = Rows(table, replace(request, where=None, limit=None, columns=None), spark)
        self._bound = bind(self._query(), Scope(NO_TABLES, functions={_GIVEN: lambda *_: whole}))

    @property
    def where(self) -> str:
        return self._where

    def _query(self) -> exp.Query:
        columns = [exp.column(exp.to_identifier(name, quoted=True)) for name in self.schema.names]
        query = exp.select(*columns).from_(given_rows(_GIVEN))
        query = query.where(parse_expression(self._where))
        return query if self._limit is None else query.limit(self._limit)

    def _matching(self) -> Iterator[pa.RecordBatch]:
        engine = LakeEngine(self._spark, most_bytes=lambda: self._table.options.value(EMBEDDED_BYTES))
        result = engine.result(self._bound.query, self._bound.relations, EngineChoice.AUTO)
        for batch in result.to_reader():
            yield batch.cast(self.schema)

    def narrowed(self, names: frozenset[str] | None) -> Rows:  # noqa: ARG002 - the condition may need any column
        """These rows."""
        return self

    def filtered(self, where: Predicate | None) -> Rows:  # noqa: ARG002 - what uses these rows applies it, too
        """These rows."""
        return self

    def to_spark(self) -> DataFrame:
        return SparkEngine(self._spark).frame(self._bound.query, self._bound.relations)


def rows_to_delete(target: TargetTable, where: str, spark: SparkHolder) -> Callable[[HudiTable], pa.Table]:
    """Computes the rows of a snapshot for which skep's own reader, or an engine, finds that the condition holds.

    Raises as `is_for_engine`.
    """
    if not is_for_engine(where, target.hudi, spark):
        return found_by_reader(where)
    alias = target.name.rpartition(".")[2]
    return matching(target, parse_expression(where), Scope(NO_TABLES), LakeEngine(spark), alias)
