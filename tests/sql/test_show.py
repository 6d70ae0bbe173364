"""SHOW and DESCRIBE of tables, partitions and views. Expected are the answers of Spark 3.5 for the same statements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep.lake import Lake
from skep_format.errors import InputError, NoSuchTableError, NotATableError, UnsupportedError

pytestmark = pytest.mark.metastore

# How dbt-spark reads the column `information`.
COLUMNS = re.compile(r"^ \|-- (.*): (.*) \(nullable = (.*)\b", re.MULTILINE)
OWNER = re.compile(r"^Owner: (.*)$", re.MULTILINE)


@pytest.fixture
def shown(lake: Lake) -> Lake:
    """A partitioned table t, a view v over it, and a temporary view tv."""
    lake.sql(
        "create table t (id bigint comment 'c0', at timestamp, d decimal(10,2), l array<struct<a:int,b:string>>,"
        " m map<string,int>, p string, q int) using hudi tblproperties (primaryKey = 'id')"
        " partitioned by (p, q) comment 'hello'"
    )
    lake.sql("insert into t (id, p, q) values (1, 'x', 2)")
    lake.sql("create view v (a comment 'c1', b) comment 'a view' tblproperties ('k' = 'v') as select id, at from t")
    lake.sql("create temporary view tv as select id, at, d as price, cast(1 as tinyint) s, null n from t")
    return lake


def ask(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_arrow().to_pylist()]


def test_show_table_extended(shown: Lake) -> None:
    database = shown.database
    found = shown.sql(f"show table extended in {database} like 't*|v'").to_arrow()
    assert found.schema.names == ["namespace", "tableName", "isTemporary", "information"]
    (t, of_t), (v, of_v), (tv, of_tv) = ((row[:3], row[3]) for row in map(tuple, map(dict.values, found.to_pylist())))
    assert (t, v, tv) == ((database, "t", False), (database, "v", False), ("", "tv", True))
    lines = of_t.splitlines()
    location = shown.metastore.table(database, "t").storage.location
    for line in ("Type: MANAGED", "Provider: hudi", "Comment: hello", f"Location: {location}", "Table: t"):
        assert line in lines
    assert "Partition Columns: [`p`, `q`]" in lines
    assert OWNER.findall(of_t) == OWNER.findall(of_v) == [shown.metastore.table(database, "t").owner]
    assert [column for column in COLUMNS.findall(of_t) if not column[0].startswith("_hoodie")] == [
        *(("id", "long", "true"), ("at", "timestamp", "true"), ("d", "decimal(10,2)", "true"), ("l", "array", "true")),
        *(("m", "map", "true"), ("p", "string", "true"), ("q", "integer", "true")),
    ]
    nested = """
 |-- l: array (nullable = true)
 |    |-- element: struct (containsNull = true)
 |    |    |-- a: integer (nullable = true)
 |    |    |-- b: string (nullable = true)
 |-- m: map (nullable = true)
 |    |-- key: string
 |    |-- value: integer (valueContainsNull = true)
"""
    assert nested in of_t
    assert of_t.endswith(" |-- q: integer (nullable = true)\n\n")
    assert {"Type: VIEW", "Comment: a view", "Table Properties: [k=v]"} < set(of_v.splitlines())
    assert COLUMNS.findall(of_v) == [("a", "long", "true"), ("b", "timestamp", "true")]
    assert "Type: VIEW" in of_tv.splitlines()
    assert ask(shown, "show table extended like 'nothing'") == []
    partition = ask(shown, "show table extended like 't' partition (p = 'x', q = 2)")
    expected = f"Partition Values: [p=x, q=2]\nLocation: {location}/p=x/q=2\n"
    assert partition == [(database, "t", False, expected)]
    for pattern, kind in (("t*", InputError), ("nothing", NoSuchTableError)):  # a name, here
        with pytest.raises(kind, match=re.escape(pattern)):
            shown.sql(f"show table extended like '{pattern}' partition (p = 'x', q = 2)")


def test_temporary_views_are_described(shown: Lake) -> None:
    columns = [("id", "bigint", None), ("at", "timestamp", None), ("price", "decimal(10,2)", None)]
    columns += [("s", "tinyint", None), ("n", "void", None)]
    assert ask(shown, "describe tv") == ask(shown, "describe extended TV") == columns
    assert ask(shown, "describe tv price") == [
        *(("col_name", "price"), ("data_type", "decimal(10,2)"), ("comment", "NULL"))
    ]
    assert ask(shown, "show columns in tv") == [("id",), ("at",), ("price",), ("s",), ("n",)]
    assert ask(shown, "show tblproperties tv") == []
    shown.sql("create temporary view t as select 7 as seven")  # in the place of a table
    assert ask(shown, "describe t") == [("seven", "int", None)]
    for statement, kind in (("show create table tv", NotATableError), ("describe tv partition (p = 1)", InputError)):
        with pytest.raises(kind, match=r"tv is a (temporary )?view"):
            shown.sql(statement)


def test_partitions_are_described(shown: Lake) -> None:
    of_table = ask(shown, "describe t")
    assert ask(shown, "describe t partition (p = 'x', q = 2)") == of_table
    location = shown.metastore.table(shown.database, "t").storage.location
    found = ask(shown, "desc formatted t partition (q = 2, p = 'x')")
    assert found[: len(of_table)] == of_table
    assert found[len(of_table) :] == [
        *(("", "", ""), ("# Detailed Partition Information", "", ""), ("Database", shown.database, "")),
        *(("Table", "t", ""), ("Partition Values", "[q=2, p=x]", "")),
        ("Location", f"{location}/p=x/q=2", ""),
    ]
    shown.sql("create table flat (id int) tblproperties (primaryKey = 'id')")
    for statement, words in (
        ("describe t partition (p = 'y', q = 2)", r"t has no partition \(p='y', q=2\)"),
        ("describe t partition (p = 'x')", "all partition columns have to be named"),
        ("describe flat partition (p = 'x')", "flat has no partition"),
        ("describe v partition (p = 'x')", "v is a view, which has no partitions"),
    ):
        with pytest.raises(InputError, match=words):
            shown.sql(statement)


def test_stored_views_are_described(shown: Lake) -> None:
    database = shown.database
    entry = shown.metastore.table(database, "v")
    assert ask(shown, "describe extended v") == [
        *(("a", "bigint", "c1"), ("b", "timestamp", None), ("", "", ""), ("# Detailed Table Information", "", "")),
        *(("Database", database, ""), ("Table", "v", ""), ("Owner", entry.owner, ""), ("Type", "VIEW", "")),
        *(("Comment", "a view", ""), ("View Text", entry.view_query, ""), ("Table Properties", "[k=v]", "")),
    ]
    assert ask(shown, "show tblproperties v") == [("k", "v")]
    ((text,),) = ask(shown, "show create table v")
    assert text == (
        f"CREATE VIEW {database}.v (\n  a COMMENT 'c1',\n  b)\nCOMMENT 'a view'\n"
        f"TBLPROPERTIES (\n  'k' = 'v')\nAS {entry.view_query}\n"
    )
    shown.sql("drop view v")
    shown.sql(text)
    assert ask(shown, "show create table v")[0][0].partition("\nAS ")[0] == text.partition("\nAS ")[0]
    assert ask(shown, "select a from v") == [(1,)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (".*", ["t", "v", "tv"]),
        ("%", ["t", "v", "tv"]),  # of Hive
        ("T|v", ["t", "v"]),
        ("[tv]", ["t", "v"]),
        ("t.", ["tv"]),
        ("[", []),
    ],
)
def test_patterns(shown: Lake, pattern: str, expected: list[str]) -> None:
    assert [row[1] for row in ask(shown, f"show tables like '{pattern}'")] == expected


@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize(
    ("statement", "names", "rows"),
    [
        ("show catalogs", ["catalog"], [("spark_catalog",)]),
        ("show catalogs like 'other*'", ["catalog"], []),
        ("show current namespace", ["catalog", "namespace"], [("spark_catalog", "{database}")]),
        (
            "describe query select id, d as price, l from t",
            ["col_name", "data_type", "comment"],
            [("id", "bigint", None), ("price", "decimal(10,2)", None), ("l", "array<struct<a:int,b:string>>", None)],
        ),
        (
            "desc with x as (select 1 as a) select a, p from x cross join t",
            ["col_name", "data_type", "comment"],
            [("a", "int", None), ("p", "string", None)],
        ),
    ],
)
def test_catalogs_and_queries(shown: Lake, statement: str, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    assert shown.sql(statement).to_arrow().schema.names == names
    wanted = [tuple(each and each.format(database=shown.database) for each in row) for row in rows]
    assert ask(shown, statement) == wanted


def test_functions_are_those_of_spark_and_skep(spark_lake: Lake, spark: Any) -> None:
    of_spark = [row[0] for row in spark.sql("show functions").collect()]
    found = [name for (name,) in ask(spark_lake, "show functions")]
    assert set(found) - set(of_spark) == {
        *("hudi_query", "hudi_table_changes", "hudi_filesystem_view", "hudi_query_timeline", "hudi_metadata")
    }
    assert set(of_spark) < set(found)
    assert ask(spark_lake, "show system functions like 'ab*|hudi_q*y'") == [("abs",), ("hudi_query",)]
    assert ask(spark_lake, "show functions abs") == [("abs",)]
    assert ask(spark_lake, "show user functions") == []


@pytest.mark.spark
@pytest.mark.engine("spark")
def test_temporary_views_over_files(spark_lake: Lake, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id;name\n3;c\n")
    spark_lake.sql(f"create temporary view p using parquet options (path '{tmp_path}/rows.parquet')")
    spark_lake.sql(
        f"create or replace temp view c (id bigint, name string) using csv"
        f" options (path = '{tmp_path}/rows.csv', header = true, 'sep' = ';')"
    )
    assert ask(spark_lake, "select * from p union all select * from c order by id") == [(1, "a"), (2, "b"), (3, "c")]
    assert ask(spark_lake, "describe c") == [("id", "bigint", None), ("name", "string", None)]
    spark_lake.sql("create table t (id bigint, name string) tblproperties (primaryKey = 'id')")
    spark_lake.sql("merge into t using p on t.id = p.id when not matched then insert *")
    assert ask(spark_lake, "select id, name from t order by id") == [(1, "a"), (2, "b")]
    for statement, kind in (
        (f"create temporary view w using parquet options (path '{tmp_path}/nothing')", InputError),
        ("create temporary view w using nothing", InputError),
        (f"create temporary view w using hudi options (path '{tmp_path}')", UnsupportedError),
        (f"create temporary view p using parquet options (path '{tmp_path}')", Exception),
    ):
        with pytest.raises(kind, match=r"USING|already exists"):
            spark_lake.sql(statement)
    assert [name for _, name, _ in ask(spark_lake, "show views")] == ["c", "p"]
