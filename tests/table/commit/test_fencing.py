"""A writer that is held up between the last check of its lock and the commit does not complete late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sleepy_clock import SleepyClock

from skep_format.errors import LeaseLostError
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_format.timeline.write import stage
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.pending import LOCK_ID
from skep_table.events import Event, Events
from skep_table.locks.holders import agent_facts
from skep_table.locks.storage import LOCK_FILE, Lease, StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]


class HeldUpLock(StorageLock):
    """After its `at`th look at the lock the holder sleeps: the lease runs out, and `meanwhile` happens."""

    def __init__(self, storage: Storage, clock: Any, meanwhile: Callable[[], object], at: int = 2) -> None:
        super().__init__(storage, clock=clock)
        self.meanwhile, self.at, self.looks = meanwhile, at, 0

    def ensure_held(self) -> None:
        super().ensure_held()
        self.looks += 1
        if self.looks == self.at:
            self._clock.sleep(1000)
            self.meanwhile()


def made(storage: Storage, rows: Rows, kind: TableType = TableType.COPY_ON_WRITE) -> HudiTable:
    schema = rows([]).schema
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    table = create_table(storage, spec)
    LocalWriter(table).bulk_insert(pa.concat_tables([rows(["a"]), rows(["b"], part="q")]))
    return table.reload()


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    return made(LocalStorage(str(tmp_path / "t")), rows)


def content(table: HudiTable) -> dict[str, int]:
    found = read(table.reload(), ReadRequest()).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


def setting(lock: Any, clock: Any, *listeners: Callable[[Event], None]) -> dict[str, Any]:
    return {"lock": lock, "clock": clock, "events": Events(*listeners)}


def upsert_with_lock(table: HudiTable, rows: pa.Table, clock: Any) -> None:
    """Another writer, which comes to the lock when the lease has run out."""
    LocalWriter(table.with_context(**setting(StorageLock(table.storage, clock=clock), clock))).upsert(rows)


def test_the_next_holder_takes_the_stage_away(table: HudiTable, rows: Rows) -> None:
    """Not even a conflict is needed: a writer that lost the lock does not complete."""
    clock = SleepyClock()
    other = rows(["b"], ts=5, part="q")
    lock = HeldUpLock(table.storage, clock, lambda: upsert_with_lock(table, other, clock))
    with pytest.raises(LeaseLostError, match="another writer took the lock"):
        LocalWriter(table.with_context(**setting(lock, clock))).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 1, "b": 5}
    assert not table.reload().timeline.pending().instants
    assert table.storage.list_prefix(".hoodie/.stages") == []


def test_a_lease_that_ran_out_before_the_last_look_is_noticed(table: HudiTable, rows: Rows) -> None:
    clock = SleepyClock()

    class Late(StorageLock):
        def ensure_held(self) -> None:
            if table.reload().timeline.pending().instants:  # the second check
                clock.sleep(1000)
            super().ensure_held()

    with pytest.raises(LeaseLostError):
        LocalWriter(table.with_context(**setting(Late(table.storage, clock=clock), clock))).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("part", "survives"), [("p", False), ("q", True)])
def test_beside_a_writer_that_knows_of_no_stages(part: str, survives: bool, table: HudiTable, rows: Rows) -> None:
    """Hudi's own: the commit is taken back when it collides with what completed meanwhile, and only then."""
    clock, heard = SleepyClock(), []

    def jvm() -> None:
        key = {"p": "a", "q": "b"}[part]
        LocalWriter(table).upsert(rows([key], ts=5, part=part))
        table.storage.replace_atomic(LOCK_FILE, Lease("jvm", 0, True).encode())

    lock = HeldUpLock(table.storage, clock, jvm)
    writer = LocalWriter(table.with_context(**setting(lock, clock, lambda event: heard.append(event.name))))
    if survives:
        writer.upsert(rows(["a"], ts=2))
        assert content(table) == {"a": 2, "b": 5}
    else:
        with pytest.raises(LeaseLostError):
            writer.upsert(rows(["a"], ts=2))
        assert content(table) == {"a": 5, "b": 1}
    assert ("write.taken_back" in heard) is not survives
    assert not table.reload().timeline.pending().instants


@pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
def test_a_late_commit_on_which_others_have_built_stays(tmp_path: Path, rows: Rows) -> None:
    """It collides, but its rows were seen, and lie in the slice to which others wrote."""
    clock = SleepyClock()
    table = made(LocalStorage(str(tmp_path / "t")), rows, TableType.MERGE_ON_READ)

    def jvm() -> None:
        LocalWriter(table).upsert(rows(["a"], ts=5))
        table.storage.replace_atomic(LOCK_FILE, Lease("jvm", 0, True).encode())

    class BuiltOnWhenLost(HeldUpLock):
        def acquire(self, timeout_seconds: float) -> str:
            if self.looks >= self.at:
                LocalWriter(table.reload()).upsert(rows(["c"], ts=7))
            return super().acquire(timeout_seconds)

    lock = BuiltOnWhenLost(table.storage, clock, jvm)
    LocalWriter(table.with_context(**setting(lock, clock))).insert(rows(["c"], ts=2))
    assert content(table)["c"] == 7
    assert not table.reload().timeline.of(Action.ROLLBACK).instants


def test_on_s3_a_late_commit_is_taken_back(s3_folder: Callable[[], Storage], rows: Rows) -> None:
    clock = SleepyClock()
    table = made(s3_folder(), rows)
    lock = HeldUpLock(table.storage, clock, lambda: upsert_with_lock(table, rows(["a"], ts=5), clock))
    with pytest.raises(LeaseLostError):
        LocalWriter(table.with_context(**setting(lock, clock))).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 5, "b": 1}


def test_the_commit_bears_the_id_of_its_lock(table: HudiTable, rows: Rows) -> None:
    held: list[Event] = []
    lock = StorageLock(table.storage, events=Events(held.append))
    result = LocalWriter(table.with_context(lock=lock)).upsert(rows(["a"], ts=2))
    ids = [event.facts["lock_id"] for event in held if event.name == "lock.acquired"]
    extra = table.reload().commit_metadata(result.instant).extra_metadata
    assert extra[LOCK_ID] == ids[-1]
    owner = Lease.parse(table.storage.read(LOCK_FILE), LOCK_FILE).owner
    assert agent_facts(owner)["id"] == ids[-1]


def test_a_stage_that_a_dead_writer_left_goes(table: HudiTable, rows: Rows) -> None:
    last = table.timeline.instants[-1]
    stage(table, last, b"{}")
    LocalWriter(table.with_context(lock=StorageLock(table.storage))).upsert(rows(["a"], ts=2))
    assert table.storage.list_prefix(".hoodie/.stages") == []
    assert [i.action for i in table.reload().timeline] == [Action.COMMIT, Action.COMMIT]


class TestServices:
    """A clustering that completes after its lock was lost."""

    @pytest.fixture(params=["s3", "local"])
    def table(
        self, request: pytest.FixtureRequest, tmp_path: Path, rows: Rows, s3_folder: Callable[[], Storage]
    ) -> HudiTable:
        """Two small files in partition p, which a plan combines."""
        table = made(s3_folder() if request.param == "s3" else LocalStorage(str(tmp_path / "t")), rows)
        small = table.with_options({"hoodie.parquet.small.file.limit": "0"})
        LocalWriter(small).upsert(rows(["c"]))
        assert schedule_clustering(table.reload()) is not None
        return table.reload()

    def execute(self, table: HudiTable, meanwhile: Callable[[SleepyClock], None]) -> list[str]:
        """Returns the names of the events."""
        clock, names = SleepyClock(), []

        def suspended() -> None:
            meanwhile(clock)
            if table.storage.flags.atomic_rename:  # as a JVM writer, which deletes no stages
                table.storage.replace_atomic(LOCK_FILE, Lease("jvm", 0, True).encode())

        lock = HeldUpLock(table.storage, clock, suspended)
        context = setting(lock, clock, lambda event: names.append(event.name))
        try:
            (clustered,) = execute_pending_clusterings(table.with_context(**context))
            assert table.reload().timeline.completed().contains(clustered.instant.requested_time)
        finally:
            assert not table.reload().timeline.pending().instants
        return names

    def test_it_is_reverted_where_its_input_was_written_to(self, table: HudiTable, rows: Rows) -> None:
        allow = {"hoodie.clustering.updates.strategy": "AllowUpdateStrategy"}
        with pytest.raises(LeaseLostError):
            self.execute(table, lambda _: LocalWriter(table.with_options(allow)).upsert(rows(["a"], ts=5)))
        assert content(table) == {"a": 5, "b": 1, "c": 1}
        assert not table.reload().timeline.of(Action.REPLACE_COMMIT).instants
        assert table.reload().timeline.of(Action.ROLLBACK).instants

    def test_it_stays_where_others_wrote_elsewhere(self, table: HudiTable, rows: Rows) -> None:
        names = self.execute(table, lambda _: LocalWriter(table).upsert(rows(["b"], ts=5, part="q")))
        assert content(table) == {"a": 1, "b": 5, "c": 1}
        assert "write.taken_back" not in names
        assert table.reload().timeline.completed().of(Action.REPLACE_COMMIT).instants

    def test_of_two_executors_the_one_with_the_lock_completes(self, table: HudiTable) -> None:
        """The heartbeat of the suspended one has expired, too: another one takes the plan over and completes it."""
        done = []

        def take_over(clock: SleepyClock) -> None:
            other = setting(StorageLock(table.storage, clock=clock), clock)
            done.extend(execute_pending_clusterings(table.reload().with_context(**other)))

        with pytest.raises(LeaseLostError, match="another writer took the lock"):
            self.execute(table, take_over)
        assert content(table) == {"a": 1, "b": 1, "c": 1}
        (completed,) = table.reload().timeline.completed().of(Action.REPLACE_COMMIT)
        written = table.reload().commit_metadata(completed).stats
        assert [stat.path for stat in written] == [stat.path for stat in done[0].metadata.stats]
        assert all(table.storage.exists(stat.path) for stat in written)
