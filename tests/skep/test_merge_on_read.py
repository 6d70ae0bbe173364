"""A merge-on-read table through the front door: written, synced under its names, read in both ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
from skep.lake import Lake
from skep_format.table_config import TableType

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]


def rows(table: skep.Table, **how: Any) -> dict[int, str]:
    found = table.read(columns=["id", "note"], **how).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


@pytest.fixture
def table(lake: Lake, orders: Orders) -> skep.Table:
    return lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day", type="mor")


def test_both_views_see_every_commit(lake: Lake, database: str, orders: Orders, table: skep.Table) -> None:
    assert table.hudi.config.type is TableType.MERGE_ON_READ
    table.bulk_insert(orders(1, 2, 3))
    last = table.upsert(orders(2, ts=2, note="second"))
    assert rows(table) == {1: "first", 2: "second", 3: "first"}
    assert rows(table, query="read_optimized") == {1: "first", 2: "first", 3: "first"}
    for view in ("_ro", "_rt"):
        entry = lake.metastore.table(database, f"orders{view}")
        assert entry.parameters["last_commit_time_sync"] == last.instant.requested_time
        assert lake.metastore.partition_names(database, f"orders{view}") == ["day=2026-01-01"]
    assert lake.tables(database) == [f"{database}.orders"]
    assert not table.sync().changed


def test_deletes_by_key_and_by_predicate(orders: Orders, table: skep.Table) -> None:
    table.bulk_insert(orders(1, 2, 3))
    assert table.delete(orders(1).select(["id", "day"])).deleted == 1
    assert table.delete(where="note = 'first' and id > 2").deleted == 1
    assert rows(table) == {2: "first"}
    assert [commit.action for commit in table.history()] == ["deltacommit"] * 3


def test_a_compaction_follows_every_fifth_write_by_itself(orders: Orders, table: skep.Table) -> None:
    table.bulk_insert(orders(1, 2))
    for at in range(2, 6):
        table.upsert(orders(2, ts=at, note="second"))
    assert [commit.operation for commit in table.history()] == ["bulk_insert", *["upsert"] * 4, "compact"]
    assert rows(table) == rows(table, query="read_optimized") == {1: "first", 2: "second"}
    assert not table.sync().changed, "the sync after the write includes the compaction"


def test_hudis_options_make_and_write_the_same_table(orders: Orders, tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.logfile.data.block.format": "parquet",
    }
    path = tmp_path / "orders"
    for frame in (orders(1, 2), orders(2, ts=2, note="second")):
        skep.write(frame).options(**options).mode("append").save(path)
    found = skep.load(path).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True)) == {1: "first", 2: "second"}
    (log,) = path.rglob(".*.log.*")
    assert b"PAR1" in log.read_bytes()
