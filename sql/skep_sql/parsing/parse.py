"""Statements from text: what Spark's grammar and Hudi's extensions of it write, without looking any name up.

The words of a statement are read here; its queries, expressions and literals by sqlglot in Spark's dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sqlglot import exp

from skep_format.errors import InputError
from skep_sql.parsing import statements as st
from skep_sql.parsing.tokens import Cursor, parsed, statements_of
from skep_sql.protocols import TIME_ZONE

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
_NO_CACHE: Final = "queries read the table as it is; lake.sql(…).to_arrow() keeps the rows of one"
_STATISTICS: Final = "statistics of Hudi tables are in their metadata table: CREATE INDEX"


def parse(text: str) -> st.Statement:
    """The one statement of a text. InputError names line and column of what does not fit."""
    found = [_statement(cursor) for cursor in statements_of(text)]
    if len(found) != 1:
        raise InputError(f"one statement is expected, found {len(found)}", found=text)
    return found[0]


def parse_expression(text: str) -> st.Node:
    """One expression. InputError names line and column of what does not fit."""
    found = statements_of(text)
    if len(found) != 1:
        raise InputError(f"{text!r} is no expression", found=text)
    expression = found[0].expression(commas=False)
    found[0].end()
    return expression


def _statement(words: Cursor) -> st.Statement:
    for word in _QUERY_WORDS:
        if words.peek(word):
            return st.Query(words.query())
    for name, read in _READERS.items():
        if words.take(name):
            found = read(words)
            words.end()
            return found
    raise words.fail("a statement")


# -- tables


def _create(words: Cursor) -> st.Statement:
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


def _create_view(words: Cursor, replace: bool, *, temporary: bool) -> st.Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name("the name of a view")
    if temporary and (files := _view_of_files(words, name, replace)):
        return files
    listed = words.enclosed(lambda: (words.column_name(), _comment(words))) if words.peek("(") else ()
    of_properties = "properties", partial(_properties, words)
    given = _clauses(words, {"COMMENT": ("comment", words.string), "TBLPROPERTIES": of_properties})
    if not words.take("AS"):
        raise words.fail("COMMENT, TBLPROPERTIES or AS")
    columns, comments = tuple(name for name, _ in listed), tuple(comment for _, comment in listed)
    text = words.rest_text()
    query = words.query()
    return st.CreateView(name, query, columns, replace, temporary, if_not_exists, comments=comments, text=text, **given)


def _comment(words: Cursor) -> str | None:
    return words.string() if words.take("COMMENT") else None


def _clauses(words: Cursor, known: Mapping[str, tuple[str, Callable[[], object]]]) -> dict[str, Any]:
    """Clauses in any order while there are any, by their words: each has the key of what is read behind them."""
    found = {}
    while (clause := next((text for text in known if words.take(*text.split())), None)) is not None:
        key, read = known[clause]
        found[key] = read()
    return found


def _view_of_files(words: Cursor, name: st.Name, replace: bool) -> st.Statement | None:
    """CREATE TEMPORARY VIEW … USING format OPTIONS (…); None for a view of a query."""
    columns = None
    if words.peek("("):
        if not words.follows_parentheses("USING"):
            return None
        columns = words.slice(words.parenthesized(), "columns with their types")
    if not words.take("USING"):
        return None
    provider = words.dotted("a format").lower()
    return st.CreateFilesView(name, provider, _properties(words) if words.take("OPTIONS") else {}, columns, replace)


def _create_index(words: Cursor) -> st.Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    index, table = words.identifier("the name of an index"), _indexed(words)
    kind = words.identifier("a kind of index").lower() if words.take("USING") else None
    columns = words.enclosed(words.column_path)
    options = _properties(words) if words.take("OPTIONS") else {}
    return st.CreateIndex(index, table, kind, columns, options, if_not_exists)


def _indexed(words: Cursor) -> st.Name:
    words.need("ON")
    words.take("TABLE")
    return words.name()


def _create_database(words: Cursor) -> st.Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name("the name of a database")
    given = _clauses(words, {"COMMENT": ("comment", words.string), "LOCATION": ("location", words.string)})
    if words.token is not None:
        raise words.fail("COMMENT or LOCATION")
    return st.CreateDatabase(name, if_not_exists, **given)


def _create_table(words: Cursor) -> st.Statement:
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    name = words.name()
    like = words.name() if words.take("LIKE") else None
    columns = words.enclosed(lambda: _column_spec(words, words.column_name())) if words.peek("(") else ()
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
    return st.CreateTable(name, columns, if_not_exists, like=like, **given)


def _partitioned_by(words: Cursor) -> tuple[tuple[str, ...], tuple[st.ColumnSpec, ...]]:
    """The names, and the columns among them that are declared here."""

    def read() -> tuple[str, st.ColumnSpec | None]:
        name = words.column_name()
        is_declared = not words.peek(",") and not words.peek(")")
        return name, st.ColumnSpec(name, words.type_text()) if is_declared else None

    found = words.enclosed(read)
    return tuple(name for name, _ in found), tuple(column for _, column in found if column is not None)


def _column_spec(words: Cursor, name: str) -> st.ColumnSpec:
    kind = words.type_text("NOT NULL", "COMMENT", "FIRST", "AFTER")
    return st.ColumnSpec(name, kind, **_clauses(words, {"NOT NULL": ("nullable", lambda: False), **_of_column(words)}))


def _of_column(words: Cursor) -> dict[str, tuple[str, Callable[[], object]]]:
    """The clauses of a column's comment and place."""
    return {"COMMENT": ("comment", words.string), "FIRST": ("after", str), "AFTER": ("after", words.column_path)}


def _properties(words: Cursor) -> dict[str, str]:
    """Keys in quotes, or bare with dots; values of any kind."""

    def read() -> tuple[str, str]:
        key = _property_key(words)
        if not words.take("="):
            words.take(":")
        return key, words.literal_text()

    return dict(words.enclosed(read))


def _property_key(words: Cursor) -> str:
    return words.string() if words.is_string() else words.dotted("the name of a property")


def _drop(words: Cursor) -> st.Statement:
    if words.take("INDEX"):
        if_exists = words.take("IF", "EXISTS")
        return st.DropIndex(words.identifier("the name of an index"), _indexed(words), if_exists)
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
    return st.Drop(kind, name, if_exists, kind == "table" and words.take("PURGE"), cascade)


def _partition(words: Cursor) -> st.PartitionSpec | None:
    return _partition_values(words) if words.take("PARTITION") else None


def _partition_values(words: Cursor) -> st.PartitionSpec:
    found: dict[str, st.Node | None] = {}

    def read() -> None:
        name = words.identifier("a partition column")
        if name.lower() in map(str.lower, found):
            raise InputError(f"PARTITION names column {name} twice", column=name, found=name)
        found[name] = words.expression() if words.take("=") else None

    words.enclosed(read)
    return found


# -- what is there


def _show(words: Cursor) -> st.Statement:
    for text, what in _SHOWN.items():
        if words.take(*text.split()):
            name = words.name("the name of a database") if words.take_one("IN", "FROM") else None
            if what == "table extended":
                words.need("LIKE")
                return st.Show(what, name, words.string(), partition=_partition(words))
            words.take("LIKE")
            return st.Show(what, name, words.string() if words.is_string() else None)
    if any(words.peek("FUNCTIONS") or words.peek(kind, "FUNCTIONS") for kind in _SETS_OF_FUNCTIONS):
        return _show_functions(words)
    if words.take("PARTITIONS"):
        return st.Show("partitions", words.name(), partition=_partition(words))
    if words.take("CREATE", "TABLE"):
        return st.Show("create table", words.name())
    if words.take("TBLPROPERTIES"):
        name = words.name()
        key = None
        if words.take("("):
            key = _property_key(words)
            words.need(")")
        return st.Show("tblproperties", name, key=key)
    if words.take("COLUMNS"):
        if not words.take_one("IN", "FROM"):
            raise words.fail("IN or FROM")
        name = words.name()
        if words.take_one("IN", "FROM"):
            name = st.Name((*words.name("the name of a database").parts, *name.parts), name.line, name.column)
        return st.Show("columns", name)
    if words.take("INDEXES"):
        if not words.take_one("IN", "FROM", "ON"):
            raise words.fail("IN, FROM or ON")
        words.take("TABLE")
        return st.Show("indexes", words.name())
    if words.peek("COMPACTION"):
        return _compaction(words, "show")
    if words.take("CURRENT", "NAMESPACE"):
        return st.Show("current namespace")
    if words.take("CATALOGS"):
        words.take("LIKE")
        return st.Show("catalogs", pattern=words.string() if words.is_string() else None)
    return _rest(words, "SHOW " + (words.token.text.upper() if words.token else ""))


def _show_functions(words: Cursor) -> st.Statement:
    kind = words.take_one(*_SETS_OF_FUNCTIONS)
    words.need("FUNCTIONS")
    name = words.name("the name of a database") if words.take_one("IN", "FROM") else None
    words.take("LIKE")
    pattern = None if words.token is None else words.string() if words.is_string() else words.path("a function")[-1]
    return st.Show("functions", name, pattern, key=None if kind is None else kind.lower())


def _describe(words: Cursor) -> st.Statement:
    if words.take("QUERY") or any(words.peek(word) for word in _QUERY_WORDS if word != "TABLE"):
        return st.DescribeQuery(words.query())
    if words.take("DATABASE") or words.take("SCHEMA"):
        extended = words.take("EXTENDED")
        return st.Describe(words.name("the name of a database"), extended, kind="database")
    words.take("TABLE")
    extended = words.take_one("EXTENDED", "FORMATTED") is not None
    name = words.name()
    if partition := _partition(words):
        return st.Describe(name, extended, partition=partition)
    return st.Describe(name, extended, words.column_path() if words.token is not None else None)


def _use(words: Cursor) -> st.Statement:
    words.take_one("DATABASE", "SCHEMA")
    return st.Use(words.name("the name of a database"))


def _set(words: Cursor) -> st.Statement:
    if words.token is None or words.take("-", "v"):
        return st.SetOption()
    if words.take("TIME", "ZONE"):
        if not words.is_string():
            raise words.fail("a time zone in quotes")
        return st.SetOption(TIME_ZONE, words.string())
    text = words.text()[3:].strip()
    words.skip()
    key, equals, value = text.partition("=")
    key, value = key.strip().strip("`"), value.strip()
    if not key or len(key.split()) > 1:
        raise InputError(f"{text!r} is no setting: SET key=value", found=text)
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return st.SetOption(key, value if equals else None)


def _reset(words: Cursor) -> st.Statement:
    if words.token is None:
        return st.ResetOption()
    key = words.text()[5:].strip().strip("`")
    words.skip()
    return st.ResetOption(key)


# -- rows


def _insert(words: Cursor) -> st.Statement:
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
        columns = words.enclosed(words.column_name)
    return st.Insert(name, words.query(), overwrite, partition, columns, by_name)


def _alias(words: Cursor, *before: str) -> str | None:
    if words.take("AS"):
        return words.identifier("an alias")
    if words.token is None or any(words.peek(word) for word in before):
        return None
    return words.identifier("an alias")


def _update(words: Cursor) -> st.Statement:
    name = words.name()
    alias = _alias(words, "SET")
    assignments = _assignments(words.need("SET"), name, alias, "WHERE")
    where = words.expression(commas=False) if words.take("WHERE") else None
    return st.Update(name, alias, assignments, where)


def _assignments(words: Cursor, name: st.Name, alias: str | None, *ends: str) -> tuple[st.Assignment, ...]:
    def read() -> st.Assignment:
        column = _own_column(words, name, alias)
        return st.Assignment(column, words.need("=").expression(*ends))

    return words.listed(read)


def _own_column(words: Cursor, name: st.Name, alias: str | None) -> str:
    """A column of the table, whose name may be before it."""
    parts = words.path("a column")
    is_named = len(parts) > 1 and parts[0].lower() == (alias or name.parts[-1]).lower()
    return ".".join(parts[1:] if is_named else parts)


def _delete(words: Cursor) -> st.Statement:
    name = words.need("FROM").name()
    alias = _alias(words, "WHERE")
    return st.Delete(name, alias, words.expression(commas=False) if words.take("WHERE") else None)


def _merge(words: Cursor) -> st.Statement:
    name = words.need("INTO").name()
    alias = _alias(words, "USING")
    if words.need("USING").peek("("):
        source = words.query_in(words.parenthesized())
        source_alias = _alias(words, "ON")
    else:
        span = words.span("ON", commas=False)
        relation = _relation(words, words.slice(span, "a table or a query in parentheses"))
        source_alias = relation.alias or relation.name
        source = exp.select("*").from_(relation)
    on = words.need("ON").expression("WHEN", commas=False)
    clauses = []
    while words.take("WHEN"):
        clauses.append(_merge_clause(words, name, alias))
    if not clauses:
        raise words.fail("WHEN MATCHED or WHEN NOT MATCHED")
    return st.Merge(name, alias, source, source_alias or "source", on, tuple(clauses))


def _relation(words: Cursor, text: str) -> st.Node:
    with suppress(InputError):
        tree = parsed(f"SELECT * FROM {text}")
        clause: Any = tree.find(exp.From) if isinstance(tree, exp.Select) else None
        if clause is not None and isinstance(clause.this, exp.Table):
            return clause.this
    raise words.fail("a table or a query in parentheses")


def _merge_clause(words: Cursor, name: st.Name, alias: str | None) -> st.MergeClause:
    when = "not matched" if words.take("NOT") else "matched"
    words.need("MATCHED")
    if when == "not matched" and words.take("BY"):
        when = "not matched by source" if words.take("SOURCE") else when
        if when == "not matched":
            words.need("TARGET")
    condition = words.expression("THEN", commas=False) if words.take("AND") else None
    words.need("THEN")
    if when == "not matched":
        if words.need("INSERT").take("*"):
            return st.MergeClause(when, "insert", condition)
        columns = words.enclosed(lambda: _own_column(words, name, alias))
        values = words.need("VALUES").enclosed(words.expression)
        if len(values) != len(columns):
            problem = f"INSERT names {len(columns)} columns and has {len(values)} values"
            raise InputError.of_table(str(name), problem, found=len(values), expected=len(columns))
        return st.MergeClause(when, "insert", condition, tuple(map(st.Assignment, columns, values)))
    if words.take("DELETE"):
        return st.MergeClause(when, "delete", condition)
    if words.need("UPDATE").need("SET").take("*"):
        return st.MergeClause(when, "update", condition)
    return st.MergeClause(when, "update", condition, _assignments(words, name, alias, "WHEN"))


# -- changes of tables, procedures


def _alter(words: Cursor) -> st.Statement:
    if not words.take("TABLE"):
        return _rest(words, "ALTER " + (words.token.text.upper() if words.token else ""))
    name = words.name()
    if words.take("RENAME", "TO"):
        return st.AlterTable(name, "rename", new_name=words.name("the new name"))
    if words.take("RENAME", "COLUMN"):
        column = words.column_path()
        new = words.need("TO").identifier("the new name")
        return st.AlterTable(name, "rename column", column=column, new_column=new)
    if words.take("ADD", "COLUMNS") or words.take("ADD", "COLUMN"):
        columns = words.listed_or_enclosed(lambda: _column_spec(words, words.column_path()))
        return st.AlterTable(name, "add columns", columns=columns)
    if words.take("DROP", "COLUMNS") or words.take("DROP", "COLUMN"):
        if_exists = words.take("IF", "EXISTS")
        columns = tuple(st.ColumnSpec(each, "") for each in words.listed_or_enclosed(words.column_path))
        return st.AlterTable(name, "drop column", columns=columns, if_exists=if_exists)
    if words.take("DROP"):
        if_exists = words.take("IF", "EXISTS")
        dropped = words.listed(lambda: _partition_values(words.need("PARTITION")))
        words.take("PURGE")
        return st.AlterTable(name, "drop partition", partitions=dropped, if_exists=if_exists)
    if words.take("ADD"):
        if_exists = words.take("IF", "NOT", "EXISTS")
        partitions: list[st.PartitionSpec] = []
        while words.take("PARTITION"):
            partitions.append(_partition_values(words))
            if words.take("LOCATION"):
                return _rest(words, "ADD PARTITION … LOCATION", "the folders of a Hudi table lie below its own")
        if not partitions:
            raise words.fail("COLUMNS or PARTITION")
        return st.AlterTable(name, "add partition", partitions=tuple(partitions), if_exists=if_exists)
    if words.take("SET", "TBLPROPERTIES"):
        return st.AlterTable(name, "set properties", properties=_properties(words))
    if words.take("UNSET", "TBLPROPERTIES"):
        if_exists = words.take("IF", "EXISTS")
        keys = words.enclosed(lambda: _property_key(words))
        return st.AlterTable(name, "unset properties", properties=dict.fromkeys(keys, ""), if_exists=if_exists)
    if words.take("ALTER", "COLUMN") or words.take("CHANGE", "COLUMN") or words.take("ALTER") or words.take("CHANGE"):
        return _alter_column(words, name)
    return _rest(words, "ALTER TABLE … " + (words.token.text.upper() if words.token else ""))


def _alter_column(words: Cursor, name: st.Name) -> st.Statement:
    column = words.column_path()
    changes: dict[str, Any] = {}

    def read_type() -> str:
        return words.type_text("COMMENT", "FIRST", "AFTER")

    if words.token is not None and not any(map(words.peek, ("TYPE", "COMMENT", "FIRST", "AFTER", "DROP", "SET"))):
        changes = {"new_column": words.identifier("the new name"), "type": read_type()}  # Hive's: CHANGE old new type
    clauses = {
        "TYPE": ("type", read_type),
        **_of_column(words),
        "DROP NOT NULL": ("nullable", lambda: True),
        "SET NOT NULL": ("nullable", lambda: False),
    }
    changes |= _clauses(words, clauses)
    if words.token is not None or not changes:
        raise words.fail("TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL or SET NOT NULL")
    return st.AlterTable(name, "alter column", column=column, **changes)


def _call(words: Cursor) -> st.Statement:
    name = words.path("the name of a procedure")[-1].lower()
    positional: list[object] = []
    named: dict[str, object] = {}
    words.need("(")
    while not words.peek(")"):
        value: st.Node = words.expression("=>")
        if words.take("=>"):
            key = value.name if isinstance(value, (exp.Column, exp.Identifier)) else ""
            if not key:
                raise words.fail("the name of an argument before =>")
            named[key.lower()] = _constant(words.expression())
        else:
            positional.append(_constant(value))
        if not words.take(","):
            break
    words.need(")")
    if positional and named:
        raise InputError(f"CALL {name}: arguments are given by name or by position, not both", found=words.text())
    return st.Call(name, tuple(positional), named)


def _compaction(words: Cursor, operation: str) -> st.Statement:
    """Hudi's statements on compactions, which are its procedures."""
    if words.need("COMPACTION").need("ON").is_string():
        return _rest(words, f"{operation.upper()} COMPACTION ON a path", "a table's lock is found by its name")
    named: dict[str, object] = {"table": str(words.name())}
    if operation == "show":
        if words.take("LIMIT"):
            named["limit"] = _constant(words.expression())
        return st.Call("show_compaction", named=named)
    if words.take("AT"):
        named["timestamp"] = _constant(words.expression())
    return st.Call("run_compaction", named={"op": operation, **named})


def _constant(node: st.Node) -> object:
    """The value of a literal of an argument."""
    if isinstance(node, exp.Cast):
        return _constant(node.this)
    if isinstance(node, exp.Neg):
        value = _constant(node.this)
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


def _explain(words: Cursor) -> st.Statement:
    words.take_one("EXTENDED", "FORMATTED", "COST", "CODEGEN")
    explained = _statement(words)
    return explained if isinstance(explained, st.Unsupported) else st.Explain(explained)


def _refresh(words: Cursor) -> st.Statement:
    if words.take("TABLE"):
        return st.Refresh(words.name())
    if words.take("INDEX"):
        return st.RefreshIndex(words.identifier("the name of an index"), _indexed(words))
    return _rest(words, "REFRESH " + (words.token.text.upper() if words.token else ""))


def _rest(words: Cursor, what: str, hint: str | None = None) -> st.Unsupported:
    words.skip()
    return st.Unsupported(what.strip(), hint)


def _clear(words: Cursor) -> st.Statement:
    words.need("CACHE")
    return st.Uncache()


_READERS: Final[Mapping[str, Callable[[Cursor], st.Statement]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "TRUNCATE": lambda words: st.Truncate(words.need("TABLE").name(), _partition(words)),
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
    "RUN": partial(_compaction, operation="run"),
    "SCHEDULE": partial(_compaction, operation="schedule"),
    "EXPLAIN": _explain,
    "REFRESH": _refresh,
    "MSCK": lambda words: st.Refresh(words.need("REPAIR").need("TABLE").name()),
    "CACHE": partial(_rest, what="CACHE TABLE", hint=_NO_CACHE),
    "UNCACHE": lambda words: st.Uncache(if_exists=words.need("TABLE").take("IF", "EXISTS"), name=words.name()),
    "CLEAR": _clear,
    "ANALYZE": partial(_rest, what="ANALYZE TABLE", hint=_STATISTICS),
}
