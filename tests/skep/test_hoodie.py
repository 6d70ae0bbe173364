"""Hudi's reader and writer by path: the option names of a team that comes from Hudi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
from skep_catalog.client import Metastore
from skep_format.errors import (
    InputError,
    KeyFieldError,
    NotATableError,
    OptionError,
    SchemaError,
    TableExistsError,
    TableMismatchError,
)
from skep_format.options import UnknownOptionWarning
from skep_table.table import HudiTable

Orders = Callable[..., pa.Table]
OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "day",
}


def save(frame: object, path: Path, mode: str = "append", **more: Any) -> Any:
    return skep.write(frame).format("hudi").options(**{**OPTIONS, **more}).mode(mode).save(str(path))


def ids(path: Path, **options: Any) -> list[int]:
    return sorted(skep.load(path, **options).to_arrow()["id"].to_pylist())


def test_append_makes_the_table_and_upserts(tmp_path: Path, orders: Orders) -> None:
    save(orders(1, 2), tmp_path / "t")
    result = save(orders(2, 3, ts=2, note="second"), tmp_path / "t")
    assert (result.inserted, result.updated) == (1, 1)
    assert ids(tmp_path / "t") == [1, 2, 3]
    config = HudiTable.open(tmp_path / "t").config
    assert (config.name, config.version, config.record_key_fields) == ("orders", 6, ("id",))
    assert (config.partition_fields, config.ordering_fields) == (("day",), ("ts",))


def test_the_plural_name_of_the_partition_columns(tmp_path: Path, orders: Orders) -> None:
    plural = {"hoodie.datasource.write.partitionpath.fields": "day:SIMPLE,id:SIMPLE"}
    given = {key: value for key, value in OPTIONS.items() if not key.endswith("partitionpath.field")}
    for ts in (1, 2):
        skep.write(orders(1, 2, ts=ts)).format("hudi").options(**given, **plural).mode("append").save(
            str(tmp_path / "t")
        )
    table = HudiTable.open(tmp_path / "t")
    assert table.config.key_generator == "CUSTOM"
    assert table.config.partition_fields == ("day", "id")
    assert ids(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize(("operation", "expected"), [("upsert", [1, 2]), ("insert", [1, 1, 2]), ("delete", [])])
def test_operations(tmp_path: Path, orders: Orders, operation: str, expected: list[int]) -> None:
    save(orders(1), tmp_path / "t", **{"hoodie.datasource.write.operation": "bulk_insert"})
    frame = orders(1) if operation == "delete" else orders(1, 2)
    save(frame, tmp_path / "t", **{"hoodie.datasource.write.operation": operation})
    assert ids(tmp_path / "t") == expected


def test_modes(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t", mode="error")
    with pytest.raises(TableExistsError, match="orders exists"):
        save(orders(2), tmp_path / "t", mode="error")
    assert save(orders(2), tmp_path / "t", mode="ignore") is None
    assert ids(tmp_path / "t") == [1]
    save(orders(3), tmp_path / "t", mode="overwrite")
    assert ids(tmp_path / "t") == [3]
    with pytest.raises(InputError, match="unknown mode 'merge'"):
        save(orders(3), tmp_path / "t", mode="merge")


def test_a_wrong_overwrite_keeps_the_table(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t")
    with pytest.raises(OptionError, match=r"hoodie\.table\.name"):
        save(orders(2), tmp_path / "t", mode="overwrite", **{"hoodie.table.name": ""})
    with pytest.raises(InputError, match="nix"):
        save(orders(2), tmp_path / "t", mode="overwrite", **{"hoodie.datasource.write.recordkey.field": "nix"})
    assert ids(tmp_path / "t") == [1]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    ("operation", "column"), [("upsert", "id"), ("insert", "id"), ("bulk_insert", "id"), ("upsert", "ts")]
)
def test_an_overwrite_with_rows_that_are_refused_keeps_the_table(
    tmp_path: Path, orders: Orders, operation: str, kind: str, column: str
) -> None:
    """A key that is null, and an ordering value that is null."""
    save(orders(1, 2), tmp_path / "t")
    before = {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()}
    rows = orders(3, 4)
    at = rows.schema.get_field_index(column)
    rows = rows.set_column(at, rows.schema.field(at), pa.array([7, None], pa.int64()))
    options = {"hoodie.datasource.write.operation": operation, "hoodie.datasource.write.table.type": kind}
    with pytest.raises(KeyFieldError, match=f"column {column} is null"):
        save(rows, tmp_path / "t", mode="overwrite", **options)
    assert {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()} == before
    save(orders(5), tmp_path / "t", mode="overwrite", **options)
    assert ids(tmp_path / "t") == [5]
    (commit,) = skep.open_table(tmp_path / "t").history()
    assert commit.operation == operation


def test_an_overwrite_takes_rows_that_can_be_read_once(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t")
    for operation in ("upsert", "bulk_insert"):
        reader = pa.RecordBatchReader.from_batches(orders(2).schema, iter(orders(2, 3).to_batches()))
        save(reader, tmp_path / "t", mode="overwrite", **{"hoodie.datasource.write.operation": operation})
        assert ids(tmp_path / "t") == [2, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.name", "sales"),
        ("hoodie.datasource.write.recordkey.field", "note"),
        ("hoodie.datasource.write.precombine.field", "id"),
        ("hoodie.datasource.write.partitionpath.field", "note"),
        ("hoodie.datasource.write.table.type", "MERGE_ON_READ"),
        ("hoodie.datasource.write.hive_style_partitioning", "true"),
    ],
)
def test_a_table_of_other_settings_is_refused(tmp_path: Path, orders: Orders, key: str, value: str) -> None:
    save(orders(1), tmp_path / "t")
    with pytest.raises(TableMismatchError, match=key) as error:
        save(orders(2), tmp_path / "t", **{key: value})
    assert error.value.fields["option"] == key
    assert ids(tmp_path / "t") == [1]


def test_options_not_given_are_the_tables_own(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t")
    skep.write(orders(2)).mode("append").save(tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]


def test_unknown_options_are_named_with_the_nearest(tmp_path: Path, orders: Orders) -> None:
    with pytest.warns(UnknownOptionWarning, match=r"did you mean hoodie\.datasource\.write\.operation"):
        save(orders(1), tmp_path / "t", **{"hoodie.datasource.write.operatoin": "insert"})


def test_load_takes_the_readers_options(tmp_path: Path, orders: Orders) -> None:
    first = save(orders(1), tmp_path / "t").instant.requested_time
    save(orders(2, ts=2), tmp_path / "t")
    changes = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": first}
    assert ids(tmp_path / "t", **changes) == [2]
    assert ids(tmp_path / "t", **{"as.of.instant": first}) == [1]


def test_a_folder_without_a_table_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match=str(tmp_path)):
        skep.load(tmp_path)


def test_a_table_opened_by_path_writes_and_knows_no_metastore(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t")
    table = skep.open_table(tmp_path / "t")
    table.upsert(orders(2))
    assert len(table.history()) == 2
    with pytest.raises(InputError, match="no metastore is known"):
        table.sync()


@pytest.mark.metastore
def test_hive_sync_follows_the_commit(tmp_path: Path, orders: Orders, metastore: Metastore, database: str) -> None:
    sync = {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.metastore.uris": metastore.uri,
        "hoodie.datasource.hive_sync.database": database,
    }
    result = save(orders(1), tmp_path / "t", **sync)
    entry = metastore.table(database, "orders")
    assert entry.parameters["last_commit_time_sync"] == result.instant.requested_time
    with pytest.warns(skep.SyncWarning, match="is complete"):
        save(
            orders(2), tmp_path / "t", **{**sync, "hoodie.datasource.hive_sync.metastore.uris": "thrift://127.0.0.1:1"}
        )
    assert ids(tmp_path / "t") == [1, 2]


@pytest.mark.spark
def test_spark_frames_are_written_by_their_session(tmp_path: Path, orders: Orders, spark: Any) -> None:
    save(spark.createDataFrame(orders(1, 2).to_pandas()), tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]
    assert skep.load(tmp_path / "t").to_spark().count() == 2


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_spark_frame_that_is_refused_overwrites_nothing(
    tmp_path: Path, orders: Orders, spark: Any, operation: str
) -> None:
    save(orders(1), tmp_path / "t")
    options = {"hoodie.datasource.write.operation": operation, "hoodie.table.name": "orders"}
    frame = spark.createDataFrame(
        [(2, "new", 1, "d1"), (None, "new", 1, "d1")], "id long, note string, ts long, day string"
    )
    with pytest.raises(KeyFieldError, match="column id is null"):
        save(frame, tmp_path / "t", mode="overwrite", **options)
    assert ids(tmp_path / "t") == [1]
    save(frame.where("id is not null"), tmp_path / "t", mode="overwrite", **options)
    assert ids(tmp_path / "t") == [2]


def test_operations_that_replace(tmp_path: Path, orders: Orders) -> None:
    operation = "hoodie.datasource.write.operation"
    save(pa.concat_tables([orders(1, 2), orders(3, day="2026-01-02")]), tmp_path / "t")
    save(orders(4), tmp_path / "t", **{operation: "insert_overwrite"})
    assert ids(tmp_path / "t") == [3, 4]
    save(orders(5), tmp_path / "t", mode="overwrite", **{operation: "insert_overwrite_table"})
    assert ids(tmp_path / "t") == [5]
    table = HudiTable.open(tmp_path / "t")
    assert len(table.timeline.data()) == 3, "the table was deleted, not replaced by a commit"
    save(orders(5), tmp_path / "t", **{operation: "delete_partition"})
    assert ids(tmp_path / "t") == []
    named = {operation: "delete_partition", "hoodie.datasource.write.partitions.to.delete": "2026-*"}
    save(orders(6), tmp_path / "t")
    save(orders(1), tmp_path / "t", **named)
    assert ids(tmp_path / "t") == []


@pytest.mark.parametrize("operation", ["delete", "delete_partition"])
def test_there_is_nothing_to_delete_where_there_is_no_table(tmp_path: Path, orders: Orders, operation: str) -> None:
    with pytest.raises(NotATableError, match="no Hudi table"):
        save(orders(1), tmp_path / "t", **{"hoodie.datasource.write.operation": operation})
    assert not (tmp_path / "t").exists()


def test_an_upsert_that_drops_duplicates_is_an_insert(tmp_path: Path, orders: Orders) -> None:
    save(orders(1), tmp_path / "t")
    given: dict[str, Any] = {"hoodie.datasource.write.insert.drop.duplicates": True}
    result = save(orders(1, 2, ts=9, note="second"), tmp_path / "t", **given)
    assert (result.inserted, result.updated) == (1, 0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hoodie.table.base.file.format", "HFILE"),
        ("hoodie.write.table.version", "7"),
    ],
)
def test_kinds_of_tables_that_are_not_written_are_refused_by_name(
    tmp_path: Path, orders: Orders, option: str, value: str
) -> None:
    with pytest.raises(OptionError) as refused:
        save(orders(1), tmp_path / "t", **{option: value})
    assert refused.value.fields["option"] == option
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_no_table_stays_behind_when_its_first_rows_are_refused(tmp_path: Path, orders: Orders, operation: str) -> None:
    rows = orders(1)
    rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.nulls(1, pa.int64()))
    with pytest.raises(InputError, match="record key column id is null"):
        save(rows, tmp_path / "t", **{"hoodie.datasource.write.operation": operation})
    with pytest.raises(NotATableError):
        HudiTable.open(tmp_path / "t")
    save(orders(1), tmp_path / "t")
    assert ids(tmp_path / "t") == [1]


def test_a_new_table_has_no_columns_without_a_type(tmp_path: Path, orders: Orders) -> None:
    rows = orders(1).append_column("nothing", pa.nulls(1))
    with pytest.raises(SchemaError, match="column nothing has no type") as refused:
        save(rows, tmp_path / "t")
    assert "skep.write.drop.untyped.columns=true" in str(refused.value)
    assert not (tmp_path / "t").exists()
    save(rows, tmp_path / "t", **{"skep.write.drop.untyped.columns": True})
    assert "nothing" not in skep.load(tmp_path / "t").to_arrow().column_names


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_plans_on_the_snapshot_that_the_one_before_it_ended_with(
    tmp_path: Path, orders: Orders, storage_calls: Any, kind: str
) -> None:
    """Also by a handle that was opened long ago, and whatever options a write has of its own."""
    save(orders(1, 2), tmp_path / "t", **{"hoodie.datasource.write.table.type": kind})
    table = skep.open_table(tmp_path / "t")
    table._hudi._taken -= 3600
    assert table.upsert(orders(1, ts=2), **{"hoodie.write.commit.callback.on": "false"}).updated == 1
    assert not table.options
    save(orders(3), tmp_path / "t")  # which another handle does meanwhile
    storage_calls.clear()
    assert table.upsert(orders(2, 3, ts=3)).updated == 2
    assert storage_calls.timeline_listings() == 3, storage_calls
    assert ids(tmp_path / "t") == [1, 2, 3]
