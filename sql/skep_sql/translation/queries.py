"""Queries that mean the same to the embedded engine as to Spark, rewritten for it. Others are left to Spark.

The rewritten query names every column by its table, every type and every order of nulls, so that nothing is left to the
habits of an engine. Its own columns are c0, c1, …: their names and types in Spark's answer are kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Final

import pyarrow as pa
from sqlglot import exp

from skep_format.errors import InputError
from skep_format.nearest import did_you_mean
from skep_format.schema.arrow import is_any_list
from skep_format.schema.types import quoted
from skep_sql.parsing.statements import Node
from skep_sql.translation.expressions import Translator, member
from skep_sql.translation.plain_parse import parsed_plainly
from skep_sql.translation.spark_types import common, is_exact, spark_type
from skep_sql.translation.values import DiffersError, EngineValue, as_type, check_only, differs

__all__ = ["DiffersError", "EngineQuery", "engine_query"]

_SELECT: Final = (
    *("expressions", "from", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct"),
    *("with", "with_", "kind", "laterals", "windows", "hint"),  # a hint changes how fast a query is
)
# What Spark answers without a column of that name: columns of windows over time, functions without parentheses.
_OF_SPARK: Final = (
    *("window", "session_window", "grouping__id", "user", "current_user", "session_user", "current_date"),
    *("current_time", "current_timestamp", "localtime", "localtimestamp", "current_catalog", "current_database"),
    "current_schema",
)
_SIDES: Final = {"": "", "LEFT": "LEFT ", "RIGHT": "RIGHT ", "FULL": "FULL "}
_OF_NAMES: Final = (  # of columns of a PIVOT, in other dialects
    *("default_on_null", "identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming"),
    "value_columns_first",
)
_GENERATORS: Final = ("explode", "posexplode", "inline", "explode_outer", "posexplode_outer", "inline_outer")
_ROW_KINDS: Final = ("SEMI", "ANTI")  # of joins, which answer rows of the left side


@dataclass(frozen=True, slots=True)
class EngineQuery:
    """A query for the embedded engine: its text, and the columns of the answer as Spark names and types them."""

    text: str
    schema: pa.Schema


def engine_query(query: exp.Query, schemas: Mapping[str, pa.Schema]) -> EngineQuery:
    """The query over tables of these names and schemas. DiffersError names a part that is left to Spark.

    InputError for a column that no table of the query has.
    """
    made = _Queries(schemas).query(parsed_plainly(query), None, {})
    fields = []
    for value in made.columns:
        if value.name is None:
            raise DiffersError("a column without a name: give it one by AS")
        fields.append(pa.field(value.name, value.type))
    return EngineQuery(made.text, pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _Made:
    """A query whose columns are c0, c1, …"""

    text: str
    columns: tuple[EngineValue, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """What a FROM names: `columns` as its name and expression."""

    alias: str
    columns: tuple[tuple[str, EngineValue], ...]


@dataclass(slots=True)
class _Scope:
    """The tables that expressions of a SELECT see; those of the queries around it after them."""

    queries: _Queries
    outer: _Scope | None
    common: Mapping[str, _Made]
    sources: list[_Source] = field(default_factory=list)
    hidden: set[tuple[int, str]] = field(default_factory=set)  # source and column that USING made one of another's
    aliases: Mapping[str, EngineValue] = field(default_factory=dict)

    def column(self, node: Node) -> EngineValue:
        if isinstance(node, exp.Dot):
            return member(self.column(node.this), node.expression, node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("catalog"):
            raise differs(node)
        if node.args.get("db"):
            if not any(source.alias.lower() == node.text("db").lower() for source in self.sources):
                raise differs(node)
            whole = exp.column(node.args["table"].copy(), table=node.args["db"].copy())
            return member(self.column(whole), node.this, node)
        scope: _Scope | None = self
        while scope is not None:
            found = scope._own(node)
            if found is not None:
                return found
            scope = scope.outer
        raise self._unknown(node)

    def _own(self, node: Node) -> EngineValue | None:
        name, table = node.name.lower(), node.table.lower()
        if not table:
            found = self._only(node, name)
            return self.aliases.get(name) if found is None else found
        of_table = [source for source in self.sources if source.alias.lower() == table]
        if len(of_table) == 1:
            values = [value for own, value in of_table[0].columns if own.lower() == name]
            if len(values) == 1:
                return replace(values[0], name=node.name)
        if of_table:
            raise differs(node)
        whole = self._only(node, table)
        return None if whole is None else member(whole, node.this, node)

    def _only(self, node: Node, name: str) -> EngineValue | None:
        """The column of a name without its table."""
        found = self.named(name, self.sources)
        if len(found) > 1:
            raise differs(node, "more than one column of this name")
        return replace(found[0], name=node.name) if found else None

    def named(self, name: str, sources: Sequence[_Source]) -> list[EngineValue]:
        """The columns of a name that the first sources have."""
        return [
            value
            for at, source in enumerate(sources)
            for own, value in source.columns
            if own.lower() == name and (at, name) not in self.hidden
        ]

    def _unknown(self, node: Node) -> Exception:
        """An error for a name that nothing in the whole query has; it may be an alias to Spark otherwise."""
        name = node.name
        if not node.table and name.lower() not in self.queries.names and name.lower() not in _OF_SPARK:
            return InputError(
                f"the query does not fit the tables: there is no column {name}",
                hint=did_you_mean(name, sorted(self.queries.names)),
                column=name,
                found=name,
            )
        return differs(node)

    def subquery(self, query: Node) -> tuple[str, tuple[EngineValue, ...]]:
        inner = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(inner, exp.Query):
            raise differs(query)
        made = self.queries.query(inner, self, self.common)
        return made.text, made.columns

    def visible(self) -> Iterator[tuple[str, EngineValue]]:
        """The columns that `*` means, in their order: those of USING come first."""
        using = {name for _, name in self.hidden}
        for at, source in enumerate(self.sources):
            yield from (
                pair for pair in source.columns if pair[0].lower() in using and (at, pair[0].lower()) not in self.hidden
            )
        for source in self.sources:
            yield from (pair for pair in source.columns if pair[0].lower() not in using)


class _Queries:
    """Translates queries; every table gets a name of its own."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = {name.lower(): (name, schema) for name, schema in schemas.items()}
        self._numbers = count()
        self.names = {name.lower() for schema in schemas.values() for name in schema.names}
        """All names that a column of the query may have, aliases too."""

    def query(self, query: Node, outer: _Scope | None, common_tables: Mapping[str, _Made]) -> _Made:
        """A query within `outer`, whose rows it may name."""
        if outer is None:
            self.names |= {each.alias.lower() for each in query.find_all(exp.Alias, exp.CTE)}
            self.names |= {each.name.lower() for alias in query.find_all(exp.TableAlias) for each in alias.columns}
        if isinstance(query, exp.Subquery):
            check_only(query, "this", "alias")
            return self.query(query.this, outer, common_tables)
        tables = self._with(query, outer, common_tables)
        if isinstance(query, exp.Select):
            return self._select(query, outer, tables)
        if isinstance(query, (exp.Union, exp.Except, exp.Intersect)):
            return self._set_operation(query, outer, tables)
        raise differs(query)

    def _with(self, query: Node, outer: _Scope | None, known: Mapping[str, _Made]) -> Mapping[str, _Made]:
        clause = query.args.get("with_") or query.args.get("with")
        if clause is None:
            return known
        check_only(clause, "expressions")
        tables = dict(known)
        for each in clause.expressions:
            check_only(each, "this", "alias")
            made = self.query(each.this, outer, tables)
            tables[each.alias.lower()] = _renamed(made, each.args["alias"])
        return tables

    def _set_operation(self, query: Node, outer: _Scope | None, tables: Mapping[str, _Made]) -> _Made:
        check_only(query, "this", "expression", "distinct", "with", "with_", "order", "limit", "offset")
        sides = [self.query(each, outer, tables) for each in (query.this, query.expression)]
        left, right = (side.columns for side in sides)
        word = type(query).__name__.upper() + ("" if query.args.get("distinct") else " ALL")
        if word == "INTERSECT ALL":
            raise differs(query)
        if len(left) != len(right):
            raise differs(query)
        kinds = _kinds(query, (left, right))
        if word != "UNION ALL" and not all(map(is_exact, kinds)):
            raise differs(query, "types")
        parts = []
        for side in sides:
            pairs = enumerate(zip(side.columns, kinds, strict=True))
            casts = ", ".join(f"{as_type(replace(each, text=f'c{at}'), kind)} AS c{at}" for at, (each, kind) in pairs)
            parts.append(f"SELECT {casts} FROM ({side.text}) AS {self._fresh()}")
        columns = _numbered(kinds, [value.name for value in left])
        text = f"SELECT * FROM (({parts[0]}) {word} ({parts[1]})) AS {self._fresh()}"
        return _Made(text + self._end(query, columns, None), columns)

    def _fresh(self) -> str:
        return f"t{next(self._numbers)}"

    # -- SELECT

    def _select(self, query: Node, outer: _Scope | None, tables: Mapping[str, _Made]) -> _Made:
        check_only(query, *_SELECT)
        if query.args.get("kind"):
            raise differs(query)
        scope = _Scope(self, outer, tables)
        source = self._from(query, scope)
        source = self._laterals(query, scope, source)
        windows = {each.name.lower(): each for each in query.args.get("windows") or ()}
        is_ordered = "ORDER BY" not in (source or "")
        translator = Translator(scope, windows, list(_in_sets(query.args.get("group"))), is_ordered=is_ordered)
        parts = []
        where = query.args.get("where")
        if where is not None:
            condition = translator.condition(where.this)
            if condition.has_aggregate:
                raise differs(where)
            parts.append(f"WHERE {condition.text}")
        columns, views = self._columns(query, scope, translator)
        if views and (len(views) > 1 or query.args.get("group") or any(value.has_aggregate for value in columns)):
            raise differs(query)
        group = query.args.get("group")
        if group is not None:
            parts.append(f"GROUP BY {self._grouped(group, scope, columns)}")
        having = query.args.get("having")
        if having is not None:
            parts.append(f"HAVING {translator.condition(having.this).text}")
        distinct = query.args.get("distinct")
        if distinct is not None:
            check_only(distinct)
            if not all(is_exact(value.type) for value in columns):
                raise differs(query, "not grouped alike")
        scope.aliases = {}
        end = self._end(query, columns, None if distinct is not None else scope)
        listed = ", ".join(f"{value.text} AS c{at}" for at, value in enumerate(columns))
        words = "SELECT DISTINCT" if distinct is not None else "SELECT"
        made = _numbered([value.type for value in columns], [value.name for value in columns])
        if views:
            source = " ".join([source or "(SELECT 1) AS one", *views])
        clause = [] if source is None else [f"FROM {source}"]
        return _Made(" ".join([words, listed, *clause, *parts]) + end, made)

    def _columns(self, query: Node, scope: _Scope, translator: Translator) -> tuple[list[EngineValue], list[str]]:
        """The columns of a SELECT, whose aliases the scope gets; a LATERAL VIEW for each function of rows."""
        columns: list[EngineValue] = []
        views: list[str] = []
        aliases: dict[str, EngineValue] = {}
        repeated: set[str] = set()
        for each in query.expressions:
            inner = each.this if isinstance(each, exp.Alias | exp.Aliases) else each
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                columns += self._star(each, scope)
            elif isinstance(inner, exp.Anonymous) and inner.name.lower() in _GENERATORS:
                named = each.expressions if isinstance(each, exp.Aliases) else ()
                names = [each.alias] if isinstance(each, exp.Alias) else [name.name for name in named]
                text, source = self._generated(inner, names, "", translator)
                views.append(text)
                columns += (value for _, value in source.columns)
            elif isinstance(each, exp.Alias):
                check_only(each, "this", "alias")
                value = replace(translator.value(each.this), name=each.alias)
                repeated |= {each.alias.lower()} & aliases.keys()
                aliases[each.alias.lower()] = value
                columns.append(value)
            elif isinstance(each, exp.Column | exp.Dot):  # of a member of a struct, the member's name
                columns.append(replace(translator.value(each), name=each.name))
            else:
                columns.append(translator.value(each))
        scope.aliases = {} if repeated else aliases
        return columns, views

    def _generated(self, node: Node, names: Sequence[str], alias: str, translator: Translator) -> tuple[str, _Source]:
        """A LATERAL VIEW, without OUTER, and its columns by these names or their own."""
        if not isinstance(node, exp.Anonymous) or len(node.expressions) != 1:
            raise differs(node)
        name, value, view = node.name.lower(), translator.value(node.expressions[0]), self._fresh()
        kind = value.type
        if is_any_list(kind) and "explode" in name:
            found = [("col", kind.value_type)]
        elif pa.types.is_map(kind) and "explode" in name:
            found = [("key", kind.key_type), ("value", kind.item_type)]
        elif is_any_list(kind) and pa.types.is_struct(kind.value_type) and name.startswith("inline"):
            found = [(each.name, each.type) for each in kind.value_type]
        else:
            raise differs(node)
        if name.startswith("pos"):
            found.insert(0, ("pos", pa.int32()))
        if value.has_aggregate or name not in _GENERATORS or (names and len(names) != len(found)):
            raise differs(node)
        listed = ", ".join(f"c{at}" for at in range(len(found)))
        columns = tuple(
            (own, EngineValue(f"{view}.c{at}", of, own))
            for at, (own, (_, of)) in enumerate(zip(names or [own for own, _ in found], found, strict=True))
        )
        outer = "OUTER " if name.endswith("_outer") else ""
        text = f"LATERAL VIEW {outer}{name.removesuffix('_outer')}({value.text}) {view} AS {listed}"
        return text, _Source(alias, columns)

    def _star(self, node: Node, scope: _Scope) -> Iterator[EngineValue]:
        star = node if isinstance(node, exp.Star) else node.this
        if any(star.args.values()) or not scope.sources:
            raise differs(node)
        if isinstance(node, exp.Star):
            pairs = list(scope.visible())
        else:
            found = [source for source in scope.sources if source.alias.lower() == node.table.lower()]
            if len(found) != 1:
                raise differs(node)
            if scope.hidden:
                raise differs(node, "after USING")
            pairs = list(found[0].columns)
        yield from (replace(value, name=name or None) for name, value in pairs)

    def _grouped(self, group: Node, scope: _Scope, columns: Sequence[EngineValue]) -> str:
        check_only(group, "expressions", "cube", "rollup", "grouping_sets")
        if any(len(group.args.get(name) or ()) > 1 for name in ("cube", "rollup", "grouping_sets")):
            raise differs(group)
        parts = []
        for each in group.expressions:
            if isinstance(each, exp.Cube | exp.Rollup):
                parts.append(f"{type(each).__name__.upper()}({self._set(each, scope, columns)})")
            elif isinstance(each, exp.GroupingSets):
                sets = ", ".join(f"({self._set(inner, scope, columns)})" for inner in each.expressions)
                parts.append(f"GROUPING SETS ({sets})")
            else:
                parts.append(self._group(each, scope, columns))
        for name in ("cube", "rollup"):  # behind the columns: WITH CUBE
            if group.args.get(name):
                if group.args[name][0].expressions or len(parts) != len(group.expressions):
                    raise differs(group)
                return f"{name.upper()}({', '.join(parts)})"
        return ", ".join(parts)

    def _set(self, node: Node, scope: _Scope, columns: Sequence[EngineValue]) -> str:
        return ", ".join(self._group(each, scope, columns) for each in _in_set(node))

    def _group(self, node: Node, scope: _Scope, columns: Sequence[EngineValue]) -> str:
        if isinstance(node, exp.Literal):
            value = columns[_position(node, columns) - 1]
        else:
            value = Translator(scope).value(node)
        if value.has_aggregate or value.literal is not None or not is_exact(value.type):
            raise differs(node, "not grouped alike")
        return value.text

    def _end(self, query: Node, columns: Sequence[EngineValue], scope: _Scope | None) -> str:
        """ORDER BY, LIMIT and OFFSET. `scope` is None where rows can be ordered by columns of the answer only."""
        parts = []
        order = query.args.get("order")
        if order is not None:
            check_only(order, "expressions")
            parts.append(f" ORDER BY {', '.join(self._ordered(each, columns, scope) for each in order.expressions)}")
        for name in ("limit", "offset"):
            clause = query.args.get(name)
            if clause is not None:
                check_only(clause, "expression")
                number = clause.expression
                if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdecimal():
                    raise differs(clause)
                parts.append(f" {name.upper()} {number.this}")
        return "".join(parts)

    @staticmethod
    def _ordered(node: Node, columns: Sequence[EngineValue], scope: _Scope | None) -> str:
        inner = node.this
        translator = Translator(scope or _NoNames())
        if isinstance(inner, exp.Literal):
            position = _position(inner, columns)
            return translator.ordered(node, (position, columns[position - 1]))[0]
        names = [(value.name or "").lower() for value in columns]
        if isinstance(inner, exp.Column) and not inner.table and names.count(inner.name.lower()) == 1:
            position = names.index(inner.name.lower()) + 1
            return translator.ordered(node, (position, columns[position - 1]))[0]
        if scope is None:
            # By an expression that is a column of the answer, such as count(*), or not at all.
            raise differs(node)
        for each in inner.find_all(exp.Column):
            # Spark takes such a name as the answer's column, the engine as the table's.
            if not each.table and each.name.lower() in names:
                own = scope.column(each)
                if any(n == each.name.lower() and v.text != own.text for n, v in zip(names, columns, strict=True)):
                    raise differs(node)
        return translator.ordered(node)[0]

    # -- FROM

    def _from(self, query: Node, scope: _Scope) -> str | None:
        clause = query.args.get("from_") or query.args.get("from")
        if clause is None:
            if query.args.get("joins"):
                raise differs(query)
            return None
        check_only(clause, "this")
        text = self._source(clause.this, scope)
        joins = [*(clause.this.args.get("joins") or ()), *(query.args.get("joins") or ())]
        for at, join in enumerate(joins):
            if join.side in ("RIGHT", "FULL") and any((each.kind or "").upper() == "CROSS" for each in joins[:at]):
                raise differs(join, "after a comma")  # which binds less than it
            text = f"{text} {self._join(join, scope)}"
        return text

    def _join(self, join: Node, scope: _Scope) -> str:
        check_only(join, "this", "on", "using", "side", "kind")
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        is_known = side in _SIDES and kind in ("", "INNER", "OUTER", "CROSS", *_ROW_KINDS)
        if join.this.args.get("joins") or not is_known:
            raise differs(join)
        before = list(scope.sources)
        source = self._source(join.this, scope)
        on, using = join.args.get("on"), join.args.get("using")
        if on is not None:
            condition = Translator(scope).condition(on).text
        elif using:
            if side not in ("", "LEFT"):
                raise differs(join)
            condition = " AND ".join(self._using(each, scope, join) for each in using)
        elif side or kind == "OUTER":
            raise differs(join)
        else:
            return f"CROSS JOIN {source}"
        if kind in _ROW_KINDS:
            if using or side not in ("", "LEFT"):
                raise differs(join)
            scope.sources[:] = before  # its rows can't be named behind it
            return f"LEFT {kind} JOIN {source} ON {condition}"
        return f"{_SIDES[side]}JOIN {source} ON {condition}"

    @staticmethod
    def _using(node: Node, scope: _Scope, join: Node) -> str:
        name, last = node.name.lower(), len(scope.sources) - 1
        left = scope.named(name, scope.sources[:-1])
        right = [v for n, v in scope.sources[-1].columns if n.lower() == name]
        if len(left) != 1 or len(right) != 1 or left[0].type != right[0].type or not is_exact(left[0].type):
            raise differs(join)
        scope.hidden.add((last, name))
        return f"({left[0].text} = {right[0].text})"

    def _laterals(self, query: Node, scope: _Scope, source: str | None) -> str | None:
        """FROM with each LATERAL VIEW, whose rows those behind it may name."""
        for each in query.args.get("laterals") or ():
            check_only(each, "this", "view", "outer", "alias")
            if source is None or not each.args.get("view"):
                raise differs(each)
            alias = each.args.get("alias")
            names = [column.name for column in alias.columns] if alias is not None else []
            named = "" if alias is None else alias.name
            text, found = self._generated(each.this, names, named, Translator(scope))
            if each.args.get("outer"):
                text = text.replace("LATERAL VIEW ", "LATERAL VIEW OUTER ", 1)
            source = f"{source} {text}"
            scope.sources.append(found)
        return source

    def _source(self, node: Node, scope: _Scope) -> str:
        """A table, subquery or list of values; its columns become known to the scope."""
        if node.args.get("pivots"):
            node = self._pivoted(node, scope)
        alias = node.args.get("alias")
        name = self._fresh()
        if isinstance(node, exp.Values):
            check_only(node, "expressions", "alias")
            made = self._values(node)
        elif isinstance(node, exp.Subquery):
            check_only(node, "this", "alias", "joins")
            made = self.query(node.this, scope.outer, scope.common)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.db:
            check_only(node, "this", "alias", "joins")
            found = self._schemas.get(node.name.lower())
            if found is not None:
                return self._table(node, found, name, scope)
            if node.name.lower() not in scope.common:
                raise differs(node)
            made = scope.common[node.name.lower()]
        else:
            raise differs(node)
        if alias is not None:
            made = _renamed(made, alias)
        own = alias.name if alias is not None else node.name if isinstance(node, exp.Table) else ""
        columns = tuple((v.name or "", replace(v, text=f"{name}.c{at}")) for at, v in enumerate(made.columns))
        scope.sources.append(_Source(own, columns))
        return f"({made.text}) AS {name}"

    def _pivoted(self, node: Node, scope: _Scope) -> Node:
        """PIVOT as aggregates of the rows that have each of its values, by groups of the columns it does not name."""
        if len(node.args["pivots"]) != 1 or node.args.get("joins"):
            raise differs(node)
        (pivot,) = node.args["pivots"]
        check_only(pivot, "expressions", "fields", "alias", "columns", "unpivot", *_OF_NAMES)
        source = node.copy()
        source.set("pivots", None)
        rows = exp.select("*").from_(source)
        names = [value.name or "" for value in self.query(rows, scope.outer, scope.common).columns]
        (field,) = pivot.args["fields"] if len(pivot.args["fields"]) == 1 else [None]
        if pivot.args.get("unpivot") or not isinstance(field, exp.In) or not isinstance(field.this, exp.Column):
            raise differs(pivot)
        values = [each.this if isinstance(each, exp.PivotAlias) else each for each in field.expressions]
        calls = [each.this if isinstance(each, exp.Alias) else each for each in pivot.expressions]
        if not all(isinstance(each, exp.Literal) for each in values) or not all(
            isinstance(each, exp.Anonymous) and each.name.lower() in ("sum", "min", "max", "avg") for each in calls
        ):
            raise differs(pivot)
        used = {column.name.lower() for each in [field.this, *calls] for column in each.find_all(exp.Column)}
        groups = [exp.column(exp.to_identifier(name, quoted=True)) for name in names if name.lower() not in used]
        pairs = [(value, call) for value in values for call in calls]
        columns = [
            exp.alias_(
                exp.Filter(this=call.copy(), expression=exp.Where(this=field.this.copy().eq(value.copy()))), name
            )
            for (value, call), name in zip(pairs, pivot.args["columns"], strict=True)
        ]
        select = exp.select(*(each.copy() for each in groups), *columns).from_(rows.subquery("pivoted"))
        select = select.group_by(*groups) if groups else select
        return exp.Subquery(this=select, alias=pivot.args.get("alias"))

    @staticmethod
    def _table(node: Node, found: tuple[str, pa.Schema], name: str, scope: _Scope) -> str:
        table, schema = found
        columns = []
        for each in schema:
            kind = spark_type(each.type)
            if kind is None:
                raise DiffersError(f"{each.name} ({each.type})")
            columns.append((each.name, EngineValue(f"{name}.{quoted(each.name)}", kind, each.name)))
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            if len(alias.columns) != len(columns):
                raise differs(node)
            columns = [(new.name, value) for new, (_, value) in zip(alias.columns, columns, strict=True)]
        scope.sources.append(_Source(node.alias_or_name, tuple(columns)))
        return f"{quoted(table)} AS {name}"

    @staticmethod
    def _values(node: Node) -> _Made:
        translator = Translator(_NoNames())
        rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise differs(node)
        values = [[translator.value(each) for each in row] for row in rows]
        kinds = _kinds(node, values)
        listed = ("(" + ", ".join(as_type(v, k) for v, k in zip(row, kinds, strict=True)) + ")" for row in values)
        names = ", ".join(f"c{at}" for at in range(len(kinds)))
        columns = _numbered(kinds, [f"col{at + 1}" for at in range(len(kinds))])
        return _Made(f"SELECT * FROM (VALUES {', '.join(listed)}) AS v({names})", columns)


def _kinds(node: Node, rows: Iterable[Sequence[EngineValue]]) -> list[pa.DataType]:
    """The types of columns that have the values of all rows."""
    kinds = [common(value.type for value in column) for column in zip(*rows, strict=True)]
    found = [kind for kind in kinds if kind is not None]
    if len(found) < len(kinds):
        raise differs(node, "types")
    return found


def _numbered(kinds: Sequence[pa.DataType], names: Sequence[str | None]) -> tuple[EngineValue, ...]:
    """Columns c0, c1, …"""
    return tuple(EngineValue(f"c{at}", *pair) for at, pair in enumerate(zip(kinds, names, strict=True)))


class _NoNames:
    """Where expressions see no table."""

    def column(self, node: Node) -> EngineValue:
        raise differs(node)

    def subquery(self, query: Node) -> tuple[str, tuple[EngineValue, ...]]:
        raise differs(query)


def _renamed(made: _Made, alias: Node) -> _Made:
    """With the names of the columns that an alias lists."""
    names = [each.name for each in alias.columns]
    if not names:
        return made
    if len(names) != len(made.columns):
        raise differs(alias)
    return replace(made, columns=tuple(replace(v, name=n) for v, n in zip(made.columns, names, strict=True)))


def _position(node: Node, columns: Sequence[EngineValue]) -> int:
    """The column that a number names, from 1."""
    if node.is_string or not node.this.isdecimal() or not 1 <= int(node.this) <= len(columns):
        raise differs(node)
    return int(node.this)


def _in_set(node: Node) -> Sequence[Node]:
    """The columns of a set of GROUP BY; a column is a set of its own."""
    return node.expressions if isinstance(node, exp.Cube | exp.Rollup | exp.Tuple) else [node.unnest()]


def _in_sets(group: Node | None) -> Iterator[Node]:
    """The columns of GROUP BY, each once; of its sets, too."""
    seen = set()
    for each in [] if group is None else group.expressions:
        for node in chain.from_iterable(
            map(_in_set, each.expressions if isinstance(each, exp.GroupingSets) else [each])
        ):
            if node.sql() not in seen:
                seen.add(node.sql())
                yield node
