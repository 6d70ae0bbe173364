"""Metastores of four releases: skep's calls against each. A table's life, locks, and a second sync."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.entities import Database
from skep_catalog.lock import HmsLock
from skep_format.errors import LockTimeoutError, SyncError
from skep_format.storage import open_storage
from skep_sync.check import check_table
from skep_sync.planning.locations import same_location
from skep_sync.sync import sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter


@pytest.fixture
def metastore(any_metastore: str) -> Iterator[Metastore]:
    with Metastore.connect(any_metastore, timeout=30, attempts=2) as client:
        yield client


@pytest.fixture
def database(metastore: Metastore, tmp_path: Path) -> Iterator[str]:
    name = f"db_{uuid.uuid4().hex[:10]}"
    metastore.create_database(Database(name, location=f"file://{tmp_path}/{name}.db"))
    yield name
    for table in metastore.tables(name):
        metastore.drop_table(name, table)
    metastore.drop_database(name)


def rows(*ids: int, day: str, **more: pa.Array) -> pa.Table:
    plain = {
        "id": pa.array(ids, pa.int64()),
        "note": pa.array([f"n{i}" for i in ids]),
        "day": pa.array([day] * len(ids)),
    }
    return pa.table({**plain, **more})


def test_a_tables_life_reaches_the_metastore(metastore: Metastore, database: str, tmp_path: Path) -> None:
    lake = Lake(metastore, str(tmp_path / "lake"), database=database)
    table = lake.create_table("t", rows(1, day="a"), key="id", partition_by="day", hive_style=True)
    assert lake.tables(database) == [f"{database}.t"]
    table.upsert(rows(1, 2, day="a"))
    table.upsert(rows(3, day="b"))
    assert sorted(metastore.partition_names(database, "t")) == ["day=a", "day=b"]
    table.upsert(rows(4, day="c", amount=pa.array([1.5])))
    entry = metastore.table(database, "t")
    assert [column.name for column in entry.storage.columns if not column.name.startswith("_hoodie")] == [
        "id",
        "note",
        "amount",
    ]
    for partition in metastore.partitions(database, "t"):
        assert partition.storage.columns == entry.storage.columns
    assert not table.sync().changed
    assert not check_table(HudiTable.open(table.path), metastore, database, "t")
    renamed = lake.rename_table("t", "t2")
    assert renamed.read().count() == 4
    lake.drop_table("t2", purge=True)
    assert metastore.tables(database) == []


@pytest.mark.parametrize("case", ["mor_upsert", "cow_multi_partition_hive", "cow_schema_evolution"])
def test_tables_of_hudi_are_registered(golden: Path, metastore: Metastore, database: str, case: str) -> None:
    table = HudiTable.open(str(golden / "0.15.0" / case / "table"))
    assert sync_table(table, metastore, database).changed
    assert not sync_table(table, metastore, database).changed
    assert not check_table(table, metastore, database)


def test_partitions_of_any_value_are_registered_or_named(metastore: Metastore, database: str, tmp_path: Path) -> None:
    """Databases that compare texts without the blanks at their end hold one of two; PostgreSQL holds both."""
    values = ["good1", "good1 ", "a=b", "a/b", "%", "x", "ü"]
    given = pa.table({"id": range(len(values)), "p": values})
    spec = TableSpec(name="t", schema=given.schema, record_key=("id",), partition_by=("p",), hive_style=True)
    create_table(open_storage(tmp_path / "t"), spec)
    LocalWriter(HudiTable.open(tmp_path / "t")).upsert(given)
    opened = HudiTable.open(tmp_path / "t")
    with contextlib.suppress(SyncError):
        sync_table(opened, metastore, database)
    findings = check_table(opened, metastore, database).findings
    refused = [finding.what for finding in findings if finding.aspect == "refused"]
    if refused:
        (only,) = refused
        assert "partition 'p=good1 ': the metastore's database does not distinguish it" in only
        values.remove("good1 ")
    found = metastore.partitions(database, "t")
    assert sorted(each.values[0] for each in found) == sorted(values)
    assert all(same_location(each.storage.location, opened.storage.uri(f"p={each.values[0]}")) for each in found)


def test_a_lock_excludes_and_is_handed_on(metastore: Metastore, database: str) -> None:
    first, second = (HmsLock(metastore, database, "t", purpose=purpose) for purpose in ("write", "sync"))
    first.acquire(5)
    with pytest.raises(LockTimeoutError):
        second.acquire(0.5)
    first.release()
    second.acquire(5)
    second.release()
