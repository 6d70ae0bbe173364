"""Hudi's options of a sync: all are known with Hudi's defaults, and what each of them makes of an entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_catalog.entities import Partition
from skep_catalog.entries import MARKER
from skep_format.errors import SchemaError, SyncError
from skep_format.options import REGISTRY, Status
from skep_format.storage import open_storage
from skep_sync.planning.locations import same_location
from skep_sync.planning.steps import AddPartitions, MovePartitions, TouchPartitions
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

HIVE = "hoodie.datasource.hive_sync."
Write = Callable[..., HudiTable]

# Key → Hudi 0.15's default as text; None: Hudi infers it, or has none.
HUDI = {
    f"{HIVE}enable": "false",
    f"{HIVE}mode": None,
    f"{HIVE}metastore.uris": "thrift://localhost:9083",
    f"{HIVE}username": "hive",
    f"{HIVE}password": "hive",
    f"{HIVE}jdbcurl": "jdbc:hive2://localhost:10000",
    f"{HIVE}use_jdbc": "true",
    f"{HIVE}database": None,
    f"{HIVE}table": None,
    f"{HIVE}base_file_format": "PARQUET",
    f"{HIVE}partition_fields": None,
    f"{HIVE}partition_extractor_class": None,
    f"{HIVE}use_pre_apache_input_format": "false",
    f"{HIVE}auto_create_database": "true",
    f"{HIVE}ignore_exceptions": "false",
    f"{HIVE}skip_ro_suffix": "false",
    f"{HIVE}support_timestamp": "false",
    f"{HIVE}table_properties": None,
    f"{HIVE}serde_properties": None,
    f"{HIVE}sync_as_datasource": "true",
    f"{HIVE}schema_string_length_thresh": "4000",
    f"{HIVE}create_managed_table": "false",
    f"{HIVE}omit_metadata_fields": "false",
    f"{HIVE}batch_num": "1000",
    f"{HIVE}bucket_sync": "false",
    f"{HIVE}bucket_sync_spec": None,
    f"{HIVE}sync_comment": "false",
    f"{HIVE}table.strategy": "ALL",
    f"{HIVE}filter_pushdown_enabled": "false",
    f"{HIVE}filter_pushdown_max_size": "1000",
    f"{HIVE}recreate_table_on_error": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.meta.sync.base.path": None,
    "hoodie.datasource.meta_sync.condition.sync": "false",
    "hoodie.meta_sync.spark.version": None,
    "hoodie.meta.sync.client.tool.class": None,
    "hoodie.meta.sync.decode_partition": None,
    "hoodie.meta.sync.metadata_file_listing": None,
    "hoodie.meta.sync.sync_snapshot_with_table_name": "true",
    "hoodie.meta.sync.incremental": "true",
    "hoodie.meta.sync.no_partition_metadata": "false",
    "hoodie.meta.sync.touch.partitions.enabled": "false",
}
REFUSED: set[str] = set()  # by name, for now
# Where the default is another: docs/defaults.md has the reasons.
OURS = {
    f"{HIVE}support_timestamp": True,
    f"{HIVE}sync_comment": True,
    f"{HIVE}metastore.uris": "",
}


@pytest.mark.parametrize("key", HUDI)
def test_every_key_of_hudi_is_known_with_its_default(key: str) -> None:
    option = REGISTRY.find(key)
    assert option is not None
    assert (option.status is Status.PLANNED) == (key in REFUSED)
    documented = HUDI[key]
    if option.status is Status.SUPPORTED and documented is not None:
        wanted = OURS[key] if key in OURS else option.parse(documented)
        assert option.default == wanted


def test_every_difference_has_a_row_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "defaults.md").read_text(encoding="utf-8")
    for key in OURS:
        assert key.removeprefix(HIVE) in page, key


@pytest.mark.metastore
class TestEntries:
    @pytest.mark.parametrize(("support", "kind"), [("false", "bigint"), ("true", "timestamp")])
    def test_timestamps(self, write: Write, metastore: Metastore, database: str, support: str, kind: str) -> None:
        table = write("t", 1, at=pa.scalar(0, pa.timestamp("us", "UTC")))
        sync_table(table, metastore, database, options={f"{HIVE}support_timestamp": support})
        types = {column.name: column.type for column in metastore.table(database, "t").storage.columns}
        assert types["at"] == kind

    def test_fields_that_hive_can_not_distinguish_are_refused_before_anything_is_touched(
        self, metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        """Some writer made such a table: it is the schema in the commit that counts."""
        inner = pa.struct([("id", pa.int64()), ("xd", pa.int64())])
        rows = pa.table({"key": [1], "s": pa.array([{"id": 1, "xd": 2}], inner)})
        create_table(open_storage(tmp_path / "t"), TableSpec(name="t", schema=rows.schema, record_key=("key",)))
        LocalWriter(HudiTable.open(tmp_path / "t")).upsert(rows)
        (commit,) = (tmp_path / "t" / ".hoodie").glob("*.commit")
        commit.write_text(commit.read_text().replace("xd", "Id"))
        with pytest.raises(SchemaError, match="in column s: fields id and Id differ only in case"):
            sync_table(HudiTable.open(tmp_path / "t"), metastore, database)
        assert metastore.tables(database) == []

    def test_conditional_syncs_leave_the_markers_until_something_changes(
        self, write: Write, metastore: Metastore, database: str
    ) -> None:
        options = {"hoodie.datasource.meta_sync.condition.sync": "true"}
        sync_table(write("t", 1), metastore, database, options=options)
        marker = metastore.table(database, "t").parameters[MARKER]
        assert not sync_table(write("t", 2), metastore, database, options=options).changed
        assert metastore.table(database, "t").parameters[MARKER] == marker
        assert sync_table(write("t", 3, day="2026-01-02"), metastore, database, options=options).changed
        assert metastore.table(database, "t").parameters[MARKER] > marker


@pytest.mark.metastore
class TestCascade:
    """A new column arrives with a commit to one of three partitions. Hive reads the partitions' own columns."""

    @pytest.mark.parametrize(
        ("cascade", "have_it"),
        [("all", {"2026-01-01", "2026-01-02", "2026-01-03"}), ("touched", {"2026-01-02"}), ("none", set())],
    )
    def test_which_partitions_get_a_new_column(
        self, write: Write, metastore: Metastore, database: str, cascade: str, have_it: set[str]
    ) -> None:
        for number in (1, 2, 3):
            table = write("t", number, day=f"2026-01-0{number}")
        options = {"skep.sync.cascade": cascade}
        sync_table(table, metastore, database, options=options)
        table = write("t", 4, day="2026-01-02", note="new")
        sync_table(table, metastore, database, options=options)
        assert "note" in [column.name for column in metastore.table(database, "t").storage.columns]
        found = {
            partition.values[0]
            for partition in metastore.partitions(database, "t")
            if "note" in [column.name for column in partition.storage.columns]
        }
        assert found == have_it
        assert not plan_sync(table, metastore, database, options=options)


def renamed(partition: Partition, *values: str) -> Partition:
    return replace(partition, values=values)


@pytest.mark.metastore
class TestPartitions:
    def test_written_ones_are_touched_by_option(self, write: Write, metastore: Metastore, database: str) -> None:
        write("t", 1, day="2026-01-01")
        sync_table(write("t", 2, day="2026-01-02"), metastore, database)
        old = [
            replace(partition, parameters={**partition.parameters, "transient_lastDdlTime": "1", "mine": "kept"})
            for partition in metastore.partitions(database, "t")
        ]
        metastore.alter_partitions(database, "t", old)
        table = write("t", 3, day="2026-01-02")
        options = {"hoodie.meta.sync.touch.partitions.enabled": "true"}
        (step, _) = plan_sync(table, metastore, database, options=options).steps
        assert isinstance(step, TouchPartitions)
        assert [target.name for target in step.partitions] == ["day=2026-01-02"]
        report = sync_table(table, metastore, database, options=options)
        assert report.counts["partitions touched"] == 1
        times = {p.values[0]: p.parameters["transient_lastDdlTime"] for p in metastore.partitions(database, "t")}
        assert times["2026-01-01"] == "1"
        assert int(times["2026-01-02"]) > 1_000_000_000
        assert all(p.parameters["mine"] == "kept" for p in metastore.partitions(database, "t"))

    @pytest.mark.parametrize(("day", "kind", "spelt"), [(1, pa.int32(), "01"), (-7, pa.int64(), "-007")])
    def test_numbers_are_compared_as_values(
        self, metastore: Metastore, database: str, tmp_path: Path, day: int, kind: pa.DataType, spelt: str
    ) -> None:
        """Another tool registered `01` for the folder `1`: that is the same partition, not one to add or drop."""
        table = numbered(tmp_path / "t", day, kind)
        sync_table(table, metastore, database)
        (partition,) = metastore.partitions(database, "t")
        metastore.drop_partitions(database, "t", [f"day={day}"])
        metastore.add_partitions(database, "t", [renamed(partition, spelt)])
        assert not plan_sync(table, metastore, database, full=True)

    def test_a_folder_named_01_is_the_partition_1_that_hive_made(
        self, metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        """Hive writes numbers without zeros; the folder is a key generator's."""
        months = {
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "MM",
        }
        table = numbered(tmp_path / "t", 0, pa.int64(), key_generator="TIMESTAMP", properties=months)
        sync_table(table, metastore, database)
        (partition,) = metastore.partitions(database, "t")
        assert partition.values == ("01",)
        metastore.drop_partitions(database, "t", ["day=01"])
        metastore.add_partitions(database, "t", [renamed(partition, "1")])
        table = numbered(tmp_path / "t", 0, pa.int64(), key=2)
        assert set(sync_table(table, metastore, database).counts) == {"tables altered"}
        assert metastore.partition_names(database, "t") == ["day=1"]

    def test_dates_are_compared_as_values(self, metastore: Metastore, database: str, tmp_path: Path) -> None:
        table = numbered(tmp_path / "t", 20_000, pa.date32())
        sync_table(table, metastore, database)
        entry = metastore.table(database, "t")
        assert [key.type for key in entry.partition_keys] == ["date"]
        (partition,) = metastore.partitions(database, "t")
        assert partition.values == ("2024-10-04",)
        assert not plan_sync(table, metastore, database, full=True)

    def test_a_moved_location_is_put_right_in_place(self, write: Write, metastore: Metastore, database: str) -> None:
        write("t", 1)
        sync_table(write("t", 2, day="2026-01-02"), metastore, database)
        (partition, _) = metastore.partitions(database, "t")
        right = partition.storage.location
        elsewhere = replace(partition, storage=replace(partition.storage, location="file:///elsewhere/2026-01-01"))
        metastore.alter_partitions(database, "t", [elsewhere])
        table = write("t", 3)
        (move, _) = plan_sync(table, metastore, database).steps
        assert isinstance(move, MovePartitions)
        sync_table(table, metastore, database)
        (partition, _) = metastore.partitions(database, "t")
        assert same_location(partition.storage.location, right)

    @pytest.mark.parametrize(
        ("extractor", "path", "values"),
        [
            ("org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor", "2026/01/02", ("2026-01-02",)),
            ("slash_encoded_day", "2026/01/02", ("2026-01-02",)),
            ("org.apache.hudi.hive.SlashEncodedHourPartitionValueExtractor", "2026/01/02/03", ("2026-01-02-03",)),
            ("org.apache.hudi.hive.SinglePartPartitionValueExtractor", "a/b", ("a-b",)),
            ("org.apache.hudi.hive.MultiPartKeysValueExtractor", "plain", ("plain",)),
            ("multi_part", "plain", ("plain",)),
        ],
    )
    def test_values_are_read_by_the_extractor_that_is_named(
        self, write: Write, metastore: Metastore, database: str, extractor: str, path: str, values: tuple[str, ...]
    ) -> None:
        table = write("t", 1, day=path)
        options = {f"{HIVE}partition_extractor_class": extractor}
        (_, add, _) = plan_sync(table, metastore, database, options=options).steps
        assert isinstance(add, AddPartitions)
        sync_table(table, metastore, database, options=options)
        (partition,) = metastore.partitions(database, "t")
        assert partition.values == values
        assert partition.storage.location is not None
        assert partition.storage.location.endswith(f"/t/{path}")
        assert not plan_sync(table, metastore, database, options=options, full=True)

    def test_an_extractor_that_does_not_fit_is_an_error_with_the_option(
        self, write: Write, metastore: Metastore, database: str
    ) -> None:
        options = {f"{HIVE}partition_extractor_class": "slash_encoded_day"}
        with pytest.raises(SyncError, match="does not fit SlashEncodedDay") as error:
            sync_table(write("t", 1, day="2026-01"), metastore, database, options=options)
        assert error.value.hint is not None
        assert "partition_extractor_class" in error.value.hint
        assert metastore.tables(database) == []


def numbered(place: Path, day: int, kind: pa.DataType, key: int = 1, **more: Any) -> HudiTable:
    """A table with partition key `day` of a type, and a row in it."""
    rows = pa.table({"id": pa.array([key], pa.int64()), "day": pa.array([day], pa.int32()).cast(kind)})
    storage = open_storage(place)
    if not storage.exists(".hoodie/hoodie.properties"):
        spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("day",), **more)
        create_table(storage, spec)
    LocalWriter(HudiTable.open(place)).upsert(rows)
    return HudiTable.open(place)
