"""UPDATE, DELETE and MERGE with conditions made up at random, nulls included, against a plain Python model.

The tables have keys of two columns and no ordering column; those with one are in test_changes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sql_lakes import NoSession

from skep.handles.table import Table
from skep.services.runner import Services
from skep_format.runner import ThreadRunner
from tests.tables_at import create_at

SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("a", pa.int64()), ("b", pa.string()), ("part", pa.string())]
)
KEY = ("id", "k")
Row = dict[str, Any]
Model = dict[tuple[int, str], Row]
Truth = bool | None


@dataclass(frozen=True)
class Condition:
    """SQL with `{}` for the alias before each column, and what it means for a row: None where that is unknown."""

    sql: str
    holds: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.sql

    def of(self, alias: str) -> str:
        return self.sql.replace("{}", f"{alias}." if alias else "")


def compared(column: str, sign: str, value: int | str) -> Condition:
    ways: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda x, y: x == y,
        "<>": lambda x, y: x != y,
        "<": lambda x, y: x < y,
        ">=": lambda x, y: x >= y,
    }
    text = str(value) if isinstance(value, int) else f"'{value}'"
    return Condition(
        f"{{}}{column} {sign} {text}", lambda row: None if row[column] is None else ways[sign](row[column], value)
    )


def both(x: Condition, y: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        found = (x.holds(row), y.holds(row))
        return False if False in found else None if None in found else True

    return Condition(f"({x.sql} AND {y.sql})", holds)


def either(x: Condition, y: Condition) -> Condition:
    def holds(row: Row) -> Truth:
        found = (x.holds(row), y.holds(row))
        return True if True in found else None if None in found else False

    return Condition(f"({x.sql} OR {y.sql})", holds)


def negated(x: Condition) -> Condition:
    return Condition(f"(NOT {x.sql})", lambda row: None if (found := x.holds(row)) is None else not found)


def null(column: str) -> Condition:
    return Condition(f"{{}}{column} IS NULL", lambda row: row[column] is None)


def among(values: list[int]) -> Condition:
    listed = ", ".join(map(str, values))
    return Condition(f"{{}}a IN ({listed})", lambda row: None if row["a"] is None else row["a"] in values)


numbers, texts = st.integers(-2, 3), st.sampled_from(["", "x", "z z", "Y"])
signs = st.sampled_from(["=", "<>", "<", ">="])
atoms = st.one_of(
    st.builds(compared, st.sampled_from(["id", "a"]), signs, numbers),
    st.builds(compared, st.sampled_from(["b", "k"]), signs, texts),
    st.builds(compared, st.just("part"), signs, st.sampled_from(["p0", "p1", "p2"])),
    st.builds(null, st.sampled_from(["a", "b"])),
    st.builds(among, st.lists(numbers, min_size=1, max_size=3)),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(st.builds(both, inner, inner), st.builds(either, inner, inner), st.builds(negated, inner)),
    max_leaves=4,
)


def row(id: int, k: str, a: int | None, b: str | None, part: str) -> Row:
    return {"id": id, "k": k, "a": a, "b": b, "part": part}


given_rows = st.lists(
    st.builds(
        row,
        st.integers(0, 4),
        st.sampled_from(["x", "Y"]),
        st.one_of(st.none(), numbers),
        st.one_of(st.none(), texts),
        st.sampled_from(["p0", "p1"]),
    ),
    max_size=6,
    unique_by=lambda each: (each["id"], each["k"]),
)
ACTIONS = ("update", "delete", "insert", "update others", "delete others")
clauses = st.lists(st.tuples(st.sampled_from(ACTIONS), conditions, st.booleans()), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("update"), conditions),
        st.tuples(st.just("delete"), conditions),
        st.tuples(st.just("merge"), given_rows, clauses),
        st.tuples(st.just("compact")),
    ),
    min_size=1,
    max_size=3,
)


def merged(table: Table, model: Model, rows: list[Row], todo: list[tuple[str, Condition, bool]]) -> Model:
    """One MERGE, and what the model has then; the flag of a clause has it ask the source, where there is a choice."""
    builder = table.merge(pa.Table.from_pylist(rows, SCHEMA), on=list(KEY), target_alias="t", source_alias="s")
    for action, condition, of_source in todo:
        match action:
            case "update":
                builder.when_matched_update({"a": "t.a + s.a", "b": "s.b"}, condition.of("s" if of_source else "t"))
            case "delete":
                builder.when_matched_delete(condition.of("s" if of_source else "t"))
            case "insert":
                builder.when_not_matched_insert_all(condition.of("s"))
            case "update others":
                builder.when_not_matched_by_source_update({"b": "upper(t.b)"}, condition.of("t"))
            case "delete others":
                builder.when_not_matched_by_source_delete(condition.of("t"))
    builder.execute()
    source = {(each["id"], each["k"]): each for each in rows}
    after: Model = {}
    for key in {*model, *source}:
        old, new = model.get(key), source.get(key)
        kinds = (
            ("insert",) if old is None else ("update others", "delete others") if new is None else ("update", "delete")
        )
        result = old
        for action, condition, of_source in todo:
            if action not in kinds:
                continue
            asked = new if old is None or (new is not None and of_source) else old
            assert asked is not None
            if condition.holds(asked) is not True:
                continue
            result = changed(action, old, new)
            break
        if result is not None:
            after[key] = result
    return after


def changed(action: str, old: Row | None, new: Row | None) -> Row | None:
    if action == "insert":
        return new
    if action.startswith("delete"):
        return None
    assert old is not None
    if action == "update others":
        return {**old, "b": None if old["b"] is None else old["b"].upper()}
    assert new is not None
    total = None if old["a"] is None or new["a"] is None else old["a"] + new["a"]
    return {**old, "a": total, "b": new["b"]}


def step(table: Table, model: Model, what: tuple[Any, ...]) -> Model:
    match what:
        case ("update", condition):
            table.update(set={"a": "coalesce(a, id) + 1", "b": "NULL"}, where=condition.of(""))
            return {
                key: {**each, "a": (each["id"] if each["a"] is None else each["a"]) + 1, "b": None}
                if condition.holds(each) is True
                else each
                for key, each in model.items()
            }
        case ("delete", condition):
            table.delete(where=condition.of(""))
            return {key: each for key, each in model.items() if condition.holds(each) is not True}
        case ("merge", rows, todo):
            return merged(table, model, rows, todo)
        case _:
            if table.hudi.config.is_mor:
                table.compact()
            return model


def check(kind: str, first: list[Row], todo: list[tuple[Any, ...]], folder: Path) -> None:
    made = create_at(folder / "t", SCHEMA, {}, key=KEY, partition_by="part", type=kind)
    table = Table(made.hudi, Services(spark=NoSession(), runner=ThreadRunner(1)))
    table.insert(pa.Table.from_pylist(first, SCHEMA))
    model: Model = {(each["id"], each["k"]): each for each in first}
    for what in todo:
        model = step(table, model, what)
        found = table.read(columns=SCHEMA.names).to_arrow().to_pylist()
        assert {(each["id"], each["k"]): each for each in found} == model, what
        assert len(found) == len(model), what


FIRST = [
    row(0, "x", None, "x", "p0"),
    row(1, "x", 1, None, "p0"),
    row(1, "Y", 2, "z z", "p1"),
    row(3, "x", 3, "", "p2"),
]
both_kinds = pytest.mark.parametrize("kind", ["cow", "mor"])


@both_kinds
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=steps)
def test_conditions_choose_the_rows_that_the_model_chooses(
    kind: str, todo: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(kind, FIRST, todo, tmp_path_factory.mktemp("t"))


@pytest.mark.slow
@both_kinds
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=given_rows.filter(bool), todo=steps)
def test_conditions_choose_the_rows_that_the_model_chooses_of_any_table(
    kind: str, first: list[Row], todo: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(kind, first, todo, tmp_path_factory.mktemp("t"))
