"""ALTER TABLE: names, properties, partitions and columns."""

from __future__ import annotations

import pyarrow as pa

from skep_format.errors import InputError, UnsupportedError
from skep_format.options import Options
from skep_format.schema import change as schema_change
from skep_format.schema.arrow import to_arrow
from skep_format.schema.policy import SCHEMA_ON_READ
from skep_format.schema.types import Field, Schema, parse_type, type_text
from skep_format.timeline.metadata import WriteOperation
from skep_sql.answer import Answer
from skep_sql.bind import look_up, table_to_change
from skep_sql.execution.tables import drop_partitions, partition_paths
from skep_sql.parsing.statements import AlterTable, ColumnSpec
from skep_sql.protocols import TableCatalog, TargetTable
from skep_sql.session import Session
from skep_sql.settings import SessionSettings
from skep_sql.types import arrow_field
from skep_table.write.planning.options import EMPTY_COMMITS
from skep_table.write.planning.settings import path_settings
from skep_table.write.result import WriteResult


def alter(session: Session, statement: AlterTable) -> Answer | None:
    """UnsupportedError for changes that are not built."""
    catalog = session.catalog
    table_to_change(session.scope, statement.name)
    full = look_up(catalog, statement.name)
    if statement.action == "rename":
        new = statement.new_name
        assert new is not None
        database = full.partition(".")[0]
        catalog.rename_table(full, str(new) if len(new.parts) > 1 else f"{database}.{new}")
    elif statement.action in ("set properties", "unset properties"):
        _properties(statement, catalog, full)
    elif statement.action == "drop partition":
        target = catalog.table(full)
        dropped = (drop_partitions(session, partition, target) for partition in statement.partitions)
        return Answer(writes=tuple(write for write in dropped if write is not None))
    elif statement.action in ("add columns", "rename column", "drop column", "alter column"):
        return Answer(writes=_columns(statement, catalog.table(full), session.settings, full))
    elif statement.action == "add partition":  # comes with its first row: until then nothing needs to be there
        table = catalog.table(full).hudi
        for partition in statement.partitions:
            partition_paths(partition, table, full)
    else:
        raise UnsupportedError(f"ALTER TABLE … {statement.action.upper()} is not supported", table=full)
    return None


def _columns(
    statement: AlterTable, target: TargetTable, settings: SessionSettings, full: str
) -> tuple[WriteResult, ...]:
    """Changes of columns: by their ids where the session or the table has schema on read, else what needs none."""
    text = settings.get(SCHEMA_ON_READ.key)
    options = target.hudi.options if text is None else Options({SCHEMA_ON_READ.key: text})
    on = options.value(SCHEMA_ON_READ)
    if statement.action == "add columns" and not on:
        return (_add_columns(statement, target, settings, full),)
    changes = _changes(statement, target.hudi.schema(), full)
    if not on and not all(isinstance(change, schema_change.CommentColumn) for change in changes):
        raise UnsupportedError.of_table(
            full,
            f"ALTER TABLE … {statement.action.upper()} needs schema on read, by which readers find columns by their"
            " ids",
            hint=f"SET {SCHEMA_ON_READ.key}=true",
            option=SCHEMA_ON_READ.key,
        )
    return (target.commit(lambda writer: writer.alter(changes), settings.hoodie),) if changes else ()


def _changes(statement: AlterTable, schema: Schema, full: str) -> list[schema_change.ColumnChange]:
    match statement.action:
        case "add columns":
            for column in statement.columns:
                _refuse_required(column, full)
            return [
                schema_change.AddColumn(column.name, parse_type(column.type, column.name), column.comment, column.after)
                for column in statement.columns
            ]
        case "drop column":
            names = [column.name for column in statement.columns]
            if statement.if_exists:
                names = [name for name in names if schema_change.has_column(schema, name)]
            return [schema_change.DropColumn(name) for name in names]
    path = statement.column
    assert path is not None
    changes: list[schema_change.ColumnChange] = []
    if statement.action == "alter column":
        changes = _changes_of_one(statement, path, schema_change.column_at(schema, path))
    new = statement.new_column
    if new is not None and (statement.action == "rename column" or new.lower() != path.lower()):
        changes.append(schema_change.RenameColumn(path, new))  # the last: the others name the column as it was
    return changes


def _changes_of_one(statement: AlterTable, path: str, column: Field) -> list[schema_change.ColumnChange]:
    """Those of ALTER COLUMN and CHANGE COLUMN that differ from what the column is."""
    changes: list[schema_change.ColumnChange] = []
    if statement.type is not None:
        wanted = parse_type(statement.type, path)
        if type_text(wanted) != type_text(column.type):
            changes.append(schema_change.ChangeType(path, wanted))
    if statement.nullable is False and column.nullable:
        raise InputError(
            f"column {path}: cannot update column Nullability: optional to required: rows may have no value for it",
            column=path,
        )
    if statement.nullable and not column.nullable:
        changes.append(schema_change.AllowNull(path))
    if statement.comment is not None and statement.comment != column.doc:
        changes.append(schema_change.CommentColumn(path, statement.comment))
    if statement.after is not None:
        changes.append(schema_change.MoveColumn(path, statement.after))
    return changes


def _refuse_required(column: ColumnSpec, full: str) -> None:
    if not column.nullable:
        problem = f"column {column.name} can't be NOT NULL: the rows that are there have no value for it"
        raise InputError.of_table(full, problem, column=column.name)


def _properties(statement: AlterTable, catalog: TableCatalog, full: str) -> None:
    paths = path_settings(statement.properties)
    hoodie = [key for key in statement.properties if key.startswith("hoodie.") and key not in paths]
    fixed = [
        key
        for key in statement.properties
        if key.lower() in ("type", "primarykey", "precombinefield", "orderingfields")
    ]
    if fixed:
        problem = f"{fixed[0]} can't be changed"
        raise InputError.of_table(full, problem, hint="make another table: CREATE TABLE … AS", option=fixed[0])
    if hoodie:
        problem = f"{hoodie[0]} as a table property is not supported"
        hint = f"SET {hoodie[0]}=… holds for the session; skep's options hold for a lake"
        raise UnsupportedError.of_table(full, problem, hint=hint, option=hoodie[0])
    remove = statement.action == "unset properties"
    if remove and not statement.if_exists:
        facts = catalog.facts(full)
        missing = [key for key in statement.properties if facts is None or key not in facts.parameters]
        if missing:
            raise InputError(f"table {full} has no property {missing[0]}", hint="UNSET TBLPROPERTIES IF EXISTS (…)")
    catalog.set_parameters(full, {key: None if remove else value for key, value in statement.properties.items()})


def _add_columns(statement: AlterTable, target: TargetTable, settings: SessionSettings, full: str) -> WriteResult:
    """One commit without rows, whose schema has the new columns behind the others."""
    schema = to_arrow(target.hudi.schema())
    known = {name.lower() for name in schema.names}
    fields = []
    for column in statement.columns:
        if "." in column.name or column.after is not None:
            what = f"within {column.name}" if "." in column.name else "… FIRST and AFTER"
            problem = f"ADD COLUMNS {what} needs schema on read"
            hint = f"SET {SCHEMA_ON_READ.key}=true"
            raise UnsupportedError.of_table(full, problem, hint=hint, column=column.name, option=SCHEMA_ON_READ.key)
        if column.name.lower() in known:
            raise InputError.of_table(full, f"column {column.name} is there already", column=column.name)
        _refuse_required(column, full)
        known.add(column.name.lower())
        fields.append(arrow_field(column))
    options = {**settings.hoodie, EMPTY_COMMITS.key: "true"}
    return target.write(WriteOperation.INSERT, pa.schema([*schema, *fields]).empty_table(), options)
