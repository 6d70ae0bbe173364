"""Indexes made of the files of a table: those of Hudi's own tables record by record, and what no such table has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage
from golden_metadata import RELEASES, opened
from metadata_listings import KEPT, frame, new_table, reopened, rows, writer

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import MetadataTableError, OptionError, SkepError
from skep_format.runner import ThreadRunner
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    member_of,
)
from skep_table.metadata_write.definitions import definitions_of, is_partitioned_record_index, write_definitions
from skep_table.metadata_write.drop import delete_metadata_table, drop_indexes
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.metadata_write.options import partitions_of_options
from skep_table.metadata_write.own import open_own
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import schedule_compaction
from skep_table.table import HudiTable

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
versions = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
kinds = pytest.mark.parametrize("kind", [COW, MOR], ids=["cow", "mor"])
GLOBAL = "hoodie.metadata.global.record.level.index.enable"
PARTITIONED = "hoodie.metadata.record.level.index.enable"
INDEXES = (COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX)
ALL = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    GLOBAL: "true",
}


def made(table: HudiTable, *names: str, **options: str) -> HudiTable:
    """The table with these indexes, made now."""
    return create_metadata_table(reopened(table, **options), SYSTEM_CLOCK, names)


def records(table: HudiTable, partition: str) -> dict[str, Any]:
    """The records of a partition that are not ended, by key."""
    metadata = MetadataTable.open(table)
    assert metadata is not None
    member = member_of(partition)
    keys, found = latest(metadata._lookup(partition, None, member), member)
    pairs = zip(keys.to_pylist(), found.to_pylist(), strict=True)
    return {key: record for key, record in pairs if not record.get("isDeleted")}


def groups(table: HudiTable, partition: str) -> list[str]:
    return sorted({slice_.file_id for slice_ in open_own(table).view(metadata=False).slices(partition)})


def places(table: HudiTable) -> list[tuple[str, str, str]]:
    """Key, partition and file group of each row, by the record index."""
    metadata = table.metadata_table()
    assert metadata is not None
    keys = pa.array(sorted({row[0] for row in rows(table, metadata=False)}))
    found = metadata.record_index(keys)
    assert found is not None
    return sorted((row["record_key"], row["partition_path"], row["file_id"]) for row in found.to_pylist())


def live_places(table: HudiTable) -> list[tuple[str, str, str]]:
    found = read(table, ReadRequest(metadata=False)).to_arrow().to_pylist()
    return sorted(
        (r["_hoodie_record_key"], r["_hoodie_partition_path"], r["_hoodie_file_name"].partition("_")[0]) for r in found
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("case", ["cow_column_stats", "cow_record_index", "cow_upsert_mdt"])
class TestTablesOfHudi:
    """Its metadata table is dropped and rebuilt: the same records, and the same definitions."""

    OF_WHEN_IT_WAS_MADE = ("timestamp", "instantTime")

    @pytest.fixture
    def theirs(self, golden: Path, release: str, case: str) -> HudiTable:
        return opened(golden, release, case)[0]

    @pytest.fixture
    def ours(self, theirs: HudiTable, tmp_path: Path) -> HudiTable:
        shutil.copytree(Path(str(theirs.storage.root)), tmp_path / "t")
        table = HudiTable.open(str(tmp_path / "t"), self.options_of(theirs))
        defined, partitions = definitions_of(table), table.config.metadata_partitions
        delete_metadata_table(table.storage)
        write_definitions(table.storage, defined)
        return create_metadata_table(table.reload(), SYSTEM_CLOCK, partitions)

    def options_of(self, theirs: HudiTable) -> dict[str, object]:
        """What is written down nowhere: numbers of file groups, and in version 6 the columns."""
        found: dict[str, object] = {}
        for name, key in (
            (COLUMN_STATS, "hoodie.metadata.index.column.stats.file.group.count"),
            (BLOOM_FILTERS, "hoodie.metadata.index.bloom.filter.file.group.count"),
            (RECORD_INDEX, "hoodie.metadata.record.index.min.filegroup.count"),
        ):
            found |= {key: len(groups(theirs, name))} if name in theirs.config.metadata_partitions else {}
        if COLUMN_STATS in theirs.config.metadata_partitions:
            columns = {record["columnName"] for record in records(theirs, COLUMN_STATS).values()}
            found["hoodie.metadata.index.column.stats.column.list"] = ",".join(columns)
        return found

    def test_settings_groups_and_definitions(self, theirs: HudiTable, ours: HudiTable) -> None:
        assert ours.config.metadata_partitions == theirs.config.metadata_partitions
        assert definitions_of(ours) == definitions_of(theirs)
        for partition in theirs.config.metadata_partitions:
            assert groups(ours, partition) == groups(theirs, partition)

    def test_definitions_are_made_as_theirs(self, theirs: HudiTable, ours: HudiTable) -> None:
        partitions, columns = theirs.config.metadata_partitions, definitions_of(theirs).get(COLUMN_STATS)
        delete_metadata_table(ours.storage)
        listed = ",".join(columns.source_fields) if columns else ""
        again = ours.with_options({"hoodie.metadata.index.column.stats.column.list": listed}).reload()
        assert definitions_of(create_metadata_table(again, SYSTEM_CLOCK, partitions)) == definitions_of(theirs)

    def test_records(self, theirs: HudiTable, ours: HudiTable) -> None:
        view = ours.view(metadata=False)
        there = {file.name for path in view.partitions() for file in view.listing.files(path)}
        compared = 0
        for name in set(theirs.config.metadata_partitions) - {FILES}:
            found, expected = self.made_once(ours, name), self.made_once(theirs, name)
            if name == COLUMN_STATS:  # the clean of Hudi 0.15 leaves those of files that it deleted
                expected = {key: each for key, each in expected.items() if each["fileName"] in there}
            if name == BLOOM_FILTERS:
                expected = {key: each for key, each in expected.items() if key in found}
            assert found == expected
            compared += len(found)
        assert compared or case_of_files_only(theirs)

    def made_once(self, table: HudiTable, partition: str) -> dict[str, Any]:
        return {
            key: {name: value for name, value in record.items() if name not in self.OF_WHEN_IT_WAS_MADE}
            for key, record in records(table, partition).items()
        }


def case_of_files_only(table: HudiTable) -> bool:
    return set(table.config.metadata_partitions) == {FILES}


@versions
@kinds
class TestContents:
    @pytest.fixture
    def table(self, kind: TableType, tmp_path: Path) -> HudiTable:
        table = new_table(tmp_path / "t", kind)
        writer(table).insert(frame(("a", "p", 1), ("b", "p", 2), ("c", "q", 3), ("d", "ü/é", 4)))
        writer(table).upsert(frame(("a", "p", 5), ("e", "q", 6), ("f", "r_1.5-x", 7)))
        writer(table).delete(frame(("b", "p", 9)))
        return reopened(table)

    def test_all_in_one(self, table: HudiTable, table_version: int) -> None:
        table = HudiTable.open(table.storage)
        delete_metadata_table(table.storage)
        wanted = partitions_of_options(reopened(table, **ALL))
        table = create_metadata_table(reopened(table, **ALL), SYSTEM_CLOCK, wanted)
        everything = {FILES, *INDEXES} | ({PARTITION_STATS} if table_version > 6 else set())
        assert set(table.config.metadata_partitions) == everything == wanted
        assert places(table) == live_places(table)
        starts = [instant.requested_time for instant in open_own(table).timeline]
        assert len(starts) == len(everything)
        assert all(table.format.metadata.is_first(time) for time in starts)

    def test_added_to_one_that_is_there(self, table: HudiTable) -> None:
        before = open_own(table).timeline.instants
        table = made(table, COLUMN_STATS)
        assert set(table.config.metadata_partitions) == {FILES, COLUMN_STATS}
        assert rows(table, metadata=True) == rows(table, metadata=False)
        table = made(table, RECORD_INDEX)
        assert set(table.config.metadata_partitions) == {FILES, COLUMN_STATS, RECORD_INDEX}
        assert set(before) < set(open_own(table).timeline.instants)
        assert places(table) == live_places(table)

    def test_statistics_are_of_every_file(self, table: HudiTable) -> None:
        table = (
            made(table, COLUMN_STATS, PARTITION_STATS)
            if table.format.metadata.defines_indexes
            else made(table, COLUMN_STATS)
        )
        found = records(table, COLUMN_STATS).values()
        files = {file.name for path in table.view().partitions() for file in table.view().listing.files(path)}
        named = {name for name in files if not name.startswith(".hoodie")}
        assert {record["fileName"] for record in found if record["columnName"] == "ts"} == named
        if PARTITION_STATS in table.config.metadata_partitions:
            of_p = [
                r for r in records(table, PARTITION_STATS).values() if (r["fileName"], r["columnName"]) == ("p", "ts")
            ]
            assert [(r["maxValue"]["LongWrapper"]["value"], r["isTightBound"]) for r in of_p] == [(5, True)]

    def test_deletes_leave_partitions_the_types_of_their_columns(self, table: HudiTable) -> None:
        """Hudi 1.1 and later fail to read records of one type that are merged with a later one of null."""
        if not table.format.metadata.defines_indexes:
            return
        table = made(table, COLUMN_STATS, PARTITION_STATS)
        before = records(table, PARTITION_STATS)
        writer(table).delete(frame(("a", "p", 9)))
        after = records(reopened(table), PARTITION_STATS)
        assert {key: record.get("valueType") for key, record in after.items()} == {
            key: record.get("valueType") for key, record in before.items()
        }

    def test_again_is_the_same(self, table: HudiTable) -> None:
        first = made(table, *INDEXES)
        kept = {name: records(first, name) for name in INDEXES}
        drop_indexes(first, {FILES})
        assert not set(INDEXES) & set(first.reload().config.metadata_partitions)
        second = made(first.reload(), *INDEXES)
        assert {name: records(second, name) for name in INDEXES} == kept


@versions
class TestRecordIndex:
    def test_a_key_in_two_groups_is_refused_and_nothing_is_left(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, COW)
        writer(table).insert(frame(("a", "p", 1), ("b", "p", 1)))
        writer(table).insert(frame(("a", "q", 1)))
        table = reopened(table)
        before = {file.path for file in table.storage.list_prefix(".hoodie", recursive=True)}
        with pytest.raises(MetadataTableError, match=r"'a'.* p/\S+ and q/") as raised:
            made(table, RECORD_INDEX, COLUMN_STATS)
        assert len(str(raised.value.fields["found"]).split(" and ")) == 2
        assert {file.path for file in table.storage.list_prefix(".hoodie", recursive=True)} == before

    def test_many_keys_get_more_groups(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, COW)
        writer(table).insert(frame(*((f"k{number}", "p", number) for number in range(1000))))
        sizes = {
            "hoodie.metadata.record.index.min.filegroup.count": "2",
            "hoodie.metadata.record.index.max.filegroup.size": "4800",
        }
        table = made(table, RECORD_INDEX, **sizes)
        assert len(groups(table, RECORD_INDEX)) == 20  # 2,000 to come, 100 in each
        assert places(table) == live_places(table)

    def test_by_default_there_are_ten_groups(self, tmp_path: Path) -> None:
        table = made(new_table(tmp_path, COW), RECORD_INDEX)
        assert len(groups(table, RECORD_INDEX)) == 10
        assert not records(table, RECORD_INDEX)


class TestPartitionedRecordIndex:
    @pytest.mark.parametrize("table_version", [9], indirect=True)
    @kinds
    def test_a_key_has_a_place_in_each_partition(self, kind: TableType, tmp_path: Path) -> None:
        table = new_table(tmp_path, kind)
        writer(table).insert(frame(("a", "2024-01-01", 1), ("b", "a/b", 2)))
        writer(table).insert(frame(("a", "x_y z", 3)))
        table = made(table, RECORD_INDEX, **{PARTITIONED: "true"})
        assert is_partitioned_record_index(table)
        assert groups(table, RECORD_INDEX) == [
            "record-index-2024%2D01%2D01-0000-0", "record-index-a%2Fb-0000-0", "record-index-x%5Fy z-0000-0"
        ]  # fmt: skip
        assert places(table) == live_places(table)

    @pytest.mark.parametrize("table_version", [9], indirect=True)
    def test_partitions_with_dots_are_refused(self, tmp_path: Path) -> None:
        table = new_table(tmp_path / "t", COW)
        writer(table).insert(frame(("a", "p", 1)))
        made(table, RECORD_INDEX, **{PARTITIONED: "true"})
        with pytest.raises(MetadataTableError, match=r"no partitioned record index of partition 'v1\.0'"):
            writer(table).insert(frame(("b", "v1.0", 1)))
        assert rows(reopened(table), metadata=True) == [("a", "p", 1)]
        other = new_table(tmp_path / "u", COW)
        writer(other).insert(frame(("a", "v1.0", 1)))
        with pytest.raises(MetadataTableError, match="dot"):
            made(other, RECORD_INDEX, **{PARTITIONED: "true"})

    @pytest.mark.parametrize("table_version", [6, 8], indirect=True)
    def test_older_versions_refuse_it(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=f"{PARTITIONED}.*version"):
            partitions_of_options(reopened(new_table(tmp_path, COW), **{PARTITIONED: "true"}))

    @pytest.mark.parametrize("table_version", [9], indirect=True)
    def test_only_one_record_index(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=GLOBAL):
            partitions_of_options(reopened(new_table(tmp_path, COW), **{PARTITIONED: "true", GLOBAL: "true"}))


def test_bloom_filters_of_other_columns_are_refused(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.index.bloom.filter.column.list": "ts",
    }
    with pytest.raises(OptionError, match=r"bloom\.filter\.column\.list"):
        partitions_of_options(reopened(new_table(tmp_path, COW), **options))


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_version_6_waits_for_what_is_pending(tmp_path: Path) -> None:
    table = new_table(tmp_path, MOR)
    writer(table).insert(frame(("a", "p", 1)))
    writer(table).upsert(frame(("a", "p", 2)))
    schedule_compaction(reopened(table))
    assert set(made(table, RECORD_INDEX).config.metadata_partitions) == {FILES}


# -- kills -------------------------------------------------------------------------------------------------------------


def killed(folder: Path, act: Callable[[HudiTable], object], at: int, *, after: bool) -> FaultyStorage:
    storage = FaultyStorage(str(folder), at, dies=True, after=after)
    with suppress(SkepError):
        act(HudiTable.open(storage, KEPT).with_context(runner=ThreadRunner(1)))
    return storage


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_while_indexes_are_made(after: bool, step: int, tmp_path: Path) -> None:
    """What the settings name is whole after each kill, and the next process makes the rest."""
    table = new_table(tmp_path / "first", MOR)
    writer(table).insert(frame(("a", "p", 1), ("b", "q", 2)))
    writer(table).upsert(frame(("a", "p", 3)))
    small = {"hoodie.metadata.record.index.min.filegroup.count": "2"}

    def act(table: HudiTable) -> HudiTable:
        return create_metadata_table(table.with_options({**ALL, **small}), SYSTEM_CLOCK, INDEXES)

    work = tmp_path / "work"
    shutil.copytree(tmp_path / "first", work)
    whole = killed(work, act, 1 << 30, after=False)
    expected = {name: records(HudiTable.open(str(work)), name) for name in INDEXES}
    calls = len(whole.calls)
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "first", work)
        storage = killed(work, act, at, after=after)
        where = f"killed {'after' if after else 'before'} call {at} of {calls}: {storage.calls[at - 1]}"
        now = HudiTable.open(str(work))
        for name in set(INDEXES) & set(now.config.metadata_partitions):
            assert records(now, name) == expected[name], where
        assert rows(now, metadata=True) == rows(now, metadata=False), where
        again = act(reopened(now))
        assert {name: records(again, name) for name in INDEXES} == expected, where
        assert not open_own(again).timeline.pending().of(Action.DELTA_COMMIT), where
