"""Incremental and CDC queries that begin in the archived part of the timeline: whole, or an error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Instant
from skep_format.timeline.lsm_history import LsmHistory
from skep_format.timeline.lsm_rows import HistoryRow
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.incremental import instants_between
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ON_BOTH = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
FALL_BACK = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}
COMMITS = 12


class Aged:
    """Commit n writes row n; those with an even number go to one partition, the others to another."""

    def __init__(self, folder: Path, kind: TableType) -> None:
        self.folder = folder
        spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
        create_table(LocalStorage(str(folder)), spec)
        self.setting = {"options": Options(OPTIONS)}
        self.instants = [self.upsert(at) for at in range(COMMITS)]

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.folder))

    def upsert(self, *ids: int, ts: int = 1) -> str:
        rows = pa.Table.from_pylist([{"id": at, "part": "ab"[at % 2], "ts": ts} for at in ids], SCHEMA)
        instant = LocalWriter(self.table.with_context(**self.setting)).upsert(rows).instant
        return self.table.format.reads.time_in_range(instant)

    def archive(self) -> None:
        assert clean(self.table.with_context(**self.setting)) is not None
        archive(self.table.with_context(**self.setting))
        assert self.table.timeline.is_archived(self.instants[COMMITS // 2])

    def ids(self, **request: Any) -> list[int]:
        rows = read(self.table, ReadRequest(**{"query": "incremental", **request}))
        found = sorted(row["id"] for row in rows.to_arrow().to_pylist())
        assert rows.count() == len(found)
        return found


@pytest.fixture
def cow(tmp_path: Path) -> Aged:
    aged = Aged(tmp_path / "t", TableType.COPY_ON_WRITE)
    aged.archive()
    return aged


@pytest.fixture
def mor(tmp_path: Path) -> Aged:
    """One partition has its newest rows in a log, the other one only rows of archived commits."""
    aged = Aged(tmp_path / "t", TableType.MERGE_ON_READ)
    aged.upsert(0, ts=2)
    compact(aged.table.with_context(**aged.setting))
    for ts in range(3, 9):
        aged.upsert(0, ts=ts)
    compact(aged.table.with_context(**aged.setting))
    aged.upsert(2, ts=9)
    aged.archive()
    return aged


@ON_BOTH
@pytest.mark.parametrize("begin", [1, 3, COMMITS - 2])
def test_a_range_that_begins_in_the_archive_is_whole(cow: Aged, begin: int) -> None:
    assert cow.ids(since=cow.instants[begin]) == list(range(begin + 1, COMMITS))


@ON_BOTH
@pytest.mark.parametrize("since", ["000", "20200101000000000"])
def test_the_beginning_is_that_of_the_table(cow: Aged, since: str) -> None:
    assert cow.ids(since=since) == list(range(COMMITS))


@ON_BOTH
def test_rows_that_changed_since_are_in_the_newest_of_their_commits(cow: Aged) -> None:
    cow.upsert(3, ts=2)
    assert cow.ids(since=cow.instants[1]) == list(range(2, COMMITS))
    assert cow.ids(since=cow.instants[-1]) == [3]


@ON_BOTH
@pytest.mark.parametrize("begin", [1, 3, 7])
def test_a_merge_on_read_table_is_whole_too(mor: Aged, begin: int) -> None:
    assert mor.ids(since=mor.instants[begin]) == sorted({0, 2, *range(begin + 1, COMMITS)})


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_a_range_whose_files_were_cleaned_names_the_way_out(cow: Aged) -> None:
    with pytest.raises(InputError) as error:
        cow.ids(since=cow.instants[1], until=cow.instants[4])
    assert FALL_BACK in str(error.value.hint)


@ON_BOTH
def test_the_way_out_answers_from_the_table_as_it_is(cow: Aged) -> None:
    assert cow.ids(since=cow.instants[1], until=cow.instants[4], full_scan=True) == [2, 3, 4]
    assert cow.ids(since=cow.instants[1], full_scan=True) == list(range(2, COMMITS))
    request = ReadRequest.of(
        Options({
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": cow.instants[1],
            "hoodie.datasource.read.end.instanttime": cow.instants[4],
            FALL_BACK: "true",
        })
    )  # fmt: skip
    assert read(cow.table, request).count() == 3


@ON_BOTH
def test_the_way_out_of_a_merge_on_read_table(mor: Aged) -> None:
    """Row 2 was changed after the range. Hudi 0.15 leaves out later log blocks, 1.x the row."""
    ids = mor.ids(since=mor.instants[0], until=mor.instants[5], full_scan=True)
    after_merge = mor.table.format.reads.filters_commits_after_merge
    assert ids == ([1, 3, 4, 5] if after_merge else [1, 2, 3, 4, 5])


@ON_BOTH
def test_a_range_that_ends_in_the_archive_is_whole_where_its_files_are_there(tmp_path: Path) -> None:
    aged = Aged(tmp_path / "t", TableType.COPY_ON_WRITE)
    archive(aged.table.with_context(**aged.setting))
    assert aged.table.timeline.is_archived(aged.instants[4])
    assert aged.ids(since=aged.instants[1], until=aged.instants[4]) == [2, 3, 4]


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_what_a_lost_archive_knew_is_answered_by_the_files(cow: Aged) -> None:
    shutil.rmtree(cow.folder / cow.table.layout.archive_folder)
    assert cow.ids(since=cow.instants[1]) == list(range(2, COMMITS))
    assert cow.ids(since=cow.instants[1], until=cow.instants[4], full_scan=True) == [2, 3, 4]


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_a_lost_archive_is_an_error_where_the_files_do_not_show_it(cow: Aged) -> None:
    """A file of an archived commit that nobody rewrote since."""
    for at in range(100, 106):
        cow.upsert(at * 2 + 1)
    archive(cow.table.with_context(**cow.setting))
    shutil.rmtree(cow.folder / cow.table.layout.archive_folder)
    start = cow.table.timeline.first_time
    assert start is not None
    with pytest.raises(InputError) as error:
        cow.ids(since="000", until=start)
    assert FALL_BACK in str(error.value.hint)
    assert 0 in cow.ids(since="000", until=start, full_scan=True)
    with pytest.raises(InputError):
        read(cow.table, ReadRequest(query="cdc", since="000")).to_arrow()  # type: ignore[arg-type]


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_a_range_of_completion_times_needs_the_archive(cow: Aged) -> None:
    """A file shows when its commit was requested, not when it completed."""
    for at in range(100, 106):
        cow.upsert(at * 2 + 1)
    archive(cow.table.with_context(**cow.setting))
    shutil.rmtree(cow.folder / cow.table.layout.archive_folder)
    for how in ({}, {"full_scan": True}, {"full_scan": False}, {"until": cow.table.timeline.first_time}):
        with pytest.raises(InputError, match="the archive has no commit that wrote"):
            cow.ids(since="000", **how)
    with pytest.raises(InputError, match="the archive has no commit that wrote"):
        read(cow.table, ReadRequest(query="cdc", since="000")).to_arrow()  # type: ignore[arg-type]
    assert cow.ids(since=cow.table.timeline.first_time)[-1] == 211


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
@pytest.mark.parametrize("kind", list(TableType), ids=["cow", "mor"])
def test_a_lost_archive_shows_in_what_later_commits_replaced(kind: TableType, tmp_path: Path) -> None:
    """No file of a lost commit is left: its rows are in files of later ones."""
    aged = Aged(tmp_path / "t", kind)
    if kind is TableType.MERGE_ON_READ:
        for ts in range(2, 8):
            aged.upsert(0, 1, ts=ts)
        compact(aged.table.with_context(**aged.setting))
    aged.archive()
    shutil.rmtree(aged.folder / aged.table.layout.archive_folder)
    timeline, view = aged.table.timeline, aged.table.view()
    assert not any(timeline.is_archived(each.base_instant) for path in "ab" for each in view.slices(path))
    for how in ({}, {"full_scan": True}, {"until": timeline.first_time}):
        with pytest.raises(InputError, match="the archive has no commit that wrote rows of"):
            aged.ids(since="000", **how)
    with pytest.raises(InputError):
        read(aged.table, ReadRequest(query="cdc", since="000")).to_arrow()  # type: ignore[arg-type]


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_a_lost_archive_shows_in_log_files(tmp_path: Path) -> None:
    """They are named by their delta commits."""
    aged = Aged(tmp_path / "t", TableType.MERGE_ON_READ)
    for ts in range(2, 9):
        aged.upsert(0, ts=ts)
    archive(aged.table.with_context(**aged.setting))
    known = aged.table.timeline.archived()[:COMMITS]
    assert aged.ids(since="000") == list(range(COMMITS))
    storage, layout = aged.table.storage, aged.table.layout
    shutil.rmtree(aged.folder / layout.archive_folder)
    rows = [HistoryRow(each, layout.encode_commit(CommitMetadata())) for each in known]
    LsmHistory(storage, layout.archive_folder).add(known, rows)
    with pytest.raises(InputError, match=r"the archive has no commit that wrote rows of .*\.log\."):
        aged.ids(since="000")


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_a_commit_that_was_archived_before_others_that_completed_first(cow: Aged) -> None:
    """Archived are those that were requested first; a range is of completion times."""
    storage, layout = cow.table.storage, cow.table.layout
    last = cow.table.timeline.data().completed().instants[-1]
    first, *_ = cow.table.timeline.archived()
    early = InstantTime(first.requested_time).plus_milliseconds(-9)
    late = Instant(
        early, first.action, first.state, CompletionTime(InstantTime(str(last.completion_time)).plus_milliseconds(5))
    )
    history = LsmHistory(storage, layout.archive_folder)
    history.add([late], [HistoryRow(late, layout.encode_commit(CommitMetadata()))])
    found = instants_between(cow.table, ReadRequest(query="incremental", since=InstantTime(str(last.completion_time))))
    assert found == (late,)


@ON_BOTH
def test_a_new_table_has_nothing_archived(tmp_path: Path) -> None:
    create_table(LocalStorage(str(tmp_path)), TableSpec(name="t", schema=SCHEMA, record_key=("id",)))
    table = HudiTable.open(str(tmp_path))
    for since in ("000", "20200101000000000"):
        request = ReadRequest(query="incremental", since=since)  # type: ignore[arg-type]
        assert read(table, request).count() == 0
    LocalWriter(table).insert(pa.Table.from_pylist([{"id": 1, "part": "a", "ts": 1}], SCHEMA))
    assert read(table.reload(), request).count() == 1


@ON_BOTH
def test_changes_of_archived_commits_are_reported_or_refused(cow: Aged) -> None:
    """Their files before the change are cleaned: a part of the changes would be no answer."""
    for since in ("000", cow.instants[1]):
        with pytest.raises(InputError, match="clean"):
            read(cow.table, ReadRequest(query="cdc", since=since)).to_arrow()  # type: ignore[arg-type]
    late = ReadRequest(query="cdc", since=cow.instants[-2])  # type: ignore[arg-type]
    assert [row["op"] for row in read(cow.table, late).to_arrow().to_pylist()] == ["i"]
