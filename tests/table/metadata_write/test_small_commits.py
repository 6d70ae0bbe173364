"""What a small commit reads of the metadata table, and that what is not read again is what would be read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage
from metadata_listings import assert_alike, frame, new_table

from skep_format.hfile import format_hfile
from skep_format.hfile.layout import Codec
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, format_block
from skep_format.names import LogFileName
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Events
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.entries import GroupReader, latest
from skep_table.metadata_table.partitions import RECORD_INDEX_MEMBER
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.files import files_of_commit
from skep_table.metadata_table.records.record_index import file_ids, record_index_update
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.records import entries_of, entries_of_each, file_info, record_schema
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.view import FileSlice, LogFile
from skep_table.write.local import LocalWriter
from skep_table.write.output.append import LogFiles

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
STATISTICS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
}
ALL = {
    **STATISTICS,
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
    "hoodie.index.type": "RECORD_INDEX",
}
EARLIER, LATER = InstantTime("20260101000000001"), InstantTime("20260101000000002")


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_a_writer_that_goes_on_requests_one_instant_a_commit(tmp_path: Path) -> None:
    """Its first commit makes the indexes and records them in the table's settings: its plan is as good as before."""
    new_table(tmp_path, COW)
    requested: list[object] = []
    events = Events(lambda each: requested.append(each) if each.facts.get("transition") == "request" else None)
    writer = LocalWriter(HudiTable.open(LocalStorage(str(tmp_path)), ALL).with_context(events=events))
    for ts in range(1, 4):
        writer.upsert(frame(("a", "p", ts)))
    assert len(requested) == 3


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("kind", [COW, MOR])
def test_an_open_table_reads_each_file_of_the_metadata_table_once(tmp_path: Path, kind: TableType) -> None:
    new_table(tmp_path, kind)
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    table: HudiTable | None = HudiTable.open(storage, ALL)
    read: Counter[str] = Counter()
    for ts in range(1, 7):
        assert table is not None
        storage.calls.clear()
        table = LocalWriter(table).upsert(frame(("a", "p", ts), ("b", "q", ts))).table
        calls = [call for call in storage.calls if call.path.startswith(FOLDER)]
        read.update(call.path for call in calls if call.method in ("open_input", "read_range"))
        of_folder = Counter(call.path for call in calls if call.method in ("list_prefix", "list_folder", "read"))
        # by the snapshot at its begin, and by the one under the lock
        assert ts == 1 or max(of_folder.values()) <= 2, storage.calls
    logs = {path: count for path, count in read.items() if ".log." in path}
    assert len(logs) >= 10
    assert set(logs.values()) == {1}
    assert_alike(HudiTable.open(str(tmp_path)))
    assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("kind", [COW, MOR])
def test_a_writer_reads_each_log_file_of_the_metadata_table_once(tmp_path: Path, kind: TableType) -> None:
    """Each of its commits begins with the snapshot that the writer was made with."""
    new_table(tmp_path, kind)
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    writer = LocalWriter(HudiTable.open(storage, ALL))
    for ts in range(1, 7):
        if ts == 4:  # what another one writes is read, too
            LocalWriter(HudiTable.open(str(tmp_path), ALL)).upsert(frame(("a", "p", ts), ("c", "q", ts)))
        else:
            writer.upsert(frame(("a", "p", ts), ("b", "q", ts)))
    calls = [call for call in storage.calls if call.path.startswith(FOLDER) and ".log." in call.path]
    read = Counter(call.path for call in calls if call.method in ("open_input", "read_range"))
    assert len(read) >= 10
    assert set(read.values()) == {1}
    assert_alike(HudiTable.open(str(tmp_path)))
    assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_tasks_do_not_open_the_log_files_that_they_have_written(tmp_path: Path, table_version: int) -> None:
    new_table(tmp_path, MOR)
    for ts in (1, 2):
        storage = CountingStorage(LocalStorage(str(tmp_path)))
        result = LocalWriter(HudiTable.open(storage, STATISTICS)).upsert(frame(("a", "p", ts)))
        logs = {stat.path for stat in result.metadata.stats if stat.is_log}
        assert bool(logs) is (ts == 2)
        assert not logs & {*storage.calls.paths("open_input", "read", "read_range", "read_suffix")}, storage.calls
    assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()


TYPED: dict[str, list[Any]] = {
    "id": ["a", "b", "c"],
    "part": ["p"] * 3,
    "ts": [1, 2, 3],
    "i": [1, None, -5],
    "b": [True, False, None],
    "d": [0.5, -0.0, 2.0],
    "f": [1.87, 2.5, None],
    "n": [Decimal("1.25"), None, Decimal("-99.10")],
    "t": [date(2020, 1, 1), date(1960, 1, 1), None],
    "u": [1_600_000_000_000_000, None, -1],
    "x": [b"\x00\xff", b"", None],
    "s": ["é" * 2000, "", None],
    "w": [{"v": 4, "z": "q"}, None, {"v": None, "z": ""}],
    "l": [[1], [], None],
}
SCHEMA = pa.schema(
    {
        "id": pa.string(), "part": pa.string(), "ts": pa.int64(), "i": pa.int32(), "b": pa.bool_(), "d": pa.float64(),
        "f": pa.float32(), "n": pa.decimal128(12, 2), "t": pa.date32(), "u": pa.timestamp("us", "UTC"),
        "x": pa.binary(), "s": pa.string(), "w": pa.struct({"v": pa.int32(), "z": pa.string()}),
        "l": pa.list_(pa.int32()),
    }
)  # fmt: skip


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("blocks", ["avro", "parquet"])
@pytest.mark.parametrize("nan", [False, True])
def test_what_statistics_record_of_rows_is_what_they_record_of_their_log_file(
    tmp_path: Path, table_version: int, blocks: str, nan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[FileFacts] = []
    close = LogFiles.close

    def recorded(self: LogFiles) -> Any:
        stats = close(self)
        found.extend(self.facts)
        return stats

    monkeypatch.setattr(LogFiles, "close", recorded)
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=MOR)
    table = create_table(LocalStorage(str(tmp_path)), spec, STATISTICS)
    options = {**STATISTICS, "hoodie.logfile.data.block.format": blocks}
    columns = ",".join(name for name in SCHEMA.names if name not in ("l", "w")) + ",w.v,w.z"
    options["hoodie.metadata.index.column.stats.column.list"] = columns
    rows = pa.table(TYPED, SCHEMA)
    LocalWriter(table.with_options(options)).insert(rows)
    later = rows.set_column(2, SCHEMA.field("ts"), pa.array([7, 8, 9]))
    if nan:
        later = later.set_column(5, SCHEMA.field("d"), pa.array([float("nan"), 1.0, None]))
    written = LocalWriter(HudiTable.open(str(tmp_path), options)).upsert(later)
    LocalWriter(HudiTable.open(str(tmp_path), options)).delete(rows.slice(0, 1))
    now = HudiTable.open(str(tmp_path), options)
    files = [(path, log) for path in now.view().partitions() for s in now.view().slices(path) for log in s.files]
    read = {each.name: each for each in facts_of_files(now, files, stats_columns(now), blooms=False)}
    logs = {stat.path.rpartition("/")[2] for stat in written.metadata.stats}
    assert {each.name for each in found} >= (set() if nan else logs)
    assert not nan or not logs & {each.name for each in found}
    for each in found:
        assert sorted(each.summaries, key=repr) == sorted(read[each.name].summaries, key=repr)
    assert len(found) == (1 if nan else 2)


def one_key(key: str, release: str) -> PartitionUpdate:
    return record_index_update(*(pa.array([text]) for text in (key, "p", "f")), 1, release)


class TestLaterSnapshots:
    """A file group in two snapshots."""

    LOG = "record_index/.record-index-0000-0_00000000000000.log.1_0-0-0"

    def written(self, storage: LocalStorage, time: InstantTime, key: str) -> FileSlice:
        """A slice with a log file of one block, whose size is the same for all times and keys."""
        schema = record_schema("0.15.0")
        update = one_key(key, "0.15.0")
        headers = {HeaderKey.INSTANT_TIME: str(time), HeaderKey.SCHEMA: schema.file_text}
        file = format_hfile(*entries_of(update.puts, schema).columns, file_info(schema), codec=Codec.NONE)
        data = format_block(BlockType.HFILE_DATA, headers, file)
        storage.replace_atomic(self.LOG, data)
        storage.set_modified(self.LOG, 1_700_000_000_000)
        name = LogFileName.parse(self.LOG.rpartition("/")[2])
        assert name is not None
        return FileSlice("record_index", name.file_id, time, log_files=(LogFile(self.LOG, len(data), name),))

    def reader(
        self, storage: LocalStorage, slice_: FileSlice, done: set[InstantTime], before: GroupReader | None = None
    ) -> GroupReader:
        files = {file.path: file for file in storage.list_prefix("record_index")}
        return GroupReader(storage, slice_, done.__contains__, files, None if before is None else before.files)

    def keys(self, reader: GroupReader, *keys: str) -> list[str]:
        entries = reader.entries(pa.array(keys), column=RECORD_INDEX_MEMBER)
        return sorted(file_ids(*latest(entries, RECORD_INDEX_MEMBER))["record_key"].to_pylist())

    def test_a_log_file_is_not_read_again(self, tmp_path: Path) -> None:
        storage = LocalStorage(str(tmp_path))
        slice_ = self.written(storage, EARLIER, "a")
        before = self.reader(storage, slice_, {EARLIER})
        assert self.keys(before, "a", "b") == ["a"]
        after = self.reader(storage, slice_, {EARLIER}, before)
        storage.delete(self.LOG)
        assert self.keys(after, "a") == ["a"]

    def test_a_log_file_of_a_write_that_was_pending_is(self, tmp_path: Path) -> None:
        """It was rolled back, and carried out again at the same time: its log file has the same name and size."""
        storage = LocalStorage(str(tmp_path))
        slice_ = self.written(storage, EARLIER, "a")
        before = self.reader(storage, slice_, set())
        assert self.keys(before, "a", "b") == []
        again = self.written(storage, EARLIER, "b")
        assert again.log_files == slice_.log_files
        assert self.keys(self.reader(storage, again, {EARLIER}, before), "a", "b") == ["b"]

    def test_a_log_file_whose_write_counts_no_more_is(self, tmp_path: Path) -> None:
        storage = LocalStorage(str(tmp_path))
        before = self.reader(storage, self.written(storage, EARLIER, "a"), {EARLIER})
        assert self.keys(before, "a", "b") == ["a"]
        again = self.written(storage, LATER, "b")
        assert self.keys(self.reader(storage, again, {LATER}, before), "a", "b") == ["b"]

    def test_a_log_file_that_was_written_again_is(self, tmp_path: Path) -> None:
        storage = LocalStorage(str(tmp_path))
        before = self.reader(storage, self.written(storage, EARLIER, "a"), {EARLIER, LATER})
        assert self.keys(before, "a", "b") == ["a"]
        again = self.written(storage, LATER, "b")
        storage.set_modified(self.LOG, 1_700_000_000_001)
        assert self.keys(self.reader(storage, again, {EARLIER, LATER}, before), "a", "b") == ["b"]


@pytest.mark.parametrize("release", ["0.15.0", "1.1.1"])
def test_entries_of_several_partitions_are_those_of_each(tmp_path: Path, release: str) -> None:
    table = new_table(tmp_path, MOR)
    result = LocalWriter(table).upsert(frame(("a", "p", 1), ("b", "q", 2)))
    every = [
        files_of_commit(result.metadata),
        one_key("a", release),
        bloom_filters_update({}, [], LATER, release),
    ]
    puts, schema = [each.puts for each in every], record_schema(release)
    assert entries_of_each(puts, schema) == [entries_of(each, schema) for each in puts]


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_a_commit_that_can_not_have_what_it_read_is_a_slice_of_its_own(tmp_path: Path) -> None:
    """The same look-up after another process has written: its log file is read, and the others are not."""
    new_table(tmp_path, MOR)
    for ts in (1, 2):
        LocalWriter(HudiTable.open(str(tmp_path), ALL)).upsert(frame(("a", "p", ts)))
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    mine = HudiTable.open(storage, ALL)
    index = mine.metadata_table()
    assert index is not None
    assert [len(index.files(path)) for path in index.partitions()] == [2]
    LocalWriter(HudiTable.open(str(tmp_path), ALL)).upsert(frame(("a", "p", 3), ("b", "q", 3)))
    storage.calls.clear()
    now = mine.reload().metadata_table()
    assert now is not None
    assert [len(now.files(path)) for path in now.partitions()] == [3, 1]
    read = storage.calls.paths("read_range", "open_input")
    assert len(read) == 1, storage.calls
    assert replace(now.group_readers("files")[0].slice, log_files=()) == replace(
        index.group_readers("files")[0].slice, log_files=()
    )
