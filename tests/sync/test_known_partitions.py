"""Partitions that an entry has already: at another place, or spelt otherwise than the table's folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_format.storage import open_storage
from skep_sync.planning.locations import lies_below
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore


def test_a_table_that_moved_takes_its_partitions_along(
    write: Callable[..., HudiTable], metastore: Metastore, database: str, tmp_path: Path
) -> None:
    write("t", 1)
    table = write("t", 2, day="2026-01-02")
    sync_table(table, metastore, database)
    shutil.copytree(table.storage.root, tmp_path / "elsewhere" / "t", copy_function=shutil.copy2)
    moved = HudiTable.open(str(tmp_path / "elsewhere" / "t"))
    plan = plan_sync(moved, metastore, database)
    (warning,) = plan.warnings
    assert f"{database}.t is registered at file:{table.storage.root}" in warning
    assert sync_table(moved, metastore, database).counts == {"partitions moved": 2, "tables altered": 1}
    for partition in metastore.partitions(database, "t"):
        assert lies_below(partition.storage.location, moved.storage.uri(""))
    assert not plan_sync(moved, metastore, database, full=True)


@pytest.fixture
def months(tmp_path: Path) -> Callable[[int], HudiTable]:
    """Writes a row of a month to a table with numbers for partition values."""

    def write(month: int) -> HudiTable:
        rows = pa.table({"id": pa.array([month], pa.int64()), "month": pa.array([month], pa.int32())})
        path = str(tmp_path / "months")
        if not Path(path).exists():
            spec = TableSpec(
                name="months", schema=rows.schema, record_key=("id",), partition_by=("month",), hive_style=True
            )
            create_table(open_storage(path), spec)
        LocalWriter(HudiTable.open(path)).upsert(rows)
        return HudiTable.open(path)

    return write


def test_numbers_are_known_whatever_their_zeros(
    months: Callable[[int], HudiTable], metastore: Metastore, database: str
) -> None:
    """An entry may have `month=01` for the folder `month=1`: it is not added again, and goes when the folder does."""
    months(1)
    sync_table(months(2), metastore, database)
    spelt = [replace(p, values=(f"0{p.values[0]}",)) for p in metastore.partitions(database, "months")]
    metastore.drop_partitions(database, "months", ["month=1", "month=2"])
    metastore.add_partitions(database, "months", [replace(p, origin=None) for p in spelt])
    months(1)
    sync_table(months(11), metastore, database)
    assert metastore.partition_names(database, "months") == ["month=01", "month=02", "month=11"]
    LocalWriter(months(11)).delete_partitions(["month=1"])
    sync_table(months(11), metastore, database)
    assert metastore.partition_names(database, "months") == ["month=02", "month=11"]
