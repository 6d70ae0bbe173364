"""A client's statements carried out; queries alone need none of what is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from skep_sql.alter import alter
from skep_sql.answer import Answer, answer
from skep_sql.bind import look_up
from skep_sql.change import run_delete, run_update
from skep_sql.indexes import create_index, drop_index, refresh_index
from skep_sql.insert import run_insert
from skep_sql.merge import run_merge
from skep_sql.procedures import call
from skep_sql.session import Session
from skep_sql.show import describe, show
from skep_sql.statements import (
    AlterTable,
    Call,
    CreateDatabase,
    CreateIndex,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    DropIndex,
    Explain,
    Insert,
    Merge,
    Query,
    Refresh,
    RefreshIndex,
    ResetOption,
    SetOption,
    Show,
    Statement,
    Truncate,
    Uncache,
    Unsupported,
    Update,
    Use,
)
from skep_sql.tables import create_database, create_table, drop, truncate, use
from skep_sql.views import create_view, drop_view
from skep_table.errors import UnsupportedError
from skep_table.write.result import WriteResult

_TEXT: Final = pa.string()


def run(session: Session, statement: Statement) -> Answer:
    """The effect of a statement. InputError, UnsupportedError and NoSuchTableError come before any effect."""
    if isinstance(statement, Query):
        bound = session.bound(statement.tree)
        return Answer(session.engine.rows(bound.query, bound.relations))
    if isinstance(statement, Unsupported):
        raise UnsupportedError(f"{statement.what} is not supported", hint=statement.hint)
    found = _EFFECTS[type(statement)](session, statement)
    return found or Answer()


def _drop(session: Session, statement: Drop) -> None:
    if statement.kind == "view":
        drop_view(session, statement)
    else:
        drop(statement, session.scope)


def _set(session: Session, statement: SetOption) -> Answer:
    columns, settings = [("key", _TEXT), ("value", _TEXT)], session.settings
    if statement.key is None:
        return answer(columns, settings.items())
    if statement.value is None:
        value = settings.get(statement.key)
        return answer(columns, [(statement.key, "<undefined>" if value is None else value)])
    settings.set(statement.key, statement.value)
    settings.policy  # noqa: B018 - a wrong policy is refused now
    return answer(columns, [(statement.key, statement.value)])


def _refresh(session: Session, statement: Refresh) -> None:
    session.catalog.table(look_up(session.catalog, statement.name)).sync()


def _uncache(session: Session, statement: Uncache) -> None:
    name = statement.name
    if name is not None and not statement.if_exists and str(name).lower() not in session.views:
        look_up(session.catalog, name)


def _explain(session: Session, statement: Explain) -> Answer:
    bound = session.bound(statement.statement.tree)
    return answer([("plan", _TEXT)], [(session.engine.explained(bound.query, bound.relations),)])


def _written(result: WriteResult | None) -> Answer:
    return Answer(writes=() if result is None else (result,))


_EFFECTS: Final[Mapping[type, Callable[[Session, Any], Answer | None]]] = {
    CreateTable: lambda s, x: Answer(writes=create_table(x, s.scope, s.engine, s.settings)),
    CreateDatabase: lambda s, x: create_database(x, s.catalog),
    CreateView: create_view,
    Drop: _drop,
    Truncate: lambda s, x: _written(truncate(x, s.scope, s.settings)),
    Show: lambda s, x: show(x, s.scope),
    Describe: lambda s, x: describe(x, s.scope),
    Use: lambda s, x: use(x, s.catalog),
    SetOption: _set,
    ResetOption: lambda s, x: s.settings.reset(x.key),
    Insert: lambda s, x: _written(run_insert(x, s.scope, s.engine, s.settings)),
    Update: lambda s, x: _written(run_update(x, s.scope, s.engine, s.settings.hoodie)),
    Delete: lambda s, x: _written(run_delete(x, s.scope, s.engine, s.settings.hoodie)),
    Merge: lambda s, x: _written(run_merge(x, s.scope, s.engine, s.settings.hoodie)),
    AlterTable: lambda s, x: alter(x, s.scope, s.settings),
    Call: lambda s, x: call(x, s.scope, s.settings),
    Explain: _explain,
    Refresh: _refresh,
    Uncache: _uncache,
    CreateIndex: lambda s, x: create_index(x, s.scope, s.settings),
    DropIndex: lambda s, x: drop_index(x, s.scope, s.settings),
    RefreshIndex: lambda s, x: refresh_index(x, s.scope),
}
