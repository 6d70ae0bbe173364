"""Queries of people: counts, filters, groups, joins, its partitions and columns. DuckDB gives the answers,
over the rows that skep reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import pytest
from engine_asking import Engine
from engine_tables import Made

from skep_catalog.type_text import hive_columns

Tables = Callable[[str, str], Made]

QUESTIONS = {
    "count": "select count(*) from {t}",
    "filter on a data column": "select id, amount, note from {t} where amount > 6.5 and note = 'first'",
    "filter on a partition column": "select id, note from {t} where part = 'south'",
    "filter on both": "select id from {t} where part in ('north', 'east') and ts >= 2",
    "group": "select part, note, count(*), sum(amount), max(ts) from {t} group by part, note",
    "order and limit": "select id, amount from {t} where ts > 1 order by id desc limit 4",
    "an empty answer": "select id from {t} where part = 'nowhere'",
}


def plainly(rows: Iterable[Iterable[Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(float(value) if isinstance(value, float) else value) for value in row) for row in rows)


def read_by_skep(made: Made, query: str) -> Any:
    return made.table.read(query=query).to_arrow()


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.slow), "mor"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions(engine: Engine, tables: Tables, question: str, kind: str) -> None:
    made = tables("life", kind)
    for view in made.views:
        if view.merged and not engine.computes_snapshots:
            continue
        t = read_by_skep(made, view.query)  # noqa: F841 - DuckDB finds it by its name
        expected = duckdb.sql(QUESTIONS[question].format(t="t")).fetchall()
        found = engine.ask(QUESTIONS[question].format(t=engine.quote(view.entry))).rows
        assert plainly(found) == plainly(expected), view.entry


# One of Hudi's combined splits may hold files of both tables; it is read as the first file's, and so not at all where
# that is no file of the snapshot view.
SPLITS_APART = "set hive.input.format=org.apache.hadoop.hive.ql.io.HiveInputFormat"


def test_a_join_of_two_tables(engine: Engine, tables: Tables) -> None:
    one, other = tables("life", "mor" if engine.computes_snapshots else "cow"), tables("partitioned", "cow")
    join = (
        "select a.id, a.note, b.note, b.amount from {a} a join {b} b on a.id = b.id where a.part = b.part or b.ts = 2"
    )
    a, b = read_by_skep(one, "snapshot"), read_by_skep(other, "snapshot")  # noqa: F841 - by name
    left = one.views[-1].entry
    settings = [SPLITS_APART] if engine.name == "hive-2.3.10" else []
    found = engine.ask(join.format(a=engine.quote(left), b=engine.quote(other.table.name)), *settings).rows
    assert plainly(found) == plainly(duckdb.sql(join.format(a="a", b="b")).fetchall())


@pytest.mark.parametrize("name", ["life", "odd_partitions", "two_levels"])
def test_partitions_are_those_that_hold_rows(engine: Engine, tables: Tables, name: str) -> None:
    made = tables(name, "mor")
    parts = made.table.partition_by
    held = set(map(tuple, zip(*(made.table.read().to_arrow()[part].to_pylist() for part in parts), strict=True)))
    for view in made.views:
        found = engine.partitions(view.entry, parts)
        assert len(found) == len(held)
        if name == "life":
            assert sorted(found) == sorted(value for (value,) in held)


@pytest.mark.parametrize("name", ["types", "nested", "added_columns", "widened_columns"])
def test_describe_shows_the_columns(engine: Engine, tables: Tables, name: str) -> None:
    made = tables(name, "cow")
    described = engine.ask(f"describe {engine.quote(made.table.name)}").rows
    found = {str(row[0]): str(row[1]) for row in described if row[0] and not str(row[0]).startswith("#")}
    fields = [field for field in made.table.schema.fields if field.name not in made.table.partition_by]
    expected = {column.name: column.type for column in hive_columns(fields)}
    if engine.hive_like:
        assert {column: found[column] for column in expected} == expected
    else:
        assert set(expected) <= set(found)
