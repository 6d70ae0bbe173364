"""How often a write lists and opens its table, counted on storage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep.lake import Lake

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]
PARTITIONS = 1_000


@pytest.mark.engine("metastore")
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_synced_row_in_one_of_many_partitions(
    lake: Lake, database: str, orders: Orders, storage_calls: Any, kind: str
) -> None:
    """Nothing is due: the settings are not read again, the timeline is listed by begin, request and completion."""
    many = pa.table(
        {
            "id": pa.array(range(PARTITIONS), pa.int64()),
            "note": ["first"] * PARTITIONS,
            "ts": pa.array([1] * PARTITIONS, pa.int64()),
            "day": [f"d{number:04d}" for number in range(PARTITIONS)],
        }
    )
    created = lake.create_table("t", many, key="id", ordering="ts", partition_by="day", type=kind)
    created.bulk_insert(many)
    properties = Path(created.path) / ".hoodie/hoodie.properties"
    os.utime(properties, (properties.stat().st_atime - 7200, properties.stat().st_mtime - 7200))
    table = lake.table("t")
    storage_calls.clear()
    result = table.upsert(orders(7, ts=2, note="second", day="d0007"))
    assert (result.inserted, result.updated) == (0, 1)
    assert storage_calls.times_opened() == 0
    assert storage_calls.timeline_listings() <= 3
    assert [path for path in storage_calls.partition_listings() if path.startswith("d")] == ["d0007"]
    entry = lake.metastore.table(database, "t" if kind == "cow" else "t_rt")
    assert entry.parameters["last_commit_time_sync"] == result.instant.requested_time
    storage_calls.clear()
    assert not lake.table("t").sync().changed
    assert not any(path.startswith("d") for path in storage_calls.partition_listings())
