"""Spark gets what a user wrote: in queries, in statements with expressions, in views, and with names put in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from skep.lake import Lake
from skep_sql.parsing.parse import parse, parse_expression
from skep_sql.parsing.statements import Query
from skep_sql.parsing.written import as_written, name_columns, replaced, spark_text, written_place


def tree_of(text: str) -> exp.Query:
    statement = parse(text)
    assert isinstance(statement, Query)
    return statement.tree


def with_tables(text: str, alias: str | None = None) -> str:
    """The text with another name in the place of each table's."""
    tree = tree_of(text)
    for at, node in enumerate(list(tree.find_all(exp.Table))):
        node.set("this", exp.to_identifier(f"r{at}"))
        for arg in ("db", "catalog", "version", "when"):
            node.set(arg, None)
        replaced(node, alias=None if node.alias else alias)
    return spark_text(tree)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select  1 from `d b`. `t` /* t */ where x", "select  1 from r0 AS `t` /* t */ where x"),
        ("SELECT * -- t\nFROM spark_catalog.d.t AS x", "SELECT * -- t\nFROM r0 AS x"),
        (
            "SELECT * FROM t TABLESAMPLE (10 PERCENT) WHERE a",
            "SELECT * FROM r0 TABLESAMPLE (10 PERCENT) AS `t` WHERE a",
        ),
        (
            "SELECT * FROM t TABLESAMPLE (3 ROWS) REPEATABLE (7)",
            "SELECT * FROM r0 TABLESAMPLE (3 ROWS) REPEATABLE (7) AS `t`",
        ),
        ("SELECT * FROM t TIMESTAMP AS OF '2026' WHERE a", "SELECT * FROM r0 AS `t` WHERE a"),
        ("SELECT * FROM t FOR TIMESTAMP AS OF CAST('2026' AS timestamp) x", "SELECT * FROM r0 x"),
        ("SELECT * FROM t TIMESTAMP AS OF DATE '2026-01-01' x", "SELECT * FROM r0 x"),
        ("SELECT * FROM f('a', (2)) x", "SELECT * FROM r0 x"),
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", "SELECT * FROM r0 AS `t` PIVOT (sum(a) FOR b IN (1, 2))"),
    ],
)
def test_a_name_is_replaced_at_its_place(text: str, expected: str) -> None:
    assert with_tables(text, alias="t") == expected


def test_a_part_is_replaced_with_its_own_text() -> None:
    tree = tree_of("SELECT a+b FROM v w WHERE x")
    inner = exp.Subquery(this=tree_of("SELECT  c-- all\n, d"), alias=exp.TableAlias(this=exp.to_identifier("w")))
    replaced(tree.find(exp.Table), inner)
    assert spark_text(tree) == "SELECT a+b FROM (SELECT  c-- all\n, d\n) w WHERE x"


def test_what_is_put_together_has_the_texts_of_its_parts() -> None:
    value, condition = parse_expression("x - interval 1 month 2 days"), parse_expression("a = 1 or  b = 2")
    query = exp.select(exp.alias_(value, "v", quoted=True)).from_("t").where(condition)
    assert spark_text(query) == "SELECT (x - interval 1 month 2 days) AS `v` FROM t WHERE (a = 1 or  b = 2)"
    whole = exp.select("*").from_(exp.Subquery(this=tree_of("TABLE t"), alias=exp.to_identifier("q")))
    assert spark_text(whole) == "SELECT * FROM (SELECT * FROM t) AS q"


def test_a_part_without_a_place_is_printed() -> None:
    tree = as_written(exp.select("a").from_(exp.Table(this=exp.to_identifier("t"))), "no text of this tree")
    replaced(tree.find(exp.Table))
    assert spark_text(tree) == "SELECT a FROM t"


def test_a_doubled_quote_is_one_to_every_release() -> None:
    assert spark_text(tree_of("""SELECT 'it''s', "a""b", 'x\\'''y', 'plain'""")) == (
        r"""SELECT 'it\'s', "a\"b", 'x\'\'y', 'plain'"""
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a + 1, b FROM t", "SELECT a + 1 AS `x`, b FROM t"),
        ("SELECT DISTINCT f(a, b), c d FROM t", "SELECT DISTINCT f(a, b) AS `x`, c d FROM t"),
        ("WITH q AS (SELECT 1 + 1 k) SELECT k, k * 2", "WITH q AS (SELECT 1 + 1 k) SELECT k, k * 2 AS `y`"),
        (
            "SELECT a IS DISTINCT FROM b, (SELECT 1) FROM t",
            "SELECT a IS DISTINCT FROM b AS `x`, (SELECT 1) AS `y` FROM t",
        ),
    ],
)
def test_columns_get_names(text: str, expected: str) -> None:
    tree = tree_of(text)
    assert isinstance(tree, exp.Select)
    name_columns(tree, ["x", "y"])
    assert spark_text(tree) == expected


# Each of them means something else when it is printed from a parsed tree.
EXPRESSIONS = {
    "interval": "cast(ts - interval 1 day 2 hours as string)",
    "size": "cast(array_size(cast(null as array<int>)) as string)",
    "char": "to_char(12.5, '99.99')",
    "unit": "cast(date_trunc(u, ts) as string)",
    "pattern": "date_format(ts, \"yyyy 'of' MM\")",
    "bytes": "hex(X 'F0')",
    "quote": "'it''s'",
    "backslash": r"'a\\b\tc'",
}
ROWS = pa.table(
    {"id": [1], "ts": pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")), "u": ["month"], "r": [""]}
)
STATEMENTS = {
    "insert": "INSERT INTO t SELECT 2, ts, u, {} FROM t",
    "update": "UPDATE t SET r = {}",
    "merge": "MERGE INTO t USING (SELECT 1 AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET r = {}",
    "ctas": "CREATE TABLE made AS SELECT id, {} AS r FROM t",
    "view": "CREATE VIEW made AS SELECT id, {} AS r FROM t",
    "temporary": "CREATE TEMPORARY VIEW made AS SELECT id, {} AS r FROM t",
}


@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_store_what_spark_computes(spark_lake: Lake, spark: Any, statement: str) -> None:
    table = spark_lake.create_table("t", ROWS, key="id")
    table.upsert(ROWS)
    listed = ", ".join(f"coalesce({each}, 'null')" for each in EXPRESSIONS.values()).replace("it''s", r"it\'s")
    named = f"concat_ws('|', {listed})"
    row = "(SELECT timestamp'2023-11-14 22:13:20.123456Z' AS ts, 'month' AS u)"
    expected = spark.sql(f"SELECT {named} AS r FROM {row}").collect()[0][0]
    assert "it's" in expected
    assert ":13:20.123456|null|12.50|" in expected
    spark_lake.sql(STATEMENTS[statement].format(named.replace(r"it\'s", "it''s")))
    name = "made" if "made" in STATEMENTS[statement] else "t"
    assert spark_lake.sql(f"SELECT max(r) FROM {name}").to_arrow().column(0).to_pylist() == [expected]  # type: ignore[call-arg]


@pytest.mark.spark
@pytest.mark.engine("spark")
def test_columns_without_names_have_those_of_spark(spark_lake: Lake, spark: Any, database: str) -> None:
    spark_lake.create_table("t", ROWS, key="id").upsert(ROWS)
    spark_lake.sql(
        "CREATE VIEW v AS SELECT id+1, max_by(u, id), max(ts) - min(ts) > interval 1 day FROM t GROUP BY id+1"
    )
    spark.createDataFrame(ROWS.to_pandas()).createOrReplaceTempView("rows_of_names")
    wanted = spark.sql(
        "SELECT id+1, max_by(u, id), max(ts) - min(ts) > interval 1 day FROM rows_of_names GROUP BY id+1"
    )
    assert spark_lake.sql("SELECT * FROM v").columns == [  # type: ignore[union-attr]
        each.lower() for each in wanted.columns
    ]
    assert spark_lake.sql(f"SELECT {database}.t.id, count(*), t.u FROM {database}.t GROUP BY 1, 3").columns == [
        *("id", "count(1)", "u")
    ]
    spark.catalog.dropTempView("rows_of_names")


def test_a_place_in_sparks_text_is_that_of_the_statement() -> None:
    """Before, in, between and behind names that are longer or shorter to Spark, and on the lines behind them."""
    text = "\n  select a,\n b from `a database`.`t` where c in\n (select d from t, u) and e"
    tree = tree_of(text)
    for at, node in enumerate(list(tree.find_all(exp.Table))):
        node.set("this", exp.to_identifier("a_much_longer_name" if at else "r"))
        node.set("db", None)
        replaced(node, alias=None if node.alias else node.name)
    printed = spark_text(tree)
    lines = text.split("\n")
    for word in ("select a", "b from", "where", "c in", "(select d", "d from", ") and e", "e"):
        at = printed.rindex(word)
        line, column = printed.count("\n", 0, at) + 1, at - printed.rfind("\n", 0, at)
        found = written_place(tree, line, column)
        assert found is not None
        assert lines[found[0] - 1][found[1] - 1 :].startswith(word), word
    assert written_place(tree, 2, printed.split("\n")[1].index("r AS") + 1) == (3, 9)  # that of the table
    assert written_place(exp.select("a"), 1, 1) is None
    assert written_place(tree, 9, 1) is None
