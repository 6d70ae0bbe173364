"""SHOW and DESCRIBE: what is there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from skep_format.errors import InputError, NoSuchTableError
from skep_format.schema.types import META_FIELDS, Field, quoted, type_text
from skep_sql.answer import Answer, answer
from skep_sql.bind import look_up, refuse_view
from skep_sql.execution.insert import in_order
from skep_sql.execution.tables import known_database, partition_paths
from skep_sql.functions import FUNCTIONS
from skep_sql.names import column_of
from skep_sql.parsing.statements import Describe, DescribeQuery, Name, PartitionSpec, Show
from skep_sql.parsing.written import spark_text
from skep_sql.protocols import SPARK_CATALOG, EntryFacts, StoredView
from skep_sql.session import Session
from skep_sql.types import given_text, tree_text
from skep_table.table import HudiTable

# Parameters that syncs keep for engines, not for people.
_INTERNAL: Final = ("spark.sql.sources.", "spark.sql.create.", "spark.sql.partitionprovider", "skep.")
_INTERNAL_KEYS: Final = {
    "EXTERNAL",
    "transient_lastDdlTime",
    "numFiles",
    "numRows",
    "totalSize",
    "rawDataSize",
    "COLUMN_STATS_ACCURATE",
    "bucketing_version",
    "provider",
    "comment",
    "numFilesErasureCoded",
    "STATS_GENERATED_VIA_STATS_TASK",
}


def show(session: Session, statement: Show) -> Answer:
    """The rows that Spark answers."""
    return _SHOWN[statement.what](session, statement)


def _matching(names: list[str], pattern: str | None) -> list[str]:
    """As in Spark: regular expressions with `|` between them, in which `*` is any text; as in Hive `%` is that, too."""
    if pattern is None:
        return names
    wanted = []
    for each in pattern.replace("%", "*").split("|"):
        with contextlib.suppress(re.error):  # matches nothing
            wanted.append(re.compile(each.strip().replace("*", ".*"), re.IGNORECASE))
    return [name for name in names if any(each.fullmatch(name) for each in wanted)]


def _database(session: Session, statement: Show) -> str:
    return known_database(session.catalog, str(statement.name).lower() if statement.name else session.catalog.database)


def _tables(session: Session, statement: Show) -> Answer:
    database = _database(session, statement)
    found = _found(session, statement, database, _stored(session, database))
    return answer("namespace, tableName, isTemporary:boolean", found)


def _stored(session: Session, database: str) -> list[str]:
    """The names of its tables and views."""
    return sorted([*session.catalog.table_names(database), *session.catalog.view_names(database)])


def _found(session: Session, statement: Show, database: str, stored: list[str]) -> list[tuple[str, str, bool]]:
    """Those that are like the pattern, of the database and of the session."""
    rows = [(database, name, False) for name in _matching(stored, statement.pattern)]
    return rows + [("", name, True) for name in _matching(sorted(session.views), statement.pattern)]


def _table_extended(session: Session, statement: Show) -> Answer:
    database = _database(session, statement)
    rows: list[tuple[object, ...]] = []
    if statement.partition is not None:  # the pattern is a name
        table, facts = _opened(session, Name((database, statement.pattern or "")))
        found = _partition_facts(statement.partition, table, facts)
        rows.append((database, facts.name, False, _lines(found[2:])))
    else:
        for name in _matching(_stored(session, database), statement.pattern):
            full = f"{database}.{name}"
            entry = session.catalog.facts(full)
            if entry is not None:  # it may be dropped meanwhile
                rows.append((database, name, False, _information(entry, session.catalog.view(full))))
        for name in _matching(sorted(session.views), statement.pattern):
            text = spark_text(session.views[name].query)
            rows.append(("", name, True, _lines([("Table", name), ("Type", "VIEW"), ("View Text", text)])))
    columns = "namespace, tableName, isTemporary:boolean, information"
    return answer(columns, rows)


def _information(facts: EntryFacts, view: StoredView | None) -> str:
    """By the entry alone: tables are not opened for a list of them."""
    text = _lines(_entry_facts(facts, view, _shown_parameters(facts)))
    if facts.partition_columns:
        text += f"Partition Columns: [{', '.join(f'`{name}`' for name in facts.partition_columns)}]\n"
    return f"{text}Schema: {tree_text(facts.columns)}\n"


def _lines(facts: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{key}: {value}\n" if value else f"{key}\n" for key, value in facts)


def _entry_facts(facts: EntryFacts, view: StoredView | None, properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """What Spark shows of a table or view beside its columns."""
    comment = facts.parameters.get("comment")
    found = [("Database", facts.database), ("Table", facts.name), ("Owner", facts.owner or "")]
    of_table = [("Type", "MANAGED" if facts.is_managed else "EXTERNAL"), ("Provider", "hudi")]
    found += of_table if view is None else [("Type", "VIEW")]
    found += [("Comment", comment)] if comment else []
    found += [] if view is None else [("View Text", view.query)]
    if properties or view is None:
        found.append(("Table Properties", f"[{', '.join(f'{key}={value}' for key, value in properties.items())}]"))
    return found if view is not None else [*found, ("Location", facts.location)]


def _views(session: Session, statement: Show) -> Answer:
    database = _database(session, statement)
    found = _found(session, statement, database, session.catalog.view_names(database))
    return answer("namespace, viewName, isTemporary:boolean", found)


def _databases(session: Session, statement: Show) -> Answer:
    names = _matching(session.catalog.databases(), statement.pattern)
    return answer("namespace", [(name,) for name in names])


def _catalogs(_: Session, statement: Show) -> Answer:
    return answer("catalog", [(name,) for name in _matching([SPARK_CATALOG], statement.pattern)])


def _current_namespace(session: Session, _: Show) -> Answer:
    return answer("catalog, namespace", [(SPARK_CATALOG, session.catalog.database)])


def _opened(session: Session, name: Name | None) -> tuple[HudiTable, EntryFacts]:
    assert name is not None
    refuse_view(session.views, name)
    full = look_up(session.catalog, name)
    facts = session.catalog.facts(full)
    assert facts is not None
    return session.catalog.table(full).hudi, facts


def _temporary(session: Session, name: Name | None) -> pa.Schema | None:
    """The columns of a temporary view; None for a name that is none."""
    own = str(name).lower()
    if own not in session.views:
        return None
    bound = session.bound(exp.select("*").from_(exp.Table(this=exp.to_identifier(own, quoted=True))))
    return session.engine.schema(bound.query, bound.relations)


def _partitions(session: Session, statement: Show) -> Answer:
    table, facts = _opened(session, statement.name)
    if not table.config.partition_fields:
        raise InputError(f"table {facts.name} is not partitioned", table=facts.name)
    paths = (
        table.view().partitions()
        if statement.partition is None
        else partition_paths(statement.partition, table, facts.name)
    )
    return answer("partition", [(path,) for path in sorted(_with_files(table, paths))])


def _with_files(table: HudiTable, paths: list[str]) -> list[str]:
    """Without those whose file groups were all replaced."""
    view = table.view()
    return [path for path in paths if view.file_groups(path)]


def columns_of(table: HudiTable) -> list[Field]:
    """Meta columns, data columns, partition columns, as a catalog has them."""
    schema = table.schema().with_meta() if table.config.populate_meta_fields else table.schema()
    return in_order(schema.fields, table.config.partition_fields)


def _columns(session: Session, statement: Show) -> Answer:
    schema = _temporary(session, statement.name)
    if schema is not None:
        return answer("col_name", [(name,) for name in schema.names])
    view = session.catalog.view(str(statement.name))
    if view is not None:
        return answer("col_name", [(name,) for name in view.columns])
    table, _ = _opened(session, statement.name)
    return answer("col_name", [(field.name,) for field in columns_of(table)])


def properties_of(table: HudiTable, facts: EntryFacts) -> dict[str, str]:
    """What SHOW TBLPROPERTIES answers: the table's key, ordering and type, and the properties of the entry."""
    config = table.config
    own = {
        "primaryKey": ",".join(config.record_key_fields),
        "preCombineField": ",".join(config.ordering_fields),
        "type": "mor" if config.is_mor else "cow",
    }
    return dict(sorted({**_shown_parameters(facts), **{key: value for key, value in own.items() if value}}.items()))


def _shown_parameters(facts: EntryFacts) -> dict[str, str]:
    shown = (key for key in facts.parameters if key not in _INTERNAL_KEYS and not key.lower().startswith(_INTERNAL))
    return {key: facts.parameters[key] for key in sorted(shown)}


def _tblproperties(session: Session, statement: Show) -> Answer:
    columns = "key, value"
    if str(statement.name).lower() in session.views:
        return answer(columns, [])
    name = str(statement.name)
    entry = session.catalog.facts(name) if session.catalog.view(name) is not None else None
    if entry is not None:
        facts, found = entry, _shown_parameters(entry)
    else:
        table, facts = _opened(session, statement.name)
        found = properties_of(table, facts)
    if statement.key is not None:
        value = found.get(statement.key, f"Table {facts.database}.{facts.name} does not have property: {statement.key}")
        found = {statement.key: value}
    return answer(columns, list(found.items()))


def _create_view(facts: EntryFacts, view: StoredView) -> Answer:
    comments = [f" COMMENT {_literal(text)}" if text else "" for text in view.comments]
    columns = [f"  {_quoted(name)}{comment}" for name, comment in zip(view.columns, comments, strict=True)]
    parts = [f"CREATE VIEW {facts.database}.{facts.name} (\n" + ",\n".join(columns) + ")"]
    parts += [f"COMMENT {_literal(facts.parameters['comment'])}"] if facts.parameters.get("comment") else []
    if properties := _shown_parameters(facts):
        parts.append(_property_list(properties))
    return answer("createtab_stmt", [("\n".join([*parts, f"AS {view.query}"]) + "\n",)])


def _property_list(properties: Mapping[str, str]) -> str:
    listed = ",\n".join(f"  {_literal(key)} = {_literal(value)}" for key, value in properties.items())
    return f"TBLPROPERTIES (\n{listed})"


def _create_table(session: Session, statement: Show) -> Answer:
    if str(statement.name).lower() not in session.views:
        view, entry = session.catalog.view(str(statement.name)), session.catalog.facts(str(statement.name))
        if view is not None and entry is not None:
            return _create_view(entry, view)
    table, facts = _opened(session, statement.name)
    lines = []
    for field in columns_of(table):
        text = f"  {_quoted(field.name)} {type_text(field.type).upper()}"
        if not field.nullable and field.name not in META_FIELDS:
            text += " NOT NULL"
        lines.append(text + (f" COMMENT {_literal(field.doc)}" if field.doc else ""))
    parts = [f"CREATE TABLE {facts.database}.{facts.name} (\n" + ",\n".join(lines) + ")", "USING hudi"]
    if table.config.partition_fields:
        parts.append(f"PARTITIONED BY ({', '.join(map(_quoted, table.config.partition_fields))})")
    if not facts.is_managed:
        parts.append(f"LOCATION {_literal(facts.location)}")
    if facts.parameters.get("comment"):
        parts.append(f"COMMENT {_literal(facts.parameters['comment'])}")
    parts.append(_property_list(properties_of(table, facts)))
    return answer("createtab_stmt", [("\n".join(parts) + "\n",)])


def _quoted(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and name.isascii() else quoted(name)


def _literal(text: str | None) -> str:
    return "'" + (text or "").replace("\\", "\\\\").replace("'", "\\'") + "'"


def _indexes(session: Session, statement: Show) -> Answer:
    """As Hudi 1.2: partitions of the metadata table, with the columns of indexes that have a name of their own."""
    assert statement.name is not None
    found = session.catalog.table(look_up(session.catalog, statement.name)).indexes()
    rows = [
        (each.partition, each.kind, ",".join(each.columns) if each.name != each.partition else "") for each in found
    ]
    return answer("index_name, index_type, col_name", rows)


def _functions(session: Session, statement: Show) -> Answer:
    """Spark's and skep's; none is a user's."""
    if statement.name is not None:
        _database(session, statement)
    names = [] if statement.key == "user" else sorted({*session.engine.functions(), *FUNCTIONS})
    return answer("function", [(name,) for name in _matching(names, statement.pattern)])


def describe(session: Session, statement: Describe) -> Answer:
    """Columns with type and comment, the partition columns again, and with EXTENDED what else is known."""
    if statement.kind == "database":
        return _describe_database(session, statement)
    name = str(statement.name)
    schema = _temporary(session, statement.name)
    view = session.catalog.view(name) if schema is None else None
    if statement.partition is not None and (schema is not None or view is not None):
        raise InputError(f"{name} is a view, which has no partitions", table=name, found=name)
    if schema is not None:
        return _described([(each.name, given_text(each.type, each.name), None) for each in schema], statement)
    if view is not None:
        facts = session.catalog.facts(name)
        rest = _entry_facts(facts, view, _shown_parameters(facts)) if facts is not None else []
        return _described(list(zip(view.columns, view.types, view.comments, strict=True)), statement, rest)
    table, facts = _opened(session, statement.name)
    columns = [(each.name, type_text(each.type), each.doc or None) for each in columns_of(table)]
    partition = [each for each in columns if each[0] in table.config.partition_fields]
    if statement.partition is None:
        rest = _entry_facts(facts, None, properties_of(table, facts))
        return _described(columns, statement, rest, partition)
    found = _partition_facts(statement.partition, table, facts)
    return _described(columns, statement, found, partition, "Partition")


def describe_query(session: Session, statement: DescribeQuery) -> Answer:
    """As DESCRIBE of a table of these columns."""
    bound = session.bound(statement.query)
    schema = session.engine.schema(bound.query, bound.relations)
    rows = [(each.name, given_text(each.type, each.name), None) for each in schema]
    return answer("col_name, data_type, comment", rows)


def _described(
    columns: list[tuple[str, str, str | None]],
    statement: Describe,
    facts: Sequence[tuple[str, str]] = (),
    partition: Sequence[tuple[str, str, str | None]] = (),
    detailed: str = "Table",
) -> Answer:
    if statement.column is not None:
        name = column_of(statement.column, [each[0] for each in columns], str(statement.name))
        found = next(each for each in columns if each[0] == name)
        shown = zip(("col_name", "data_type", "comment"), (*found[:2], found[2] or "NULL"), strict=True)
        return answer("info_name, info_value", list(shown))
    rows: list[tuple[object, ...]] = [*columns]
    if partition:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment"), *partition]
    if statement.extended and facts:
        rows += [("", "", ""), (f"# Detailed {detailed} Information", "", "")]
        rows += [(key, value, "") for key, value in facts]
    return answer("col_name, data_type, comment", rows)


def _partition_facts(partition: PartitionSpec, table: HudiTable, facts: EntryFacts) -> list[tuple[str, str]]:
    """InputError for what does not name one partition that is there."""
    fields = table.config.partition_fields
    written = ", ".join(f"{name}={'' if value is None else value.sql('spark')}" for name, value in partition.items())
    paths = _with_files(table, partition_paths(partition, table, facts.name)) if fields else []
    if len(partition) != len(fields) or len(paths) != 1:
        raise InputError(
            f"table {facts.name} has no partition ({written})",
            hint="all partition columns have to be named" if len(partition) < len(fields) else None,
            table=facts.name,
            found=written,
            expected=", ".join(fields) or None,
        )
    values = ", ".join(f"{name}={value.name}" for name, value in partition.items() if value is not None)
    place = [("Database", facts.database), ("Table", facts.name)]
    return [*place, ("Partition Values", f"[{values}]"), ("Location", f"{facts.location}/{paths[0]}")]


def _describe_database(session: Session, statement: Describe) -> Answer:
    name = str(statement.name).lower()
    if name not in session.catalog.databases():
        raise NoSuchTableError(f"there is no database {name}", found=name)
    facts = session.catalog.database_facts(name)
    rows = [("Namespace Name", name), ("Comment", facts.get("comment") or "")]
    rows += [("Location", facts.get("location") or ""), ("Owner", facts.get("owner") or "")]
    return answer("info_name, info_value", rows)


_SHOWN: Final[Mapping[str, Callable[[Session, Show], Answer]]] = {
    "tables": _tables,
    "table extended": _table_extended,
    "functions": _functions,
    "views": _views,
    "databases": _databases,
    "partitions": _partitions,
    "columns": _columns,
    "tblproperties": _tblproperties,
    "create table": _create_table,
    "indexes": _indexes,
    "catalogs": _catalogs,
    "current namespace": _current_namespace,
}
