"""Which column an INSERT puts a value into, and by which operation. Expected are the answers of Hudi 0.15 and 1.2."""

from __future__ import annotations

from typing import Any

import pytest

from skep.lake import Lake
from skep_format.errors import InputError, SkepError

ROW = {"id": 9, "a": "A", "b": "B", "ts": 1}
BY_NAME = [
    ("", "SELECT 1 AS ts, 'B' AS b, 'A' AS a, 9 AS id", ROW),
    ("", "SELECT 1 AS TS, 'B' AS B, 'A' AS A, 9 AS ID", ROW),
    ("", "SELECT * FROM VALUES (1, 'B', 'A', 9) AS v(ts, b, a, id)", ROW),
    ("", "SELECT 1 AS ts, 'B' AS b, 'A' AS a, 9 AS id UNION ALL SELECT 1, 'B', 'A', 9 WHERE 1 = 2", ROW),
    ("", "SELECT 9 AS id, 'A' AS b, 'B' AS a, 1 AS other", ROW),  # by position: one name is another
    ("", "SELECT 9 AS id, 'A' AS x, 'B' AS y, 1 AS ts", ROW),
    ("", "VALUES (9, 'A', 'B', 1)", ROW),
    ("(id, b, a, ts)", "SELECT 9 AS id, 'B' AS a, 'A' AS b, 1 AS ts", ROW),  # the list counts, as in 1.2
]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_query_with_the_names_of_the_table_is_stored_by_name(overwrite: bool, lake: Lake) -> None:
    what = "OVERWRITE" if overwrite else "INTO"
    lake.sql(
        "CREATE TABLE t (id INT, a STRING, b STRING, ts BIGINT) USING hudi"
        " TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')"
    )
    for listed, query, expected in BY_NAME if not overwrite else BY_NAME[:1]:
        lake.sql(f"INSERT {what} t {listed} {query}")
        assert lake.table("t").read(columns=list(ROW)).to_arrow().to_pylist() == [expected], query
    for query in ("SELECT 9 AS id, 'A' AS a, 'B' AS b, 1 AS ts, 2 AS more", "SELECT 9 AS id, 'A' AS a, 'B' AS b"):
        with pytest.raises(InputError, match="4 are written"):
            lake.sql(f"INSERT {what} t {query}")
    with pytest.raises(InputError, match="column ts is bigint, and string"):
        lake.sql("INSERT INTO t SELECT 'A' AS a, 40 AS id, 'B' AS b, 'x' AS ts")


def test_nulls_without_a_type_become_those_of_the_column(lake: Lake) -> None:
    """Within structs and maps, too. The values are Spark's."""
    lake.sql(
        "CREATE TABLE t (id INT, s STRUCT<x: INT, y: STRING>, m MAP<STRING, DATE>) USING hudi"
        " TBLPROPERTIES (primaryKey = 'id')"
    )
    lake.sql("INSERT INTO t VALUES (1, named_struct('p', NULL, 'q', 'a'), map('k', NULL))")
    lake.sql("INSERT INTO t (id, s) VALUES (2, named_struct('p', NULL, 'q', 'b'))")
    found = lake.table("t").read(columns=["s", "m"]).to_arrow().to_pylist()
    assert found == [{"s": {"x": None, "y": "a"}, "m": [("k", None)]}, {"s": {"x": None, "y": "b"}, "m": None}]
    assert lake.sql("SELECT array(NULL, NULL) AS a").to_arrow().to_pylist() == [{"a": [None, None]}]
    for value, shown in (("named_struct('p', NULL)", "struct<p:void>"), ("array(NULL)", "array<void>")):
        with pytest.raises(InputError, match=f"column s is struct<x:int,y:string>, and {shown}"):
            lake.sql(f"INSERT INTO t (id, s) VALUES (3, {value})")


def test_a_table_is_made_of_a_query_with_nested_columns(lake: Lake) -> None:
    """What is in them may be null in later rows, as it never is in a literal."""
    lake.sql("CREATE TABLE made AS SELECT map('k', 1) AS m, array(named_struct('x', 2)) AS l")
    found = lake.table("made").read(columns=["m", "l"]).to_arrow()
    assert found.to_pylist() == [{"m": [("k", 1)], "l": [{"x": 2}]}]
    assert found.schema.field("m").type.item_field.nullable
    assert found.schema.field("l").type.value_type.field("x").nullable


OPERATION, INTO = "hoodie.datasource.write.operation", "hoodie.spark.sql.insert.into.operation"
OPERATIONS: list[tuple[dict[str, str], list[str] | str]] = [
    ({}, ["b"]),
    ({OPERATION: "insert"}, ["a", "b"]),
    ({OPERATION: "bulk_insert"}, ["a", "b"]),
    ({INTO: "insert"}, ["a", "b"]),
    ({OPERATION: "upsert", INTO: "insert"}, ["b"]),
    ({"hoodie.sql.bulk.insert.enable": "true"}, ["a", "b"]),
    ({"hoodie.datasource.insert.dup.policy": "drop"}, ["a"]),
    ({"hoodie.datasource.insert.dup.policy": "fail"}, "keys that the table holds"),
    ({INTO: "insert", "hoodie.datasource.insert.dup.policy": "drop"}, ["a"]),
    ({OPERATION: "insert_overwrite_table"}, ["b"]),
    ({OPERATION: "delete"}, "is no operation of INSERT"),
]


@pytest.mark.filterwarnings("error")
def test_settings_decide_what_an_insert_of_a_stored_key_does(lake: Lake) -> None:
    for at, (given, expected) in enumerate(OPERATIONS):
        lake.sql(
            f"CREATE TABLE t{at} (id INT, a STRING, ts INT) USING hudi"
            " TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')"
        )
        lake.sql(f"INSERT INTO t{at} VALUES (1, 'a', 1), (1, '0', 0)")
        for key, value in given.items():
            lake.sql(f"SET {key} = {value}")
        text = f"INSERT INTO t{at} VALUES (1, 'b', 2)"
        if isinstance(expected, str):
            with pytest.raises(SkepError, match=expected):
                lake.sql(text)
        else:
            lake.sql(text)
        lake.sql("RESET")
        found = sorted(lake.table(f"t{at}").read(columns=["a"]).to_arrow()["a"].to_pylist())
        assert found == (["a"] if isinstance(expected, str) else expected), given


@pytest.mark.parametrize(("value", "left"), [("true", ["b", "c"]), ("false", ["a", "b", "c", "d"])])
def test_an_insert_combines_rows_of_one_key_where_it_is_set(value: str, left: list[str], lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, a STRING, ts INT) USING hudi TBLPROPERTIES (primaryKey='id', preCombineField='ts')"
    )
    for key in (OPERATION, INTO):
        lake.sql(f"SET {key} = insert")
        lake.sql(f"SET hoodie.combine.before.insert = {value}")
        rows = "(1, 'a', 1), (1, 'b', 2)" if key == OPERATION else "(2, 'c', 2), (2, 'd', 1)"
        lake.sql(f"INSERT INTO t VALUES {rows}")
        lake.sql("RESET")
    assert sorted(lake.table("t").read(columns=["a"]).to_arrow()["a"].to_pylist()) == left


@pytest.mark.parametrize("statement", ["ALTER TABLE p DROP", "ALTER TABLE p DROP IF EXISTS", "TRUNCATE TABLE p"])
def test_partitions_are_dropped_by_all_of_their_columns(statement: str, lake: Lake) -> None:
    """As in Hudi: `*` is any text, no partition is no error, a part of the columns and a column twice are errors."""
    lake.sql(
        "CREATE TABLE p (id INT, d STRING, n INT) USING hudi PARTITIONED BY (d, n) TBLPROPERTIES (primaryKey = 'id')"
    )
    lake.sql("INSERT INTO p VALUES (1, 'x1', 1), (2, 'x2', 2), (3, 'y', 1), (4, 'y', 2)")
    refused = ("d = 'x1'", "d = 'x1', d = 'y', n = 1", "n = 1, d = 'x1', D = 'y'", "q = 1", "d, n = 1")
    for spec in refused:
        with pytest.raises(InputError, match=r"no value for n|names column [dD] twice|not a valid partition column"):
            lake.sql(f"{statement} PARTITION ({spec})")
    for spec, left in {
        "d = 'none', n = 1": [1, 2, 3, 4],
        "n = 1, d = 'y'": [1, 2, 4],
        "d = 'x*', n = '*'": [4],
        "d = '*', n = 2": [],
    }.items():
        lake.sql(f"{statement} PARTITION ({spec})")
        assert sorted(lake.table("p").read(columns=["id"]).to_arrow()["id"].to_pylist()) == left, spec


@pytest.mark.spark
@pytest.mark.parametrize("version", [6, 9])
def test_columns_of_a_query_may_be_null_later(version: int, spark_lake: Lake) -> None:
    """As Hudi's may, of 0.15 and of 1.2: Spark knows that a literal or a count has no nulls, and the next rows may."""
    lake = spark_lake
    lake.sql(
        f"CREATE TABLE c USING hudi TBLPROPERTIES (primaryKey = 'id', 'hoodie.write.table.version' = '{version}') AS"
        " SELECT 1 AS id, 'lit' AS s, count(*) AS n, named_struct('x', 1) AS c, array(1) AS l"
    )
    lake.sql(
        "INSERT INTO c VALUES (2, NULL, NULL, NULL, NULL), (3, 's', 1, named_struct('x', CAST(NULL AS INT)), array(2))"
    )
    found = lake.table("c").read(columns=["s", "n", "c", "l"]).to_arrow().sort_by("s").to_pylist()
    rows = ("lit", 1, {"x": 1}, [1]), ("s", 1, {"x": None}, [2]), (None, None, None, None)
    assert [tuple(row.values()) for row in found] == list(rows)


def test_names_beside_partitions_and_meta_columns(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE p (id INT, a STRING, ts BIGINT, d STRING) USING hudi PARTITIONED BY (d)"
        " TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')"
    )
    expected: dict[int, dict[str, Any]] = {}
    for at, (partition, query) in enumerate(
        [
            ("PARTITION (d = 'x')", "SELECT 1 AS ts, 'A' AS a, {} AS id"),
            ("PARTITION (d)", "SELECT 'x' AS d, 1 AS ts, 'A' AS a, {} AS id"),
            ("PARTITION (d)", "SELECT {}, 'A', 1, 'x'"),
            ("", "SELECT 'x' AS d, 1 AS ts, 'A' AS a, {} AS id"),
            ("PARTITION (d = 'x')", "SELECT {} AS id, 'A' AS a, 1 AS d"),  # by position
        ]
    ):
        lake.sql(f"INSERT INTO p {partition} {query.format(at)}")
        expected[at] = {"id": at, "a": "A", "ts": 1, "d": "x"}
    lake.sql("INSERT INTO p SELECT * FROM p")
    found = lake.table("p").read(columns=["id", "a", "ts", "d"]).to_arrow().sort_by("id").to_pylist()
    assert found == list(expected.values())
