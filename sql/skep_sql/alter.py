"""ALTER TABLE: names, properties, partitions and columns."""

from __future__ import annotations

import pyarrow as pa

from skep_sql.answer import Answer
from skep_sql.bind import Scope, look_up
from skep_sql.settings import SCHEMA_ON_READ, Settings
from skep_sql.statements import AlterTable
from skep_sql.tables import partition_paths
from skep_sql.types import arrow_field
from skep_table.errors import InputError, UnsupportedError
from skep_table.schema.arrow import to_arrow
from skep_table.timeline.metadata import WriteOperation
from skep_table.write.options import EMPTY_COMMITS
from skep_table.write.result import WriteResult


def alter(statement: AlterTable, scope: Scope, settings: Settings) -> Answer:
    """UnsupportedError for changes that are not built."""
    catalog = scope.catalog
    full = look_up(catalog, statement.name)
    if statement.action == "rename":
        new = statement.new_name
        assert new is not None
        database = full.partition(".")[0]
        catalog.rename_table(full, str(new) if len(new.parts) > 1 else f"{database}.{new}")
        return Answer()
    if statement.action in ("set properties", "unset properties"):
        _properties(statement, scope, full)
        return Answer()
    if statement.action == "drop partition":
        target = catalog.table(full)
        writes = []
        for partition in statement.partitions:
            paths = partition_paths(partition, target.hudi, target.name)
            if paths:
                writes.append(target.drop_partitions(paths, settings.hoodie))
        return Answer(writes=tuple(writes))
    if statement.action == "add columns":
        return Answer(writes=(_add_columns(statement, scope, settings, full),))
    if statement.action == "add partition":
        _check_partitions(statement, scope, full)
        return Answer()
    if settings.is_true(SCHEMA_ON_READ):
        raise UnsupportedError(
            f"ALTER TABLE … {statement.action.upper()} with {SCHEMA_ON_READ} is not supported",
            hint="ADD COLUMNS is; a Hudi session knows the others",
            table=full,
        )
    raise UnsupportedError(f"ALTER TABLE … {statement.action.upper()} is not supported", table=full)


def _properties(statement: AlterTable, scope: Scope, full: str) -> None:
    catalog = scope.catalog
    hoodie = [key for key in statement.properties if key.startswith("hoodie.")]
    fixed = [
        key
        for key in statement.properties
        if key.lower() in ("type", "primarykey", "precombinefield", "orderingfields")
    ]
    if fixed:
        raise InputError(
            f"table {full}: {fixed[0]} can't be changed", hint="make another table: CREATE TABLE … AS", option=fixed[0]
        )
    if hoodie:
        raise UnsupportedError(
            f"table {full}: {hoodie[0]} as a table property is not supported",
            hint=f"SET {hoodie[0]}=… holds for the session; skep's options hold for a lake",
            option=hoodie[0],
        )
    remove = statement.action == "unset properties"
    if remove and not statement.if_exists:
        facts = catalog.facts(full)
        missing = [key for key in statement.properties if facts is None or key not in facts.parameters]
        if missing:
            raise InputError(f"table {full} has no property {missing[0]}", hint="UNSET TBLPROPERTIES IF EXISTS (…)")
    catalog.set_parameters(full, {key: None if remove else value for key, value in statement.properties.items()})


def _add_columns(statement: AlterTable, scope: Scope, settings: Settings, full: str) -> WriteResult:
    """One commit without rows, whose schema has the new columns behind the others."""
    target = scope.catalog.table(full)
    schema = to_arrow(target.hudi.schema())
    known = {name.lower() for name in schema.names}
    fields = []
    for column in statement.columns:
        if "." in column.name:
            raise UnsupportedError(
                f"table {full}: ADD COLUMNS within {column.name} is not supported", column=column.name
            )
        if column.after is not None:
            raise UnsupportedError(f"table {full}: ADD COLUMNS … FIRST and AFTER are not supported", column=column.name)
        if column.name.lower() in known:
            raise InputError(f"table {full}: column {column.name} is there already", column=column.name)
        if not column.nullable:
            raise InputError(
                f"table {full}: column {column.name} can't be NOT NULL: the rows that are there have no value for it",
                column=column.name,
            )
        known.add(column.name.lower())
        fields.append(arrow_field(column))
    options = {**settings.hoodie, EMPTY_COMMITS.key: "true"}
    return target.write(WriteOperation.INSERT, pa.schema([*schema, *fields]).empty_table(), options)


def _check_partitions(statement: AlterTable, scope: Scope, full: str) -> None:
    """A partition of a Hudi table comes with its first row; until then nothing needs to be there."""
    table = scope.catalog.table(full).hudi
    for partition in statement.partitions:
        partition_paths(partition, table, full)
