"""Entries for engines that know nothing of Hudi: over lists of the newest base files, one of each partition."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_catalog.client import Metastore
from skep_catalog.entries import MARKER
from skep_format.errors import StorageError, SyncError, TableMismatchError
from skep_format.options import Options
from skep_format.storage import open_storage
from skep_format.storage.local import LocalStorage
from skep_sync.check import check_table
from skep_sync.following.status import sync_status
from skep_sync.manifest import FOLDER
from skep_sync.planning.locations import same_location
from skep_sync.planning.steps import WriteManifests
from skep_sync.sync import plan_sync, sync_table
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore
Write = Callable[..., HudiTable]
OPTIONS = {"skep.sync.kind": "manifest"}


def as_engines_read(metastore: Metastore, database: str, name: str) -> list[dict[str, Any]]:
    """Every list below each location of the entry, and the Parquet files that it names, columns by name."""
    entry = metastore.table(database, name)
    places = (
        [p.storage.location for p in metastore.partitions(database, name)]
        if entry.partition_keys
        else [entry.storage.location]
    )
    rows: list[dict[str, Any]] = []
    for place in places:
        assert place is not None
        for listed in Path("/" + place.removeprefix("file:").lstrip("/")).iterdir():
            for file in listed.read_text().splitlines():
                rows += pq.read_table(file.removeprefix("file://"), partitioning=None).to_pylist()
    return sorted(rows, key=lambda row: row["_hoodie_record_key"])


def as_skep_reads(table: HudiTable) -> list[dict[str, Any]]:
    request = ReadRequest.of(Options({"hoodie.datasource.query.type": "read_optimized"}))
    rows = pa.Table.from_batches(read(table, request).to_batches()).to_pylist()
    return sorted(rows, key=lambda row: row["_hoodie_record_key"])


def test_an_engine_without_hudi_sees_the_newest_rows(write: Write, metastore: Metastore, database: str) -> None:
    write("t", 1, 2)
    table = write("t", 3, day="2026-01-02")
    report = sync_table(table, metastore, database, options=OPTIONS)
    assert report.counts == {
        "lists written": 2,
        "tables created": 1,
        "partitions added": 2,
        "tables altered": 1,
    }
    entry = metastore.table(database, "t")
    assert entry.storage.input_format == "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
    assert entry.storage.serde_library == "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
    assert not [key for key in entry.parameters if key.startswith("spark.")]
    assert as_engines_read(metastore, database, "t") == as_skep_reads(table)
    table = write("t", 1, 4, note="later")
    (lists, _) = plan_sync(table, metastore, database, options=OPTIONS).steps
    assert isinstance(lists, WriteManifests)
    assert [one.path for one in lists.lists] == [f"{FOLDER}/2026-01-01/files"]
    sync_table(table, metastore, database, options=OPTIONS)
    rows = as_engines_read(metastore, database, "t")
    assert [row["_hoodie_record_key"] for row in rows] == [row["_hoodie_record_key"] for row in as_skep_reads(table)]
    assert not plan_sync(table, metastore, database, options=OPTIONS, full=True)
    assert not check_table(table, metastore, database, options=OPTIONS)
    (state,) = sync_status(table, metastore, database, options=OPTIONS)
    assert (state.entry, state.commits) == (f"{database}.t", 0)


def test_a_table_without_partitions_has_one_list(metastore: Metastore, database: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    create_table(open_storage(tmp_path / "t"), TableSpec(name="t", schema=rows.schema, record_key=("id",)))
    LocalWriter(HudiTable.open(tmp_path / "t")).upsert(rows)
    table = HudiTable.open(tmp_path / "t")
    sync_table(table, metastore, database, options=OPTIONS)
    assert same_location(metastore.table(database, "t").storage.location, f"{tmp_path}/t/{FOLDER}")
    assert as_engines_read(metastore, database, "t") == as_skep_reads(table)
    LocalWriter(table).upsert(pa.table({"id": [3]}))
    table = table.reload()
    sync_table(table, metastore, database, options=OPTIONS)
    assert len(as_engines_read(metastore, database, "t")) == 3
    assert not plan_sync(table, metastore, database, options=OPTIONS)


@pytest.mark.parametrize(
    ("version", "case"),
    [("0.15.0", "mor_upsert"), ("1.1.1", "mor_compaction"), ("0.15.0", "cow_special_chars_urlencode_hive")],
)
def test_merge_on_read_is_the_read_optimized_view(
    golden_copy: Callable[..., HudiTable], metastore: Metastore, database: str, version: str, case: str
) -> None:
    table = golden_copy(version, case)
    sync_table(table, metastore, database, options=OPTIONS)
    assert metastore.tables(database) == [case]
    keys = [row["_hoodie_record_key"] for row in as_skep_reads(table)]
    assert [row["_hoodie_record_key"] for row in as_engines_read(metastore, database, case)] == keys
    assert keys


def test_an_emptied_partition_leaves_an_empty_list(write: Write, metastore: Metastore, database: str) -> None:
    write("t", 1)
    sync_table(write("t", 2, day="2026-01-02"), metastore, database, options=OPTIONS)
    table = write("t", 1)
    LocalWriter(table).delete_partitions(["2026-01-02"])
    table = table.reload()
    sync_table(table, metastore, database, options=OPTIONS)
    assert metastore.partition_names(database, "t") == ["day=2026-01-01"]
    assert Path(table.storage.root, FOLDER, "2026-01-02", "files").read_text() == ""


def test_entries_of_another_kind_are_left_alone(write: Write, metastore: Metastore, database: str) -> None:
    table = write("t", 1)
    sync_table(table, metastore, database, "hudi")
    sync_table(table, metastore, database, "plain", options=OPTIONS)
    for name, options in (("hudi", OPTIONS), ("plain", {})):
        before = metastore.table(database, name)
        with pytest.raises(SyncError, match="not as a Hudi table") as error:
            sync_table(table, metastore, database, name, options=options)
        assert isinstance(error.value.__cause__, TableMismatchError)
        assert metastore.table(database, name) == before


def test_a_table_that_moved_has_lists_of_its_own_files(
    write: Write, metastore: Metastore, database: str, tmp_path: Path
) -> None:
    table = write("t", 1, 2)
    sync_table(table, metastore, database, options=OPTIONS)
    shutil.move(table.storage.root, tmp_path / "moved")
    moved = HudiTable.open(str(tmp_path / "moved"))
    sync_table(moved, metastore, database, options=OPTIONS)
    assert as_engines_read(metastore, database, "t") == as_skep_reads(moved)
    assert not plan_sync(moved, metastore, database, options=OPTIONS, full=True)


@pytest.mark.parametrize("call", range(4))
def test_cut_while_lists_are_written_the_metastore_knows_of_none_that_is_not_there(
    write: Write, metastore: Metastore, database: str, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    for number in (1, 2, 3):
        table = write("t", number, day=f"2026-01-0{number}")
    plain, left = LocalStorage.replace_atomic, call

    def failing(self: LocalStorage, path: str, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StorageError("away", path=path)
        plain(self, path, data)

    monkeypatch.setattr(LocalStorage, "replace_atomic", failing)
    if call < 3:
        with pytest.raises(SyncError, match="away"):
            sync_table(table, metastore, database, options=OPTIONS)
        assert metastore.tables(database) == []
    monkeypatch.undo()
    sync_table(table, metastore, database, options=OPTIONS)
    assert metastore.table(database, "t").parameters[MARKER]
    assert as_engines_read(metastore, database, "t") == as_skep_reads(table)


def test_a_skeleton_of_a_bootstrap_is_no_file_for_engines(
    golden: Path, metastore: Metastore, database: str, tmp_path: Path
) -> None:
    """Its data columns lie elsewhere: engines would read nulls."""
    shutil.copytree(golden / "0.15.0" / "cow_bootstrap_metadata_only" / "table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    with pytest.raises(SyncError, match="skeleton"):
        sync_table(table, metastore, database, options=OPTIONS)
    assert metastore.find_table(database, table.config.name) is None


def test_lists_are_not_made_from_a_look_that_a_clean_has_overtaken(
    write: Write, metastore: Metastore, database: str
) -> None:
    early = write("t", 1, 2)
    for note in ("a", "b", "c"):
        table = write("t", 1, note=note)
    setting = {"options": Options({"hoodie.cleaner.commits.retained": "1"})}
    assert clean(table.with_context(**setting)) is not None
    with pytest.raises(SyncError, match="clean"):
        plan_sync(early, metastore, database, options=OPTIONS)
    sync_table(table, metastore, database, options=OPTIONS)
    rows = as_engines_read(metastore, database, "t")
    assert [row["_hoodie_record_key"] for row in rows] == ["1", "2"]
