"""A lake whose tables are synced to several metastores: what one of them misses is remembered, and holds up nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import skep
from skep.lake import Lake
from skep.metastore.syncing import open_queue
from skep_catalog.client import Metastore
from skep_format.errors import OptionError
from skep_format.options import Options

pytestmark = pytest.mark.metastore

Orders = Callable[..., pa.Table]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def test_a_commit_reaches_all_targets_but_the_one_that_is_down(
    metastore: Metastore, database: str, folder: str, orders: Orders
) -> None:
    options = Options(
        {
            "skep.sync.targets": "other,down",
            "skep.sync.target.other.uris": metastore.uri,
            "skep.sync.target.other.table": "copy",
            "skep.sync.target.down.uris": "thrift://127.0.0.1:1",
        }
    )
    lake = Lake(metastore, folder, database=database, options=options)
    with pytest.warns(skep.SyncWarning, match="target down is not up to date"):
        table = lake.create_table("orders", orders(1), key="id", partition_by="day")
    with pytest.warns(skep.SyncWarning, match=r"commit \d+ of orders is complete, but target down"):
        table.upsert(orders(1, 2))
    for name in ("orders", "copy"):
        assert metastore.partition_names(database, name) == ["day=2026-01-01"]
    queue = open_queue(options, folder)
    assert queue is not None
    (left,) = queue.pending()
    assert (left.target, left.latest.entry, len(left.events)) == ("down", f"{database}.orders", 2)
    assert left.failure is not None
    assert left.failure.unreachable
    lake._syncs.clients.close()


def test_a_table_whose_main_sync_fails_is_not_made_and_not_remembered(
    metastore: Metastore, database: str, folder: str, orders: Orders, tmp_path: Path
) -> None:
    options = {"hoodie.datasource.hive_sync.partition_fields": "id,ID"}
    lake = Lake(metastore, folder, database=database, options=Options(options))
    with pytest.raises(skep.SkepError):
        lake.create_table("orders", orders(1), key="id", partition_by="day")
    queue = open_queue({}, folder)
    assert queue is not None
    assert queue.pending() == []


def test_the_queue_may_lie_elsewhere(
    metastore: Metastore, database: str, folder: str, orders: Orders, tmp_path: Path
) -> None:
    options = Options(
        {
            "skep.sync.queue": str(tmp_path / "elsewhere"),
            "hoodie.datasource.hive_sync.enable": "true",
            "hoodie.datasource.hive_sync.metastore.uris": "thrift://127.0.0.1:1",
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
        }
    )
    with pytest.warns(skep.SyncWarning, match="the metastore is not up to date"):
        skep.write(orders(1)).options(**options).mode("append").save(f"{folder}/t")
    queue = open_queue(options)
    assert queue is not None
    (left,) = queue.pending()
    assert (left.target, left.latest.base_path) == ("main", f"{folder}/t")


def test_an_incomplete_target_is_refused_before_anything_is_done(metastore: Metastore, folder: str) -> None:
    with pytest.raises(OptionError, match=r"skep\.sync\.target\.dr\.uris"):
        Lake(metastore, folder, options=Options({"skep.sync.targets": "dr"}))
