"""The tables of a query looked up: each becomes a relation under a name that no other query has.

A name of one part means, as in Spark, the innermost WITH that has it and comes before, else a temporary view, else a
table or view of the current database. The names in a view are those of when it was made, whatever the query around it
names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from skep_format.errors import InputError, NoSuchTableError, NotATableError, UnsupportedError
from skep_format.nearest import did_you_mean
from skep_sql.names import without_catalog
from skep_sql.parsing.paths import HUDI, path_of
from skep_sql.parsing.statements import Name, Node
from skep_sql.parsing.tokens import parsed
from skep_sql.parsing.written import as_written, function_name, replaced, spark_text, value_of_session
from skep_sql.protocols import SPARK_CATALOG, Relation, StoredView, TableCatalog, TargetTable
from skep_sql.spark_release import is_spark_3
from skep_table.query.filters.text import BARE
from skep_table.table import HudiTable

_MOST_VIEWS: Final = 50
_VIEW: Final = "skep_view"  # of a subquery that is that of a view
_BESIDE: Final = ("sample", "pivots", "joins", "laterals")  # what may follow a name, of a table or a view


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query under a name of the session; `columns` rename its own, `functions` are those that it alone calls."""

    query: exp.Query
    columns: tuple[str, ...] = ()
    functions: Mapping[str, TableFunction] = field(default_factory=dict)


# A table function: its arguments → the relation.
TableFunction = Callable[[TableCatalog, tuple[str, ...]], Relation]


@dataclass(frozen=True, slots=True)
class Scope:
    """What names of a query may mean. `pinned`: tables whose snapshot is fixed, by their full names.

    `user` is the client's name where it has one, as current_user() answers it; else that is the engine's.
    """

    catalog: TableCatalog
    views: Mapping[str, NamedQuery] = field(default_factory=dict)
    functions: Mapping[str, TableFunction] = field(default_factory=dict)
    pinned: Mapping[str, HudiTable] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A query whose tables are names of `relations`."""

    query: exp.Query
    relations: Mapping[str, Relation]


def bind(query: exp.Query, scope: Scope) -> Bound:
    """NoSuchTableError with the nearest name for an unknown table; InputError for what can't be read that way."""
    with scope.catalog.looking_once():
        return _bound(query, scope)


def _bound(query: exp.Query, scope: Scope) -> Bound:
    tree = expanded(query, scope)
    _check_common(tree)
    relations: dict[str, Relation] = {}
    opened: dict[str, Relation] = {}  # one snapshot for all mentions of a table
    for node in list(tree.find_all(exp.Table)):
        if node.find_ancestor(exp.Hint):  # BROADCAST(t): the alias, which stays
            continue
        if isinstance(node.this, exp.Identifier):
            if common_of(node) is not None:
                continue
            relation = _table(node, scope, opened)
            name = node.name
            _drop_qualifiers(node, scope.catalog.database)
        else:
            function = scope.functions.get(node.this.name.lower()) if isinstance(node.this, exp.Anonymous) else None
            if function is None:
                continue  # one of the engine's own
            name = node.this.name
            relation = function(scope.catalog, tuple(_argument(each, name) for each in node.this.expressions))
        placeholder = f"skep_{len(relations)}_{uuid.uuid4().hex[:8]}"
        relations[placeholder] = relation
        alias = None if node.alias else name
        if alias is not None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        node.set("this", exp.to_identifier(placeholder))
        for arg in ("db", "catalog", "version", "when"):
            node.set(arg, None)
        replaced(node, alias=alias)
    _name_session(tree, scope, relations)
    return Bound(tree, relations)


def given_rows(function: str, alias: str | None = None) -> Node:
    """A table function without arguments, by which a scope passes rows to a query."""
    named = None if alias is None else exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    return exp.Table(this=exp.Anonymous(this=function, expressions=[]), alias=named)


def common_of(node: Node) -> Node | None:
    """The query of WITH that a name of a table means; None where it means none."""
    if node.args.get("db"):
        return None
    below: Node = node
    while below.parent is not None and not below.meta.get(_VIEW):
        above = below.parent
        clause = above.args.get("with_") or above.args.get("with")
        if isinstance(above, exp.With):  # names that come before, of queries of the same WITH
            own = next(at for at, each in enumerate(above.expressions) if each is below)
            found = above.expressions[: own + bool(above.args.get("recursive"))]
        elif clause is not None and clause is not below:
            found = clause.expressions
        else:
            found = []
        for each in reversed(found):
            if each.alias.lower() == node.name.lower():
                return each
        below = above
    return None


def _check_common(tree: exp.Query) -> None:
    for clause in tree.find_all(exp.With):
        own = [each.alias.lower() for each in clause.expressions]
        twice = next((name for name in own if own.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"WITH names two queries {twice}", found=twice)


def _drop_qualifiers(node: Node, database: str) -> None:
    """Columns that name their table with its database name it by its alias from now on: `d.t.c` becomes `t.c`."""
    select = node.find_ancestor(exp.Select)
    if node.alias or select is None:
        return
    full = ((node.db or database).lower(), node.name.lower())
    for column in select.find_all(exp.Column):
        if (column.db.lower(), column.table.lower()) == full:
            column.set("db", None)
            column.set("catalog", None)
            replaced(column)


def _name_session(tree: exp.Query, scope: Scope, relations: Mapping[str, Relation]) -> None:
    """The session's database, catalog and user are known here, not to engines."""
    values = {"database": scope.catalog.database, "catalog": SPARK_CATALOG, "user": scope.user}
    for node in list(tree.find_all(exp.Func)):
        kind = value_of_session(node)
        value = values[kind] if kind else None
        if kind is None or value is None or "start" not in node.meta:
            continue
        if node.meta.get(BARE) and (function_name(node) or "") in map(str.lower, known_columns(tree, relations)):
            continue
        text = exp.Literal.string(value)
        is_column = isinstance(node.parent, exp.Select)
        replaced(node, exp.alias_(text, _name_of_value(kind, node), quoted=True) if is_column else text)


def known_columns(tree: exp.Query, relations: Mapping[str, Relation]) -> set[str]:
    """What a column of the query may be named: columns of its tables, and aliases."""
    names = [name for each in relations.values() for name in getattr(getattr(each, "schema", None), "names", ())]
    return {*names, *(node.alias for node in tree.find_all(exp.Alias))}


def _name_of_value(kind: str, node: Node) -> str:
    """Spark's name of a column that is a value of the session: from Spark 4 on that of the function, as it was called,
    of the two for a database that of one of them."""
    if is_spark_3():
        return f"current_{kind}()"
    return "current_schema()" if kind == "database" else f"{function_name(node) or f'current_{kind}'}()"


def expanded(query: exp.Query, scope: Scope) -> exp.Query:
    """The query with the query of each view in its place: of those of the session, then of those of the catalog."""
    tree: exp.Query = query.copy()
    known: dict[str, NamedQuery | None] = {}
    for _ in range(_MOST_VIEWS):
        found = []
        for node in named_tables(tree):
            view = _view(node, scope, known)
            if view is not None:
                found.append((node, view))
        if not found:
            return tree
        for node, view in found:
            if node.args.get("version") or node.args.get("when"):
                raise InputError(f"{node.name} is a view, which has no earlier versions", found=node.name)
            given = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
            inner = exp.Subquery(this=_of_columns(view), alias=given.copy())
            for name in _BESIDE:
                inner.set(name, node.args.get(name))
            inner.meta[_VIEW] = True
            replaced(node, inner, alias=None if node.alias else node.name)
    raise InputError("views refer to each other", found=spark_text(query))


def _of_columns(view: NamedQuery) -> exp.Query:
    """The query of a view with the view's names of its columns."""
    if not view.columns:
        return view.query.copy()
    columns = [exp.to_identifier(name, quoted=True) for name in view.columns]
    alias = exp.TableAlias(this=exp.to_identifier(_VIEW), columns=columns)
    found: exp.Query = exp.select("*").from_(exp.Subquery(this=view.query.copy(), alias=alias))
    return found


def named_tables(tree: exp.Query) -> list[Node]:
    """The tables and views that a query names."""
    return [
        node
        for node in tree.find_all(exp.Table)
        if isinstance(node.this, exp.Identifier) and common_of(node) is None and not node.find_ancestor(exp.Hint)
    ]


def table_parts(node: Node) -> tuple[str, ...]:
    """Of the name of a table in a query, without Spark's own catalog before it."""
    return without_catalog(tuple(each for each in (node.catalog, node.db, node.name) if each))


def _view(node: Node, scope: Scope, known: dict[str, NamedQuery | None]) -> NamedQuery | None:
    if not node.db and node.name.lower() in scope.views:
        return scope.views[node.name.lower()]
    parts = table_parts(node)
    if len(parts) > 2 or path_of(node) is not None:
        return None
    name = ".".join(parts)
    if name not in known:
        stored = scope.catalog.view(name)
        known[name] = None if stored is None else opened_view(name, stored)
    return known[name]


def opened_view(name: str, stored: StoredView) -> NamedQuery:
    """The query of a stored view. UnsupportedError for one that is written otherwise than Spark does it."""
    try:
        query = parsed(stored.query)
    except InputError as error:
        raise UnsupportedError(f"view {name}: {error.message}", found=stored.query) from error
    if not isinstance(query, exp.Query):
        raise UnsupportedError(f"view {name} is no query that is known here", found=stored.query)
    as_written(query, stored.query)
    for node in named_tables(query):
        if not node.db:
            node.set("db", exp.to_identifier(stored.database, quoted=True))
    if stored.outputs:
        columns = [exp.column(exp.to_identifier(each, quoted=True)) for each in stored.outputs]
        query = exp.select(*columns).from_(exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("v"))))
    return NamedQuery(query, stored.columns)


def table_to_change(scope: Scope, name: Name) -> TargetTable:
    """The table that a statement changes. NotATableError for what is none of Hudi's, before anything happens."""
    refuse_view(scope.views, name)
    with scope.catalog.looking_once():
        return scope.catalog.table(look_up(scope.catalog, name))


def refuse_view(views: Collection[str], name: Name) -> None:
    """NotATableError for a temporary view: a table of its name is not meant."""
    if str(name).lower() in views:
        raise NotATableError(
            f"line {name.line}, column {name.column}: {name} is a temporary view, which queries read",
            hint="a table of this name is named with its database",
            table=str(name),
            found="view",
        )


def look_up(catalog: TableCatalog, name: Name) -> str:
    """The full name of a table that is there. NoSuchTableError with the nearest name."""
    if len(name.parts) > 2:
        raise InputError(
            f"line {name.line}, column {name.column}: tables are named database.table, found {name}", found=str(name)
        )
    facts = catalog.facts(str(name))
    if facts is not None:
        return f"{facts.database}.{facts.name}"
    database = name.parts[0] if len(name.parts) == 2 else None
    is_there = database is None or database.lower() in catalog.databases()
    raise NoSuchTableError(
        f"line {name.line}, column {name.column}: there is no table {name}",
        hint=did_you_mean(name.parts[-1], catalog.table_names(database)) if is_there else None,
        table=str(name),
        found=str(name),
        line=name.line,
        column=name.column,
    )


def _table(node: Node, scope: Scope, opened: dict[str, Relation]) -> Relation:
    path = path_of(node)
    version = node.args.get("version") or node.args.get("when")
    if path is not None:
        return _at_path(scope.catalog, *path, version)
    meta = getattr(node.this, "meta", {}) or {}
    column = meta.get("col", 0) - (meta.get("end", 0) - meta.get("start", 0))
    full = look_up(scope.catalog, Name(table_parts(node), meta.get("line", 1), max(1, column)))
    if version is None and full in opened:
        return opened[full]
    target = scope.catalog.table(full)
    if version is None:
        opened[full] = target.rows(scope.pinned.get(target.name) or target.snapshot)
        return opened[full]
    return target.rows(as_of=_instant(version))


def _at_path(catalog: TableCatalog, format: str, path: str, version: Node | None) -> Relation:
    if format == HUDI:
        return catalog.table_at(path, as_of=None if version is None else _instant(version))
    if version is not None:
        raise InputError(f"{format}.`{path}`: files have no earlier versions, as Hudi tables have", found=path)
    return catalog.files_at(format, path)


def _instant(version: Node) -> str:
    """What TIMESTAMP AS OF names."""
    if version.name.upper() == "VERSION":
        raise InputError(
            "VERSION AS OF: versions of a Hudi table are its instants",
            hint="TIMESTAMP AS OF '20260101120000000' takes an instant",
        )
    moment = version.args.get("expression")
    if isinstance(moment, exp.Cast):
        moment = moment.this
    if not isinstance(moment, exp.Literal):
        raise InputError(
            f"TIMESTAMP AS OF takes an instant, a date or a time, not {moment.sql('spark') if moment else 'nothing'}"
        )
    return str(moment.name)


def _argument(node: Node, function: str) -> str:
    if isinstance(node, (exp.Literal, exp.Boolean)):
        return str(node.name or node.this).lower() if isinstance(node, exp.Boolean) else str(node.this)
    raise InputError(f"{function}: arguments are constants, not {node.sql('spark')}", found=node.sql("spark"))
