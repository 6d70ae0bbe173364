"""Views of whole tables: the golden ones against what Hudi read, and how partitions are found and facts are loaded."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep_format.errors import FormatError, SchemaError
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, StorageFlags
from skep_format.timeline.instant import Action
from skep_table.metadata_table import MetadataTable
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView, FolderFilter, StorageListing, StorageListings


def slices(view: FileView) -> list[FileSlice]:
    return [slice_ for partition in view.partitions() for slice_ in view.slices(partition)]


def cases(golden: Path) -> list[Path]:
    return sorted(golden.glob("*/*"))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def test_golden_slices_are_the_files_that_hudi_read(golden: Path) -> None:
    """Rows name the base file they came from, or the file group where they came from a log file."""
    compared = 0
    for case in cases(golden):
        table = HudiTable.open(case / "table")
        for answer in [case / "expected/snapshot.jsonl", *(case / "expected").glob("timetravel_*.jsonl")]:
            if not answer.exists():
                continue
            travel = re.search(r"timetravel_(\d+)", answer.name)
            found = slices(table.view(as_of=travel[1] if travel else None, metadata=False))
            named = {row.get("_hoodie_file_name") for row in rows(answer)} - {None}
            if not named:
                continue  # a table without meta columns
            base_files = {str(slice_.base_file.name) for slice_ in found if slice_.base_file}
            logged = {slice_.file_id for slice_ in found if slice_.log_files}
            assert named <= base_files | logged, answer
            if not logged:
                empty = {name for name in base_files - named if "delete" in case.name}
                assert base_files - empty == named, answer
            compared += 1
    assert compared > 180


def test_golden_schemas_have_the_columns_that_hudi_answers(golden: Path) -> None:
    """Hudi puts partition columns last in some answers: the order aside."""
    meta = re.compile("_hoodie_(commit_time|commit_seqno|record_key|partition_path|file_name)")
    for case in cases(golden):
        expected = json.loads((case / "expected/schema.json").read_text())["fields"]
        names = sorted(field["name"] for field in expected if not meta.fullmatch(field["name"]))
        assert sorted(HudiTable.open(case / "table").schema().names()) == names, case


def test_dropped_partition_columns_are_strings_at_the_end(golden: Path) -> None:
    schema = HudiTable.open(golden / "0.15.0/cow_drop_partition_columns/table").schema()
    assert schema.names()[-1] == "city"


def test_the_schema_of_an_earlier_commit(golden: Path) -> None:
    table = HudiTable.open(golden / "0.15.0/cow_schema_evolution/table")
    first, *_, last = table.timeline.data().completed().instants
    assert "coupon" not in table.schema(first.requested_time)
    assert "coupon" in table.schema(last.requested_time)
    assert table.schema() == table.schema(last.requested_time)
    with pytest.raises(SchemaError, match="until 2020"):
        table.schema("20200101000000000")


def test_a_pending_compaction_of_each_version(golden: Path) -> None:
    for version in ("0.15.0", "1.0.2", "1.1.1"):
        table = HudiTable.open(golden / version / "mor_compaction/table")
        view = table.view(metadata=False)
        (pending,) = table.timeline.pending().of(Action.COMPACTION).instants
        assert set(view.states.pending_compactions.values()) == {pending.requested_time}
        for partition, file_id in view.states.pending_compactions:
            (group,) = [g for g in view.file_groups(partition) if g.file_id == file_id]
            assert group.pending_compaction == pending.requested_time
            assert group.latest is not None
            assert group.latest.base_file is not None
            assert group.latest.base_instant < pending.requested_time


def test_replaced_groups_are_left_out_unless_asked_for(golden: Path) -> None:
    for version in ("0.15.0", "1.0.2", "1.1.1"):
        table = HudiTable.open(golden / version / "cow_clustering/table")
        view = table.view(metadata=False)
        assert view.states.replaced
        for partition, file_id in view.states.replaced:
            assert file_id not in {group.file_id for group in view.file_groups(partition)}
            everything = {group.file_id: group for group in view.file_groups(partition, replaced=True)}
            assert everything[file_id].replaced_by == view.states.replaced[partition, file_id]
        replacement = min(view.states.replaced.values())
        before = table.view(as_of=str(int(replacement) - 1), metadata=False)
        assert not before.states.replaced
        assert slices(before)


def test_only_instants_that_bear_on_file_groups_are_opened(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = HudiTable.open(golden / "0.15.0/cow_insert_overwrite/table")
    opened: list[str] = []
    original = table.storage.read
    monkeypatch.setattr(table.storage, "read", lambda path: opened.append(path) or original(path))
    view = table.view(metadata=False)
    slices(view)
    slices(view)
    assert [path.rpartition(".")[2] for path in opened] == ["replacecommit"]


def test_commit_metadata_is_read_once_also_over_reloads(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = HudiTable.open(golden / "1.1.1/cow_upsert/table")
    instant = table.timeline.data().completed().instants[0]
    first = table.commit_metadata(instant)
    fresh = table.reload()
    monkeypatch.setattr(fresh.storage, "read", lambda path: pytest.fail(f"{path} was read again"))
    assert fresh.commit_metadata(instant) is first


def test_tables_pickle(golden: Path) -> None:
    table = HudiTable.open(golden / "1.1.1/cow_archive/table")
    copy = pickle.loads(pickle.dumps(table))
    assert copy.config == table.config
    assert copy.timeline.instants == table.timeline.instants
    assert slices(copy.view(metadata=False)) == slices(table.view(metadata=False))
    assert copy.timeline.archived() == table.timeline.archived()


def test_savepoints_are_readable(golden: Path) -> None:
    for version in ("0.15.0", "1.0.2", "1.1.1"):
        table = HudiTable.open(golden / version / "cow_savepoint_restore/table")
        ((time, savepoint),) = table.savepoints().items()
        kept = {
            (partition, name)
            for partition, files in savepoint.partition_metadata.items()
            for name in files.savepoint_data_file
        }
        view = table.view(as_of=time, metadata=False)
        assert kept
        assert kept == {(s.partition_path, str(s.base_file.name)) for s in slices(view) if s.base_file}


def test_a_commit_that_is_missing_is_an_error_that_names_it(golden: Path) -> None:
    table = HudiTable.open(golden / "0.15.0/cow_upsert/table")
    instant = table.timeline.instants[0]
    import dataclasses

    lost = dataclasses.replace(instant, requested_time="20200101000000000")
    with pytest.raises(FormatError, match=r"20200101000000000\.commit is missing"):
        table.commit_metadata(lost)


# -- finding partitions ------------------------------------------------------------------------------------------------


class ObjectStore(LocalStorage):
    """A local folder that promises no more than an object store, and counts what it is asked."""

    flags = StorageFlags(atomic_rename=False)

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.listed: list[tuple[str, bool]] = []

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[Any]:
        self.listed.append((path, recursive))
        return super().list_prefix(path, recursive=recursive)


def lay(root: Path, *partitions: str) -> None:
    (root / ".hoodie/metadata/files").mkdir(parents=True)
    (root / ".hoodie/metadata/files/.hoodie_partition_metadata").touch()
    for partition in partitions:
        (root / partition).mkdir(parents=True, exist_ok=True)
        (root / partition / ".hoodie_partition_metadata").touch()
        (root / partition / "f").touch()


@pytest.mark.parametrize("kind", [LocalStorage, ObjectStore])
def test_partitions_are_folders_with_a_metafile(tmp_path: Path, kind: type[LocalStorage]) -> None:
    lay(tmp_path, "a", "b=1/c=x y", "2026/11/21")
    (tmp_path / "a/below/a/partition").mkdir(parents=True)
    (tmp_path / "a/below/a/partition/f").touch()
    (tmp_path / "no partition").mkdir()
    (tmp_path / "no partition/f.parquet").touch()
    (tmp_path / "orc").mkdir()
    (tmp_path / "orc/.hoodie_partition_metadata.orc").touch()
    listing = StorageListing(StorageListings(kind(str(tmp_path)), ThreadRunner(2)))
    assert listing.partitions() == ["2026/11/21", "a", "b=1/c=x y", "orc"]
    assert [file.path for file in listing.files("b=1/c=x y")] == [
        "b=1/c=x y/.hoodie_partition_metadata",
        "b=1/c=x y/f",
    ]
    assert listing.files("nowhere") == []


@pytest.mark.parametrize("kind", [LocalStorage, ObjectStore])
@pytest.mark.parametrize(
    "within", [None, FolderFilter(("a",), list), FolderFilter(("",), list)], ids=["all", "a", "walk"]
)
def test_a_partition_in_the_folder_of_another_is_an_error(
    tmp_path: Path, kind: type[LocalStorage], within: FolderFilter | None
) -> None:
    """Hudi lists the outer one only: the rows of the other would be lost without a word."""
    lay(tmp_path, "a", "a/below/b", "c")
    listing = StorageListing(StorageListings(kind(str(tmp_path)), ThreadRunner(2)))
    with pytest.raises(FormatError, match="partition 'a/below/b' lies in the folder of partition 'a'"):
        listing.partitions(within)


def test_a_table_without_partitions_is_its_own_folder(tmp_path: Path) -> None:
    lay(tmp_path, "", "below")
    listing = StorageListing(StorageListings(LocalStorage(str(tmp_path)), ThreadRunner(2)))
    assert listing.partitions() == [""]
    assert {file.path for file in listing.files("")} == {".hoodie_partition_metadata", "f"}


def test_many_folders_of_an_object_store_are_listed_in_one_go(tmp_path: Path) -> None:
    lay(tmp_path, *(f"p{number}" for number in range(300)))
    storage = ObjectStore(str(tmp_path))
    listing = StorageListing(StorageListings(storage, ThreadRunner(2)))
    assert len(listing.partitions()) == 300
    assert storage.listed == [("", True)]
    before = len(storage.listed)
    assert len(listing.files("p7")) == 2  # known by now
    assert len(storage.listed) == before


def test_one_partition_is_one_listing(tmp_path: Path) -> None:
    lay(tmp_path, *(f"p{number}" for number in range(10)))
    storage = ObjectStore(str(tmp_path))
    StorageListing(StorageListings(storage, ThreadRunner(2))).files("p7")
    assert storage.listed == [("p7", False)]


# -- the metadata table ------------------------------------------------------------------------------------------------


def with_metadata(golden: Path) -> list[Path]:
    return [case for case in cases(golden) if HudiTable.open(case / "table").config.metadata_partitions]


def test_both_listings_agree(golden: Path) -> None:
    found = with_metadata(golden)
    assert len(found) == 9
    for case in found:
        table = HudiTable.open(case / "table")
        by_metadata, by_storage = table.view(), table.view(metadata=False)
        assert isinstance(by_metadata.listing, MetadataTable), case
        assert by_metadata.partitions() == by_storage.partitions()
        for instant in (None, *(i.requested_time for i in table.timeline.data().completed())):
            assert slices(table.view(as_of=instant)) == slices(table.view(as_of=instant, metadata=False)), case


def test_a_metadata_table_that_missed_a_commit_is_not_listed_by(golden: Path, tmp_path: Path) -> None:
    for case in with_metadata(golden):
        copy = tmp_path / case.parent.name / case.name
        shutil.copytree(case / "table", copy)
        table = HudiTable.open(copy)
        last = table.timeline.data().completed().last()
        assert last is not None
        for file in (copy / ".hoodie/metadata" / table.layout.folder).glob(f"{last.requested_time}*"):
            file.unlink()
        view = table.view()
        assert isinstance(view.listing, StorageListing), case
        assert slices(view) == slices(HudiTable.open(case / "table").view())


def test_a_metadata_table_that_was_deleted_is_done_without(golden: Path, tmp_path: Path) -> None:
    copy = tmp_path / "table"
    shutil.copytree(golden / "1.1.1/cow_upsert_mdt/table", copy)
    expected = slices(HudiTable.open(copy).view())
    shutil.rmtree(copy / ".hoodie/metadata")
    table = HudiTable.open(copy)
    assert table.config.metadata_partitions
    assert slices(table.view()) == expected
