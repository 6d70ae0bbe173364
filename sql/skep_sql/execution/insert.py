"""INSERT INTO and INSERT OVERWRITE: the query's columns put in the table's order and types, then one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from skep_format.errors import InputError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import META_FIELDS
from skep_format.timeline.metadata import WriteOperation
from skep_sql.assign import Policy, assigned, check_assignable, same_members
from skep_sql.bind import Bound, table_to_change
from skep_sql.names import column_of
from skep_sql.parsing.statements import Insert, Node, PartitionSpec
from skep_sql.protocols import TargetTable
from skep_sql.session import Session
from skep_sql.settings import SessionSettings
from skep_sql.types import arrow_text
from skep_table.table import HudiTable
from skep_table.write.planning.options import DUPLICATES
from skep_table.write.result import WriteResult

OPERATION: Final = "hoodie.spark.sql.insert.into.operation"
BULK_INSERT: Final = "hoodie.sql.bulk.insert.enable"
INSERT_MODE: Final = "hoodie.sql.insert.mode"
OVERWRITE_MODE: Final = ("hoodie.datasource.overwrite.mode", "spark.sql.sources.partitionoverwritemode")
WRITE_OPERATION: Final = "hoodie.datasource.write.operation"
_BY_ROWS: Final = "insert_overwrite"
_WHOLE_TABLE: Final = "insert_overwrite_table"
"""Of that setting: what an INSERT OVERWRITE replaces, before the overwrite mode decides it."""
_OPERATIONS: Final = {
    "upsert": WriteOperation.UPSERT,
    "insert": WriteOperation.INSERT,
    "bulk_insert": WriteOperation.BULK_INSERT,
}
_MODES: Final = ("upsert", "strict", "non-strict")


@dataclass(frozen=True, slots=True)
class InsertedColumn:
    """A column of the table and what it gets: the query's column at `position`, or `value` for all rows."""

    name: str
    type: pa.DataType
    position: int | None = None
    value: Node | None = None


def columns_in_order(table: HudiTable) -> pa.Schema:
    """The data columns as a catalog has them: partition columns last."""
    return pa.schema(in_order(to_arrow(table.schema()), table.config.partition_fields))


def in_order(fields: Iterable[Any], last: Sequence[str]) -> list[Any]:
    """Columns with those of some names behind the others, in the order of the names."""
    found = {field.name: field for field in fields}
    return [*(found[name] for name in found if name not in last), *(found[name] for name in last if name in found)]


def run_insert(session: Session, statement: Insert) -> WriteResult:
    """InputError for columns that do not fit, before anything is written."""
    target, settings = table_to_change(session.scope, statement.name), session.settings
    table = target.hudi
    partition = {_partition_column(name, table, target): value for name, value in (statement.partition or {}).items()}
    bound = session.bound(statement.query)
    columns, by_name = _columns(
        statement, partition, target.name, table, session.engine.schema(bound.query, bound.relations)
    )
    frame = put_in_order(session, columns, bound, target.name, by_name=by_name)
    named = str(settings.get(WRITE_OPERATION) or "").strip().lower()
    operation, options = _operation(table, settings)
    if not statement.overwrite and named not in (_BY_ROWS, _WHOLE_TABLE):
        return target.write(operation, frame, options)
    options = {key: value for key, value in options.items() if key != DUPLICATES.key}
    if named == _WHOLE_TABLE:
        return target.write(WriteOperation.INSERT_OVERWRITE_TABLE, frame, options)
    by_rows = bool(table.config.partition_fields) and (named == _BY_ROWS or _is_dynamic(settings))
    fixed = {name: value for name, value in partition.items() if value is not None}
    if fixed and not (by_rows and len(fixed) < len(partition)):
        static = {name: constant(value, name, target.name) for name, value in fixed.items()}
        return target.write(WriteOperation.INSERT_OVERWRITE, frame, options, static)
    replaces = WriteOperation.INSERT_OVERWRITE if by_rows else WriteOperation.INSERT_OVERWRITE_TABLE
    return target.write(replaces, frame, options)


def put_in_order(
    session: Session, columns: Sequence[InsertedColumn], bound: Bound, table: str, *, by_name: bool = False
) -> object:
    """The query's rows as the table's columns. Evaluated by the writer where no value changes its type.

    `by_name`: members of structs are found by their names.
    """
    engine, policy = session.engine, session.settings.policy
    schema = engine.schema(bound.query, bound.relations)
    for column in columns:
        if column.position is not None:
            given = schema.field(column.position).type
            check_assignable(given, column.type, column.name, table, policy, by_name=by_name)
    names = [f"c{at}" for at in range(len(schema))]
    alias = exp.TableAlias(this=exp.to_identifier("q"), columns=[exp.to_identifier(n) for n in names])
    picked, is_same = [], True
    for column in columns:
        at = column.position
        value = (column.value or exp.Null()).copy() if at is None else exp.column(names[at])
        if at is None or schema.field(at).type != column.type:
            is_same = False
            if policy is Policy.LEGACY:
                text = arrow_text(column.type, column.name)
                value = exp.Cast(this=value, to=exp.DataType.build(text, dialect="spark"))
        picked.append(exp.alias_(value, column.name, quoted=True))
    query = exp.select(*picked).from_(exp.Subquery(this=bound.query, alias=alias))
    if is_same or policy is Policy.LEGACY:
        return engine.frame(query, bound.relations)
    rows = engine.rows(query, bound.relations)
    return pa.table(
        {
            column.name: assigned(rows.column(at), column.type, column.name, table, engine, by_name=by_name)
            for at, column in enumerate(columns)
        }
    )


def constant(value: Node, column: str, table: str) -> object:
    """The value of a literal in a PARTITION clause."""
    inner = value.this if isinstance(value, exp.Cast) else value
    if isinstance(inner, exp.Null):
        return None
    if isinstance(inner, exp.Boolean):
        return bool(inner.this)
    if isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal) and inner.this.this.isdigit():
        return -int(inner.this.this)
    if isinstance(inner, exp.Literal):
        return int(inner.this) if not inner.is_string and inner.this.isdigit() else inner.this
    raise InputError.of_table(table, f"the value of partition column {column} is no constant", column=column)


def _partition_column(name: str, table: HudiTable, target: TargetTable) -> str:
    known = table.config.partition_fields
    found = next((each for each in known if each.lower() == name.lower()), None)
    if found is None:
        raise InputError.of_table(
            target.name,
            f"{name} is not a partition column",
            hint=f"it is partitioned by {', '.join(known)}" if known else "it is not partitioned",
            column=name,
            found=name,
            expected=", ".join(known) or None,
        )
    return found


def _columns(
    statement: Insert, partition: PartitionSpec, shown: str, table: HudiTable, listed: pa.Schema
) -> tuple[list[InsertedColumn], bool]:
    """The columns, and whether the query's were found by their names, as Hudi does it where they name exactly these."""
    schema = columns_in_order(table)
    static = {name: value for name, value in partition.items() if value is not None}
    # `SELECT *` of a Hudi table brings meta columns, which each write fills again
    places = [at for at, name in enumerate(listed.names) if name not in META_FIELDS]
    given = [listed.names[at] for at in places]
    by_name = statement.by_name or (
        statement.columns is None
        and same_members(
            pa.struct([listed.field(at) for at in places]), pa.struct([f for f in schema if f.name not in static])
        )
    )
    if by_name:
        names = [column_of(name, schema.names, shown) for name in given]
    elif statement.columns is not None:
        names = [column_of(name, schema.names, shown) for name in statement.columns]
    else:
        names = [name for name in schema.names if name not in static]
    twice = {name for name in names if names.count(name) > 1} | (set(names) & set(static))
    if twice:
        raise InputError.of_table(shown, f"column {min(twice)} is given twice", column=min(twice))
    if len(names) != len(given):
        more = "too many" if len(given) > len(names) else "not enough"
        problem = f"{more} values: the query has {len(given)} columns, and {len(names)} are written: {', '.join(names)}"
        raise InputError.of_table(shown, problem, found=len(given), expected=len(names))
    positions = dict(zip(names, places, strict=True))
    for field in schema:
        if field.name not in positions and field.name not in static and not field.nullable:
            raise InputError.of_table(shown, f"column {field.name} is NOT NULL, and gets no value", column=field.name)
    return [InsertedColumn(f.name, f.type, positions.get(f.name), static.get(f.name)) for f in schema], by_name


def _operation(table: HudiTable, settings: SessionSettings) -> tuple[WriteOperation, dict[str, object]]:
    """As Hudi infers it; 0.15 where nothing is set: upsert for a key and an ordering column, else insert."""
    options: dict[str, object] = dict(settings.hoodie)
    properties = table.config.raw
    keyed = bool(table.config.record_key_fields)

    def value(key: str) -> str:
        return str(settings.get(key) or properties.get(key) or "").strip().lower()

    key = WRITE_OPERATION if value(WRITE_OPERATION) else OPERATION
    named = value(key)
    if named and named not in (_BY_ROWS, _WHOLE_TABLE):
        if named not in _OPERATIONS:
            raise InputError(
                f"{key}={named} is no operation of INSERT", option=key, found=named, expected=", ".join(_OPERATIONS)
            )
        operation = _OPERATIONS[named]
    elif value(BULK_INSERT) == "true":
        operation = WriteOperation.BULK_INSERT
    elif value(INSERT_MODE):
        mode = value(INSERT_MODE)
        if mode not in _MODES:
            raise InputError(f"{INSERT_MODE}={mode}", option=INSERT_MODE, found=mode, expected=", ".join(_MODES))
        operation = WriteOperation.UPSERT if mode == "upsert" else WriteOperation.INSERT
        if mode == "strict" and keyed:
            options.setdefault(DUPLICATES.key, "fail")
    elif value(DUPLICATES.key) in ("drop", "fail"):
        operation = WriteOperation.INSERT
    else:
        operation = WriteOperation.UPSERT if keyed and table.config.ordering_fields else WriteOperation.INSERT
    if operation is WriteOperation.UPSERT and not keyed:
        operation = WriteOperation.INSERT  # no key by which a row could be found
    return operation, options


def _is_dynamic(settings: SessionSettings) -> bool:
    return any(str(settings.get(key) or "").strip().lower() == "dynamic" for key in OVERWRITE_MODE)
