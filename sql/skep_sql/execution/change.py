"""UPDATE and DELETE: the rows that a statement changes, computed from the snapshot that its commit is based on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from skep_format.errors import InputError, PredicateError, UnsupportedError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_sql.assign import assigned
from skep_sql.bind import Scope, bind, given_rows, table_to_change
from skep_sql.names import column_of
from skep_sql.parsing.statements import Assignment, Delete, Node, Update
from skep_sql.protocols import QueryEngine, Relation, TargetTable
from skep_table.keys.text import column_of as values_of
from skep_table.merge import Fill, MergeRule
from skep_table.merge.rows import DELETED, PARTIAL, POSITION
from skep_table.query.filters.predicate import Predicate
from skep_table.query.filters.text import parse_predicate
from skep_table.query.options import QueryType
from skep_table.table import HudiTable
from skep_table.write.input.source import has_positions
from skep_table.write.input.source import matching as found_by_reader
from skep_table.write.joint import ChangePart, RemovalPart
from skep_table.write.planning.merge_options import merged_by
from skep_table.write.result import WriteResult

META: Final = (RECORD_KEY, PARTITION_PATH, FILE_NAME)
OLD: Final = "_skep_old_"
TARGET: Final = "skep_target"


@dataclass(frozen=True, slots=True)
class NewValue:
    """A column of the table and the expression of its new value."""

    column: str
    expression: Node


def run_update(statement: Update, scope: Scope, engine: QueryEngine, options: Mapping[str, object]) -> WriteResult:
    """InputError for a change of key or partition columns, and where the merge rule would drop the new values."""
    return update_rows(
        table_to_change(scope, statement.name),
        statement.assignments,
        statement.where,
        scope,
        engine,
        options,
        alias=statement.alias or statement.name.parts[-1],
    )


def update_rows(
    target: TargetTable,
    assignments: Sequence[Assignment],
    where: Node | None,
    scope: Scope,
    engine: QueryEngine,
    options: Mapping[str, object],
    alias: str,
) -> WriteResult:
    """One commit with new values in the rows for which `where` holds."""
    table = target.hudi
    check_has_meta(table, target, "UPDATE")
    values = values_to_set(assignments, table, target.name, alias)
    check_update_wins(table, target.name)
    _refuse_keys(values, table, target.name)

    setting = {value.column: value.expression for value in values}

    def compute(snapshot: HudiTable, *, whole: bool) -> pa.Table:
        """`whole`: with the columns that stay as they are."""
        schema = to_arrow(snapshot.schema())
        if not whole:
            needed = setting.keys() | columns_beside(snapshot)
            schema = pa.schema([field for field in schema if field.name in needed])
        ordering = [name for name in rule_of(snapshot).ordering_fields if name.partition(".")[0] in setting]
        found_by = columns_found_by(snapshot)
        columns = [_column(alias, name) for name in found_by]
        columns += [
            exp.alias_(setting[f.name].copy(), f.name, quoted=True) if f.name in setting else _column(alias, f.name)
            for f in schema
        ]
        columns += [
            exp.alias_(_column(alias, name.partition(".")[0]), f"{OLD}{at}") for at, name in enumerate(ordering)
        ]
        query = exp.select(*columns).from_(given_rows(TARGET, alias))
        if where is not None:
            query = query.where(where.copy())
        rows = rows_of(query, snapshot, target, scope, engine)
        made = {name: rows.column(name).cast(type_of(name)) for name in found_by}
        for field in schema:
            column = assigned(rows.column(field.name), field.type, field.name, target.name, engine)
            if not field.nullable and column.null_count:
                raise InputError.of_table(target.name, f"column {field.name} is NOT NULL", column=field.name)
            made[field.name] = column
        made[DELETED] = pa.chunked_array([pa.repeat(False, rows.num_rows)])
        made[PARTIAL] = pa.chunked_array([pa.repeat(True, rows.num_rows)])
        changed = pa.table(made)
        for at, name in enumerate(ordering):
            old = pa.table({name.partition(".")[0]: rows.column(f"{OLD}{at}")})
            check_ordering_rises(old, changed, name, snapshot, target.name)
        return changed

    change = ChangePart(partial(compute, whole=True), frozenset(setting), partial(compute, whole=False))
    return target.commit(change, options)


def run_delete(statement: Delete, scope: Scope, engine: QueryEngine, options: Mapping[str, object]) -> WriteResult:
    """One commit without the rows for which the statement's condition holds."""
    target = table_to_change(scope, statement.name)
    alias = statement.alias or statement.name.parts[-1]
    condition = own_condition(statement.where or exp.true(), target.hudi, alias, engine)
    if condition is not None:
        return target.commit(RemovalPart(found_by_reader(condition)), options)
    return target.commit(RemovalPart(matching(target, statement.where, scope, engine, alias)), options)


def matching(
    target: TargetTable, where: Node, scope: Scope, engine: QueryEngine, alias: str
) -> Callable[[HudiTable], pa.Table]:
    """Computes the meta columns of a snapshot's rows for which the engine finds that `where` holds."""
    check_has_meta(target.hudi, target, "DELETE with this predicate")

    def compute(snapshot: HudiTable) -> pa.Table:
        names = columns_found_by(snapshot)
        query = exp.select(*(_column(alias, name) for name in names)).from_(given_rows(TARGET, alias))
        return rows_of(query.where(where.copy()), snapshot, target, scope, engine).select(names)

    return compute


def rows_of(query: exp.Query, snapshot: HudiTable, target: TargetTable, scope: Scope, engine: QueryEngine) -> pa.Table:
    """The answer over the snapshot: `skep_target` is the table, which other mentions of it read the same."""
    pinned = replace(scope, pinned={**scope.pinned, target.name: snapshot})
    relation: Relation = target.rows(snapshot, query=QueryType.SNAPSHOT, positions=has_positions(snapshot))
    inner = replace(pinned, functions={**scope.functions, TARGET: lambda _catalog, _arguments: relation})
    bound = bind(query, inner)
    return engine.rows(bound.query, bound.relations)


def columns_found_by(snapshot: HudiTable) -> list[str]:
    """The columns by which the stored rows are changed that a statement has read."""
    return [*META, POSITION] if has_positions(snapshot) else [*META]


def type_of(column: str) -> pa.DataType:
    """That of one of these columns; engines may answer with a like one."""
    return pa.int64() if column == POSITION else pa.string()


def _column(alias: str, name: str) -> Node:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def own_condition(
    where: Node, table: HudiTable, alias: str, engine: QueryEngine
) -> Callable[[pa.Schema], Predicate] | None:
    """The condition for skep's own reader; None for one that it can't take, or that has names of other tables.

    None, too, where Spark may find other rows by it, also since it depends on a time zone that is not that of
    `engine`: the reader's is UTC.
    """
    own = where.copy()
    for column in own.find_all(exp.Column):
        if column.table and column.table.lower() == alias.lower():
            column.set("table", None)
    condition = partial(parse_predicate, own)
    try:
        predicate = condition(to_arrow(table.schema().with_meta()))
    except PredicateError:
        return None
    return condition if predicate.is_alike(in_utc=engine.in_utc) else None


def values_to_set(assignments: Sequence[Assignment], table: HudiTable, name: str, alias: str) -> list[NewValue]:
    """One value for each column; fields of structs are set within the struct. InputError for a column set twice."""
    schema = to_arrow(table.schema())
    found: dict[str, Node] = {}
    fields: dict[str, set[str]] = {}
    for each in assignments:
        head, *rest = each.column.split(".") if each.column not in schema.names else [each.column]
        column = column_of(head, schema.names, name)
        if column in found and (not rest or ".".join(rest) in fields.get(column, {""})):
            raise InputError.of_table(name, f"column {each.column} is set twice", column=each.column)
        if rest:
            base = found.get(column, _column(alias, column))
            found[column] = _with_field(base, schema.field(column).type, rest, each.value, f"{name}.{column}")
            fields.setdefault(column, set()).add(".".join(rest))
        else:
            found[column] = each.value
    return [NewValue(column, value) for column, value in found.items()]


def _with_field(base: Node, kind: pa.DataType, path: Sequence[str], value: Node, where: str) -> Node:
    """A struct with one field replaced."""
    if not pa.types.is_struct(kind):
        raise InputError(f"{where} is no struct, it has no field {path[0]}", column=where, found=path[0])
    names = [kind.field(at).name for at in range(kind.num_fields)]
    wanted = column_of(path[0], names, where)
    made = []
    for at, field in enumerate(names):
        member = exp.Dot(this=base.copy(), expression=exp.to_identifier(field, quoted=True))
        if field == wanted:
            inner = kind.field(at).type
            member = value.copy() if len(path) == 1 else _with_field(member, inner, path[1:], value, f"{where}.{field}")
        made.append(exp.PropertyEQ(this=exp.to_identifier(field, quoted=True), expression=member))
    return exp.Struct(expressions=made)


def rule_of(table: HudiTable) -> MergeRule:
    """The table's merge rule."""
    return MergeRule.of(merged_by(table.config, table.options), table.options)


def columns_beside(table: HudiTable) -> frozenset[str]:
    """The columns that updated rows need beside those that are set: ordering columns, and those of partitions."""
    names = (*rule_of(table).ordering_fields, *table.config.partition_fields)
    return frozenset(name.partition(".")[0] for name in names)


def by_ordering(table: HudiTable) -> bool:
    """Whether a row with a lower ordering value loses against the stored one."""
    rule = rule_of(table)
    return rule.base.by_ordering or (table.config.is_mor and rule.log.by_ordering)


def check_update_wins(table: HudiTable, name: str) -> None:
    """UnsupportedError for merge rules by which a new row need not replace the stored one."""
    rule = rule_of(table)
    if rule.merger is not None or rule.base.first_wins or rule.base.fill is not Fill.NOTHING:
        config = table.config
        partial = config.partial_update_mode.value if config.partial_update_mode else None
        named = config.payload_class or partial or rule.merger or config.merge_mode.value
        problem = f"UPDATE: by the table's merge rule ({named}) the stored values may win"
        raise UnsupportedError.of_table(name, problem, hint="MERGE INTO, or an upsert, follows that rule", found=named)


def check_ordering_rises(old: pa.Table, new: pa.Table, name: str, table: HudiTable, shown: str) -> None:
    """InputError where the stored row would win over the new one."""
    if not by_ordering(table):
        return
    before, after = values_of(old, name), values_of(new, name)
    if pc.any(pc.is_null(after)).as_py():
        problem = f"ordering column {name} can't be null: the rows could not be compared any more"
        raise InputError.of_table(shown, problem, column=name)
    lower = pc.less(after, before)
    if pc.any(lower).as_py():
        at = pc.index(lower, True).as_py()
        key = new.column(RECORD_KEY)[at].as_py()
        raise InputError.of_table(
            shown,
            f"ordering column {name} of key {key} would go from {before[at]} down to {after[at]}: by the table's merge"
            " rule the stored row would win",
            hint=f"give {name} a value that is not lower, or leave it as it is",
            column=name,
            found=str(after[at]),
            expected=f"at least {before[at]}",
        )


def check_has_meta(table: HudiTable, target: TargetTable, what: str) -> None:
    """UnsupportedError for tables without meta columns, which name the file of a row."""
    if not table.config.populate_meta_fields:
        problem = f"{what} needs meta columns (hoodie.populate.meta.fields=false)"
        hint = "upsert the new rows, or DELETE by a predicate over columns"
        raise UnsupportedError.of_table(target.name, problem, hint=hint)


def _refuse_keys(values: Sequence[NewValue], table: HudiTable, name: str) -> None:
    for kind, columns in (("record key", table.config.record_key_fields), ("partition", table.config.partition_fields)):
        for column in columns:
            if any(value.column == column.partition(".")[0] for value in values):
                problem = f"UPDATE can't change {kind} column {column}"
                raise InputError.of_table(name, problem, hint="delete the rows and insert them again", column=column)
