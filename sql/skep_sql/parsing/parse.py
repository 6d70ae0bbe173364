"""Statements from text: what Spark's grammar and Hudi's extensions of it write, without looking any name up.

The words of a statement are read here; its queries, expressions and literals by sqlglot in Spark's dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlglot import exp

from skep_format.errors import InputError
from skep_sql.parsing.statements import (
    AlterTable,
    Assignment,
    Call,
    ColumnSpec,
    CreateDatabase,
    CreateFilesView,
    CreateIndex,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DescribeQuery,
    Drop,
    DropIndex,
    Explain,
    Insert,
    Merge,
    MergeClause,
    Name,
    Node,
    PartitionSpec,
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
from skep_sql.parsing.tokens import Cursor, statements_of
from skep_sql.protocols import TIME_ZONE
from skep_table.query.filters.text import SqlDialect

_QUERY_WORDS: Final = ("SELECT", "WITH", "VALUES", "(", "FROM", "TABLE")
_SHOWN: Final = {
    "TABLES": "tables",
    "TABLE EXTENDED": "table extended",
    "DATABASES": "databases",
    "SCHEMAS": "databases",
    "NAMESPACES": "databases",
    "VIEWS": "views",
}
_SETS_OF_FUNCTIONS: Final = ("USER", "SYSTEM", "ALL")


def parse(text: str) -> Statement:
    """The one statement of a text. InputError names line and column of what does not fit."""
    found = parse_all(text)
    if len(found) != 1:
        raise InputError(f"one statement is expected, found {len(found)}", found=text)
    return found[0]


def parse_all(text: str) -> list[Statement]:
    """The statements of a text, which end with semicolons. InputError as of `parse`."""
    return [_statement(cursor) for cursor in statements_of(text)]


def parse_expression(text: str) -> Node:
    """One expression. InputError names line and column of what does not fit."""
    found = statements_of(text)
    if len(found) != 1:
        raise InputError(f"{text!r} is no expression", found=text)
    expression = found[0].expression(commas=False)
    found[0].end()
    return expression


def _statement(words: Cursor) -> Statement:
    for word in _QUERY_WORDS:
        if words.peek(word):
            return Query(words.query())
    for name, read in _READERS.items():
        if words.take(name):
            found = read(words)
            words.end()
            return found
    raise words.fail("a statement")


# -- tables


def _create(words: Cursor) -> Statement:
    replace = words.take("OR", "REPLACE")
    if words.take("GLOBAL"):
        return _rest(words, "CREATE GLOBAL TEMPORARY VIEW", "CREATE TEMPORARY VIEW is one of this session")
    if words.take("TEMPORARY", "VIEW") or words.take("TEMP", "VIEW"):
        return _create_view(words, replace, temporary=True)
    if words.take("DATABASE") or words.take("SCHEMA"):
        return _create_database(words)
    if words.take("INDEX"):
        return _create_index(words)
    if words.take("VIEW"):
        return _create_view(words, replace, temporary=False)
    words.take("EXTERNAL")
    if not words.take("TABLE"):
        raise words.fail("TABLE, DATABASE, TEMPORARY VIEW or INDEX")
    if replace:
        return _rest(words, "CREATE OR REPLACE TABLE", "DROP TABLE … PURGE and CREATE TABLE, or INSERT OVERWRITE")
    return _create_table(words)


def _create_view(words: Cursor, replace: bool, *, temporary: bool) -> Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name("the name of a view")
    if temporary and (files := _view_of_files(words, name, replace)):
        return files
    columns, comments = _view_columns(words) if words.take("(") else ((), ())
    comment, properties = None, {}
    while not words.take("AS"):
        if words.take("COMMENT"):
            comment = words.string()
        elif words.take("TBLPROPERTIES"):
            properties = _properties(words)
        else:
            raise words.fail("COMMENT, TBLPROPERTIES or AS")
    text = words.rest_text()
    return CreateView(
        name, words.query(), columns, replace, temporary, if_not_exists, comment, comments, properties, text
    )


def _view_of_files(words: Cursor, name: Name, replace: bool) -> Statement | None:
    """CREATE TEMPORARY VIEW … USING format OPTIONS (…); None for a view of a query."""
    columns = None
    if words.peek("("):
        if not words.follows_parentheses("USING"):
            return None
        columns = words.slice(words.parenthesized(), "columns with their types")
    if not words.take("USING"):
        return None
    provider = ".".join(words.path("a format")).lower()
    return CreateFilesView(name, provider, _properties(words) if words.take("OPTIONS") else {}, columns, replace)


def _view_columns(words: Cursor) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    found: list[tuple[str, str | None]] = []
    while not found or words.take(","):
        found.append((words.identifier("a column"), words.string() if words.take("COMMENT") else None))
    words.need(")")
    return tuple(name for name, _ in found), tuple(comment for _, comment in found)


def _create_index(words: Cursor) -> Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    index, table = words.identifier("the name of an index"), _indexed(words)
    kind = words.identifier("a kind of index").lower() if words.take("USING") else None
    words.need("(")
    columns = [_column_path(words)]
    while words.take(","):
        columns.append(_column_path(words))
    words.need(")")
    options = _properties(words) if words.take("OPTIONS") else {}
    return CreateIndex(index, table, kind, tuple(columns), options, if_not_exists)


def _indexed(words: Cursor) -> Name:
    """The table of an index."""
    words.need("ON")
    words.take("TABLE")
    return words.name()


def _column_path(words: Cursor) -> str:
    return ".".join(words.path("a column"))


def _create_database(words: Cursor) -> Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name("the name of a database")
    comment = location = None
    while words.token is not None:
        if words.take("COMMENT"):
            comment = words.string()
        elif words.take("LOCATION"):
            location = words.string()
        else:
            raise words.fail("COMMENT or LOCATION")
    return CreateDatabase(name, if_not_exists, location, comment)


def _create_table(words: Cursor) -> Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name()
    like = words.name() if words.take("LIKE") else None
    columns: tuple[ColumnSpec, ...] = ()
    if words.take("("):
        columns = _column_specs(words)
        words.need(")")
    given: dict[str, Any] = {"properties": {}}

    def once(key: str, value: object) -> None:
        if key in given:
            raise words.fail("each clause once")
        given[key] = value

    while words.token is not None:
        if words.take("USING"):
            once("provider", words.identifier("a format").lower())
        elif words.take("PARTITIONED", "BY"):
            names, more = _partitioned_by(words)
            once("partition_by", names)
            columns += more
        elif words.take("LOCATION"):
            once("location", words.string())
        elif words.take("COMMENT"):
            once("comment", words.string())
        elif words.take("TBLPROPERTIES") or words.take("OPTIONS"):
            given["properties"] = {**given["properties"], **_properties(words)}
        elif words.take("AS") or any(words.peek(word) for word in _QUERY_WORDS[:3]):
            once("query", words.query())
        else:
            raise words.fail("a clause of CREATE TABLE")
    return CreateTable(name, columns, if_not_exists, like=like, **given)


def _partitioned_by(words: Cursor) -> tuple[tuple[str, ...], tuple[ColumnSpec, ...]]:
    """The names, and the columns among them that are declared here."""
    words.need("(")
    names, columns = [], []
    while True:
        name = words.identifier("a column")
        names.append(name)
        if not words.peek(",") and not words.peek(")"):
            columns.append(ColumnSpec(name, words.type_text()))
        if not words.take(","):
            break
    words.need(")")
    return tuple(names), tuple(columns)


def _column_specs(words: Cursor, *, nested: bool = False) -> tuple[ColumnSpec, ...]:
    found = [_column_spec(words, nested=nested)]
    while words.take(","):
        found.append(_column_spec(words, nested=nested))
    return tuple(found)


def _column_spec(words: Cursor, *, nested: bool) -> ColumnSpec:
    """With `nested` the name may be a path into structs."""
    name = ".".join(words.path("a column")) if nested else words.identifier("a column")
    kind = words.type_text("NOT NULL", "COMMENT", "FIRST", "AFTER")
    nullable, comment, after = True, None, None
    while True:
        if words.take("NOT", "NULL"):
            nullable = False
        elif words.take("COMMENT"):
            comment = words.string()
        elif words.take("FIRST"):
            after = ""
        elif words.take("AFTER"):
            after = ".".join(words.path("a column"))
        else:
            return ColumnSpec(name, kind, nullable, comment, after)


def _properties(words: Cursor) -> dict[str, str]:
    """Keys in quotes, or bare with dots; values of any kind."""
    words.need("(")
    found: dict[str, str] = {}
    while True:
        key = _property_key(words)
        if not words.take("="):
            words.take(":")
        found[key] = words.literal_text()
        if not words.take(","):
            break
    words.need(")")
    return found


def _property_key(words: Cursor) -> str:
    return words.string() if words.is_string() else ".".join(words.path("the name of a property"))


def _drop(words: Cursor) -> Statement:
    if words.take("INDEX"):
        if_exists = words.take("IF", "EXISTS")
        return DropIndex(words.identifier("the name of an index"), _indexed(words), if_exists)
    kind = {"TABLE": "table", "VIEW": "view", "DATABASE": "database", "SCHEMA": "database"}.get(
        words.take_one("TABLE", "VIEW", "DATABASE", "SCHEMA") or ""
    )
    if kind is None:
        raise words.fail("TABLE, VIEW, DATABASE or INDEX")
    if_exists = words.take("IF", "EXISTS")
    name = words.name(f"the name of a {kind}")
    cascade = kind == "database" and words.take("CASCADE")
    if kind == "database":
        words.take("RESTRICT")
    return Drop(kind, name, if_exists, kind == "table" and words.take("PURGE"), cascade)


def _truncate(words: Cursor) -> Statement:
    words.need("TABLE")
    return Truncate(words.name(), _partition(words))


def _partition(words: Cursor) -> PartitionSpec | None:
    return _partition_values(words) if words.take("PARTITION") else None


def _partition_values(words: Cursor) -> PartitionSpec:
    words.need("(")
    found: dict[str, Node | None] = {}
    while True:
        name = words.identifier("a partition column")
        if name.lower() in (each.lower() for each in found):
            raise InputError(f"PARTITION names column {name} twice", column=name, found=name)
        found[name] = words.expression() if words.take("=") else None
        if not words.take(","):
            break
    words.need(")")
    return found


# -- what is there


def _show(words: Cursor) -> Statement:
    for text, what in _SHOWN.items():
        if words.take(*text.split()):
            name = words.name("the name of a database") if words.take_one("IN", "FROM") else None
            if what == "table extended":
                words.need("LIKE")
                return Show(what, name, words.string(), partition=_partition(words))
            words.take("LIKE")
            return Show(what, name, words.string() if words.is_string() else None)
    if any(words.peek("FUNCTIONS") or words.peek(kind, "FUNCTIONS") for kind in _SETS_OF_FUNCTIONS):
        return _show_functions(words)
    if words.take("PARTITIONS"):
        return Show("partitions", words.name(), partition=_partition(words))
    if words.take("CREATE", "TABLE"):
        return Show("create table", words.name())
    if words.take("TBLPROPERTIES"):
        name = words.name()
        key = None
        if words.take("("):
            key = _property_key(words)
            words.need(")")
        return Show("tblproperties", name, key=key)
    if words.take("COLUMNS"):
        if not words.take_one("IN", "FROM"):
            raise words.fail("IN or FROM")
        name = words.name()
        if words.take_one("IN", "FROM"):
            name = Name((*words.name("the name of a database").parts, *name.parts), name.line, name.column)
        return Show("columns", name)
    if words.take("INDEXES"):
        if not words.take_one("IN", "FROM", "ON"):
            raise words.fail("IN, FROM or ON")
        words.take("TABLE")
        return Show("indexes", words.name())
    if words.take("COMPACTION"):
        return _compaction(words, "show")
    if words.take("CURRENT", "NAMESPACE"):
        return Show("current namespace")
    if words.take("CATALOGS"):
        words.take("LIKE")
        return Show("catalogs", pattern=words.string() if words.is_string() else None)
    return _rest(words, "SHOW " + (words.token.text.upper() if words.token else ""))


def _show_functions(words: Cursor) -> Statement:
    kind = words.take_one(*_SETS_OF_FUNCTIONS)
    words.need("FUNCTIONS")
    name = words.name("the name of a database") if words.take_one("IN", "FROM") else None
    words.take("LIKE")
    pattern = None if words.token is None else words.string() if words.is_string() else words.path("a function")[-1]
    return Show("functions", name, pattern, key=None if kind is None else kind.lower())


def _describe(words: Cursor) -> Statement:
    if words.take("QUERY") or any(words.peek(word) for word in _QUERY_WORDS if word != "TABLE"):
        return DescribeQuery(words.query())
    if words.take("DATABASE") or words.take("SCHEMA"):
        extended = words.take("EXTENDED")
        return Describe(words.name("the name of a database"), extended, kind="database")
    words.take("TABLE")
    extended = words.take_one("EXTENDED", "FORMATTED") is not None
    name = words.name()
    if partition := _partition(words):
        return Describe(name, extended, partition=partition)
    column = ".".join(words.path("a column")) if words.token is not None else None
    return Describe(name, extended, column)


def _use(words: Cursor) -> Statement:
    words.take_one("DATABASE", "SCHEMA")
    return Use(words.name("the name of a database"))


def _set(words: Cursor) -> Statement:
    if words.token is None or words.take("-", "v"):
        return SetOption()
    if words.take("TIME", "ZONE"):
        if not words.is_string():
            raise words.fail("a time zone in quotes")
        return SetOption(TIME_ZONE, words.string())
    text = words.text()[3:].strip()
    words.skip()
    key, equals, value = text.partition("=")
    key, value = key.strip().strip("`"), value.strip()
    if not key or len(key.split()) > 1:
        raise InputError(f"{text!r} is no setting: SET key=value", found=text)
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return SetOption(key, value if equals else None)


def _reset(words: Cursor) -> Statement:
    if words.token is None:
        return ResetOption()
    key = words.text()[5:].strip().strip("`")
    words.skip()
    return ResetOption(key)


# -- rows


def _insert(words: Cursor) -> Statement:
    overwrite = words.take("OVERWRITE")
    if not overwrite:
        words.need("INTO")
    if words.peek("DIRECTORY") or words.peek("LOCAL"):
        return _rest(words, "INSERT OVERWRITE DIRECTORY")
    words.take("TABLE")
    name = words.name()
    partition = _partition(words)
    if words.take("IF"):
        return _rest(words, "INSERT OVERWRITE … IF NOT EXISTS")
    by_name = words.take("BY", "NAME")
    columns = None
    if words.peek("(") and not any(words.peek("(", word) for word in ("SELECT", "WITH", "VALUES", "(")):
        columns = words.names()
    return Insert(name, words.query(), overwrite, partition, columns, by_name)


def _alias(words: Cursor, *before: str) -> str | None:
    if words.take("AS"):
        return words.identifier("an alias")
    if words.token is None or any(words.peek(word) for word in before):
        return None
    return words.identifier("an alias")


def _update(words: Cursor) -> Statement:
    name = words.name()
    alias = _alias(words, "SET")
    words.need("SET")
    assignments = _assignments(words, name, alias, "WHERE")
    where = words.expression(commas=False) if words.take("WHERE") else None
    return Update(name, alias, assignments, where)


def _assignments(words: Cursor, name: Name, alias: str | None, *ends: str) -> tuple[Assignment, ...]:
    found = []
    while True:
        parts = words.path("a column")
        if len(parts) > 1 and parts[0].lower() == (alias or name.parts[-1]).lower():
            parts = parts[1:]
        words.need("=")
        found.append(Assignment(".".join(parts), words.expression(*ends)))
        if not words.take(","):
            return tuple(found)


def _delete(words: Cursor) -> Statement:
    words.need("FROM")
    name = words.name()
    alias = _alias(words, "WHERE")
    return Delete(name, alias, words.expression(commas=False) if words.take("WHERE") else None)


def _merge(words: Cursor) -> Statement:
    words.need("INTO")
    name = words.name()
    alias = _alias(words, "USING")
    words.need("USING")
    if words.peek("("):
        source = words.query_in(words.parenthesized())
        source_alias = _alias(words, "ON")
    else:
        span = words.span("ON", commas=False)
        relation = _relation(words, words.slice(span, "a table or a query in parentheses"))
        source_alias = relation.alias or relation.name
        source = exp.select("*").from_(relation)
    words.need("ON")
    on = words.expression("WHEN", commas=False)
    clauses = []
    while words.take("WHEN"):
        clauses.append(_merge_clause(words, name, alias))
    if not clauses:
        raise words.fail("WHEN MATCHED or WHEN NOT MATCHED")
    return Merge(name, alias, source, source_alias or "source", on, tuple(clauses))


def _relation(words: Cursor, text: str) -> Node:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(f"SELECT * FROM {text}", read=SqlDialect)
        found: Any = tree.find(exp.From) if isinstance(tree, exp.Select) else None
        relation = None if found is None else found.this
    except SqlglotError:
        relation = None
    if not isinstance(relation, exp.Table):
        raise words.fail("a table or a query in parentheses")
    return relation


def _merge_clause(words: Cursor, name: Name, alias: str | None) -> MergeClause:
    when = "matched"
    if words.take("NOT"):
        when = "not matched"
    words.need("MATCHED")
    if when == "not matched" and words.take("BY"):
        when = "not matched by source" if words.take("SOURCE") else when
        if when == "not matched":
            words.need("TARGET")
    condition = words.expression("THEN", commas=False) if words.take("AND") else None
    words.need("THEN")
    if when == "not matched":
        words.need("INSERT")
        if words.take("*"):
            return MergeClause(when, "insert", condition)
        columns = tuple(part for part in _insert_columns(words, name, alias))
        words.need("VALUES")
        words.need("(")
        values = [words.expression()]
        while words.take(","):
            values.append(words.expression())
        words.need(")")
        if len(values) != len(columns):
            raise InputError(
                f"table {name}: INSERT names {len(columns)} columns and has {len(values)} values",
                found=len(values),
                expected=len(columns),
            )
        return MergeClause(when, "insert", condition, tuple(map(Assignment, columns, values)))
    if words.take("DELETE"):
        return MergeClause(when, "delete", condition)
    words.need("UPDATE")
    words.need("SET")
    if words.take("*"):
        return MergeClause(when, "update", condition)
    return MergeClause(when, "update", condition, _assignments(words, name, alias, "WHEN"))


def _insert_columns(words: Cursor, name: Name, alias: str | None) -> list[str]:
    words.need("(")
    found = []
    while True:
        parts = words.path("a column")
        found.append(
            parts[-1] if len(parts) > 1 and parts[0].lower() == (alias or name.parts[-1]).lower() else ".".join(parts)
        )
        if not words.take(","):
            break
    words.need(")")
    return found


# -- changes of tables, procedures


def _alter(words: Cursor) -> Statement:
    if not words.take("TABLE"):
        return _rest(words, "ALTER " + (words.token.text.upper() if words.token else ""))
    name = words.name()
    if words.take("RENAME", "TO"):
        return AlterTable(name, "rename", new_name=words.name("the new name"))
    if words.take("RENAME", "COLUMN"):
        column = ".".join(words.path("a column"))
        words.need("TO")
        return AlterTable(name, "rename column", column=column, new_column=words.identifier("the new name"))
    if words.take("ADD", "COLUMNS") or words.take("ADD", "COLUMN"):
        if words.take("("):
            columns = _column_specs(words, nested=True)
            words.need(")")
        else:
            columns = _column_specs(words, nested=True)
        return AlterTable(name, "add columns", columns=columns)
    if words.take("DROP", "COLUMNS") or words.take("DROP", "COLUMN"):
        if_exists = words.take("IF", "EXISTS")
        enclosed = words.take("(")
        dropped = [".".join(words.path("a column"))]
        while words.take(","):
            dropped.append(".".join(words.path("a column")))
        if enclosed:
            words.need(")")
        columns = tuple(ColumnSpec(each, "") for each in dropped)
        return AlterTable(name, "drop column", columns=columns, if_exists=if_exists)
    if words.take("DROP"):
        if_exists = words.take("IF", "EXISTS")
        partitions: list[PartitionSpec] = []
        while not partitions or words.take(","):
            words.need("PARTITION")
            partitions.append(_partition_values(words))
        words.take("PURGE")
        return AlterTable(name, "drop partition", partitions=tuple(partitions), if_exists=if_exists)
    if words.take("ADD"):
        if_exists = words.take("IF", "NOT", "EXISTS")
        partitions = []
        while words.take("PARTITION"):
            partitions.append(_partition_values(words))
            if words.take("LOCATION"):
                return _rest(words, "ADD PARTITION … LOCATION", "the folders of a Hudi table lie below its own")
        if not partitions:
            raise words.fail("COLUMNS or PARTITION")
        return AlterTable(name, "add partition", partitions=tuple(partitions), if_exists=if_exists)
    if words.take("SET", "TBLPROPERTIES"):
        return AlterTable(name, "set properties", properties=_properties(words))
    if words.take("UNSET", "TBLPROPERTIES"):
        if_exists = words.take("IF", "EXISTS")
        words.need("(")
        keys = [_property_key(words)]
        while words.take(","):
            keys.append(_property_key(words))
        words.need(")")
        return AlterTable(name, "unset properties", properties=dict.fromkeys(keys, ""), if_exists=if_exists)
    if words.take("ALTER", "COLUMN") or words.take("CHANGE", "COLUMN") or words.take("ALTER") or words.take("CHANGE"):
        return _alter_column(words, name)
    return _rest(words, "ALTER TABLE … " + (words.token.text.upper() if words.token else ""))


def _alter_column(words: Cursor, name: Name) -> Statement:
    column = ".".join(words.path("a column"))
    changes: dict[str, Any] = {}
    if words.token is not None and not any(
        words.peek(word) for word in ("TYPE", "COMMENT", "FIRST", "AFTER", "DROP", "SET")
    ):  # Hive's: CHANGE COLUMN old new type
        changes["new_column"] = words.identifier("the new name")
        changes["type"] = words.type_text("COMMENT", "FIRST", "AFTER")
    while words.token is not None:
        if words.take("TYPE"):
            changes["type"] = words.type_text("COMMENT", "FIRST", "AFTER")
        elif words.take("COMMENT"):
            changes["comment"] = words.string()
        elif words.take("FIRST"):
            changes["after"] = ""
        elif words.take("AFTER"):
            changes["after"] = ".".join(words.path("a column"))
        elif words.take("DROP", "NOT", "NULL"):
            changes["nullable"] = True
        elif words.take("SET", "NOT", "NULL"):
            changes["nullable"] = False
        else:
            raise words.fail("TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL or SET NOT NULL")
    if not changes:
        raise words.fail("TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL or SET NOT NULL")
    return AlterTable(name, "alter column", column=column, **changes)


def _call(words: Cursor) -> Statement:
    name = words.path("the name of a procedure")[-1].lower()
    positional: list[object] = []
    named: dict[str, object] = {}
    words.need("(")
    while not words.peek(")"):
        value: Node = words.expression("=>")
        if words.take("=>"):
            key = value.name if isinstance(value, (exp.Column, exp.Identifier)) else ""
            if not key:
                raise words.fail("the name of an argument before =>")
            named[key.lower()] = _constant(words, words.expression())
        else:
            positional.append(_constant(words, value))
        if not words.take(","):
            break
    words.need(")")
    if positional and named:
        raise InputError(f"CALL {name}: arguments are given by name or by position, not both", found=words.text())
    return Call(name, tuple(positional), named)


def _compaction(words: Cursor, operation: str) -> Statement:
    """Hudi's statements on compactions, which are its procedures."""
    words.need("ON")
    if words.is_string():
        return _rest(words, f"{operation.upper()} COMPACTION ON a path", "a table's lock is found by its name")
    named: dict[str, object] = {"table": str(words.name())}
    if operation == "show":
        if words.take("LIMIT"):
            named["limit"] = _constant(words, words.expression())
        return Call("show_compaction", named=named)
    if words.take("AT"):
        named["timestamp"] = _constant(words, words.expression())
    return Call("run_compaction", named={"op": operation, **named})


def _run(words: Cursor) -> Statement:
    words.need("COMPACTION")
    return _compaction(words, "run")


def _schedule(words: Cursor) -> Statement:
    words.need("COMPACTION")
    return _compaction(words, "schedule")


def _constant(words: Cursor, node: Node) -> object:
    """The value of a literal of an argument."""
    if isinstance(node, exp.Cast):
        return _constant(words, node.this)
    if isinstance(node, exp.Neg):
        value = _constant(words, node.this)
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.this
        return int(node.this) if node.this.isdigit() else float(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, (exp.Map, exp.VarMap, exp.Anonymous)):
        return node.sql("spark")
    raise InputError(f"{node.sql('spark')} is no constant; arguments of CALL are constants", found=node.sql("spark"))


def _explain(words: Cursor) -> Statement:
    words.take_one("EXTENDED", "FORMATTED", "COST", "CODEGEN")
    explained = _statement(words)
    return explained if isinstance(explained, Unsupported) else Explain(explained)


def _refresh(words: Cursor) -> Statement:
    if words.take("TABLE"):
        return Refresh(words.name())
    if words.take("INDEX"):
        return RefreshIndex(words.identifier("the name of an index"), _indexed(words))
    return _rest(words, "REFRESH " + (words.token.text.upper() if words.token else ""))


def _repair(words: Cursor) -> Statement:
    words.need("REPAIR")
    words.need("TABLE")
    return Refresh(words.name())


def _cache(words: Cursor) -> Statement:
    return _rest(words, "CACHE TABLE", "queries read the table as it is; lake.sql(…).to_arrow() keeps the rows of one")


def _uncache(words: Cursor) -> Statement:
    words.need("TABLE")
    if_exists = words.take("IF", "EXISTS")
    return Uncache(words.name(), if_exists)


def _clear(words: Cursor) -> Statement:
    words.need("CACHE")
    return Uncache()


def _analyze(words: Cursor) -> Statement:
    return _rest(words, "ANALYZE TABLE", "statistics of Hudi tables are in their metadata table: CREATE INDEX")


def _rest(words: Cursor, what: str, hint: str | None = None) -> Unsupported:
    words.skip()
    return Unsupported(what.strip(), hint)


_READERS: Final[Mapping[str, Callable[[Cursor], Statement]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "USE": _use,
    "SET": _set,
    "RESET": _reset,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "MERGE": _merge,
    "ALTER": _alter,
    "CALL": _call,
    "RUN": _run,
    "SCHEDULE": _schedule,
    "EXPLAIN": _explain,
    "REFRESH": _refresh,
    "MSCK": _repair,
    "CACHE": _cache,
    "UNCACHE": _uncache,
    "CLEAR": _clear,
    "ANALYZE": _analyze,
}
