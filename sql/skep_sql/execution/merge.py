"""MERGE INTO: source and table joined over one snapshot, each row given to the first clause that fits, one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from skep_format.errors import InputError
from skep_format.nearest import did_you_mean
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_sql.assign import assigned
from skep_sql.bind import Scope, bind, given_rows, table_to_change
from skep_sql.execution.change import (
    META,
    TARGET,
    check_has_meta,
    check_ordering_rises,
    columns_beside,
    columns_found_by,
    rule_of,
    type_of,
    values_to_set,
)
from skep_sql.parsing.statements import Assignment, Merge, MergeClause, Node
from skep_sql.protocols import QueryEngine, Relation, TargetTable
from skep_table.keys import KeyGenerator
from skep_table.keys.text import joined_places, single
from skep_table.merge.rows import DELETED, PARTIAL, POSITION
from skep_table.query.options import QueryType
from skep_table.table import HudiTable
from skep_table.write.indexes import index_of
from skep_table.write.input.source import has_positions
from skep_table.write.joint import ChangePart
from skep_table.write.result import WriteResult
from skep_table.write.tags import NOT_HELD

_CLAUSE: Final = "_skep_clause"
_ROW: Final = "_skep_row"
_SOURCE: Final = "skep_source"
_OLD: Final = "_skep_t_"


@dataclass(frozen=True, slots=True)
class MergeInto:
    """A merge as it is carried out. `source` is what `QueryEngine.numbered` makes its rows of: a query, or a frame."""

    target: TargetTable
    alias: str
    source: exp.Query
    source_alias: str
    on: Node
    clauses: tuple[MergeClause, ...]


def run_merge(statement: Merge, scope: Scope, engine: QueryEngine, options: Mapping[str, object]) -> WriteResult:
    """InputError for clauses that can't be carried out, before anything is read or written."""
    target = table_to_change(scope, statement.name)
    alias = statement.alias or statement.name.parts[-1]
    merge = MergeInto(target, alias, statement.source, statement.source_alias, statement.on, statement.clauses)
    return merge_rows(merge, scope, engine, options)


def merge_rows(merge: MergeInto, scope: Scope, engine: QueryEngine, options: Mapping[str, object]) -> WriteResult:
    """One commit. Rows of the source that update one stored row compete by the merge rule, else the last one wins.

    InputError for new rows with a key that is stored, or of which there are several: ON does not compare keys then.
    """
    with scope.catalog.looking_once():  # the source is bound again for each attempt, over what is stored then
        return _merge_rows(merge, scope, engine, options)


def _merge_rows(merge: MergeInto, scope: Scope, engine: QueryEngine, options: Mapping[str, object]) -> WriteResult:
    table = merge.target.hudi
    check_has_meta(table, merge.target, "MERGE")
    _check_order(merge.clauses, merge.target.name)
    if merge.alias.lower() == merge.source_alias.lower():
        raise InputError(
            f"table {merge.target.name} and the source have the same name, {merge.alias}",
            hint="give one of them an alias: MERGE INTO t USING … AS s",
        )
    bound = bind(merge.source, scope)
    known = engine.schema(bound.query, bound.relations).names
    checked = _Plan(merge, table.with_options(options), known, engine)  # refused before the write begins

    def compute(snapshot: HudiTable, *, whole: bool) -> pa.Table:
        pinned = replace(scope, pinned={**scope.pinned, merge.target.name: snapshot})
        source = bind(merge.source, pinned)
        numbered = engine.numbered(source.query, source.relations, _ROW)
        held = numbered if isinstance(numbered, pa.Table) else None
        plan = _Plan(merge, snapshot.with_options(options), known, engine, whole=whole, held=held)
        relation: Relation = merge.target.rows(snapshot, query=QueryType.SNAPSHOT, positions=has_positions(snapshot))
        if held is not None and (names := plan.joined_columns(held.schema)) is not None:
            relation = relation.joined_by(names[0], held.column(names[1]))
            changes = plan.changes_by_key(relation, *names)
            if changes is not None:
                return changes
        functions = {TARGET: lambda *_: relation, _SOURCE: lambda *_: numbered}
        joined = bind(plan.query(), replace(pinned, functions={**scope.functions, **functions}))
        return plan.changes(engine.rows(joined.query, joined.relations))

    compute_set = None if checked.moves_rows else partial(compute, whole=False)
    return merge.target.commit(ChangePart(partial(compute, whole=True), checked.columns_set, compute_set), options)


def _check_order(clauses: Sequence[MergeClause], name: str) -> None:
    for kind in ("matched", "not matched", "not matched by source"):
        same = [clause for clause in clauses if clause.when == kind]
        if any(clause.condition is None for clause in same[:-1]):
            problem = f"only the last WHEN {kind.upper()} may be without a condition"
            raise InputError.of_table(name, problem, found=kind.upper())


class _Plan:
    """The joined query, and how its rows become changes. `whole`: stored rows come with the columns that they keep.

    `held`: the numbered rows of the source, where they are in memory: their columns do not pass through the query.
    """

    def __init__(
        self,
        merge: MergeInto,
        table: HudiTable,
        source: Sequence[str],
        engine: QueryEngine,
        *,
        whole: bool = True,
        held: pa.Table | None = None,
    ) -> None:
        self._merge = merge
        self._whole = whole
        self._held = held
        self._engine = engine
        self._table = table
        self._name = merge.target.name
        self._schema = to_arrow(table.schema())
        self._found_by = columns_found_by(table)
        self._source = list(source)
        config = table.config
        self._schema_names = frozenset(self._schema.names)
        index = index_of(config, table.options)
        keys, places = (
            {name.partition(".")[0] for name in names} for names in (config.record_key_fields, config.partition_fields)
        )
        self._fixed, self._places = (keys, places) if index.is_global and index.moves else (keys | places, set[str]())
        self._values = [self._values_of(clause) for clause in merge.clauses]
        keeps_keys = has_positions(table) and not index.is_global  # whatever the source has for them
        self._generator = KeyGenerator.of(config, table.options)
        self._key_column = self._generator.column_of_key(self._schema) if keeps_keys else None

    def _values_of(self, clause: MergeClause) -> dict[str, Node]:
        """Column → expression."""
        if clause.action == "delete":
            return {}
        given = clause.assignments
        if given is None:
            if clause.when == "not matched by source":
                raise InputError.of_table(self._name, "WHEN NOT MATCHED BY SOURCE has no source for UPDATE SET *")
            given = tuple(Assignment(name, self._source_column(name)) for name in self._schema.names)
        found = {v.column: v.expression for v in values_to_set(given, self._table, self._name, self._merge.alias)}
        if clause.action == "insert":
            self._check_insert(found)
        return found

    def _source_column(self, name: str) -> Node:
        found = next((each for each in self._source if each == name), None) or next(
            (each for each in self._source if each.lower() == name.lower()), None
        )
        if found is None:
            meant = did_you_mean(name, self._source)
            raise InputError.of_table(
                self._name,
                f"the source of MERGE has no column {name}, which * means",
                hint=f"{meant} Name the columns: UPDATE SET {name} = …, INSERT (…) VALUES (…)"
                if meant
                else "name the columns: UPDATE SET a = …, INSERT (…) VALUES (…)",
                column=name,
                found=", ".join(self._source),
            )
        return exp.column(
            exp.to_identifier(found, quoted=True), table=exp.to_identifier(self._merge.source_alias, quoted=True)
        )

    def _check_insert(self, values: Mapping[str, Node]) -> None:
        rule = rule_of(self._table)
        for kind, names in (
            ("record key", self._table.config.record_key_fields),
            ("ordering", rule.ordering_fields),
        ):
            for name in names:
                if name.partition(".")[0] not in values:
                    problem = f"MERGE: INSERT gives {kind} column {name} no value"
                    raise InputError.of_table(self._name, problem, column=name, found=", ".join(values))
        for field in self._schema:
            if not field.nullable and field.name not in values:
                problem = f"MERGE: INSERT gives column {field.name}, which is NOT NULL, no value"
                raise InputError.of_table(self._name, problem, column=field.name)

    @property
    def columns_set(self) -> frozenset[str]:
        """Those that its updates change."""
        clauses = zip(self._merge.clauses, self._values, strict=True)
        updates = (values for clause, values in clauses if clause.action == "update")
        return frozenset(name for values in updates for name in values)

    @property
    def moves_rows(self) -> bool:
        """Whether an update may put a row into another partition, for which it has to be whole."""
        return bool(self._places)

    # -- the query

    def query(self) -> exp.Query:
        """Meta columns of the table and those of its columns that rows keep, the number and the clause of each row, and
        per clause the new values."""
        merge = self._merge
        in_table = exp.Not(this=exp.Is(this=self._of_table(RECORD_KEY), expression=exp.Null()))
        in_source = exp.Not(
            this=exp.Is(
                this=exp.column(_ROW, table=exp.to_identifier(merge.source_alias, quoted=True)), expression=exp.Null()
            )
        )
        number = exp.Case()
        for at, clause in enumerate(merge.clauses):
            condition: Node = {
                "matched": exp.and_(in_table.copy(), in_source.copy()),
                "not matched": exp.Not(this=exp.paren(in_table.copy())),
                "not matched by source": exp.Not(this=exp.paren(in_source.copy())),
            }[clause.when]
            if clause.condition is not None:
                condition = exp.and_(condition, clause.condition.copy())
            number = number.when(condition, exp.Literal.number(at))
        number = number.else_(exp.Literal.number(-1))
        columns = [exp.alias_(self._of_table(name), _old(name), quoted=True) for name in self._found_by]
        old = self._names_read()
        columns += [exp.alias_(self._of_table(name), _old(name), quoted=True) for name in old]
        columns.append(exp.column(_ROW, table=exp.to_identifier(merge.source_alias, quoted=True)))
        columns.append(exp.alias_(number, _CLAUSE))
        for at, values in enumerate(self._values):
            for place, name in enumerate(self._schema.names):
                if name in values and self._held_column(values[name]) is None:
                    chosen = exp.Case().when(
                        exp.EQ(this=number.copy(), expression=exp.Literal.number(at)), values[name].copy()
                    )
                    columns.append(exp.alias_(chosen, f"_skep_v{at}_{place}"))
        kinds = {clause.when for clause in merge.clauses}
        join = "FULL" if "not matched by source" in kinds else "LEFT" if "not matched" in kinds else "INNER"
        joined = exp.Join(this=given_rows(TARGET, merge.alias), on=merge.on.copy())
        if join == "INNER":
            joined.set("kind", "INNER")
        else:
            joined.set("side", join)
        query: exp.Query = exp.select(*columns).from_(given_rows(_SOURCE, merge.source_alias))
        query.append("joins", joined)
        return query

    def joined_columns(self, source: pa.Schema) -> tuple[str, str] | None:
        """A column of the table, and the one of the source that has its value in all joined rows.

        None where rows of the table without a match are needed, too.
        """
        if any(clause.when == "not matched by source" for clause in self._merge.clauses):
            return None
        for one, other in self._compared():
            column, given = _only_named(one, self._schema.names), _only_named(other, source.names)
            if column is not None and given is not None:
                kind = self._schema.field(column).type
                is_exact = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)
                if is_exact and source.field(given).type == kind:
                    return column, given
        return None

    def _compared(self) -> Iterator[tuple[str, str]]:
        """The columns of the table and of the source that ON compares for equality, each pair with AND."""
        aliases = self._merge.alias.lower(), self._merge.source_alias.lower()
        for each in self._conditions():
            if isinstance(each, exp.EQ):
                pair = {side.table.lower(): side for side in (each.left, each.right) if type(side) is exp.Column}
                if set(pair) == set(aliases):
                    one, other = (pair[alias] for alias in aliases)
                    yield one.name, other.name

    def _conditions(self) -> list[Node]:
        """Those of ON that all have to hold."""
        on = self._merge.on
        return [each.unnest() for each in (on.flatten() if isinstance(on, exp.And) else [on])]

    def _of_table(self, name: str) -> Node:
        return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(self._merge.alias, quoted=True))

    def _names_read(self) -> list[str]:
        """The columns of stored rows that a clause keeps, or compares with what it sets."""
        read: set[str] = set()
        needed = self._schema_names
        if not self._whole:
            needed = (self.columns_set | columns_beside(self._table)) & needed
        for clause, values in zip(self._merge.clauses, self._values, strict=True):
            if clause.action != "insert":
                read |= needed - values.keys() | self._fixed | self._places
        return [name for name in self._schema.names if name in read]

    def _held_column(self, value: Node) -> str | None:
        """The column of the rows in memory that an expression is."""
        if self._held is None or type(value) is not exp.Column or value.args.get("db"):
            return None
        if value.table.lower() != self._merge.source_alias.lower():
            return None
        return _only_named(value.name, self._source)

    # -- its rows

    def changes(self, rows: pa.Table) -> pa.Table:
        """The rows that a clause took, as `TableWriter.change` takes them: by clause, and by row of the source."""

        def taken(at: int) -> pa.Table:
            used = [*map(_old, (*self._found_by, *self._names_read())), _ROW]
            used += [
                name for place in range(len(self._schema)) if (name := f"_skep_v{at}_{place}") in rows.schema.names
            ]
            return rows.select(used).filter(pc.equal(rows.column(_CLAUSE), at)).sort_by(_ROW)

        return self._changes(map(taken, range(len(self._merge.clauses))))

    def changes_by_key(self, stored: Relation, column: str, given: str) -> pa.Table | None:
        """The same of `stored`, which has only rows with a value of the source's column `given` in theirs, without a
        query: no row goes to the engine and back.

        None where ON and the clauses ask for more than that these are equal, two rows of the source have one value, or
        the engine does not read here.
        """
        merge, source = self._merge, self._held
        if source is None or len(self._conditions()) > 1:
            return None
        if any(clause.condition is not None for clause in merge.clauses):
            return None
        if any(self._held_column(value) is None for values in self._values for value in values.values()):
            return None
        keys = single(source.column(given))
        if len(keys.unique()) < len(keys):
            return None
        read = [*self._found_by, *self._names_read()]
        is_key = column == self._key_column
        needed = {*read, column} - ({RECORD_KEY} if is_key else set())
        rows = self._engine.held(stored.narrowed(frozenset(map(str.lower, needed))))
        if rows is None:
            return None
        if is_key:
            rows = rows.append_column(RECORD_KEY, rows.column(column).cast(pa.string()))
        found = pc.index_in(rows.column(column), keys, skip_nulls=True)
        matched = rows.select(read).rename_columns([*map(_old, read)]).append_column(_ROW, found.cast(pa.int64()))
        matched = matched.filter(found.is_valid())
        is_new = np.ones(len(keys), np.bool_)
        is_new[matched.column(_ROW).to_numpy()] = False
        new = pa.table({_ROW: np.flatnonzero(is_new)})
        for name in self._found_by:
            new = new.append_column(_old(name), pa.nulls(new.num_rows, type_of(name)))
        kinds = [clause.when for clause in merge.clauses]
        parts = {"matched": matched, "not matched": new}
        return self._changes(
            parts[kind] if at == kinds.index(kind) else parts[kind].slice(0, 0) for at, kind in enumerate(kinds)
        )

    def _changes(self, taken: Iterable[pa.Table]) -> pa.Table:
        """Those of the rows that each clause took."""
        parts, inserted = [], []
        for at, (clause, rows) in enumerate(zip(self._merge.clauses, taken, strict=True)):
            found = self._changed(at, clause, rows)
            parts.append(found)
            if clause.action == "insert":
                inserted.append(found)
        changed = pa.concat_tables(parts)
        return self._replacing(changed, pa.concat_tables(inserted)) if inserted else changed

    def _changed(self, at: int, clause: MergeClause, rows: pa.Table) -> pa.Table:
        values = self._values[at]
        made: dict[str, pa.ChunkedArray] = {
            name: rows.column(_old(name)).cast(type_of(name)) for name in self._found_by
        }
        for place, field in enumerate(self._schema):
            if field.name in values:
                from_source, by_name = self._held_column(values[field.name]), clause.assignments is None
                if self._held is not None and from_source is not None:
                    given = self._held.column(from_source).take(rows.column(_ROW))
                else:
                    given = rows.column(f"_skep_v{at}_{place}")
                column = assigned(given, field.type, field.name, self._name, self._engine, by_name=by_name)
            elif clause.action == "insert":
                column = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            elif _old(field.name) in rows.schema.names:
                column = rows.column(_old(field.name)).cast(field.type)
            else:  # kept as it is
                made[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
                continue
            if column.null_count and not field.nullable and clause.action != "delete":
                problem = f"column {field.name} is NOT NULL, MERGE gives {column.null_count} rows null"
                raise InputError.of_table(self._name, problem, column=field.name)
            made[field.name] = column
        if clause.action == "insert" and POSITION in self._found_by and self._compares_keys():
            made[POSITION] = pa.chunked_array([pa.repeat(pa.scalar(NOT_HELD, pa.int64()), rows.num_rows)])
        made[DELETED] = pa.chunked_array([pa.repeat(clause.action == "delete", rows.num_rows)])
        made[PARTIAL] = pa.chunked_array([pa.repeat(clause.action == "update", rows.num_rows)])
        changed = pa.table(made)
        if clause.action == "update":
            self._check_fixed(changed, rows, values)
            return self._moved(changed, rows, values)
        return changed

    def _check_fixed(self, changed: pa.Table, rows: pa.Table, values: Mapping[str, Node]) -> None:
        """A row keeps its key and its partition."""
        for name in self._fixed & set(values):
            old, new = rows.column(_old(name)).cast(changed.schema.field(name).type), changed.column(name)
            same = _same(old, new)
            if pc.all(same).as_py() is False:
                at = pc.index(same, False).as_py()
                raise InputError.of_table(
                    self._name,
                    f"MERGE would change column {name} of key {changed.column(RECORD_KEY)[at].as_py()} from {old[at]}"
                    f" to {new[at]}: key and partition columns of a stored row stay",
                    hint="delete the row and insert it again",
                    column=name,
                    found=str(new[at]),
                    expected=str(old[at]),
                )

    def _moved(self, changed: pa.Table, rows: pa.Table, values: Mapping[str, Node]) -> pa.Table:
        """Updated rows, of which those for another partition are new ones, which a global index moves there."""
        stays = pa.chunked_array([pa.repeat(True, rows.num_rows)])
        for name in self._places & set(values):
            old = rows.column(_old(name)).cast(changed.schema.field(name).type)
            stays = pc.and_(stays, _same(old, changed.column(name)))
        if pc.all(stays).as_py() is not False:
            return changed
        for name in (*self._found_by, PARTIAL):
            at, column = changed.schema.get_field_index(name), changed.column(name)
            other = pa.scalar(False) if name == PARTIAL else pa.scalar(None, column.type)
            changed = changed.set_column(at, name, pc.if_else(stays, column, other))
        return changed

    def _replacing(self, changed: pa.Table, new: pa.Table) -> pa.Table:
        """The changes, where a new row takes the place of a stored one that another clause deletes.

        InputError for a new row whose key another row has, or that the merge rule would drop.
        """
        if not new.num_rows or self._compares_keys():
            return changed
        keys = self._generator.record_keys(new)
        places = joined_places(self._generator.partition_paths(new), keys)
        is_deleted = changed.column(DELETED)
        deleted = changed.filter(is_deleted)
        at = pc.index_in(places, joined_places(deleted.column(PARTITION_PATH), deleted.column(RECORD_KEY)))
        self._check_new(places, single(keys), pc.is_null(at))
        replaces = pc.is_valid(at)
        if not pc.any(replaces).as_py():
            return changed
        before, after = deleted.take(at.filter(replaces)), new.filter(replaces)
        after = after.set_column(after.schema.get_field_index(RECORD_KEY), RECORD_KEY, before.column(RECORD_KEY))
        for name in rule_of(self._table).ordering_fields:
            check_ordering_rises(before, after, name, self._table, self._name)
        stored = joined_places(changed.column(PARTITION_PATH), changed.column(RECORD_KEY))
        return changed.filter(pc.invert(pc.and_(is_deleted, pc.is_in(stored, places.filter(replaces)))))

    def _check_new(self, places: pa.Array, keys: pa.Array, stays: pa.Array) -> None:
        """Where ON does not compare keys, a row without a match may have a key that is stored, and would replace it.

        `places`: of each new row partition and key. `stays`: whether no clause deletes the stored row there.
        """
        stored = self._merge.target.rows(self._table, query=QueryType.SNAPSHOT, columns=META).to_arrow()
        held = pc.and_(pc.is_in(places, joined_places(stored.column(PARTITION_PATH), stored.column(RECORD_KEY))), stays)
        numbers = pc.value_counts(places)
        twice = numbers.field("values").filter(pc.greater(numbers.field("counts"), 1))
        again = pc.or_(held, pc.is_in(places, twice))
        if pc.any(again).as_py():
            at = pc.index(again, True).as_py()
            what = "is stored already" if held[at].as_py() else "another row of the source has, too"
            raise InputError.of_table(
                self._name,
                f"MERGE: INSERT of a row without a match with key {keys[at].as_py()}, which {what}: one of them would"
                " be lost, since rows of one key are one row",
                hint=f"ON compares {', '.join(self._table.config.record_key_fields)} with the source, or the table has"
                " another key",
                found=keys[at].as_py(),
            )

    def _compares_keys(self) -> bool:
        """Whether ON holds only for equal keys, in equal partitions if it names these, and INSERT keeps their values:
        then rows without a match have new keys."""
        config = self._table.config
        if not config.record_key_fields:
            return True
        compared = {name.lower() for name in (*config.record_key_fields, *config.partition_fields)}
        pairs = {(one.lower(), other.lower()) for one, other in self._compared()}
        if len(pairs) < len(self._conditions()) or any(one not in compared for one, _ in pairs):
            return False
        in_on = {one for one, _ in pairs}
        kept = [*config.record_key_fields, *(name for name in config.partition_fields if name.lower() in in_on)]
        for clause, values in zip(self._merge.clauses, self._values, strict=True):
            if clause.action != "insert":
                continue
            for name in kept:
                value = values.get(name)
                if not isinstance(value, exp.Column) or (name.lower(), value.name.lower()) not in pairs:
                    return False
        return True


def _old(name: str) -> str:
    """The name of a column of the table among the joined rows."""
    return f"{_OLD}{name}"


def _only_named(name: str, among: Sequence[str]) -> str | None:
    """The only one with a name, in whatever case."""
    found = [each for each in among if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where values are equal, or both null."""
    return pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
