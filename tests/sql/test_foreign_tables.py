"""Tables of others in the same metastore, and views: no statement changes them, or takes them out of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_format.errors import InputError, NoSuchTableError, NotATableError

STATEMENTS = [
    "DROP TABLE x",
    "DROP TABLE IF EXISTS x",
    "DROP TABLE x PURGE",
    "TRUNCATE TABLE x",
    "INSERT INTO x VALUES (1, 'a')",
    "INSERT OVERWRITE x VALUES (1, 'a')",
    "UPDATE x SET a = 'b'",
    "DELETE FROM x",
    "MERGE INTO x USING (SELECT 1 AS id) s ON x.id = s.id WHEN MATCHED THEN DELETE",
    "ALTER TABLE x RENAME TO y",
    "ALTER TABLE x SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE x UNSET TBLPROPERTIES IF EXISTS ('a')",
    "ALTER TABLE x ADD COLUMNS (c INT)",
    "ALTER TABLE x DROP PARTITION (d = '1')",
    "CREATE INDEX i ON x (a)",
    "CALL run_clean(table => 'x')",
    "CALL truncate_table(table => 'x')",
]
KINDS = {
    "iceberg": {"table_type": "ICEBERG"},
    "delta": {"spark.sql.sources.provider": "delta"},
    "parquet": {"spark.sql.sources.provider": "parquet"},
    "hive": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("managed", [False, True])
def test_tables_of_others_stay_as_they_are(kind: str, managed: bool, lake: Lake, database: str, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    if kind in ("iceberg", "delta"):  # with the metadata of Hudi beside its own, as Apache XTable writes it
        rows = pa.table({"id": [1], "a": ["a"]})
        lake.create_table("own", rows, key="id", location=str(folder)).upsert(rows)
    else:
        folder.mkdir()
        (folder / "part.parquet").write_bytes(b"rows")
    columns = (Column("id", "bigint"), Column("a", "string"))
    entry = TableEntry(database, "x", StorageDescriptor(columns, f"file:{folder}"), parameters=KINDS[kind])
    lake.metastore.create_table(replace(entry, table_type="MANAGED_TABLE") if managed else entry)
    before = lake.metastore.table(database, "x"), sorted(folder.rglob("*"))
    for statement in STATEMENTS:
        with pytest.raises(NotATableError, match=rf"x is a table of {kind}|{folder}"):
            lake.sql(statement)
    with pytest.raises(InputError, match="tables that are not Hudi's: x"):
        lake.sql(f"DROP DATABASE {database} CASCADE")
    assert (lake.metastore.table(database, "x"), sorted(folder.rglob("*"))) == before


def test_views_are_not_changed_as_tables(lake: Lake, database: str) -> None:
    """A temporary view is meant where it has the name of a table, as in Spark."""
    rows = pa.table({"id": [1], "a": ["a"]})
    lake.create_table("x", rows, key="id").upsert(rows)
    lake.sql("CREATE TEMPORARY VIEW x AS SELECT 1 AS id, 'v' AS a")
    for statement in STATEMENTS[:-2]:
        with pytest.raises(NotATableError, match="x is a temporary view"):
            lake.sql(statement)
    assert lake.table("x").read(columns=["id", "a"]).to_arrow() == rows
    lake.sql(f"DROP TABLE {database}.x PURGE")


def test_a_table_without_files_can_be_dropped(lake: Lake, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "a": ["a"]})
    lake.create_table("x", rows, key="id", location=str(tmp_path / "x")).upsert(rows)
    shutil.rmtree(tmp_path / "x")
    lake.sql("DROP TABLE x PURGE")
    with pytest.raises(NoSuchTableError):
        lake.table("x")
