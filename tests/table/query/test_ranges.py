"""Time travel and ranges: which instants a query takes in, at the edges."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError, UnsupportedError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Instant
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.incremental import times_of
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

VERSIONS = ["0.15.0", "1.0.2", "1.1.1"]


def commits(table: HudiTable, **request: Any) -> Counter[str]:
    """How many rows of the answer each commit wrote."""
    rows = read(table, ReadRequest(**request)).to_arrow()
    return Counter(rows["_hoodie_commit_time"].to_pylist())


def times(table: HudiTable) -> list[tuple[str, str]]:
    """Requested time, and the time by which ranges go, of each write."""
    return [(i.requested_time, i.completion_time or i.requested_time) for i in table.timeline.data().completed()]


@pytest.fixture(params=VERSIONS)
def upserted(request: pytest.FixtureRequest, golden: Path) -> HudiTable:
    return HudiTable.open(golden / request.param / "cow_upsert" / "table")


def test_since_is_exclusive_and_until_inclusive(upserted: HudiTable) -> None:
    known = times(upserted)
    for (begin, begin_time), (end, end_time) in pairwise(known):
        found = commits(upserted, query="incremental", since=begin_time, until=end_time)
        assert begin not in found
        assert set(found) <= {end}
    first, last = known[0], known[-1]
    assert first[0] in commits(upserted, query="incremental")  # from the beginning
    assert commits(upserted, query="incremental", since=last[1]) == Counter()
    assert commits(upserted, query="incremental", since=first[1], until=first[1]) == Counter()


def test_checkpoints_end_before_a_write_that_is_pending(tmp_path: Path) -> None:
    """Its rows will have its requested time, in version 6: a checkpoint past that would never see them."""
    rows, storage = pa.table({"id": [1]}), LocalStorage(str(tmp_path / "t"))
    create_table(storage, TableSpec(name="t", schema=rows.schema, record_key=("id",), version=6))
    for _ in range(2):
        LocalWriter(HudiTable.open(storage)).upsert(rows)
    first, second = times_of(HudiTable.open(storage))
    pending = first.plus_milliseconds(1)
    assert pending.is_before(second)
    for name in (f"{pending}.commit.requested", f"{pending}.inflight"):
        storage.create_exclusive(f".hoodie/{name}", b"")
    assert times_of(HudiTable.open(storage)) == [first]


def test_the_newest_version_within_the_range(upserted: HudiTable) -> None:
    """A row that a later commit of the range changed comes once, as that commit left it."""
    whole = read(upserted, ReadRequest(query="incremental")).to_arrow()
    assert len(set(whole["_hoodie_record_key"].to_pylist())) == whole.num_rows
    snapshot = read(upserted).to_arrow()
    assert sorted(whole["_hoodie_commit_seqno"].to_pylist()) == sorted(snapshot["_hoodie_commit_seqno"].to_pylist())


def test_a_range_between_requested_and_completed(golden: Path) -> None:
    """From table version 8 on completion times count: a commit that was requested before begin belongs to the range."""
    table = HudiTable.open(golden / "1.1.1" / "cow_upsert" / "table")
    requested, _ = times(table)[0]
    assert requested in commits(table, query="incremental", since=requested)
    second = times(table)[1]
    assert second[0] not in commits(table, query="incremental", until=second[0])


def test_until_before_since(upserted: HudiTable) -> None:
    with pytest.raises(InputError, match="before since"):
        read(upserted, ReadRequest(query="incremental", since="2026-11-22", until="2026-11-21")).to_arrow()


def test_time_travel_takes_in_what_was_requested_by_then(upserted: HudiTable) -> None:
    known = [requested for requested, _ in times(upserted)]
    for at, instant in enumerate(known):
        assert set(commits(upserted, as_of=instant)) <= set(known[: at + 1])
    assert commits(upserted, as_of="1999-01-01") == Counter()
    assert commits(upserted, as_of="2999-01-01") == commits(upserted)
    moment = datetime.strptime(known[0] + "000", "%Y%m%d%H%M%S%f")
    spelt = moment.isoformat(" ", "milliseconds")
    assert commits(upserted, as_of=spelt) == commits(upserted, as_of=known[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_time_travel_past_the_cleaner_is_refused(golden: Path, version: str) -> None:
    table = HudiTable.open(golden / version / "cow_clean" / "table")
    oldest = times(table)[0][0]
    with pytest.raises(InputError, match="cleaner has removed"):
        read(table, ReadRequest(as_of=oldest))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_ranges_without_meta_columns(golden: Path, version: str) -> None:
    table = HudiTable.open(golden / version / "cow_virtual_keys" / "table")
    with pytest.raises(UnsupportedError, match=r"populate\.meta\.fields"):
        read(table, ReadRequest(query="incremental"))


@pytest.mark.parametrize("version", ["1.0.2", "1.1.1"])
def test_archived_instants_are_taken_in(golden: Path, version: str) -> None:
    table = HudiTable.open(golden / version / "cow_archive" / "table")
    archived = {instant.requested_time for instant in table.timeline.archived()}
    assert archived & set(commits(table, query="incremental"))


def test_files_that_were_cleaned(golden: Path) -> None:
    """Layout 2 answers from the table as it is, as Hudi 1.x does; the key can forbid it."""
    table = HudiTable.open(golden / "1.1.1" / "cow_clean" / "table")
    first, last = times(table)[1], times(table)[2]
    allowed = read(table, ReadRequest(query="incremental", since=first[1], until=last[1])).to_arrow()
    assert set(allowed["_hoodie_commit_time"].to_pylist()) <= {last[0]}
    forbidden = Options({"hoodie.datasource.read.incr.fallback.fulltablescan.enable": "false"})
    request = ReadRequest.of(forbidden, query="incremental", since=first[1], until=last[1])
    with pytest.raises(InputError, match="cleaner has removed"):
        read(table, request).to_arrow()


@pytest.mark.parametrize("version", VERSIONS)
def test_path_glob(golden: Path, version: str) -> None:
    table = HudiTable.open(golden / version / "cow_multi_partition_hive" / "table")
    rows = read(table, ReadRequest(query="incremental", path_glob="/country=NL/*")).to_arrow()
    everything = read(table, ReadRequest(query="incremental")).to_arrow()
    assert set(rows["country"].to_pylist()) == {"NL"}
    assert rows.num_rows == everything["country"].to_pylist().count("NL") < everything.num_rows
    either = read(table, ReadRequest(query="incremental", path_glob="/country={NL,IN}/city=c*")).to_arrow()
    assert set(either["city"].to_pylist()) <= {name for name in everything["city"].to_pylist() if name.startswith("c")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "case", ["mor_delete", "mor_upsert", "mor_bucket_index", "mor_compaction", "cow_upsert", "cow_delete"]
)
def test_changes_add_up_to_the_snapshot(golden: Path, version: str, case: str) -> None:
    """Without CDC logs the changes of a commit are the difference that its files make."""
    table = HudiTable.open(golden / version / case / "table")
    state: dict[str, str] = {}
    for change in read(table, ReadRequest(query="cdc")).to_arrow().to_pylist():
        image = json.loads(change["after"] or change["before"])
        key = image["_hoodie_record_key"]
        assert (change["op"] == "i") is (key not in state)
        if change["op"] == "d":
            del state[key]
        else:
            state[key] = image["_hoodie_commit_time"]
            assert state[key] == change["ts_ms"]
    snapshot = read(table, ReadRequest(columns=("_hoodie_record_key", "_hoodie_commit_time"))).to_arrow()
    assert state == dict(zip(*(column.to_pylist() for column in snapshot.columns), strict=True))


def test_a_late_row_of_an_old_partition_comes_with_its_commit(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("day",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path)), spec)

    def write(**row: object) -> Instant:
        return LocalWriter(table.reload()).upsert(pa.Table.from_pylist([row], schema=schema)).instant

    write(id="a", day="2020-01-01", ts=1)
    second = write(id="b", day="2026-11-21", ts=9)
    late = write(id="c", day="2020-01-01", ts=2)
    after_second = table.format.reads.time_in_range(second)
    rows = read(table.reload(), ReadRequest(query="incremental", since=after_second)).to_arrow()  # type: ignore[arg-type]
    assert rows.select(["_hoodie_commit_time", "id", "day"]).to_pylist() == [
        {"_hoodie_commit_time": late.requested_time, "id": "c", "day": "2020-01-01"}
    ]


@pytest.mark.parametrize("query", ["incremental", "cdc"])
def test_a_range_of_some_commits_is_that_up_to_the_last_of_them(upserted: HudiTable, query: str) -> None:
    known = sorted(time for _, time in times(upserted))
    for at in range(len(known)):
        for most in (1, 2, 99):
            end = known[at:][:most][-1]
            since = known[at - 1] if at else None
            some = read(upserted, ReadRequest(query=query, since=since, max_commits=most)).to_arrow()  # type: ignore[arg-type]
            whole = read(upserted, ReadRequest(query=query, since=since, until=end)).to_arrow()  # type: ignore[arg-type]
            assert some.equals(whole)
    assert read(upserted, ReadRequest(query=query, since=known[-1], max_commits=1)).count() == 0  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_commits must be 1 at least"):
        ReadRequest(query=query, max_commits=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_commits goes with the incremental and cdc queries only"):
        ReadRequest(max_commits=1)
