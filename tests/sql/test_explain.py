"""EXPLAIN: the files that a query reads, among those of its tables."""

from __future__ import annotations

import pytest
from sql_lakes import NeedsSession, NoSession

from skep.lake import Lake
from skep.query.rows import EMBEDDED_BYTES
from skep_format.errors import NoSuchTableError

pytestmark = pytest.mark.metastore


def filled(lake: Lake) -> Lake:
    """Table t, with a file in each of two partitions."""
    lake.sql("create table t (id int, day string) using hudi tblproperties (primaryKey = 'id') partitioned by (day)")
    lake.sql("insert into t values (1, 'a'), (2, 'b')")
    return lake


def plan(lake: Lake, query: str) -> list[str]:
    (text,) = lake.sql(f"explain {query}").to_arrow().column("plan").to_pylist()
    lines: list[str] = text.splitlines()
    return lines


def test_files_before_and_after_the_filter(lake: Lake) -> None:
    filled(lake)
    assert plan(lake, "select id from t where day = 'a'") == [
        "engine: sail",
        "t: 1 of 2 file slices are read, by `day` = 'a'",
        "  by partition paths: 1",
    ]
    both = ["engine: sail", "t: 2 of 2 file slices are read"]
    assert plan(lake, "select id from t") == both
    assert plan(lake, "select a.id from t a join t b on a.id = b.id") == both


def test_why_spark_is_needed(lake: Lake) -> None:
    """None is started to find out: this lake has none. The part that is named is short, and the one that matters."""
    filled(lake)
    columns = ", ".join(f"id + {at} as a{at}" for at in range(40))
    for query, why in (
        ("select java_method('java.lang.Math', 'abs', id) d from t", "JAVA_METHOD('java.lang.Math', 'abs', id"),
        ("select id > day h from t", "id > day"),
        (f"select {columns}, rand() over w r from t window w as (order by id)", "RAND() OVER w"),
        (f"select {columns} from t tablesample (10 percent)", "TABLESAMPLE (10 PERCENT)"),
        (f"select case when id > 1 then '{'x' * 400}' else id end c from t", "CASE WHEN id > 1 THEN 'xxxx"),
    ):
        (line, *_) = plan(lake, query)
        assert line.startswith(f"engine: spark ({why}"), line
        assert len(line) < 160, line
    lake.sql("set spark.sql.caseSensitive = true")
    assert plan(lake, "select id from t")[0] == "engine: spark (spark.sql.caseSensitive is set)"


@pytest.mark.spark
def test_the_plan_of_a_session(spark_lake: Lake) -> None:
    filled(spark_lake)
    lines = plan(spark_lake, "select id from t where day = 'a'")
    assert lines[0] == "engine: spark (the lake was given a session)"
    assert lines[1] == "t: 1 of 2 file slices are read, by `day` = 'a'"
    assert "== Physical Plan ==" in lines


@pytest.mark.parametrize(
    ("statement", "first", "files"),
    [
        ("insert into t select id + 1, day from t where day = 'a'", "INSERT t", "t: 1 of 2 file slices are read"),
        ("insert overwrite t values (1, 'a')", "INSERT t", ""),
        ("create table u as select id from t", "CREATE TABLE u", "t: 2 of 2 file slices are read"),
        ("update t set id = 2 where day = 'b'", "UPDATE t", "t: 1 of 2 file slices are read"),
        ("delete from t x where x.day = 'b'", "DELETE t", "t: 1 of 2 file slices are read"),
        ("merge into t using t s on t.id = s.id when matched then delete", "MERGE t", "t: 2 of 2 file slices are read"),
        ("create view w as select id from t", "CREATE VIEW w", "t: 2 of 2 file slices are read"),
        ("alter table t add columns (x int)", "ALTER TABLE t", ""),
        ("drop table t", "DROP t", ""),
        ("show tables", "SHOW", ""),
    ],
)
def test_writes_are_explained_and_not_done(lake: Lake, statement: str, first: str, files: str) -> None:
    filled(lake)
    before = lake.table("t").hudi.timeline.instants
    lines = plan(lake, statement)
    assert lines[0] == first
    assert [line.startswith("engine: sail") for line in lines[1:2]] == [True] * len(lines[1:2])
    assert "".join(lines[2:3]).startswith(files)
    assert lake.table("t").hudi.timeline.instants == before
    assert [name for _, name, _ in map(dict.values, lake.sql("show tables").to_arrow().to_pylist())] == ["t"]


def test_a_write_of_no_table_is_not_explained(lake: Lake) -> None:
    for statement in ("insert into nothing values (1)", "insert into t select * from nothing", "delete from nothing"):
        with pytest.raises(NoSuchTableError, match="no table"):
            plan(lake, statement)


class _Started(NoSession):
    """A session that skep has started, which is not to be used."""

    is_started = True


def test_a_session_that_runs_takes_no_statement_that_needs_none(lake: Lake) -> None:
    """It took all of them once it was there: each INSERT and UPDATE became one of Spark's writes."""
    lake._spark = _Started()
    filled(lake)
    lake.sql("create table u (id int, day string) using hudi tblproperties (primaryKey = 'id')")
    lake.sql("insert into u select id + 1, day from t")
    lake.sql("update u set day = 'c' where id = 3")
    lake.sql(
        "merge into u using t on u.id = t.id when matched then update set day = t.day when not matched then insert *"
    )
    lake.sql("delete from t where id = 1")
    lake.sql("insert overwrite t partition (day = 'b') select id from u where day = 'c'")
    lake.sql("create table v using hudi tblproperties (primaryKey = 'id') as select * from u")
    rows = lake.sql("select id, day from v order by id").to_arrow().to_pydict()
    assert rows == {"id": [1, 2, 3], "day": ["a", "b", "c"]}
    assert lake.sql("select id, day from t").to_arrow().to_pydict() == {"id": [3], "day": ["b"]}
    lake.options = lake.options.with_values({EMBEDDED_BYTES.key: 0})
    with pytest.raises(NeedsSession):  # rows that are too many for this process are left to a session that is there
        lake.sql("insert into u select id + 1, day from t")
