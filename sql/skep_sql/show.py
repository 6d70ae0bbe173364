"""SHOW and DESCRIBE: what is there."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from skep_sql.answer import Answer, answer
from skep_sql.bind import Scope, look_up
from skep_sql.names import column_of
from skep_sql.protocols import EntryFacts, StoredView
from skep_sql.statements import Describe, Show
from skep_sql.tables import partition_paths
from skep_sql.types import type_text
from skep_table.errors import InputError, NoSuchTableError
from skep_table.schema.types import META_FIELDS, Field
from skep_table.table import HudiTable

_TEXT: Final = pa.string()
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


def show(statement: Show, scope: Scope) -> Answer:
    """The rows that Spark answers."""
    return _SHOWN[statement.what](statement, scope)


def _matching(names: list[str], pattern: str | None) -> list[str]:
    """`*` stands for any text, `|` separates patterns, as in Hive."""
    if pattern is None:
        return names
    wanted = [each.strip().lower() for each in pattern.replace("%", "*").split("|")]
    return [name for name in names if any(fnmatch.fnmatchcase(name.lower(), each) for each in wanted)]


def _database(statement: Show, scope: Scope) -> str:
    name = str(statement.name).lower() if statement.name else scope.catalog.database
    known = scope.catalog.databases()
    if name not in known:
        raise NoSuchTableError(f"there is no database {name}; there are: {', '.join(known)}", found=name)
    return name


def _tables(statement: Show, scope: Scope) -> Answer:
    database = _database(statement, scope)
    stored = sorted([*scope.catalog.table_names(database), *scope.catalog.view_names(database)])
    rows: list[tuple[object, ...]] = [(database, name, False) for name in _matching(stored, statement.pattern)]
    rows += [("", name, True) for name in _matching(sorted(scope.views), statement.pattern)]
    return answer([("namespace", _TEXT), ("tableName", _TEXT), ("isTemporary", pa.bool_())], rows)


def _views(statement: Show, scope: Scope) -> Answer:
    database = _database(statement, scope)
    rows: list[tuple[object, ...]] = [
        (database, name, False) for name in _matching(scope.catalog.view_names(database), statement.pattern)
    ]
    rows += [("", name, True) for name in _matching(sorted(scope.views), statement.pattern)]
    return answer([("namespace", _TEXT), ("viewName", _TEXT), ("isTemporary", pa.bool_())], rows)


def _databases(statement: Show, scope: Scope) -> Answer:
    names = _matching(scope.catalog.databases(), statement.pattern)
    return answer([("namespace", _TEXT)], [(name,) for name in names])


def _opened(statement: Show | Describe, scope: Scope) -> tuple[HudiTable, EntryFacts]:
    assert statement.name is not None
    full = look_up(scope.catalog, statement.name)
    facts = scope.catalog.facts(full)
    assert facts is not None
    return scope.catalog.table(full).hudi, facts


def _partitions(statement: Show, scope: Scope) -> Answer:
    table, facts = _opened(statement, scope)
    if not table.config.partition_fields:
        raise InputError(f"table {facts.name} is not partitioned", table=facts.name)
    paths = (
        table.view().partitions()
        if statement.partition is None
        else partition_paths(statement.partition, table, facts.name)
    )
    return answer([("partition", _TEXT)], [(path,) for path in sorted(_with_files(table, paths))])


def _with_files(table: HudiTable, paths: list[str]) -> list[str]:
    """Without those whose file groups were all replaced."""
    view = table.view()
    return [path for path in paths if view.file_groups(path)]


def columns_of(table: HudiTable) -> list[Field]:
    """Meta columns, data columns, partition columns, as a catalog has them."""
    schema = table.schema().with_meta() if table.config.populate_meta_fields else table.schema()
    last = table.config.partition_fields
    fields = [field for field in schema.fields if field.name not in last]
    return [*fields, *(field for name in last for field in schema.fields if field.name == name)]


def _columns(statement: Show, scope: Scope) -> Answer:
    view = scope.catalog.view(str(statement.name))
    if view is not None:
        return answer([("col_name", _TEXT)], [(name,) for name in view.columns])
    table, _ = _opened(statement, scope)
    return answer([("col_name", _TEXT)], [(field.name,) for field in columns_of(table)])


def properties_of(table: HudiTable, facts: EntryFacts) -> dict[str, str]:
    """What SHOW TBLPROPERTIES answers: the table's key, ordering and type, and the properties of the entry."""
    config = table.config
    found = {
        key: value
        for key, value in facts.parameters.items()
        if key not in _INTERNAL_KEYS and not key.lower().startswith(_INTERNAL)
    }
    own = {
        "primaryKey": ",".join(config.record_key_fields),
        "preCombineField": ",".join(config.ordering_fields),
        "type": "mor" if config.is_mor else "cow",
    }
    return dict(sorted({**found, **{key: value for key, value in own.items() if value}}.items()))


def _tblproperties(statement: Show, scope: Scope) -> Answer:
    table, facts = _opened(statement, scope)
    found = properties_of(table, facts)
    if statement.key is not None:
        value = found.get(statement.key, f"Table {facts.database}.{facts.name} does not have property: {statement.key}")
        found = {statement.key: value}
    return answer([("key", _TEXT), ("value", _TEXT)], list(found.items()))


def _create_table(statement: Show, scope: Scope) -> Answer:
    table, facts = _opened(statement, scope)
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
    properties = ",\n".join(
        f"  {_literal(key)} = {_literal(value)}" for key, value in properties_of(table, facts).items()
    )
    parts.append(f"TBLPROPERTIES (\n{properties})")
    return answer([("createtab_stmt", _TEXT)], [("\n".join(parts) + "\n",)])


def _quoted(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _literal(text: str | None) -> str:
    return "'" + (text or "").replace("\\", "\\\\").replace("'", "\\'") + "'"


def _indexes(statement: Show, scope: Scope) -> Answer:
    """As Hudi 1.2: partitions of the metadata table, with the columns of indexes that have a name of their own."""
    assert statement.name is not None
    found = scope.catalog.table(look_up(scope.catalog, statement.name)).indexes()
    rows = [
        (each.partition, each.kind, ",".join(each.columns) if each.name != each.partition else "") for each in found
    ]
    return answer([("index_name", _TEXT), ("index_type", _TEXT), ("col_name", _TEXT)], rows)


def describe(statement: Describe, scope: Scope) -> Answer:
    """Columns with type and comment, the partition columns again, and with EXTENDED what else is known."""
    if statement.kind == "database":
        return _describe_database(statement, scope)
    view = scope.catalog.view(str(statement.name))
    if view is not None:
        return _describe_view(statement, view)
    table, facts = _opened(statement, scope)
    fields = columns_of(table)
    if statement.column is not None:
        name = column_of(statement.column, [field.name for field in fields], facts.name)
        field = next(each for each in fields if each.name == name)
        shown = [("col_name", name), ("data_type", type_text(field.type)), ("comment", field.doc or "NULL")]
        return answer([("info_name", _TEXT), ("info_value", _TEXT)], shown)
    rows: list[tuple[object, ...]] = [(field.name, type_text(field.type), field.doc or None) for field in fields]
    partition = [field for field in fields if field.name in table.config.partition_fields]
    if partition:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(field.name, type_text(field.type), field.doc or None) for field in partition]
    if statement.extended:
        properties = ", ".join(f"{key}={value}" for key, value in properties_of(table, facts).items())
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [
            ("Database", facts.database, ""),
            ("Table", facts.name, ""),
            ("Owner", facts.owner or "", ""),
            ("Type", "MANAGED" if facts.is_managed else "EXTERNAL", ""),
            ("Provider", "hudi", ""),
            *([("Comment", facts.parameters["comment"], "")] if facts.parameters.get("comment") else []),
            ("Table Properties", f"[{properties}]", ""),
            ("Location", facts.location, ""),
        ]
    return answer([("col_name", _TEXT), ("data_type", _TEXT), ("comment", _TEXT)], rows)


def _describe_view(statement: Describe, view: StoredView) -> Answer:
    rows: list[tuple[object, ...]] = list(zip(view.columns, view.types, view.comments, strict=True))
    if statement.column is not None:
        at = view.columns.index(column_of(statement.column, view.columns, str(statement.name)))
        shown = zip(("col_name", "data_type", "comment"), (*rows[at][:2], rows[at][2] or "NULL"), strict=True)
        return answer([("info_name", _TEXT), ("info_value", _TEXT)], list(shown))
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [("Type", "VIEW", ""), ("View Text", view.query, "")]
    return answer([("col_name", _TEXT), ("data_type", _TEXT), ("comment", _TEXT)], rows)


def _describe_database(statement: Describe, scope: Scope) -> Answer:
    name = str(statement.name).lower()
    if name not in scope.catalog.databases():
        raise NoSuchTableError(f"there is no database {name}", found=name)
    facts = scope.catalog.database_facts(name)
    rows = [("Namespace Name", name), ("Comment", facts.get("comment") or "")]
    rows += [("Location", facts.get("location") or ""), ("Owner", facts.get("owner") or "")]
    return answer([("info_name", _TEXT), ("info_value", _TEXT)], rows)


_SHOWN: Final[Mapping[str, Callable[[Show, Scope], Answer]]] = {
    "tables": _tables,
    "views": _views,
    "databases": _databases,
    "partitions": _partitions,
    "columns": _columns,
    "tblproperties": _tblproperties,
    "create table": _create_table,
    "indexes": _indexes,
}
