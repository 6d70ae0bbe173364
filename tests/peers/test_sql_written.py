"""Tables that skep's SQL makes and changes: JVM Hudi reads the same rows, and its SQL changes them further."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peer_shared import META
from sql_lakes import NoSession

from benchmarks.peers.bundle import RELEASES
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.spelling import Row, difference
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore

COLUMNS = "id INT, name STRING, price DECIMAL(10,2), made DATE, known BOOLEAN, ts BIGINT, part STRING"
STATEMENTS = (
    "INSERT INTO t VALUES"
    " (1, 'a', 1.50, DATE '2026-01-01', true, 10, 'x'), (2, 'b', 2.50, DATE '2026-01-02', true, 10, 'x'),"
    " (3, 'c', 3.50, NULL, true, 10, 'y'), (4, 'd', 4.50, DATE '2026-01-04', NULL, 10, 'y'),"
    " (5, 'e', NULL, DATE '2026-01-05', false, 10, 'z')",
    "UPDATE t SET name = upper(name), price = price * 2, ts = ts + 1 WHERE id <= 3",
    "MERGE INTO t USING (SELECT * FROM VALUES (2, 'm', 20L, 'x'), (3, 'off', 20L, 'y'), (6, 'new', 20L, 'w')"
    " AS v(id, name, ts, part)) s ON t.id = s.id AND t.part = s.part"
    " WHEN MATCHED AND s.name = 'off' THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name, ts = s.ts"
    " WHEN NOT MATCHED THEN INSERT (id, name, ts, part) VALUES (s.id, s.name, s.ts, s.part)",
    "DELETE FROM t WHERE price > 4 AND made = DATE '2026-01-04'",
    "INSERT INTO t VALUES (7, 'late', 7.00, DATE '2026-01-07', true, 30, 'x'), (5, 'old', 0, NULL, NULL, 5, 'z')",
)


def row(id: int, name: str, price: str | None, made: str | None, known: bool | None, ts: int, part: str) -> Row:
    return {"id": id, "name": name, "price": price, "made": made, "known": known, "ts": ts, "part": part}


EXPECTED = [
    row(1, "A", "3.00", "2026-01-01", True, 11, "x"),
    row(2, "m", "5.00", "2026-01-02", True, 20, "x"),
    row(5, "e", None, "2026-01-05", False, 10, "z"),
    row(6, "new", None, None, None, 20, "w"),
    row(7, "late", "7.00", "2026-01-07", True, 30, "x"),
]
UNKEYED_STATEMENTS = (
    "INSERT INTO t VALUES (1, 'a', 'x'), (1, 'a', 'x'), (2, 'b', 'y')",
    "UPDATE t SET name = 'c' WHERE id = 2",
    "DELETE FROM t WHERE name = 'a'",
    "INSERT INTO t VALUES (3, 'd', 'x'), (3, 'd', 'x')",
)


@pytest.fixture
def lake(metastore: Metastore, database: str, tmp_path: Path) -> Lake:
    """Its statements are carried out without Spark."""
    return Lake(metastore, str(tmp_path / "lake"), NoSession(), database=database)


hudi_releases = pytest.mark.parametrize(
    "release", [pytest.param(release, marks=pytest.mark.peer(f"hudi-{release}")) for release in RELEASES]
)
kinds = pytest.mark.parametrize("kind", ["cow", "mor"])


def same_rows(lake: Lake, hudi: Jvm, expected: list[Row]) -> None:
    """Both read what is expected, and the same meta columns."""
    path = lake.table("t").path
    theirs = hudi.read(path).rows
    batches = read(HudiTable.open(path), ReadRequest()).to_batches()
    ours: list[dict[str, Any]] = [
        json.loads(line) for batch in batches for line in bytes(json_lines(batch)).splitlines()
    ]
    assert not (found := difference(theirs, expected, without=META)), f"Hudi reads other rows: {found}"
    assert not (found := difference(ours, theirs)), f"skep reads other rows than Hudi: {found}"


@hudi_releases
@kinds
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "not_partitioned"])
def test_hudi_reads_what_statements_wrote(
    release: str, kind: str, partitioned: bool, jvm: Callable[[str], Jvm], lake: Lake
) -> None:
    by = "PARTITIONED BY (part)" if partitioned else ""
    lake.sql(
        f"CREATE TABLE t ({COLUMNS}) USING hudi {by}"
        f" TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts')"
    )
    for statement in STATEMENTS:
        lake.sql(statement)
    hudi = jvm(release)
    same_rows(lake, hudi, EXPECTED)
    if kind == "mor":
        lake.sql("CALL run_compaction(op => 'scheduleAndExecute', table => 't')")
        same_rows(lake, hudi, EXPECTED)


@hudi_releases
@kinds
def test_hudi_reads_tables_without_keys(release: str, kind: str, jvm: Callable[[str], Jvm], lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, name STRING, part STRING) USING hudi PARTITIONED BY (part)"
        f" TBLPROPERTIES (type = '{kind}')"
    )
    for statement in UNKEYED_STATEMENTS:
        lake.sql(statement)
    left = [{"id": 2, "name": "c", "part": "y"}, *[{"id": 3, "name": "d", "part": "x"}] * 2]
    same_rows(lake, jvm(release), left)


@hudi_releases
@kinds
def test_hudis_statements_change_what_ours_wrote(
    release: str, kind: str, jvm: Callable[[str], Jvm], lake: Lake
) -> None:
    """Hudi's UPDATE and DELETE find the rows by skep's files, and skep's statements go on after them."""
    lake.sql(
        "CREATE TABLE t (id INT, name STRING, ts BIGINT, part STRING) USING hudi PARTITIONED BY (part)"
        f" TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts')"
    )
    lake.sql("INSERT INTO t VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'x'), (3, 'c', 1, 'y')")
    lake.sql("UPDATE t SET name = 'ours', ts = 2 WHERE id <= 2")
    hudi, settings = jvm(release), {"hoodie.metadata.enable": "false"}
    if release != "0.15.0":
        settings |= {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
    name = f"{lake.database}.t"
    hudi.sql(f"CREATE DATABASE {lake.database}")
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{lake.table('t').path}'")
    hudi.sql(f"UPDATE {name} SET name = 'theirs', ts = 3 WHERE id = 1", settings)
    hudi.sql(f"DELETE FROM {name} WHERE id = 3", settings)
    hudi.sql(f"DROP DATABASE {lake.database} CASCADE")
    lake.sql("UPDATE t SET ts = ts + 10")
    expected = [(1, "theirs", 13, "x"), (2, "ours", 12, "x")]
    same_rows(lake, hudi, [dict(zip(("id", "name", "ts", "part"), each, strict=True)) for each in expected])
