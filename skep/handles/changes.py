"""UPDATE and MERGE as methods of a table: expressions are SQL in Spark's dialect, rows come as frames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from skep.base.arguments import checks_arguments
from skep.handles.writing import held
from skep.query.conditions import NO_TABLES
from skep.query.engines import LakeEngine
from skep.query.spark import SparkHolder
from skep_format.errors import InputError
from skep_sql.bind import Scope, given_rows
from skep_sql.execution.change import update_rows
from skep_sql.execution.merge import MergeInto, merge_rows
from skep_sql.parsing.parse import parse_expression
from skep_sql.parsing.statements import Assignment, MergeClause, Node
from skep_sql.protocols import TargetTable
from skep_table.write.result import WriteResult

_GIVEN: Final = "skep_given"
_PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*")


def _value(given: object) -> Node:
    """Text is an expression, anything else a constant."""
    if isinstance(given, str):
        return parse_expression(given)
    try:
        return exp.convert(given)
    except ValueError as error:
        raise InputError(
            f"{given!r} is no value of SQL", hint="write it as an expression: \"'text'\"", found=type(given).__name__
        ) from error


def _assignments(given: Mapping[str, object]) -> tuple[Assignment, ...]:
    if not given:
        raise InputError("no column is set", hint='set={"price": "price * 2"}')
    return tuple(Assignment(column, _value(value)) for column, value in given.items())


def update(
    table: TargetTable, spark: SparkHolder, set: Mapping[str, object], where: str | None, options: Mapping[str, object]
) -> WriteResult:
    """See `Table.update`."""
    condition = None if where is None else parse_expression(where)
    alias = table.name.rpartition(".")[2]
    return update_rows(table, _assignments(set), condition, Scope(NO_TABLES), LakeEngine(spark), options, alias)


@checks_arguments
class MergeBuilder:
    """A merge that is described clause by clause; `execute` carries it out. Of several clauses the first that fits
    takes a row."""

    def __init__(
        self,
        table: TargetTable,
        spark: SparkHolder,
        source: object,
        on: str | Sequence[str],
        aliases: tuple[str, str],
        options: Mapping[str, object],
    ) -> None:
        self._table = table
        self._engine = LakeEngine(spark)
        self._source = held(source, table.hudi.options.with_values(options))
        self._target_alias, self._source_alias = aliases
        self._options = options
        self._on = self._condition(on)
        self._clauses: list[MergeClause] = []

    def _condition(self, on: str | Sequence[str]) -> Node:
        names = [on] if isinstance(on, str) else list(on)
        if not isinstance(on, str) or _PLAIN_NAME.fullmatch(on):
            pairs = [
                exp.EQ(
                    this=exp.column(exp.to_identifier(name, quoted=True), table=self._target_alias),
                    expression=exp.column(exp.to_identifier(name, quoted=True), table=self._source_alias),
                )
                for name in names
            ]
            if not pairs:
                raise InputError("merge needs columns to match by", hint='on="id"')
            return exp.and_(*pairs)
        return parse_expression(on)

    def _with(self, when: str, action: str, condition: str | None, set: Mapping[str, object] | None) -> MergeBuilder:
        parsed = None if condition is None else parse_expression(condition)
        self._clauses.append(MergeClause(when, action, parsed, None if set is None else _assignments(set)))
        return self

    def when_matched_update(self, set: Mapping[str, object], condition: str | None = None) -> MergeBuilder:
        """Stored rows get new values; the columns that `set` does not name stay."""
        return self._with("matched", "update", condition, set)

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Stored rows get the source's values in all columns."""
        return self._with("matched", "update", condition, None)

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Stored rows are deleted."""
        return self._with("matched", "delete", condition, None)

    def when_not_matched_insert(self, set: Mapping[str, object], condition: str | None = None) -> MergeBuilder:
        """Rows of the source without a stored one become new rows; columns that `set` does not name are null."""
        return self._with("not matched", "insert", condition, set)

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Rows of the source without a stored one become new rows."""
        return self._with("not matched", "insert", condition, None)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, object], condition: str | None = None
    ) -> MergeBuilder:
        """Stored rows that no row of the source matches get new values."""
        return self._with("not matched by source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Stored rows that no row of the source matches are deleted."""
        return self._with("not matched by source", "delete", condition, None)

    def execute(self) -> WriteResult:
        """One commit. InputError for clauses that do not fit the table, before anything is written."""
        if not self._clauses:
            raise InputError("a merge needs a clause", hint=".when_matched_update_all().when_not_matched_insert_all()")
        source: Any = exp.select("*").from_(given_rows(_GIVEN))
        scope = Scope(NO_TABLES, functions={_GIVEN: lambda *_: self._source})
        merge = MergeInto(self._table, self._target_alias, source, self._source_alias, self._on, tuple(self._clauses))
        return merge_rows(merge, scope, self._engine, self._options)
