"""A metadata table shown, counted, rebuilt and dropped; at each storage call of that it can fail."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import FaultyStorage
from metadata_listings import assert_alike, frame, new_table, reopened, rows, writer

from skep_format.errors import InputError, MetadataTableError, SkepError
from skep_format.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableType, update_table_config
from skep_table.context import TableContext
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.partitions import FILES
from skep_table.metadata_write.definitions import definitions_of, stats_columns
from skep_table.services.compaction.compact import schedule_compaction
from skep_table.services.metadata.indexing import (
    drop_metadata,
    metadata_statistics,
    rebuild_metadata_table,
    show_metadata_table,
)
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable

versions = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", TableType.MERGE_ON_READ)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1)))
    writer(made).upsert(frame(("a", "p", 2), ("c", "r", 2)))
    return made


@versions
class TestShown:
    def test_partitions_and_compactions(self, table: HudiTable) -> None:
        found = show_metadata_table(reopened(table))
        (files,) = found.partitions
        assert (files.name, files.state, files.file_groups, files.base_files) == (FILES, "ready", 1, 1)
        assert files.base_bytes > 0
        assert found.is_current
        assert (found.delta_commits, found.last_compaction, found.pending) == (3, None, ())
        assert maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))
        found = show_metadata_table(reopened(table))
        assert (found.delta_commits, found.last_compaction) == (0, found.last_instant)
        assert [each.log_files for each in found.partitions] == [0]

    def test_what_is_being_built(self, table: HudiTable) -> None:
        update_table_config(table.storage, {METADATA_PARTITIONS_INFLIGHT: "column_stats"})
        states = [(each.name, each.state, each.file_groups) for each in show_metadata_table(reopened(table)).partitions]
        assert states == [(FILES, "ready", 1), ("column_stats", "building", 0)]

    def test_counts(self, table: HudiTable) -> None:
        found = metadata_statistics(reopened(table))
        (files,) = found.indexes
        assert (files.name, files.records, files.fewest, files.most) == (FILES, 4, 4, 4)  # and the list of partitions
        there = {
            path: [f for f in Path(table.storage.root, path).iterdir() if "_metadata" not in f.name] for path in "pqr"
        }
        assert {each.path: (each.files, each.bytes) for each in found.partitions} == {
            path: (len(files), sum(file.stat().st_size for file in files)) for path, files in there.items()
        }

    def test_a_table_without_one(self, table: HudiTable) -> None:
        shutil.rmtree(Path(table.storage.root, FOLDER))
        with pytest.raises(MetadataTableError, match="there is none"):
            show_metadata_table(reopened(table))
        update_table_config(table.storage, {METADATA_PARTITIONS: None})
        for call in (show_metadata_table, metadata_statistics):
            with pytest.raises(InputError, match="has no metadata table"):
                call(reopened(table))


@pytest.mark.parametrize("release", ["0.15.0", "1.0.2", "1.1.1"])
def test_records_of_hudis_indexes_are_counted(golden: Path, release: str) -> None:
    table = HudiTable.open(golden / release / "cow_record_index" / "table")
    found = {each.name: each for each in metadata_statistics(table).indexes}
    assert found["record_index"].records == len(rows_of(table))
    assert found["record_index"].file_groups > 1
    assert found["record_index"].fewest < found["record_index"].most


def rows_of(table: HudiTable) -> list[Any]:
    from skep_table.query import ReadRequest, read

    return list(read(table, ReadRequest()).to_arrow().to_pylist())


@versions
class TestMadeAgain:
    def test_of_a_sound_one(self, table: HudiTable) -> None:
        before = rows(reopened(table), metadata=False)
        assert rebuild_metadata_table(reopened(table)).kept == (FILES,)
        assert_alike(table)
        assert rows(reopened(table), metadata=True) == before
        writer(table).upsert(frame(("a", "p", 5)))
        assert_alike(table)

    def test_of_one_that_lacks_a_write(self, table: HudiTable) -> None:
        own = Path(table.storage.root, FOLDER, ".hoodie")
        last = reopened(table).timeline.data().completed().last()
        assert last is not None
        for file in own.rglob(f"{last.requested_time}*.deltacommit*"):
            file.unlink()
        assert check_metadata_table(reopened(table)).differences
        rebuild_metadata_table(reopened(table))
        assert check_metadata_table(reopened(table)).differences == ()

    def test_for_the_first_time(self, table: HudiTable) -> None:
        drop_metadata(reopened(table))
        assert rebuild_metadata_table(HudiTable.open(table.storage)).kept == (FILES,)
        assert_alike(table)

    def test_killed_at_any_call_reads_stay_right(self, table: HudiTable, tmp_path: Path) -> None:
        expected = rows(reopened(table), metadata=False)
        for at in range(1, 200):
            copied = tmp_path / "copy"
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(table.storage.root, copied)
            storage = FaultyStorage(str(copied), at, dies=True)
            there = HudiTable.open(copied)
            try:
                rebuild_metadata_table(HudiTable(TableContext(storage), there.config, there.timeline))
            except (SkepError, OSError):
                pass
            else:
                assert not storage.hit
            after = HudiTable.open(copied)
            assert rows(after, metadata=True) == expected
            rebuild_metadata_table(after)
            assert check_metadata_table(HudiTable.open(copied)).differences == ()
            if not storage.hit:
                return
        raise AssertionError("never came to the end")


@pytest.mark.parametrize("release", ["0.15.0", "1.0.2", "1.1.1"])
@pytest.mark.parametrize("case", ["cow_record_index", "cow_column_stats"])
def test_the_indexes_of_hudis_are_made_again(golden: Path, release: str, case: str, tmp_path: Path) -> None:
    shutil.copytree(golden / release / case / "table", tmp_path / "t")
    before = HudiTable.open(tmp_path / "t")
    columns, defined = stats_columns(before), definitions_of(before)
    counts = {each.name: each.records for each in metadata_statistics(before).indexes}
    found = rebuild_metadata_table(before)
    after = HudiTable.open(tmp_path / "t")
    assert (set(found.kept), found.lost) == (set(before.config.metadata_partitions), ())
    assert set(after.config.metadata_partitions) == set(found.kept)
    assert (stats_columns(after), definitions_of(after)) == (columns, defined)
    checked = check_metadata_table(after)
    assert (checked.differences, checked.notes, checked.skipped) == ((), (), ())
    assert {each.name: each.records for each in metadata_statistics(after).indexes} == counts


def test_indexes_that_options_enable_are_made(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", TableType.MERGE_ON_READ)
    writer(table).insert(frame(("a", "p", 1), ("b", "q", 1)))
    writer(table).upsert(frame(("a", "p", 2)))
    options = {f"hoodie.metadata.{name}.enable": "true" for name in ("index.column.stats", "record.index")}
    assert {"files", "column_stats", "record_index"} <= {*rebuild_metadata_table(reopened(table, **options)).kept}
    checked = check_metadata_table(HudiTable.open(table.storage))
    assert (checked.differences, checked.skipped) == ((), ())
    assert {each.partition: each.checked > 0 for each in checked.partitions} == dict.fromkeys(
        HudiTable.open(table.storage).config.metadata_partitions, True
    )


def test_version_6_waits_for_what_is_pending(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", TableType.MERGE_ON_READ)
    writer(table).insert(frame(("a", "p", 1)))
    writer(table).upsert(frame(("a", "p", 2)))
    assert schedule_compaction(reopened(table, **{"hoodie.compact.inline.max.delta.commits": "1"}))
    with pytest.raises(MetadataTableError, match=r"compaction .* is pending"):
        rebuild_metadata_table(reopened(table))
    assert reopened(table).metadata_table() is not None


@versions
class TestDropped:
    def test_as_a_whole(self, table: HudiTable) -> None:
        assert drop_metadata(reopened(table)) == (FILES,)
        assert not Path(table.storage.root, FOLDER).exists()
        assert reopened(table).config.metadata_partitions == ()
        with pytest.raises(InputError, match="has no metadata table"):
            drop_metadata(reopened(table))

    def test_the_listing_alone_and_unknown_indexes_stay(self, table: HudiTable) -> None:
        for name, message in ((FILES, "with all indexes only"), ("nothing", "has no index nothing")):
            with pytest.raises(InputError, match=message):
                drop_metadata(reopened(table), [name])
        assert_alike(table)


@pytest.mark.parametrize("release", ["0.15.0", "1.0.2", "1.1.1"])
def test_one_index_is_dropped(golden: Path, release: str, tmp_path: Path) -> None:
    shutil.copytree(golden / release / "cow_record_index" / "table", tmp_path / "t")
    before = HudiTable.open(tmp_path / "t")
    assert drop_metadata(before, ["record_index"]) == ("record_index",)
    after = HudiTable.open(tmp_path / "t")
    assert after.config.metadata_partitions == tuple(
        n for n in before.config.metadata_partitions if n != "record_index"
    )
    assert not (tmp_path / "t" / FOLDER / "record_index").exists()
    definitions = tmp_path / "t" / ".hoodie" / ".index_defs" / "index.json"
    assert not definitions.exists() or "record_index" not in definitions.read_text()
    assert check_metadata_table(after).differences == ()
