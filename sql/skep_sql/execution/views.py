"""CREATE VIEW and DROP VIEW: queries under names, of the session or of the catalog, where Spark and Hive read them."""

from __future__ import annotations

import uuid
from dataclasses import replace

from sqlglot import exp

from skep_format.errors import EntryExistsError, InputError, NoSuchTableError, UnsupportedError
from skep_sql.bind import NamedQuery, Scope, bind, given_rows, look_up, named_tables
from skep_sql.functions import FUNCTIONS
from skep_sql.parsing.statements import CreateFilesView, CreateView, Drop, Name
from skep_sql.parsing.written import name_columns, replaced, spark_text
from skep_sql.protocols import StoredView
from skep_sql.session import Session


def create_view(session: Session, statement: CreateView) -> None:
    """EntryExistsError for a name in use, unless the view there is to be replaced."""
    if statement.temporary:
        _create_temporary(session, statement)
    else:
        _create_stored(session, statement)


def create_files_view(session: Session, statement: CreateFilesView) -> None:
    """A temporary view over what the engine reads by a format and its options. InputError for what it can't read."""
    name = _free_name(session, statement)
    if statement.provider == "hudi":
        raise UnsupportedError("CREATE TEMPORARY VIEW … USING hudi is not supported", hint="CREATE TABLE … LOCATION")
    rows = session.engine.files(statement.provider, statement.options, statement.columns)
    function = f"skep_files_{uuid.uuid4().hex}"
    query = exp.select("*").from_(given_rows(function))
    session.views[name] = NamedQuery(query, functions={function: lambda *_: rows})


def _free_name(session: Session, statement: CreateView | CreateFilesView) -> str:
    name = str(statement.name).lower()
    if len(statement.name.parts) > 1:
        raise InputError(f"a temporary view has a name of one part, found {statement.name}")
    if name in session.views and not statement.replace:
        raise EntryExistsError(f"temporary view {name} already exists", hint="CREATE OR REPLACE TEMPORARY VIEW")
    return name


def _create_temporary(session: Session, statement: CreateView) -> None:
    if statement.if_not_exists:
        raise InputError("a temporary view is made without IF NOT EXISTS", hint="CREATE OR REPLACE TEMPORARY VIEW")
    name = _free_name(session, statement)
    query: exp.Query = statement.query.copy()
    for node in named_tables(query):
        if node.db or node.name.lower() in session.views:
            continue
        facts = session.catalog.facts(node.name)
        if facts is not None and facts.database == session.catalog.database:
            node.set("db", exp.to_identifier(facts.database, quoted=True))  # whatever views there are later
    view = NamedQuery(query, statement.columns)
    if name in session.views:  # one that reads itself is refused
        bind(query, replace(session.scope, views={**session.views, name: view}))
    bind(query, session.scope)  # unknown tables are refused now
    session.views[name] = view


def _create_stored(session: Session, statement: CreateView) -> None:
    catalog, name = session.catalog, str(statement.name)
    if catalog.view(name) is not None:
        if statement.if_not_exists:
            return
        if not statement.replace:
            raise EntryExistsError(f"view {name} already exists", hint="CREATE OR REPLACE VIEW")
    elif catalog.facts(name) is not None:
        raise EntryExistsError(f"{name} is a table", hint="another name", found=name)
    query = _complete(session.scope, statement)
    bound = session.bound(query)
    schema = session.engine.schema(bound.query, bound.relations)
    outputs = _names(query, schema.names)
    columns = statement.columns or outputs
    if len(columns) != len(outputs):
        raise InputError(
            f"view {name} names {len(columns)} columns, and its query has {len(outputs)}",
            found=len(columns),
            expected=len(outputs),
        )
    for each in (outputs, columns):
        twice = [one for at, one in enumerate(each) if one.lower() in [other.lower() for other in each[:at]]]
        if twice:
            raise InputError(f"view {name} has two columns {twice[0]}", hint="… AS another name", column=twice[0])
    given = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("given")))
    pairs = zip(outputs, columns, strict=True)
    listed = [exp.alias_(exp.column(output, quoted=True), column, quoted=True) for output, column in pairs]
    text = spark_text(exp.select(*listed).from_(given))
    stored = StoredView(text, tuple(columns), catalog.database, comments=statement.comments)
    catalog.create_view(
        name, stored, schema, statement.text, comment=statement.comment, properties=statement.properties
    )


def _complete(scope: Scope, statement: CreateView) -> exp.Query:
    """The query with the database of each table, as it means the same to every session."""
    query: exp.Query = statement.query.copy()
    for node in named_tables(query):
        if not node.db and node.name.lower() in scope.views:
            raise InputError(
                f"view {statement.name} would read {node.name}, a temporary view of this session",
                hint="CREATE TEMPORARY VIEW",
                found=node.name,
            )
        if not node.db and scope.catalog.view(node.name) is None:
            database, _, table = look_up(scope.catalog, Name((node.name,))).partition(".")
            node.set("this", exp.to_identifier(table, quoted=True))
            node.set("db", exp.to_identifier(database, quoted=True))
            replaced(node)
        elif not node.db:
            node.set("db", exp.to_identifier(scope.catalog.database, quoted=True))
            replaced(node)
    for node in query.find_all(exp.Anonymous):
        if node.name.lower() in FUNCTIONS:
            raise UnsupportedError(f"{node.name}(…) in a view is known to skep alone", hint="CREATE TEMPORARY VIEW")
    return query


def _names(query: exp.Query, names: list[str]) -> tuple[str, ...]:
    """The names of the query's columns; those without one get it here, as engines would name them differently."""
    if isinstance(query, exp.Select) and len(query.expressions) == len(names) and not query.is_star:
        name_columns(query, names)
    return tuple(names)


def drop_view(session: Session, statement: Drop) -> None:
    """One of the session, else one of the catalog."""
    name = str(statement.name).lower()
    if session.views.pop(name, None) is not None:
        return
    if session.catalog.view(name) is not None:
        session.catalog.drop_view(name)
    elif session.catalog.facts(name) is not None:
        raise InputError(f"{name} is a table, and no view", hint=f"DROP TABLE {name}", found=name)
    elif not statement.if_exists:
        raise NoSuchTableError(f"there is no view {name}", found=name)
