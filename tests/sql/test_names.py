"""What names of queries mean: those of WITH, temporary views, and tables of the current database, as in Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep_format.errors import InputError

ROWS = pa.table({"id": [1, 2, 3], "v": ["t1", "t2", "t3"]})


@pytest.fixture
def own(lake: Lake) -> Lake:
    """Tables t and s, whose rows name them."""
    lake.create_table("t", ROWS, key="id").upsert(ROWS)
    other = pa.table({"id": [1, 9], "v": ["s1", "s9"]})
    lake.create_table("s", other, key="id").upsert(other)
    return lake


def found(lake: Lake, query: str) -> list[Any]:
    return sorted(lake.sql(query, engine="sail").to_arrow().column(0).to_pylist())  # type: ignore[call-arg]


# What Spark 3.5 answers, and 4 where WITH is nested (3.5 refuses a name that an outer WITH has, too).
QUERIES = [
    ("WITH t AS (SELECT * FROM t WHERE id > 1) SELECT v FROM t", ["t2", "t3"]),
    ("WITH t AS (SELECT * FROM t WHERE id > 1), u AS (SELECT * FROM t WHERE id < 3) SELECT v FROM u", ["t2"]),
    ("WITH u AS (SELECT * FROM t), t AS (SELECT * FROM s) SELECT v FROM u UNION ALL SELECT v FROM t", "s1 s9 t1 t2 t3"),
    ("WITH t AS (SELECT * FROM s) SELECT v FROM {db}.t", ["t1", "t2", "t3"]),
    ("WITH T AS (SELECT * FROM s) SELECT t.v FROM t", ["s1", "s9"]),
    ("SELECT v FROM t WHERE id IN (WITH t AS (SELECT * FROM s) SELECT id FROM t)", ["t1"]),
    ("SELECT a.v FROM (WITH t AS (SELECT * FROM s) SELECT v FROM t) a", ["s1", "s9"]),
    ("SELECT a.v FROM t b JOIN (WITH t AS (SELECT * FROM s) SELECT * FROM t) a ON a.id = b.id", ["s1"]),
    (
        "WITH a AS (SELECT id, v FROM t) SELECT v FROM a WHERE id IN (WITH a AS (SELECT id FROM s) SELECT id FROM a)",
        ["t1"],
    ),
    (
        "WITH a AS (WITH a AS (SELECT id, v FROM s) SELECT id, v FROM a WHERE id = 9) SELECT v FROM a",
        ["s9"],
    ),
    ("WITH a AS (WITH b AS (SELECT v FROM s) SELECT v FROM b), b AS (SELECT v FROM t) SELECT v FROM b", "t1 t2 t3"),
    (
        "WITH a(w) AS (SELECT v FROM s), b AS (WITH a(w) AS (SELECT v FROM t) SELECT w FROM a) SELECT a.w FROM a, b",
        None,
    ),
    ("SELECT {db}.t.v FROM {db}.t WHERE {db}.t.id = 1", ["t1"]),
    ("SELECT {db}.t.v FROM t JOIN {db}.s ON {db}.t.id = {db}.s.id", ["t1"]),
]


def test_names_mean_the_innermost_with(own: Lake, database: str) -> None:
    for query, expected in QUERIES:
        wanted = expected.split() if isinstance(expected, str) else expected or ["s1"] * 3 + ["s9"] * 3
        assert found(own, query.format(db=database)) == wanted, query


def test_a_name_is_there_once_in_one_with(own: Lake) -> None:
    with pytest.raises(InputError, match="WITH names two queries a"):
        own.sql("WITH a AS (SELECT 1 x), A AS (SELECT 2 x) SELECT * FROM a")


def test_a_view_keeps_the_names_of_when_it_was_made(own: Lake, database: str) -> None:
    own.sql("CREATE TEMPORARY VIEW w AS SELECT * FROM s WHERE id = 9")
    own.sql("CREATE TEMPORARY VIEW v AS SELECT * FROM w UNION ALL SELECT * FROM t WHERE id = 1")
    assert found(own, "WITH w AS (SELECT 1 id, 'x' v), t AS (SELECT 1 id, 'y' v) SELECT v FROM v") == ["s9", "t1"]
    own.sql("CREATE TEMPORARY VIEW t AS SELECT * FROM t WHERE id = 3")
    assert found(own, "SELECT v FROM t") == ["t3"]
    assert found(own, f"SELECT v FROM {database}.t WHERE id < 3") == ["t1", "t2"]
    assert found(own, "SELECT v FROM v") == ["s9", "t1"]
    with pytest.raises(InputError, match="views refer to each other"):
        own.sql("CREATE OR REPLACE TEMPORARY VIEW w AS SELECT * FROM w")
    assert found(own, "SELECT v FROM w") == ["s9"]
    own.sql(f"CREATE DATABASE {database}_other")
    try:
        own.sql(f"USE {database}_other")
        assert found(own, "SELECT v FROM v") == ["s9", "t1"]
    finally:
        own.sql(f"USE {database}")
        own.sql(f"DROP DATABASE {database}_other")


def test_what_is_written_reads_the_same_names(own: Lake) -> None:
    own.sql("INSERT INTO s WITH t AS (SELECT id, v FROM t WHERE id = 3) SELECT id, v FROM t")
    own.sql("DELETE FROM t WHERE id IN (WITH t AS (SELECT id FROM s WHERE id = 1) SELECT id FROM t)")
    assert found(own, "SELECT v FROM s") == ["s1", "s9", "t3"]
    assert found(own, "SELECT v FROM t") == ["t2", "t3"]


@pytest.mark.spark
@pytest.mark.engine("spark")
def test_names_mean_the_same_to_spark(spark_lake: Lake, database: str) -> None:
    for name, rows in (("t", ROWS), ("s", pa.table({"id": [1, 9], "v": ["s1", "s9"]}))):
        spark_lake.create_table(name, rows, key="id").upsert(rows)
    for query, expected in QUERIES:
        wanted = expected.split() if isinstance(expected, str) else expected or ["s1"] * 3 + ["s9"] * 3
        result = spark_lake.sql(query.format(db=database), engine="spark")
        assert sorted(result.to_arrow().column(0).to_pylist()) == wanted, query


@pytest.mark.spark
def test_a_column_has_its_name_also_where_that_is_a_function_s(spark_lake: Lake) -> None:
    spark_lake._statements().session.user = "ann"
    query = "select current_user, session_user, current_user() as own from (select 'c' current_user, 's' session_user)"
    assert spark_lake.sql(query).to_arrow().to_pylist() == [{"current_user": "c", "session_user": "s", "own": "ann"}]


def test_current_user_needs_no_parentheses(lake: Lake) -> None:
    rows = pa.table({"id": [1, 2], "owner": ["ann", "bob"]})
    lake.create_table("t", rows, key="id").upsert(rows)
    lake._statements().session.user = "ann"
    assert lake.sql("select current_user").to_arrow().to_pylist() == [{"current_user()": "ann"}]
    assert lake.sql("select CURRENT_USER as u, id from t where owner = current_user").to_arrow().to_pylist() == [
        {"u": "ann", "id": 1}
    ]


@pytest.mark.spark
def test_a_column_has_the_name_of_a_function_in_a_table_too(spark_lake: Lake) -> None:
    rows = pa.table({"id": [1], "current_user": ["own"]})
    spark_lake.create_table("t", rows, key="id").upsert(rows)
    spark_lake._statements().session.user = "ann"
    query = "select current_user, current_user() as mine from t"
    assert spark_lake.sql(query).to_arrow().to_pylist() == [{"current_user": "own", "mine": "ann"}]
