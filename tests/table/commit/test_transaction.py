"""The commit protocol: what is on storage after each step, and what other writers can do to it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import (
    CommitConflictError,
    InputError,
    KeyFieldError,
    LeaseLostError,
    LockTimeoutError,
    MetadataTableError,
    OptionError,
    TableExistsError,
    TableVersionError,
    UnsupportedError,
    WriteError,
)
from skep_format.instant_time import InstantTime
from skep_format.names import Marker, MarkerType
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import update_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.plans import RollbackMetadata, RollbackPlan
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import heartbeat_path
from skep_table.commit.parts.markers import create_marker, list_ahead, list_markers
from skep_table.commit.transaction import Transaction
from skep_table.events import Event, Events
from skep_table.lock import InProcessLock
from skep_table.metadata_write.own import has_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
FilesOf = Callable[[Path], dict[str, bytes]]


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


def folder_of(table: HudiTable) -> Path:
    return Path(table.storage.root)


def keys(table: HudiTable) -> list[str]:
    table = table.reload()
    view = table.view()
    slices = [slice_ for partition in view.partitions() for slice_ in view.slices(partition)]
    files = [folder_of(table) / slice_.base_file.path for slice_ in slices if slice_.base_file]
    return sorted(key for file in files for key in pq.ParquetFile(file).read().column("id").to_pylist())


class SetClock:
    """A clock that tests turn, backwards too."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def test_the_files_of_a_commit(table: HudiTable, rows: Rows) -> None:
    result = LocalWriter(table).upsert(rows(["a"]))
    time = result.instant.requested_time
    root = folder_of(table)
    forms = {state: root / table.layout.path(replace(result.instant, state=state)) for state in State}
    assert forms[State.REQUESTED].read_bytes() == b""
    assert all(form.exists() for form in forms.values())
    assert not list((root / ".hoodie").glob(".temp/*"))
    assert (root / "p/.hoodie_partition_metadata").read_text().splitlines()[1:] == [
        f"commitTime={time}",
        "partitionDepth=1",
    ]
    metadata = table.reload().commit_metadata(result.instant)
    assert metadata.operation_type is WriteOperation.UPSERT
    (stat,) = metadata.stats
    assert (root / stat.path).stat().st_size == stat.file_size_in_bytes == stat.total_write_bytes
    assert (stat.prev_commit, stat.num_writes, stat.num_inserts) == ("null", 1, 1)
    assert metadata.schema_json is not None
    assert "_hoodie_" not in metadata.schema_json


def test_instant_times_increase_although_the_clock_goes_back(table: HudiTable, rows: Rows) -> None:
    clock = SetClock()
    writer = LocalWriter(table.with_context(clock=clock))
    times = []
    for step in (0, -3600, 10, -1):
        clock.time += timedelta(seconds=step)
        times.append(writer.insert(rows([f"k{step}"])).instant.requested_time)
    assert times == sorted(set(times))
    assert times[0].startswith("20300101000000")


def test_a_commit_to_the_same_file_group_first_wins(table: HudiTable, rows: Rows) -> None:
    writer = LocalWriter(table)
    writer.insert(rows(["a"]))
    first = Transaction.begin(table, Action.COMMIT)
    with first:
        # The other one may not see ours as failed: it is another process that began before.
        other = table.reload()
        group = other.view().slices("p")[0].file_id
        stat = WriteStat(file_id=group, path="p/x", partition_path="p")
        first.inflight(CommitMetadata())
        late = str(int(first.instant.requested_time) + 5)
        later = create_requested(other, Instant(InstantTime(late), Action.COMMIT, State.REQUESTED))
        transition_to_inflight(other, later)
        complete(other, later, CommitMetadata(partition_to_write_stats={"p": (stat,)}))
        with pytest.raises(CommitConflictError, match=group) as caught:
            first.complete(CommitMetadata(partition_to_write_stats={"p": (stat,)}))
        assert caught.value.fields["instant"] == late
    assert not table.reload().timeline.pending().instants


def test_a_writer_that_was_taken_for_dead_does_not_complete(table: HudiTable, rows: Rows) -> None:
    slow = Transaction.begin(table, Action.COMMIT)
    slow.inflight(CommitMetadata())
    table.storage.delete(heartbeat_path(slow.instant.requested_time))
    LocalWriter(table).insert(rows(["a"]))  # rolls the slow one back
    with pytest.raises(CommitConflictError, match="rolled it back"):
        slow.complete(CommitMetadata())
    slow.abort(None)
    assert keys(table) == ["a"]
    assert not table.reload().timeline.pending().instants


def test_files_of_losing_attempts_are_deleted_before_the_commit(table: HudiTable, rows: Rows) -> None:
    with Transaction.begin(table, Action.COMMIT) as transaction:
        transaction.inflight(CommitMetadata())
        time = transaction.instant.requested_time
        stats = []
        for token in ("0-0-0", "0-0-1"):
            name = f"f-0_{token}_{time}.parquet"
            create_marker(table.storage, Marker(time, "p", name, MarkerType.CREATE))
            table.storage.create_exclusive(f"p/{name}", b"data")
            stats.append(WriteStat(file_id="f-0", path=f"p/{name}", partition_path="p"))
        create_marker(table.storage, Marker(time, "p", f"never-0_0-0-0_{time}.parquet", MarkerType.CREATE))
        transaction.complete(CommitMetadata(partition_to_write_stats={"p": (stats[1],)}))
        assert not table.storage.exists(stats[0].path)
        assert table.storage.exists(stats[1].path)
        with pytest.raises(LeaseLostError, match="has ended"):
            create_marker(table.storage, Marker(time, "p", "late", MarkerType.CREATE))
    assert list_markers(table.storage, time) is None


def test_markers_of_many_files_are_listed_together(table: HudiTable, rows: Rows) -> None:
    """In the files of Hudi's timeline server; a file that comes on top is in one more."""
    with Transaction.begin(table, Action.COMMIT) as transaction:
        transaction.inflight(CommitMetadata())
        time = transaction.instant.requested_time
        markers = [
            Marker(time, f"p{number}", f"f-0_0-0-{number}_{time}.parquet", MarkerType.CREATE) for number in range(3)
        ]
        list_ahead(table.storage, markers)
        more = Marker(time, "p1", f"f-1_0-0-1_{time}.parquet", MarkerType.CREATE)
        create_marker(table.storage, more, listed=True)
        assert sorted(map(str, list_markers(table.storage, time) or ())) == sorted(map(str, [*markers, more]))
        temp = folder_of(table) / ".hoodie/.temp" / time
        assert (temp / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
        lists = [file.read_text() for file in temp.glob("MARKERS[0-9]*")]
        assert sorted(lists, key=len) == [
            f"p1/{more.file_name}.marker.CREATE\n",
            "".join(f"{marker.data_path}.marker.CREATE\n" for marker in markers),
        ]
        transaction.complete(CommitMetadata())
        with pytest.raises(LeaseLostError, match="has ended"):
            list_ahead(table.storage, markers)
    assert list_markers(table.storage, time) is None
    assert not temp.exists()


@pytest.mark.parametrize("markers", ["direct", "server", "none"])
def test_a_failed_commit_of_another_writer_is_rolled_back_first(markers: str, table: HudiTable, rows: Rows) -> None:
    LocalWriter(table).insert(rows(["a"]))
    root = folder_of(table)
    failed = "20310101000000000"
    transition_to_inflight(table, create_requested(table, Instant(InstantTime(failed), Action.COMMIT, State.REQUESTED)))
    leftover = f"p/dead-0_0-1-2_{failed}.parquet"
    (root / leftover).write_bytes(b"half a fi")
    temp = root / ".hoodie/.temp" / failed
    if markers == "direct":
        (temp / "p").mkdir(parents=True)
        (temp / f"{leftover}.marker.CREATE").touch()
    elif markers == "server":
        temp.mkdir(parents=True)
        (temp / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
        (temp / "MARKERS0").write_text(f"{leftover}.marker.CREATE\n")
        (temp / "MARKERS3").write_text("q/never-0_0-0-0_1.parquet.marker.MERGE\n")
    result = LocalWriter(table).insert(rows(["b"]))
    assert keys(table) == ["a", "b"]
    assert not (root / leftover).exists()
    assert not temp.exists()
    fresh = table.reload()
    (rollback,) = fresh.timeline.of(Action.ROLLBACK).instants
    assert failed < rollback.requested_time < result.instant.requested_time
    rolled_back = fresh.plan(rollback)
    assert isinstance(rolled_back, RollbackMetadata)
    assert rolled_back.commits_rollback == (failed,)
    assert rolled_back.total_files_deleted == 1
    assert rolled_back.partition_metadata["p"].success_delete_files == (table.storage.uri(leftover),)
    plan = fresh.requested_plan(RollbackPlan, rollback)
    assert plan is not None
    assert plan.instant_to_rollback is not None
    assert plan.instant_to_rollback.commit_time == failed
    assert not fresh.timeline.pending().instants


@pytest.mark.parametrize("ending", ["0123456789abcdef.tmp", "crc"])
def test_what_lies_beside_markers_is_none(ending: str, table: HudiTable, rows: Rows) -> None:
    """What a process left that was killed between writing a file and giving it its name, and Hadoop's check sums."""
    LocalWriter(table).insert(rows(["a"]))

    def begin() -> InstantTime:
        dead = Transaction.begin(table, Action.COMMIT)
        dead.inflight(CommitMetadata())
        return dead.instant.requested_time

    with ThreadPoolExecutor(1) as other:  # commits of the main thread are aborted when the process ends
        time = other.submit(begin).result()
    folder = folder_of(table) / ".hoodie/.temp" / time / "p"
    folder.mkdir(parents=True)
    (folder / f".f-0_0-0-0_{time}.parquet.marker.MERGE.{ending}").touch()
    table.storage.delete(heartbeat_path(time))
    LocalWriter(table).insert(rows(["b"]))
    assert keys(table) == ["a", "b"]
    assert not folder.exists()


def test_pending_table_services_are_left_alone(table: HudiTable, rows: Rows) -> None:
    root = folder_of(table)
    planned = create_requested(table, Instant(InstantTime("20310101000000000"), Action.CLEAN, State.REQUESTED))
    LocalWriter(table).insert(rows(["a"]))
    assert (root / table.layout.path(planned)).exists()


def test_a_table_upgraded_meanwhile_is_refused_and_nothing_stays(
    table: HudiTable, rows: Rows, files_of: FilesOf
) -> None:
    LocalWriter(table).insert(rows(["a"]))
    with Transaction.begin(table, Action.COMMIT) as transaction:
        time = transaction.instant.requested_time
        transaction.inflight(CommitMetadata())
        update_table_config(table.storage, {"hoodie.table.version": "8", "hoodie.timeline.layout.version": "2"})
        with pytest.raises(TableVersionError) as caught:
            transaction.complete(CommitMetadata())
    assert "hoodie.write.auto.upgrade=false" in str(caught.value)
    assert f"hoodie.write.table.version={table.config.version}" in str(caught.value)
    before = files_of(folder_of(table))
    assert not [path for path in before if time in path]
    with pytest.raises(TableVersionError):
        LocalWriter(table).insert(rows(["b"]))
    assert files_of(folder_of(table)) == before


def with_metadata_table(table: HudiTable) -> None:
    update_table_config(table.storage, {"hoodie.table.metadata.partitions": "files"})
    folder = folder_of(table) / ".hoodie/metadata/files"
    folder.mkdir(parents=True)
    (folder / "anything").write_bytes(b"x")
    assert has_metadata_table(table.reload().config)


def test_a_metadata_table_that_is_damaged_is_made_again(table: HudiTable, rows: Rows) -> None:
    with_metadata_table(table)
    assert table.reload().metadata_table() is None
    LocalWriter(table).insert(rows(["a"]))
    assert table.reload().metadata_table() is not None


def test_a_metadata_table_is_dropped_before_the_write_where_it_is_not_to_be_kept(table: HudiTable, rows: Rows) -> None:
    with_metadata_table(table)
    heard: list[Event] = []
    unkept = {"hoodie.metadata.enable": "false"}
    LocalWriter(table.with_context(events=Events(heard.append)).with_options(unkept)).insert(rows(["a"]))
    assert not has_metadata_table(table.reload().config)
    assert not (folder_of(table) / ".hoodie/metadata").exists()
    assert "write.metadata_table_dropped" in [event.name for event in heard]


@pytest.mark.parametrize(
    "options",
    [
        {"skep.write.metadata.table": "refuse"},
        {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"},
    ],
)
def test_or_the_write_is_refused_by_option(
    options: dict[str, str], table: HudiTable, rows: Rows, files_of: FilesOf
) -> None:
    with_metadata_table(table)
    before = files_of(folder_of(table))
    unkept = {"hoodie.metadata.enable": "false"}
    with pytest.raises(MetadataTableError, match="metadata table"):
        LocalWriter(table.with_context(options=Options({**options, **unkept}))).insert(rows(["a"]))
    assert files_of(folder_of(table)) == before


def test_the_lock_is_held_for_the_two_short_sections_only(table: HudiTable, rows: Rows) -> None:
    lock = InProcessLock(table.storage.root)
    setting = {"lock": InProcessLock(table.storage.root), "options": Options({"skep.write.lock.timeout.seconds": 0.05})}
    with Transaction.begin(table.with_context(**setting), Action.COMMIT) as transaction:
        lock.acquire(0)
        transaction.inflight(CommitMetadata())
        with pytest.raises(LockTimeoutError):
            transaction.complete(CommitMetadata())
        lock.release()
    assert not table.reload().timeline.pending().instants


def test_an_error_in_the_middle_takes_everything_away(table: HudiTable, rows: Rows, files_of: FilesOf) -> None:
    LocalWriter(table).insert(rows(["a"]))
    before = files_of(folder_of(table))
    for error in (InputError("bad rows"), WriteError("broken")):
        with pytest.raises(type(error)):
            fail_after_a_file(table, error)
        left = {path: data for path, data in files_of(folder_of(table)).items() if ".rollback" not in path}
        assert left == before
        assert bool(table.reload().timeline.of(Action.ROLLBACK).instants) == isinstance(error, WriteError)


def fail_after_a_file(table: HudiTable, error: Exception) -> None:
    with Transaction.begin(table, Action.COMMIT) as transaction:
        transaction.inflight(CommitMetadata())
        time = transaction.instant.requested_time
        create_marker(table.storage, Marker(time, "new", f"f-0_0-0-0_{time}.parquet", MarkerType.CREATE))
        table.storage.create_exclusive(f"new/f-0_0-0-0_{time}.parquet", b"data")
        raise error


def test_a_state_never_goes_back(table: HudiTable, rows: Rows) -> None:
    LocalWriter(table).insert(rows(["a"]))
    assert [instant.state for instant in table.reload().timeline.instants] == [State.COMPLETED]


class TestCreate:
    """create_table refuses what could not be written to, and makes what Hudi would."""

    @pytest.mark.parametrize("table_version", [6], indirect=True)
    def test_settings_are_hudis(self, table: HudiTable) -> None:
        text = (folder_of(table) / ".hoodie/hoodie.properties").read_text()
        for line in (
            "hoodie.table.version=6",
            "hoodie.timeline.layout.version=1",
            "hoodie.table.timeline.timezone=UTC",
            "hoodie.table.precombine.field=ts",
            "hoodie.compaction.payload.class=org.apache.hudi.common.model.DefaultHoodieRecordPayload",
            "hoodie.table.keygenerator.class=org.apache.hudi.keygen.SimpleKeyGenerator",
        ):
            assert line in text.splitlines()
        assert "merge.mode" not in text

    @pytest.mark.parametrize("table_version", [6], indirect=True)
    def test_without_ordering_the_last_write_wins(self, tmp_path: Path, rows: Rows) -> None:
        made = create_table(
            LocalStorage(str(tmp_path / "x")), TableSpec(name="x", schema=rows([]).schema, record_key=("id",))
        )
        assert made.config.payload_class == "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
        assert made.config.key_generator == "NON_PARTITION"

    @pytest.mark.parametrize(
        ("spec", "error"),
        [
            ({"record_key": ("nope",)}, KeyFieldError),
            ({"partition_by": ("nope",)}, KeyFieldError),
            ({"ordering": "nope"}, KeyFieldError),
            ({"name": ""}, OptionError),
            ({"key_generator": "com.example.Own"}, UnsupportedError),
            ({"partition_by": ("ts:timestamp",)}, OptionError),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, spec: dict[str, Any], error: type[Exception], tmp_path: Path, rows: Rows
    ) -> None:
        settings: dict[str, Any] = {"name": "t", "schema": rows([]).schema, "record_key": ("id",), **spec}
        with pytest.raises(error):
            create_table(LocalStorage(str(tmp_path / "t")), TableSpec(**settings))
        assert not (tmp_path / "t").exists()

    def test_a_table_that_is_there_stays(self, table: HudiTable, rows: Rows, files_of: FilesOf) -> None:
        before = files_of(folder_of(table))
        with pytest.raises(TableExistsError):
            create_table(table.storage, TableSpec(name="t", schema=rows([]).schema, record_key=("id",)))
        assert files_of(folder_of(table)) == before
