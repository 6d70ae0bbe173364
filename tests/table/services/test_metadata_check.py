"""The comparison of metadata tables with the files: sound ones have no differences, every damage is found."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from golden_metadata import RELEASES
from hypothesis import given
from hypothesis import strategies as st
from metadata_listings import frame, new_table, reopened, writer

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.schema.types import DoubleType, LongType, StringType
from skep_format.table_config import METADATA_PARTITIONS, TableType, update_table_config
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_format.timeline.plans import CleanMetadata, CleanPartitionMetadata
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.entries import Entries
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    STATS_MEMBER,
)
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, partition_stats_update
from skep_table.metadata_table.records.files import files_of_clean, files_of_commit
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.secondary_index import secondary_index_update, secondary_keys
from skep_table.metadata_table.records.summaries import ColumnSummary, summaries_of_rows, summary_of
from skep_table.metadata_table.values import statistics
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.metadata_write.own import open_own
from skep_table.services.cleaning.clean import clean, schedule_clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.services.metadata_check import Difference, MetadataCheck, MetadataProblem, check_metadata_table
from skep_table.services.metadata_check.findings import Findings
from skep_table.services.metadata_check.statistics import Described, check_bounds
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from tests.blooms import build_bloom

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
RETAIN_ONE = {"hoodie.cleaner.commits.retained": "1"}
versions = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    """Two writes to two partitions, one to a third."""
    made = new_table(tmp_path / "t", request.param)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1)))
    writer(made).upsert(frame(("a", "p", 2), ("c", "r", 2)))
    return made


def check(table: HudiTable) -> MetadataCheck:
    return check_metadata_table(reopened(table))


def differences(table: HudiTable) -> list[tuple[MetadataProblem, str, str, str]]:
    return [(each.problem, each.partition, each.path, each.subject) for each in check(table).differences]


def last_time(table: HudiTable) -> InstantTime:
    last = reopened(table).timeline.data().completed().last()
    assert last is not None
    return last.requested_time


def damage(table: HudiTable, *updates: PartitionUpdate, suffix: int = 999) -> None:
    """A delta commit that no action of the table made, right after the last one."""
    now = reopened(table)
    write_delta_commit(open_own(now), InstantTime(f"{last_time(now)}{suffix}"), updates, SYSTEM_CLOCK)


def first_base(table: HudiTable, partition: str = "q") -> tuple[str, str]:
    """File id and name of a base file of the first write."""
    (slice_,) = reopened(table).view(metadata=False).slices(partition)
    assert slice_.base_file is not None
    return slice_.file_id, str(slice_.base_file.name)


def no_longer_listed(path: str, name: str) -> PartitionUpdate:
    cleaned = CleanPartitionMetadata(partition_path=path, policy="KEEP_LATEST_COMMITS", delete_path_patterns=(name,))
    return files_of_clean(
        CleanMetadata(
            start_clean_time=InstantTime("20260101000000000"),
            time_taken_in_millis=0,
            total_files_deleted=1,
            earliest_commit_to_retain=InstantTime(""),
            partition_metadata={path: cleaned},
        )
    )


def listed_also(path: str, name: str, size: int) -> PartitionUpdate:
    stat = WriteStat(file_id="x", path=f"{path}/{name}", partition_path=path, file_size_in_bytes=size)
    return files_of_commit(CommitMetadata(partition_to_write_stats={path: (stat,)}))


@versions
class TestListing:
    def test_all_actions_leave_no_difference(self, table: HudiTable) -> None:
        steps: list[Callable[[], object]] = [
            lambda: writer(table).insert_overwrite(frame(("d", "r", 3))),
            lambda: clean(reopened(table, **RETAIN_ONE)),
            lambda: cluster(reopened(table)),
            lambda: writer(table).delete_partitions(["r"]),
            lambda: writer(table).upsert(frame(("a", "p", 4))),
            lambda: roll_back_instant(reopened(table), last_time(table)),
            lambda: clean(reopened(table, **RETAIN_ONE)),
        ]
        if table.config.is_mor:
            steps.insert(3, lambda: compact(reopened(table, **{"hoodie.compact.inline.max.delta.commits": "1"})))
        for step in steps:
            step()
            found = check(table)
            assert found.differences == ()
            assert [each.partition for each in found.partitions] == [FILES]
            assert found.partitions[0].checked > 2

    def test_a_file_that_is_not_listed(self, table: HudiTable) -> None:
        file_id, name = first_base(table)
        damage(table, no_longer_listed("q", name))
        assert differences(table) == [
            (MetadataProblem.MISSING, FILES, "q", name),
            (MetadataProblem.MISSING, FILES, "q", file_id),
        ]

    def test_a_listed_file_that_is_not_there(self, table: HudiTable) -> None:
        _, name = first_base(table)
        damage(table, listed_also("q", name.replace(name[:8], "00000000"), 9))
        assert {(problem, path) for problem, _, path, _ in differences(table)} == {(MetadataProblem.SURPLUS, "q")}

    def test_a_file_that_was_deleted(self, table: HudiTable) -> None:
        file_id, name = first_base(table)
        Path(table.storage.root, "q", name).unlink()
        assert differences(table) == [
            (MetadataProblem.SURPLUS, FILES, "q", name),
            (MetadataProblem.SURPLUS, FILES, "q", file_id),
        ]

    def test_another_size(self, table: HudiTable) -> None:
        _, name = first_base(table)
        damage(table, listed_also("q", name, 10**9))
        (found,) = check(table).differences
        assert (found.problem, found.subject, found.found) == (MetadataProblem.DIFFERS, name, str(10**9))
        assert found.expected == str(Path(table.storage.root, "q", name).stat().st_size)

    def test_a_write_that_the_metadata_table_lacks(self, table: HudiTable) -> None:
        time = last_time(table)
        for file in Path(table.storage.root, FOLDER, ".hoodie").rglob(f"{time}*.deltacommit*"):
            file.unlink()
        found = differences(table)
        assert found[0] == (MetadataProblem.MISSING, FILES, "", FILES)
        assert {path for _, _, path, _ in found[1:]} == {"p", "r"}

    def test_files_of_writes_that_failed_are_none(self, table: HudiTable) -> None:
        """The last write is pending again, as if it had died before its completion."""
        for file in Path(table.storage.root, ".hoodie").rglob(f"{last_time(table)}*.*commit"):
            if "metadata" not in file.relative_to(table.storage.root).parts and "inflight" not in file.name:
                file.unlink()
        found = check(table)
        assert found.differences == ()

    def test_files_that_a_pending_clean_deletes_are_none(self, table: HudiTable) -> None:
        writer(table).insert_overwrite(frame(("d", "q", 3)))
        writer(table).upsert(frame(("d", "q", 4)))
        assert schedule_clean(reopened(table, **RETAIN_ONE)) is not None
        oldest = min(Path(table.storage.root, "q").glob("*.parquet"), key=lambda path: path.name.split("_")[-1])
        oldest.unlink()
        found = check(table)
        assert found.differences == ()
        assert [(each.problem, each.subject) for each in found.notes] == [(MetadataProblem.UNFINISHED, oldest.name)]

    def test_a_second_file_of_a_task_that_was_tried_again_is_none(self, table: HudiTable) -> None:
        _, name = first_base(table)
        file = Path(table.storage.root, "q", name)
        file_id, token, rest = name.split("_")
        shutil.copy(file, file.with_name(f"{file_id}_9{token}_{rest}"))
        assert differences(table) == []

    def test_a_table_without_partitions(self, tmp_path: Path, table_version: int) -> None:
        table = new_table(tmp_path / "flat", MOR, partition_by=())
        writer(table).insert(frame(("a", "p", 1)))
        writer(table).upsert(frame(("a", "p", 2)))
        assert check(table).differences == ()
        _, name = first_base(table, "")
        damage(table, no_longer_listed("", name))
        assert (MetadataProblem.MISSING, FILES, "", name) in differences(table)

    def test_what_awaits_a_compaction_is_listed(self, tmp_path: Path, table_version: int) -> None:
        table = new_table(tmp_path / "mor", MOR)
        writer(table).insert(frame(("a", "p", 1)))
        writer(table).upsert(frame(("a", "p", 2)))
        schedule_compaction(reopened(table, **{"hoodie.compact.inline.max.delta.commits": "1"}))
        writer(table).upsert(frame(("a", "p", 3)))
        assert check(table).differences == ()

    def test_what_others_commit_meanwhile_is_none(self, table: HudiTable) -> None:
        """A snapshot whose files were cleaned since: the check goes on with a newer one."""
        before = reopened(table)
        for ts in (3, 4):
            writer(table).insert_overwrite(frame(("a", "p", ts), ("b", "q", ts)))
        cleaned = clean(reopened(table, **RETAIN_ONE))
        assert any(each.deleted for each in cleaned)
        found = check_metadata_table(before)
        assert found.differences == ()
        assert found.as_of == reopened(table).timeline.completed().instants[-1].requested_time

    def test_its_folder_is_missing(self, table: HudiTable) -> None:
        shutil.rmtree(Path(table.storage.root, FOLDER))
        assert differences(table) == [(MetadataProblem.MISSING, FILES, "", FOLDER)]

    def test_a_damaged_file(self, table: HudiTable) -> None:
        base = next(Path(table.storage.root, FOLDER, FILES).glob("*.hfile"))
        base.write_bytes(base.read_bytes()[:-9])
        (found,) = check(table).differences
        assert (found.problem, Path(found.subject).name) == (MetadataProblem.DAMAGED, base.name)


def test_a_table_without_one_is_refused(table: HudiTable) -> None:
    with pytest.raises(InputError, match="no partition column_stats"):
        check_metadata_table(reopened(table), ["column_stats"])
    update_table_config(table.storage, {METADATA_PARTITIONS: None})
    with pytest.raises(InputError, match="has no metadata table"):
        check(table)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("case", ["cow_upsert_mdt", "cow_record_index", "cow_column_stats"])
def test_hudis_own_have_no_differences(golden: Path, release: str, case: str) -> None:
    table = HudiTable.open(golden / release / case / "table")
    found = check_metadata_table(table)
    assert found.differences == ()
    assert {each.partition for each in found.partitions} == set(table.config.metadata_partitions)
    assert found.skipped == ()
    assert all(each.checked > 2 for each in found.partitions)


def copied(golden: Path, folder: Path, release: str, case: str) -> HudiTable:
    shutil.copytree(golden / release / case / "table", folder)
    return HudiTable.open(folder)


def found_in(table: HudiTable, partition: str) -> list[Difference]:
    (found,) = check_metadata_table(HudiTable.open(table.storage), [partition]).partitions
    return [*found.differences, *found.notes]


@pytest.mark.parametrize("release", RELEASES)
class TestRecordIndex:
    @pytest.fixture
    def table(self, golden: Path, tmp_path: Path, release: str) -> HudiTable:
        return copied(golden, tmp_path / "t", release, "cow_record_index")

    def entries(self, table: HudiTable) -> list[tuple[str, str, str]]:
        """Key, partition path and file id of each row."""
        return [
            (str(key), slice_.partition_path, slice_.file_id)
            for path in table.view().partitions()
            for slice_ in table.view().slices(path)
            for batch in read_slice(table, slice_, columns=["_hoodie_record_key"])
            for key in batch.column(0).to_pylist()
        ]

    def change(self, table: HudiTable, *puts: tuple[str, str, str], deletes: tuple[str, ...] = ()) -> None:
        keys, paths, ids = (pa.array(column, pa.string()) for column in (zip(*puts, strict=True) if puts else [[]] * 3))
        release = table.format.metadata.release
        damage(table, record_index_update(keys, paths, ids, 1, release, deletes=pa.array(deletes, pa.string())))

    def test_missing_keys(self, table: HudiTable) -> None:
        (key, path, file_id), *_ = self.entries(table)
        self.change(table, deletes=(key,))
        (found,) = found_in(table, RECORD_INDEX)
        assert (found.problem, found.path, found.subject, found.found) == (MetadataProblem.MISSING, path, key, None)
        assert found.expected == file_id

    def test_keys_that_the_table_does_not_have(self, table: HudiTable) -> None:
        _, path, file_id = self.entries(table)[0]
        other = str(uuid.uuid4())
        self.change(table, ("nobody", path, f"{file_id}"), ("nobody either", "nowhere", f"{other}-0"))
        found = {each.subject: each for each in found_in(table, RECORD_INDEX)}
        assert {each.problem for each in found.values()} == {MetadataProblem.SURPLUS}
        assert found["nobody"].found == file_id
        assert "no longer read" in found["nobody either"].detail

    def test_keys_in_another_file_group(self, table: HudiTable) -> None:
        (key, path, file_id), *others = self.entries(table)
        other = next(each for each in others if each[2] != file_id)
        self.change(table, (key, *other[1:]))
        (found,) = found_in(table, RECORD_INDEX)
        assert (found.problem, found.subject, found.expected) == (MetadataProblem.DIFFERS, key, f"{path} {file_id}")
        assert found.found == f"{other[1]} {other[2]}"

    def test_entries_where_no_look_up_finds_them(self, table: HudiTable) -> None:
        """The log file of one group is copied to another one."""
        _, path, file_id = self.entries(table)[0]
        self.change(table, ("nobody", path, file_id))
        folder = Path(table.storage.root, FOLDER, RECORD_INDEX)
        newest = max(folder.glob(".*.log.*"), key=lambda file: file.stat().st_mtime_ns)
        group = newest.name.split("_")[0]
        other = next(f.name.split("_")[0] for f in folder.glob(".*.log.1_0-0-0") if not f.name.startswith(group))
        shutil.copy(newest, newest.with_name(newest.name.replace(group, other)))
        found = found_in(table, RECORD_INDEX)
        assert {each.subject for each in found} == {"nobody"}
        assert {each.problem for each in found} == {MetadataProblem.DIFFERS, MetadataProblem.SURPLUS}
        (stray,) = (each for each in found if each.problem is MetadataProblem.DIFFERS)
        assert stray.found == other.removeprefix(".")

    def test_keys_that_are_in_the_table_twice(self, table: HudiTable) -> None:
        slices = {slice_.file_id: slice_ for path in table.view().partitions() for slice_ in table.view().slices(path)}
        first, second, *_ = slices.values()
        assert first.base_file is not None
        assert second.base_file is not None
        root = Path(table.storage.root)
        shutil.copy(root / first.base_file.path, root / second.base_file.path)
        problems = {each.problem for each in found_in(table, RECORD_INDEX)}
        assert problems == {MetadataProblem.DOUBLE, MetadataProblem.SURPLUS}

    def test_findings_are_limited_and_counted(self, table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("skep_table.services.metadata_check.findings.MOST_FINDINGS", 3)
        keys = tuple(key for key, *_ in self.entries(table))
        self.change(table, deletes=keys)
        (found,) = check_metadata_table(HudiTable.open(table.storage), [RECORD_INDEX]).partitions
        assert len(found.differences) == 3
        assert found.omitted == len(keys) - 3


def test_a_partitioned_record_index(golden: Path, tmp_path: Path) -> None:
    """File groups of one partition: keys of the other ones have none."""
    table = copied(golden, tmp_path / "t", "1.1.1", "cow_record_index")
    path, *others = table.view().partitions()
    for file in sorted(Path(table.storage.root, FOLDER, RECORD_INDEX).glob(".record-index-*")):
        file.rename(file.with_name(file.name.replace("record-index-", f"record-index-{path}-")))
    found = found_in(table, RECORD_INDEX)
    assert {each.path for each in found if each.problem is MetadataProblem.MISSING} == set(others)
    assert {each.path for each in found if each.problem is MetadataProblem.SURPLUS} == set(others)
    assert {each.problem for each in found} == {MetadataProblem.MISSING, MetadataProblem.SURPLUS}


INDEX = "secondary_index_by_city"


@pytest.mark.parametrize("version", ["V1", "V2"])
class TestSecondaryIndex:
    """An index made by hand, of three file groups (V1) or of one (V2)."""

    @pytest.fixture
    def table(self, golden: Path, tmp_path: Path, version: str) -> HudiTable:
        table = copied(golden, tmp_path / "t", "1.1.1", "cow_record_index")
        folder = tmp_path / "t" / FOLDER
        first = next((folder / "files").glob(".*.log.1_0-0-0"))
        (folder / INDEX).mkdir()
        shutil.copy(folder / "files" / ".hoodie_partition_metadata", folder / INDEX)
        for number in range(3 if version == "V1" else 1):
            name = first.name.replace("files-0000-0", f"secondary-index-by-city-{number:04d}-0")
            shutil.copy(first, folder / INDEX / name)
        self.define(table, version)
        damage(table, *self.updates(rows_of(table)))
        return table

    def define(self, table: HudiTable, version: str) -> None:
        path = Path(table.storage.root, ".hoodie", ".index_defs", "index.json")
        stated = json.loads(path.read_text())
        stated["indexDefinitions"][INDEX] = {
            "indexName": INDEX, "indexType": "secondary_index", "indexFunction": "identity", "sourceFields": ["city"],
            "indexOptions": {}, "version": version,
        }  # fmt: skip
        path.write_text(json.dumps(stated))
        names = ",".join(dict.fromkeys([*table.config.metadata_partitions, INDEX]))
        update_table_config(table.storage, {METADATA_PARTITIONS: names})

    def updates(self, rows: Sequence[tuple[str, str | None]], *, removed: bool = False) -> list[PartitionUpdate]:
        """Entries of the record keys and values `rows`."""
        keys, values = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
        entries, nothing = secondary_keys(values, keys), pa.array([], pa.string())
        added_and_removed = (nothing, entries) if removed else (entries, nothing)
        return [secondary_index_update(INDEX, *added_and_removed, "1.1.1", by_value=False)]

    def test_of_the_tables_rows(self, table: HudiTable, version: str) -> None:
        (found,) = check(table).partitions[-1:]
        assert (found.partition, found.checked) == (INDEX, len(rows_of(table)))
        assert (found.differences, found.notes) == ((), ())

    def test_missing_rows_and_others(self, table: HudiTable, version: str) -> None:
        ((key, city), *_) = rows_of(table)
        damage(table, *self.updates([(key, city)], removed=True), suffix=9999)
        damage(table, *self.updates([("nobody", "nowhere")]), suffix=99999)
        found = {(each.problem, each.subject) for each in found_in(table, INDEX)}
        assert found == {(MetadataProblem.MISSING, f"{city}${key}"), (MetadataProblem.SURPLUS, "nowhere$nobody")}

    def test_nulls_that_hudi_1_0_leaves_out(self, table: HudiTable, version: str) -> None:
        damage(table, *self.updates([("nobody", None)]), suffix=9999)
        found = {(each.problem, each.subject) for each in found_in(table, INDEX)}
        assert found == (set() if version == "V1" else {(MetadataProblem.SURPLUS, "\0$nobody")})

    def test_entries_where_no_look_up_finds_them(self, table: HudiTable, version: str) -> None:
        """Spread as a whole, where the definition spreads them by their values. In one file group that is the same."""
        self.define(table, "V2")
        problems = {each.problem for each in found_in(table, INDEX)}
        assert problems == ({MetadataProblem.DIFFERS, MetadataProblem.MISSING} if version == "V1" else set())

    def test_of_decimals_is_compared_in_the_first_version_alone(self, table: HudiTable, version: str) -> None:
        path = Path(table.storage.root, ".hoodie", ".index_defs", "index.json")
        path.write_text(path.read_text().replace('["city"]', '["amount"]'))
        assert check(table).skipped == (() if version == "V1" else (INDEX,))


def rows_of(table: HudiTable) -> list[tuple[str, str]]:
    """Record key and city of each row."""
    return [
        (row["_hoodie_record_key"], row["city"])
        for path in table.view(metadata=False).partitions()
        for slice_ in table.view(metadata=False).slices(path)
        for batch in read_slice(table, slice_, columns=["_hoodie_record_key", "city"])
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("release", RELEASES)
class TestBloomFilters:
    @pytest.fixture
    def table(self, golden: Path, tmp_path: Path, release: str) -> HudiTable:
        return copied(golden, tmp_path / "t", release, "cow_column_stats")

    def base(self, table: HudiTable) -> tuple[str, str]:
        path = table.view().partitions()[0]
        (slice_, *_) = table.view().slices(path)
        assert slice_.base_file is not None
        return path, str(slice_.base_file.name)

    def change(self, table: HudiTable, *keys: str, deleted: bool = False, name: str | None = None) -> None:
        path, own = self.base(table)
        file = path, name or own
        written = {} if deleted else {file: build_bloom(pa.array(keys, pa.string()))}
        ended = [file] if deleted else []
        damage(table, bloom_filters_update(written, ended, last_time(table), table.format.metadata.release))

    def test_a_filter_that_lacks_keys(self, table: HudiTable) -> None:
        self.change(table, "nobody")
        (found,) = found_in(table, BLOOM_FILTERS)
        assert (found.problem, found.path, found.subject) == (MetadataProblem.DIFFERS, *self.base(table))
        assert "the filter lacks" in found.detail

    def test_a_file_without_filter(self, table: HudiTable) -> None:
        self.change(table, deleted=True)
        (found,) = found_in(table, BLOOM_FILTERS)
        assert (found.problem, found.subject) == (MetadataProblem.MISSING, self.base(table)[1])

    def test_another_filter_with_all_keys_is_a_note(self, table: HudiTable) -> None:
        path, name = self.base(table)
        rows = pq.read_table(Path(table.storage.root, path, name), columns=["_hoodie_record_key"], partitioning=None)
        self.change(table, *rows.column(0).to_pylist(), "nobody")
        (found,) = found_in(table, BLOOM_FILTERS)
        assert (found.problem, found.problem.is_note) == (MetadataProblem.LOOSE, True)

    def test_filters_of_files_that_are_deleted_are_a_note(self, table: HudiTable) -> None:
        self.change(table, "a", name=self.base(table)[1].replace("_", "_7", 1))
        (found,) = found_in(table, BLOOM_FILTERS)
        assert (found.problem, found.found) == (MetadataProblem.STALE, "1")


@pytest.mark.parametrize("release", RELEASES)
class TestColumnStatistics:
    """One file of three with other statistics of one column. All have ten rows or more; `ts` is never null."""

    @pytest.fixture
    def table(self, golden: Path, tmp_path: Path, release: str) -> HudiTable:
        return copied(golden, tmp_path / "t", release, "cow_column_stats")

    def summary(self, table: HudiTable) -> tuple[tuple[str, str], ColumnSummary]:
        """The first base file, and the truth about its column `ts`."""
        path = table.view().partitions()[0]
        (slice_, *_) = table.view().slices(path)
        assert slice_.base_file is not None
        rows = pq.read_table(Path(table.storage.root, slice_.base_file.path), columns=["ts"], partitioning=None)
        return (path, str(slice_.base_file.name)), summary_of("ts", LongType(), rows.column("ts"))

    def change(self, table: HudiTable, **changes: Any) -> tuple[str, str]:
        """Records of one file add up: the one that is there ends first."""
        file, summary = self.summary(table)
        release = table.format.metadata.release
        damage(table, column_stats_update({}, [file], ["ts"], release), suffix=998)
        damage(table, column_stats_update({file: [replace(summary, **changes)]}, [], [], release))
        return file

    def test_narrower_bounds(self, table: HudiTable) -> None:
        _, true = self.summary(table)
        for changes in ({"low": true.low + 1}, {"high": true.high - 1}):
            path, name = self.change(table, **changes)
            (found,) = found_in(table, COLUMN_STATS)
            assert (found.problem, found.path, found.subject) == (MetadataProblem.DIFFERS, path, f"{name} ts")
            assert "narrower" in found.detail
            assert found.found is not None
            assert str(next(iter(changes.values()))) in found.found
            assert found.expected == f"{true.low} … {true.high}, 0 of {true.values} null"

    def test_wider_bounds_are_a_note(self, table: HudiTable) -> None:
        _, true = self.summary(table)
        self.change(table, low=true.low - 1)
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, found.detail) == (MetadataProblem.LOOSE, "wider than the values")

    def test_counts_that_hide_values(self, table: HudiTable) -> None:
        _, true = self.summary(table)
        self.change(table, nulls=true.values)
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, found.detail) == (
            MetadataProblem.DIFFERS,
            "the counts hide all values: queries lose rows",
        )

    def test_bounds_that_a_writer_left_out_are_a_note(self, table: HudiTable) -> None:
        """As Hudi does for long texts; its own queries lose rows by that, skep's do not."""
        _, true = self.summary(table)
        self.change(table, low=None, high=None, nulls=true.values)
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, "no bounds" in found.detail) == (MetadataProblem.LOOSE, True)

    def test_one_column_without_a_record(self, table: HudiTable) -> None:
        file, _ = self.summary(table)
        damage(table, column_stats_update({}, [file], ["ts"], table.format.metadata.release))
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, found.subject, found.found) == (MetadataProblem.MISSING, f"{file[1]} ts", None)

    def test_a_file_without_any_is_a_note(self, table: HudiTable) -> None:
        file, _ = self.summary(table)
        damage(table, column_stats_update({}, [file], list(stats_columns(table)), table.format.metadata.release))
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, found.subject) == (MetadataProblem.LOOSE, file[1])

    def test_records_of_files_that_are_deleted_are_a_note(self, table: HudiTable) -> None:
        (path, name), summary = self.summary(table)
        other = f"{path}/{name}".rpartition("/")[2].replace("_", "_7", 1)
        damage(table, column_stats_update({(path, other): [summary]}, [], [], table.format.metadata.release))
        (found,) = found_in(table, COLUMN_STATS)
        assert (found.problem, found.subject) == (MetadataProblem.STALE, other)


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
class TestPartitionStatistics:
    def test_narrower_and_wider_bounds(self, golden: Path, tmp_path: Path, release: str) -> None:
        table = copied(golden, tmp_path / "t", release, "cow_column_stats")
        path = table.view().partitions()[0]
        rows = [
            batch.column(0)
            for slice_ in table.view().slices(path)
            for batch in read_slice(table, slice_, columns=["ts"])
        ]
        true = summary_of("ts", LongType(), pa.chunked_array(rows))
        for change, problem in ((1, MetadataProblem.DIFFERS), (-1, MetadataProblem.LOOSE)):
            written = {path: [replace(true, low=true.low + change)]}
            damage(table, partition_stats_update(written, [], [], table.format.metadata.release))
            (found,) = found_in(table, PARTITION_STATS)
            assert (found.problem, found.path, found.subject) == (problem, path, f"{path} ts")
        damage(table, partition_stats_update({"gone": [true]}, [], [], table.format.metadata.release))
        assert (MetadataProblem.STALE, "gone") in {
            (each.problem, each.subject) for each in found_in(table, PARTITION_STATS)
        }


COLUMNS = {"n": LongType(), "t": StringType(), "f": DoubleType()}
VALUES = st.lists(
    st.tuples(
        st.none() | st.integers(-5, 5), st.none() | st.sampled_from(["", "a", "b", "é", "\U0001f41d", "z" * 1500]),
        st.none() | st.sampled_from([-1.0, 0.0, 2.5, float("nan")]),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(VALUES, VALUES, st.sampled_from(RELEASES))
def test_statistics_of_the_same_rows_never_differ_and_of_fewer_hide_none(
    rows: list[Any], others: list[Any], release: str
) -> None:
    """What is stated of `rows` is right for a file of these. For more rows it is only where it leaves out none."""
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=list(COLUMNS))
    typed = table.cast(pa.schema([("n", pa.int64()), ("t", pa.string()), ("f", pa.float64())]))
    own = summaries_of_rows(typed, COLUMNS)
    stated = {each.column: stated_as(each, release) for each in own}
    findings = Findings(COLUMN_STATS)
    check_bounds([Described("p", "file", {each.column: each for each in own})], COLUMNS, stated, findings)
    assert findings.done().differences == ()
    added = pa.table([pa.array(column) for column in zip(*others, strict=True)], names=list(COLUMNS))
    more = pa.concat_tables([typed, added.cast(typed.schema)])
    findings = Findings(COLUMN_STATS)
    whole = {each.column: each for each in summaries_of_rows(more, COLUMNS)}
    check_bounds([Described("p", "file", whole)], COLUMNS, stated, findings)
    wrong = {each.subject.removeprefix("file ") for each in findings.done().differences}
    for values, column in zip(zip(*others, strict=True), COLUMNS, strict=True):
        (bounds,) = stated[column].to_pylist()
        low, high = bounds["min_value"], bounds["max_value"]
        hidden_nulls = None in values and bounds["null_count"] == 0
        numbers = [value for value in values if value is not None]
        if column == "n" and low is not None and numbers:
            hidden = min(numbers) < low or max(numbers) > high
            assert (column in wrong) == (hidden or hidden_nulls)
        if hidden_nulls:
            assert column in wrong


def stated_as(summary: ColumnSummary, release: str) -> pa.Table:
    """As a metadata table of a release returns it."""
    update = column_stats_update({("p", "file"): [summary]}, [], [], release)
    member = pc.struct_field(update.puts["record"].combine_chunks(), STATS_MEMBER)
    records = pa.RecordBatch.from_arrays([member], [STATS_MEMBER])
    kinds = {"n": pa.int64(), "t": pa.string(), "f": pa.float64()}
    return statistics([Entries(update.puts["key"].combine_chunks(), records)], kinds[summary.column])
