"""A client's statements carried out; queries alone need none of what is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlglot import exp

from skep_format.errors import UnsupportedError
from skep_sql.answer import Answer, answer
from skep_sql.bind import look_up, table_to_change
from skep_sql.execution.alter import alter
from skep_sql.execution.change import run_delete, run_update
from skep_sql.execution.indexes import create_index, drop_index, refresh_index
from skep_sql.execution.insert import run_insert
from skep_sql.execution.merge import run_merge
from skep_sql.execution.show import describe, describe_query, show
from skep_sql.execution.tables import create_database, create_table, drop, truncate, use
from skep_sql.execution.views import create_files_view, create_view, drop_view
from skep_sql.parsing import statements as st
from skep_sql.procedures import call
from skep_sql.session import Session
from skep_table.query.filters.text import SqlDialect
from skep_table.write.result import WriteResult

_CHANGES: Final = (st.Insert, st.Update, st.Delete, st.Merge, st.AlterTable, st.Truncate)


def run(session: Session, statement: st.Statement) -> Answer:
    """The effect of a statement. InputError, UnsupportedError and NoSuchTableError come before any effect."""
    if isinstance(statement, st.Query):
        bound = session.bound(statement.tree)
        return Answer(session.engine.rows(bound.query, bound.relations))
    if isinstance(statement, st.Unsupported):
        raise UnsupportedError(f"{statement.what} is not supported", hint=statement.hint)
    found = _EFFECTS[type(statement)](session, statement)
    return Answer(writes=(found,)) if isinstance(found, WriteResult) else found or Answer()


def _drop(session: Session, statement: st.Drop) -> None:
    (drop_view if statement.kind == "view" else drop)(session, statement)


def _set(session: Session, statement: st.SetOption) -> Answer:
    settings = session.settings
    if statement.key is None:
        return answer("key, value", settings.items())
    if statement.value is None:
        value = settings.get(statement.key)
        return answer("key, value", [(statement.key, "<undefined>" if value is None else value)])
    settings.set(statement.key, statement.value)
    settings.policy  # noqa: B018 - a wrong policy is refused now
    return answer("key, value", [(statement.key, statement.value)])


def _refresh(session: Session, statement: st.Refresh) -> None:
    session.catalog.table(look_up(session.catalog, statement.name)).sync()


def _uncache(session: Session, statement: st.Uncache) -> None:
    name = statement.name
    if name is not None and not statement.if_exists and str(name).lower() not in session.views:
        look_up(session.catalog, name)


def _explain(session: Session, statement: st.Explain) -> Answer:
    """Of a write: the kind of the statement and its table, then how its query is answered. Nothing is changed."""
    explained = statement.statement
    lines = []
    if not isinstance(explained, st.Query):
        name = getattr(explained, "name", None)
        lines.append(" ".join(filter(None, [st.words_of_kind(explained), name and str(name)])))
        if isinstance(explained, _CHANGES):
            table_to_change(session.scope, explained.name)
    query = _query_of(explained)
    if query is not None:
        bound = session.bound(query)
        lines.append(session.engine.explained(bound.query, bound.relations))
    return answer("plan", [("\n".join(lines),)])


def _query_of(statement: st.Statement) -> exp.Query | None:
    """What a statement reads: of changes the rows that are changed, of a merge those that are merged."""
    if isinstance(statement, st.Query):
        return statement.tree
    if isinstance(statement, st.Merge):
        return statement.source
    if isinstance(statement, (st.Insert, st.CreateTable, st.CreateView, st.DescribeQuery)):
        return statement.query
    if isinstance(statement, (st.Update, st.Delete)):
        rows = exp.to_table(str(statement.name), dialect=SqlDialect)
        named = exp.alias_(rows, statement.alias, table=True) if statement.alias else rows
        query: exp.Select = exp.select("*").from_(named)
        return query if statement.where is None else query.where(statement.where.copy())
    return None


_EFFECTS: Final[Mapping[type, Callable[[Session, Any], Answer | WriteResult | None]]] = {
    st.CreateTable: create_table,
    st.CreateDatabase: create_database,
    st.CreateView: create_view,
    st.CreateFilesView: create_files_view,
    st.Drop: _drop,
    st.Truncate: truncate,
    st.Show: show,
    st.Describe: describe,
    st.DescribeQuery: describe_query,
    st.Use: use,
    st.SetOption: _set,
    st.ResetOption: lambda s, x: s.settings.reset(x.key),
    st.Insert: run_insert,
    st.Update: lambda s, x: run_update(x, s.scope, s.engine, s.settings.hoodie),
    st.Delete: lambda s, x: run_delete(x, s.scope, s.engine, s.settings.hoodie),
    st.Merge: lambda s, x: run_merge(x, s.scope, s.engine, s.settings.hoodie),
    st.AlterTable: alter,
    st.Call: call,
    st.Explain: _explain,
    st.Refresh: _refresh,
    st.Uncache: _uncache,
    st.CreateIndex: create_index,
    st.DropIndex: drop_index,
    st.RefreshIndex: refresh_index,
}
