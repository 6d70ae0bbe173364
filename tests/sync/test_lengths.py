"""Texts that a metastore's database has no room for: shortened or named, and partitions are synced all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_catalog.entries import MARKER
from skep_catalog.lengths import Lengths
from skep_format.errors import SyncError
from skep_format.storage import open_storage
from skep_sync.check import check_table
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore

Write = Callable[..., HudiTable]


def upsert(path: str, frame: pa.Table) -> HudiTable:
    storage = open_storage(path)
    if not storage.exists(".hoodie/hoodie.properties"):
        create_table(storage, TableSpec(name="t", schema=frame.schema, record_key=("id",), partition_by=("day",)))
    LocalWriter(HudiTable.open(path)).upsert(frame)
    return HudiTable.open(path)


def rows(day: str, **more: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array([1], pa.int64()), "day": pa.array([day]), **more})


def test_a_long_comment_is_shortened_with_a_warning(metastore: Metastore, database: str, tmp_path: Path) -> None:
    long = "what this column is for. " * 20
    commented = pa.schema([pa.field("id", pa.int64(), metadata={"comment": long}), pa.field("day", pa.string())])
    table = upsert(f"{tmp_path}/t", rows("a").cast(commented))
    report = sync_table(table, metastore, database)
    (warning,) = report.plan.warnings
    assert "the comment of column id is longer" in warning
    entry = metastore.table(database, "t")
    (column,) = [column for column in entry.storage.columns if column.name == "id"]
    assert column.comment == long[:253] + "..."
    spark_text = json.loads(entry.parameters["spark.sql.sources.schema.part.0"])
    assert long in [field["metadata"].get("comment") for field in spark_text["fields"]]
    assert metastore.partition_names(database, "t") == ["day=a"]
    assert not sync_table(table, metastore, database).changed
    assert not check_table(table, metastore, database)


def test_a_column_that_does_not_fit_is_named_and_partitions_come_all_the_same(
    metastore: Metastore, database: str, tmp_path: Path
) -> None:
    sync_table(upsert(f"{tmp_path}/t", rows("a")), metastore, database)
    before = metastore.table(database, "t")
    wide = "w" * 768
    table = upsert(f"{tmp_path}/t", rows("b", **{wide: pa.array([1])}))
    with pytest.raises(SyncError, match=r"the name of column www.* has 768 characters of at most 767"):
        sync_table(table, metastore, database)
    assert metastore.partition_names(database, "t") == ["day=a", "day=b"]
    assert metastore.table(database, "t").storage == before.storage
    assert metastore.table(database, "t").parameters[MARKER] == before.parameters[MARKER]
    assert "refused" in {finding.aspect for finding in check_table(table, metastore, database).findings}
    assert plan_sync(table, metastore, database).to_json()["refused"]


def test_a_type_that_does_not_fit_is_named_and_partitions_come_all_the_same(
    metastore: Metastore, database: str, tmp_path: Path
) -> None:
    """Only the server knows whether its database holds a long type: this one (2.3 on Derby) does not."""
    sync_table(upsert(f"{tmp_path}/t", rows("a")), metastore, database)
    deep = pa.array([{f"field_number_{i}": 1 for i in range(2000)}])
    table = upsert(f"{tmp_path}/t", rows("b", deep=deep))
    with pytest.raises(SyncError, match=r"the type of column deep has .* characters of at most 32,672"):
        sync_table(table, metastore, database)
    assert metastore.partition_names(database, "t") == ["day=a", "day=b"]
    with pytest.raises(SyncError, match="the type of column deep"):
        sync_table(upsert(f"{tmp_path}/other", rows("b", deep=deep)), metastore, database, "other")
    assert metastore.find_table(database, "other") is None


def test_a_partition_that_does_not_fit_is_named_and_the_others_come(
    metastore: Metastore, database: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores have longer names than a metastore; local folders hold 255 bytes, so the limit is moved here."""
    monkeypatch.setattr(Metastore, "lengths", Lengths(partition_value=100))
    write("t", 1, day="a")
    table = write("t", 2, day="b" * 101)
    with pytest.raises(SyncError, match=r"a value of partition day=bbb.* has 101 characters of at most 100"):
        sync_table(table, metastore, database)
    assert metastore.partition_names(database, "t") == ["day=a"]
    assert MARKER not in metastore.table(database, "t").parameters, "what is missing is known to be missing"
