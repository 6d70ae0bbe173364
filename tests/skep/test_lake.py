"""The front door: from an empty folder to a table that is written, synced, read and dropped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skep
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.errors import (
    CatalogError,
    InputError,
    KeyFieldError,
    NotATableError,
    OptionError,
    SchemaError,
    SkepError,
    TableExistsError,
    TableMismatchError,
)
from skep_table.events import Event

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]
OF_ORDERS = {"key": "id", "ordering": "ts", "partition_by": "day"}


def rows(table: skep.Table) -> dict[int, str]:
    found = table.read(columns=["id", "note"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


def test_from_an_empty_folder_to_a_synced_table(lake: Lake, database: str, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS)
    assert lake.tables(database) == [f"{database}.orders"]
    first = table.bulk_insert(orders(1, 2, 3))
    assert (first.inserted, first.updated, first.deleted) == (3, 0, 0)
    second = table.upsert(pa.concat_tables([orders(2, ts=2, note="second"), orders(4, day="2026-01-02")]))
    assert (second.inserted, second.updated) == (1, 1)
    third = table.delete(where="id = 1")
    assert third.deleted == 1
    assert rows(table) == {2: "second", 3: "first", 4: "first"}
    assert [commit.operation for commit in table.history()] == ["bulk_insert", "upsert", "delete"]
    # the metastore knows it all
    entry = lake.metastore.table(database, "orders")
    assert entry.parameters["last_commit_time_sync"] == third.instant.requested_time
    assert len(lake.metastore.partition_names(database, "orders")) == 2
    assert not table.sync().changed


def test_an_older_row_does_not_win(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS)
    table.upsert(orders(1, ts=5, note="newer"))
    table.upsert(orders(1, ts=4, note="late"))
    assert rows(table) == {1: "newer"}


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_of_several_ordering_columns_the_first_that_differs_decides(lake: Lake, orders: Orders) -> None:
    described: dict[str, Any] = {**OF_ORDERS, "ordering": ["ts", "note"]}
    table = lake.create_table("orders", orders(), **described)
    table.upsert(orders(1, ts=5, note="b"))
    table.upsert(orders(1, ts=5, note="a"))
    table.upsert(orders(1, ts=4, note="c"))
    assert rows(table) == {1: "b"}
    assert rows(lake.create_table("orders", orders(), if_not_exists=True, **described)) == {1: "b"}
    with pytest.raises(TableMismatchError, match="has ordering ts,note, not note,ts"):
        lake.create_table("orders", orders(), if_not_exists=True, **{**described, "ordering": ["note", "ts"]})
    words = "primaryKey = 'id', orderingFields = 'ts, n', payloadClass = 'org.apache.hudi.PartialUpdateAvroPayload'"
    lake.sql(f"CREATE TABLE made (id INT, ts BIGINT, n BIGINT) TBLPROPERTIES ({words})")
    config = lake.table("made").hudi.config
    assert (config.ordering_fields, config.partial_update_mode) == (("ts", "n"), "IGNORE_DEFAULTS")


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_version_6_holds_one_ordering_column(lake: Lake, orders: Orders) -> None:
    with pytest.raises(OptionError, match="tables of version 6 hold one column"):
        lake.create_table("orders", orders(), **{**OF_ORDERS, "ordering": ["ts", "note"]})


def test_without_ordering_the_last_write_wins(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), key="id")
    table.upsert(orders(1, ts=5, note="one"))
    table.upsert(orders(1, ts=4, note="two"))
    assert rows(table) == {1: "two"}


def test_a_new_column_reaches_the_metastore(lake: Lake, database: str, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS)
    table.upsert(orders(1))
    more = orders(2, ts=2)
    table.upsert(more.append_column("price", pa.array([1.5])))
    assert table.schema.names() == ("id", "note", "ts", "day", "price")
    columns = {column.name: column.type for column in lake.metastore.table(database, "orders").storage.columns}
    assert columns["price"] == "double"
    assert table.read(columns=["id", "price"], where="id = 1").to_arrow().to_pylist() == [{"id": 1, "price": None}]


def test_time_travel_and_changes(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS)
    first = table.upsert(orders(1)).instant.requested_time
    table.upsert(orders(2, ts=2))
    assert table.read(columns="id", as_of=first).to_arrow()["id"].to_pylist() == [1]
    assert table.changes(since=first).to_arrow()["id"].to_pylist() == [2]


def test_a_batch_id_makes_a_repeated_call_a_no_op(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), key="id")
    first = table.insert(orders(1), batch_id="monday")
    again = table.insert(orders(1), batch_id="monday")
    assert (first.repeated, again.repeated) == (False, True)
    assert first.instant == again.instant
    assert len(table.history()) == 1


def test_frames_of_all_kinds_give_the_same_table(lake: Lake, orders: Orders, spark: Any) -> None:
    polars = pytest.importorskip("polars")
    arrow = orders(1, 2)
    answers = []
    kinds = {
        "arrow": arrow,
        "pandas": arrow.to_pandas(),
        "polars": polars.from_arrow(arrow),
        "reader": arrow.to_reader(),
        "spark": spark.createDataFrame(arrow.to_pandas()),
    }
    for name, frame in kinds.items():
        table = lake.create_table(f"of_{name}", orders(), **OF_ORDERS)
        table.upsert(frame)
        answers.append(table.read(columns=["id", "note", "ts", "day"]).to_arrow().sort_by("id").to_pylist())
    assert answers == [arrow.to_pylist()] * len(kinds)


SCHEMAS: dict[str, Callable[[Any], Any]] = {
    "arrow": lambda table: table.schema,
    "frame": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "avro": lambda _: (
        '{"type": "record", "name": "x", "fields": [{"name": "id", "type": ["null", "long"]},'
        ' {"name": "note", "type": ["null", "string"]}, {"name": "ts", "type": ["null", "long"]},'
        ' {"name": "day", "type": ["null", "string"]}]}'
    ),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_may_come_from_anything_that_has_one(lake: Lake, orders: Orders, kind: str) -> None:
    table = lake.create_table("orders", SCHEMAS[kind](orders(1)), **OF_ORDERS)
    assert table.schema.names() == ("id", "note", "ts", "day")
    table.upsert(orders(1))
    assert rows(table) == {1: "first"}


@pytest.mark.spark
def test_a_spark_schema_serves_too(lake: Lake, orders: Orders, spark: Any) -> None:
    frame = spark.createDataFrame(orders(1).to_pandas())
    assert lake.create_table("a", frame.schema, key="id").schema.names() == ("id", "note", "ts", "day")
    assert lake.create_table("b", frame, key="id").schema.names() == ("id", "note", "ts", "day")


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("no-name", {"key": "id"}, InputError, "no name of a table"),
        ("a.b.c", {"key": "id"}, InputError, "no name of a table"),
        ("1st", {"key": "id"}, InputError, "no name of a table"),
        ("orders", {"key": "nix"}, KeyFieldError, "nix"),
        ("orders", {"key": "id", "ordering": "nix"}, KeyFieldError, "nix"),
        ("orders", {"key": "id", "partition_by": "nix"}, KeyFieldError, "nix"),
        ("orders", {"key": "id", "type": "row"}, InputError, "unknown table type 'row'"),
        (
            "orders",
            {"key": "id", "table_version": 7},
            OptionError,
            "'7' is not one of 6, 8, 9",
        ),
        (
            "orders",
            {"key": "id", "table_version": 8, "properties": {"hoodie.table.version": "9"}},
            InputError,
            "table_version is 8 .* among the properties is 9",
        ),
    ],
)
def test_a_wrong_table_leaves_nothing_behind(
    lake: Lake,
    orders: Orders,
    tmp_path: Path,
    database: str,
    name: str,
    settings: dict[str, Any],
    error: type[SkepError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        lake.create_table(name, orders(), **settings)
    assert not files(tmp_path / "lake")
    assert lake.tables(database) == []


def test_a_type_that_hudi_cannot_hold_is_refused_by_name(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="span") as error:
        lake.create_table("t", pa.schema([("id", pa.int64()), ("span", pa.month_day_nano_interval())]), key="id")
    assert error.value.fields["column"] == "span"
    assert not files(tmp_path / "lake")


def test_what_has_no_schema_is_refused(lake: Lake) -> None:
    with pytest.raises(InputError, match="has no schema"):
        lake.create_table("t", object(), key="id")


def test_a_table_is_made_once(lake: Lake, orders: Orders) -> None:
    lake.create_table("orders", orders(), **OF_ORDERS).upsert(orders(1))
    with pytest.raises(TableExistsError, match=r"orders exists"):
        lake.create_table("orders", orders(), **OF_ORDERS)
    again = lake.create_table("orders", orders(), if_not_exists=True, **OF_ORDERS)
    assert rows(again) == {1: "first"}
    assert rows(lake.create_table("orders", orders(), if_not_exists=True, location=again.path)) == {1: "first"}


def test_the_version_of_a_new_table_is_chosen(lake: Lake, orders: Orders) -> None:
    """By argument, by a property, or by the options of the lake; the argument and the property go before these."""
    nine = lake.create_table("nine", orders(), **OF_ORDERS, table_version=9)
    eight = lake.create_table("eight", orders(), **OF_ORDERS, properties={"hoodie.write.table.version": "8"})
    assert [table.hudi.config.version for table in (nine, eight)] == [9, 8]
    assert "hoodie.write.table.version" not in eight.hudi.config.raw
    again = lake.create_table("nine", orders(), if_not_exists=True, **OF_ORDERS, table_version=9)
    assert again.hudi.config.version == 9
    options = {"hoodie.write.table.version": 9}
    with skep.connect(lake.metastore.uri, warehouse=lake.warehouse, options=options) as later:
        made = [
            later.create_table("later", orders(), **OF_ORDERS),
            later.create_table("six", orders(), **OF_ORDERS, table_version=6),
        ]
        assert [table.hudi.config.version for table in made] == [9, 6]
        for table in (nine, eight, *made):
            table.upsert(orders(1))
            assert rows(table) == {1: "first"}


def test_a_frame_of_nulls_describes_a_table_that_is_there(lake: Lake, orders: Orders) -> None:
    lake.create_table("orders", orders(), **OF_ORDERS).upsert(orders(1))
    rows_of_nulls = orders(1)
    at = rows_of_nulls.schema.get_field_index("note")
    rows_of_nulls = rows_of_nulls.set_column(at, "note", pa.nulls(1))
    lake.create_table("orders", rows_of_nulls, if_not_exists=True, **OF_ORDERS).upsert(rows_of_nulls)
    assert rows(lake.table("orders")) == {1: None}


@pytest.mark.parametrize(
    ("other", "expected_message"),
    [
        ({"key": "note"}, "has key id, not note"),
        ({"key": ["id", "day"]}, "has key id, not id,day"),
        ({"ordering": "id"}, "has ordering ts, not id"),
        ({"partition_by": "note"}, "has partition_by day, not note"),
        ({"type": "mor"}, "has type COPY_ON_WRITE, not MERGE_ON_READ"),
        ({"hive_style": True}, "has hive_style False, not True"),
        ({"properties": {"hoodie.populate.meta.fields": "false"}}, r"populate\.meta\.fields True, not False"),
        ({"properties": {"team.owner": "b"}}, r"has property team\.owner a, not b"),
        ({"table_version": 9}, "has version 6, not 9"),
        ({"properties": {"hoodie.table.version": "9"}}, "has version 6, not 9"),
        ({"location": "/elsewhere"}, "not at /elsewhere"),
    ],
)
def test_a_table_that_is_there_is_not_taken_for_another_one(
    lake: Lake, orders: Orders, other: dict[str, Any], expected_message: str
) -> None:
    lake.create_table("orders", orders(), **OF_ORDERS, properties={"team.owner": "a"})
    with pytest.raises(TableMismatchError, match=expected_message):
        lake.create_table("orders", orders(), if_not_exists=True, **{**OF_ORDERS, **other})


def test_a_path_that_holds_a_table_is_left_alone(lake: Lake, orders: Orders, tmp_path: Path) -> None:
    location = str(tmp_path / "there")
    lake.create_table("one", orders(), key="id", location=location).upsert(orders(1))
    before = files(tmp_path / "there")
    with pytest.raises(TableExistsError):
        lake.create_table("two", orders(), key="id", location=location)
    assert files(tmp_path / "there") == before
    assert rows(lake.table("one")) == {1: "first"}


def test_an_unknown_table_is_named(lake: Lake, database: str) -> None:
    with pytest.raises(CatalogError, match=f"{database}.nix"):
        lake.table("nix")


def test_wrong_options_are_refused_before_anything_is_written(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), key="id")
    with pytest.raises(OptionError, match=r"hoodie\.parquet\.max\.file\.size"):
        table.upsert(orders(1), **{"hoodie.parquet.max.file.size": "big"})
    with pytest.warns(UserWarning, match="did you mean hoodie.parquet.max.file.size"):
        table.upsert(orders(1), **{"hoodie.parquet.max.filesize": "1"})
    assert len(table.history()) == 1


def test_delete_takes_keys_or_where(lake: Lake, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS)
    table.upsert(orders(1, 2, 3))
    assert table.delete(orders(1).select(["id", "day"])).deleted == 1
    assert table.delete(where="note = 'nobody'").deleted == 0
    with pytest.raises(InputError, match="keys or where"):
        table.delete()
    assert sorted(rows(table)) == [2, 3]


def test_drop_keeps_the_files_by_default(lake: Lake, database: str, orders: Orders, tmp_path: Path) -> None:
    table = lake.create_table("orders", orders(), key="id")
    table.upsert(orders(1))
    lake.drop_table("orders")
    assert lake.tables(database) == []
    again = lake.register(table.path, "orders")
    assert rows(again) == {1: "first"}
    lake.drop_table("orders", purge=True)
    assert not Path(table.path.removeprefix("file:")).exists()
    with pytest.raises(CatalogError):
        lake.drop_table("orders")


def test_a_renamed_table_keeps_its_rows_and_parameters(lake: Lake, database: str, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), key="id")
    table.upsert(orders(1))
    renamed = lake.rename_table("orders", "sales")
    assert lake.tables(database) == [f"{database}.sales"]
    renamed.upsert(orders(2))
    assert sorted(rows(lake.table("sales"))) == [1, 2]
    lake.create_table("other", orders(), key="id")
    with pytest.raises(TableExistsError):
        lake.rename_table("other", "sales")


def test_commits_are_completed_under_the_metastores_lock(lake: Lake, orders: Orders, heard: list[Event]) -> None:
    table = lake.create_table("orders", orders(), key="id")
    heard.clear()
    table.upsert(orders(1))
    names = [event.name for event in heard]
    assert "lock.acquired" in names
    assert names.index("lock.acquired") < names.index("lock.released") < names.index("sync.report")
    assert lake.metastore.locks(lake.database, "orders") == []


def test_a_table_that_is_not_hudis_is_refused(lake: Lake, database: str, tmp_path: Path) -> None:
    from skep_catalog.entities import Column, StorageDescriptor, TableEntry

    storage = StorageDescriptor(columns=(Column("a", "int"),), location=f"file:{tmp_path}/plain")
    lake.metastore.create_table(TableEntry(database, "plain", storage))
    with pytest.raises(NotATableError):
        lake.table("plain")


@pytest.mark.engine("metastore")
def test_a_commit_remains_when_the_metastore_is_down(tmp_path: Path, orders: Orders) -> None:
    """The write warns, and the next sync catches up: also in another process, after a restart."""
    warehouse = str(tmp_path / "lake")
    server = EmbeddedMetastore.start_or_join(tmp_path / "elsewhere")
    with skep.connect(server.uri, warehouse, options={"skep.lock": "process", "skep.metastore.attempts": 1}) as lake:
        table = lake.create_table("orders", orders(), key="id")
        first = table.upsert(orders(1))
        os.kill(server.server.pid, signal.SIGKILL)
        with pytest.warns(skep.SyncWarning, match="is complete, but the metastore is not up to date"):
            second = table.upsert(orders(2))
        assert sorted(rows(table)) == [1, 2]
        with pytest.raises(SkepError, match="metastore"):
            lake.tables()
    with skep.connect(server.revived(), warehouse) as lake:
        entry = lake.metastore.table("default", "orders")
        assert entry.parameters["last_commit_time_sync"] == first.instant.requested_time
        lake.table("orders").sync()
        entry = lake.metastore.table("default", "orders")
        assert entry.parameters["last_commit_time_sync"] == second.instant.requested_time
    server.stop()


def test_an_address_where_nobody_answers_is_reported(tmp_path: Path, orders: Orders) -> None:
    with (
        skep.connect("thrift://127.0.0.1:1", warehouse=str(tmp_path / "lake")) as lake,
        pytest.raises(CatalogError, match=r"127\.0\.0\.1:1"),
    ):
        lake.create_table("orders", orders(), key="id")
    assert not files(tmp_path / "lake")


def test_hudis_option_names_where_the_metastore_is(metastore: Metastore, tmp_path: Path) -> None:
    options = {"hoodie.datasource.hive_sync.metastore.uris": metastore.uri}
    with skep.connect(warehouse=str(tmp_path), options=options) as lake:
        assert lake.metastore.uri == metastore.uri
    assert not files(tmp_path)  # no metastore was started here


def test_close_stops_only_what_connect_started(metastore: Metastore, tmp_path: Path, spark: Any) -> None:
    with skep.connect(metastore.uri, warehouse=str(tmp_path), spark=spark) as lake:
        assert lake.spark is spark
    lake.close()
    assert spark.range(3).count() == 3
    assert "default" in metastore.databases()


def test_a_view_of_a_merge_on_read_table_is_the_same_table(lake: Lake, database: str, orders: Orders) -> None:
    table = lake.create_table("orders", orders(), **OF_ORDERS, type="mor")
    table.bulk_insert(orders(1, 2))
    table.upsert(orders(2, ts=2, note="second"))
    base = {1: "first", 2: "first"}
    assert rows(lake.table("orders_ro")) == rows(lake.table(f"`{database}`.`ORDERS_RO`")) == base
    assert rows(lake.table("orders_rt")) == rows(lake.table("orders")) == {1: "first", 2: "second"}
    assert lake.table("orders_ro").read(query="snapshot", columns=["note"]).to_arrow()["note"].to_pylist() == [
        "first", "second",
    ]  # fmt: skip
    before = {entry.name for entry in lake.metastore.tables_of(database)}
    lake.table("orders_ro").upsert(orders(1, ts=3, note="third"))
    assert lake.table("orders_ro").name == lake.table("orders_rt").name == f"{database}.orders"
    assert {entry.name for entry in lake.metastore.tables_of(database)} == before  # no views of a view
    assert rows(lake.table("orders")) == {1: "third", 2: "second"}


def test_a_table_may_be_called_like_a_view(lake: Lake, database: str, orders: Orders) -> None:
    lake.create_table("orders_ro", orders(), **OF_ORDERS).upsert(orders(1))
    assert lake.table("orders_ro").name == f"{database}.orders_ro"
    mor = lake.create_table("visits_ro", orders(), **OF_ORDERS, type="mor")
    mor.bulk_insert(orders(1))
    mor.upsert(orders(1, ts=2, note="second"))
    assert lake.table("visits_ro").name == f"{database}.visits_ro"
    assert rows(lake.table("visits_ro")) == {1: "second"}
