"""Files and Hudi tables that queries name by their path, answered as Spark answers them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from skep.lake import Lake
from skep.serve.hive.rights import RightMissingError, check_right
from skep_format.errors import InputError, NotATableError
from skep_sql.parsing.parse import parse

ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})


def found(lake: Lake, query: str, **how: Any) -> list[Any]:
    return sorted(lake.sql(query, **how).to_arrow().to_pylist(), key=repr)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with files of each format, and a folder of two Parquet files with what Spark passes over beside them."""
    folder = tmp_path / "files"
    (folder / "many").mkdir(parents=True)
    for at in range(2):
        parquet.write_table(ROWS.slice(at, 1), folder / "many" / f"part {at}")
    for hidden in ("_SUCCESS", ".crc"):
        (folder / "many" / hidden).write_text("")
    parquet.write_table(ROWS, folder / "one.parquet")
    orc.write_table(ROWS, folder / "one.orc")
    (folder / "one.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()))
    (folder / "one.csv").write_text("a,1\nb,2\n")
    return folder


def test_parquet_needs_no_spark(lake: Lake, files: Path) -> None:
    """In queries, joins, WITH, CTAS, INSERT, MERGE and subqueries."""
    lake.create_table("t", ROWS, key="id", ordering="v").upsert(ROWS)
    for path in (files / "one.parquet", files / "many", f"file:{files}/many"):
        assert found(lake, f"SELECT * FROM parquet.`{path}`") == ROWS.to_pylist()
    many = f"PARQUET.`{files}/many`"
    assert found(lake, f"SELECT t.id, m.v FROM t JOIN {many} AS m ON t.id = m.id WHERE m.v > 1") == [
        {"id": "b", "v": 2}
    ]
    assert found(lake, f"WITH m AS (SELECT v FROM {many}) SELECT max(v) AS v FROM m") == [{"v": 2}]
    lake.sql(f"CREATE TABLE copied USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM {many}")
    lake.sql(f"INSERT INTO copied SELECT concat(id, id) AS id, v FROM {many}")
    assert found(lake, "SELECT id FROM copied") == [{"id": each} for each in ("a", "aa", "b", "bb")]
    lake.sql(f"MERGE INTO t USING {many} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 10")
    lake.sql(f"DELETE FROM t WHERE id IN (SELECT id FROM {many} WHERE v = 1)")
    assert found(lake, "SELECT id, v FROM t") == [{"id": "b", "v": 12}]


def test_hudi_tables_by_path(lake: Lake) -> None:
    table = lake.create_table("t", ROWS, key="id")
    first = table.upsert(ROWS)
    table.delete(where="id = 'a'")
    at = f"hudi.`{table.path}`"
    assert found(lake, f"SELECT id FROM {at}") == [{"id": "b"}]
    assert found(lake, f"SELECT id FROM {at} TIMESTAMP AS OF '{first.instant.requested_time}'") == [
        {"id": "a"},
        {"id": "b"},
    ]
    with pytest.raises(NotATableError, match="no Hudi table at"):
        lake.sql(f"SELECT * FROM hudi.`{table.path}/no`")


def test_what_is_refused(lake: Lake, files: Path) -> None:
    with pytest.raises(InputError, match=r"parquet\.`/not/here`: there is no such file or folder"):
        lake.sql("SELECT * FROM parquet.`/not/here`")
    with pytest.raises(InputError, match="files have no earlier versions"):
        lake.sql(f"SELECT * FROM parquet.`{files}/many` TIMESTAMP AS OF '2024-01-01'")
    with pytest.raises(InputError, match=r"one\.csv` can't be read"):
        lake.sql(f"SELECT * FROM parquet.`{files}/one.csv`")


@pytest.mark.spark
def test_all_formats_as_spark_reads_them(spark_lake: Lake, files: Path, in_utc: Any) -> None:
    """Of texts Spark infers the columns; partitions of a folder, columns of other types and patterns are left to it."""
    parquet.write_to_dataset(ROWS, files / "parts", partition_cols=["v"])
    zoned = pa.table({"id": ["a"], "at": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))})
    others = {
        "wide": zoned.append_column("text", pa.array(["x"], pa.large_string())),
        "local": pa.table({"at": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))}),
        "unsigned": pa.table({"n": pa.array([2**63], pa.uint64())}),
    }
    for name, rows in others.items():
        parquet.write_table(rows, files / name)
    places = [f"parquet.`{files}/{name}`" for name in ("many", "one.parquet", "parts", "m*", *others)]
    for at in [*places, *(f"{kind}.`{files}/one.{kind}`" for kind in ("json", "csv", "orc"))]:
        expected = in_utc.sql(f"SELECT * FROM {at}")
        shown = spark_lake.sql(f"SELECT * FROM {at}").to_spark()
        assert shown.schema == expected.schema, at
        assert sorted(map(repr, shown.collect())) == sorted(map(repr, expected.collect())), at
    for name in ("many", "wide"):  # which Sail answers
        found = spark_lake.sql(f"SELECT * FROM parquet.`{files}/{name}`", engine="sail").to_arrow()
        by_spark = spark_lake.sql(f"SELECT * FROM parquet.`{files}/{name}`").to_arrow()
        assert found.sort_by("id") == by_spark.sort_by("id")
    with pytest.raises(InputError, match=r"\[PATH_NOT_FOUND\] Path does not exist: .*no\*"):
        spark_lake.sql(f"SELECT * FROM text.`{files}/no*`").to_arrow()


def test_who_may_only_read_tables_reads_no_files() -> None:
    """A path reaches what the server's process can read."""
    for text in (
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT id FROM t WHERE id IN (SELECT id FROM hudi.`/lake/salaries`)",
        "CREATE TEMPORARY VIEW v AS SELECT * FROM parquet.`/lake/x`",
    ):
        with pytest.raises(RightMissingError, match="may read tables by name, not files"):
            check_right(parse(text), "ann", may_write=False)
        check_right(parse(text), "ann", may_write=True)
