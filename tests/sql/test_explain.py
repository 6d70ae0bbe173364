"""EXPLAIN: the files that a query reads, among those of its tables."""

from __future__ import annotations

import pytest

from skep.lake import Lake

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
        "t: 1 of 2 file slices are read, by `day` = 'a'",
        "  by partition paths: 1",
    ]
    assert plan(lake, "select id from t") == ["t: 2 of 2 file slices are read"]
    assert plan(lake, "select a.id from t a join t b on a.id = b.id") == ["t: 2 of 2 file slices are read"]


@pytest.mark.spark
def test_the_plan_of_a_session(spark_lake: Lake) -> None:
    filled(spark_lake)
    lines = plan(spark_lake, "select id from t where day = 'a'")
    assert lines[0] == "t: 1 of 2 file slices are read, by `day` = 'a'"
    assert "== Physical Plan ==" in lines
