"""A writer that is held up between the last look at its lock and the commit does not complete late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.setting import CommitSetting
from skep_table.commit.transaction import LOCK_ID
from skep_table.errors import LeaseLostError
from skep_table.events import Event, Events
from skep_table.locks.agent import agent_facts
from skep_table.locks.storage import LOCK_FILE, Lease, StorageLock
from skep_table.query import ReadRequest, read
from skep_table.storage import LocalStorage, Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action
from skep_table.timeline.write import stage
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


class SleepyClock:
    """The real time, and how long one has slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=self.slept)

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def made(storage: Storage, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(storage, spec)
    LocalWriter(table).bulk_insert(pa.concat_tables([rows(["a"]), rows(["b"], part="q")]))
    return table.reload()


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    return made(LocalStorage(str(tmp_path / "t")), rows)


def content(table: HudiTable) -> dict[str, int]:
    found = read(table.reload(), ReadRequest()).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


def setting(lock: Any, clock: Any, *listeners: Callable[[Event], None]) -> CommitSetting:
    return CommitSetting(lock=lock, clock=clock, events=Events(*listeners))


def upsert_with_lock(table: HudiTable, rows: pa.Table, clock: Any) -> None:
    """Another writer, which comes to the lock when the lease has run out."""
    LocalWriter(table, setting(StorageLock(table.storage, clock=clock), clock)).upsert(rows)


def test_the_next_holder_takes_the_stage_away(table: HudiTable, rows: Rows) -> None:
    """Not even a conflict is needed: whoever lost the lock does not complete."""
    clock = SleepyClock()
    other = rows(["b"], ts=5, part="q")
    lock = HeldUpLock(table.storage, clock, lambda: upsert_with_lock(table, other, clock))
    with pytest.raises(LeaseLostError, match="another writer took the lock"):
        LocalWriter(table, setting(lock, clock)).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 1, "b": 5}
    assert not table.reload().timeline.pending().instants
    assert table.storage.list_prefix(".hoodie/.stages") == []


def test_a_lease_that_ran_out_before_the_last_look_is_noticed(table: HudiTable, rows: Rows) -> None:
    clock = SleepyClock()

    class Late(StorageLock):
        def ensure_held(self) -> None:
            if table.reload().timeline.pending().instants:  # the second look
                clock.sleep(1000)
            super().ensure_held()

    with pytest.raises(LeaseLostError):
        LocalWriter(table, setting(Late(table.storage, clock=clock), clock)).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("part", "survives"), [("p", False), ("q", True)])
def test_beside_a_writer_that_knows_of_no_stages(part: str, survives: bool, table: HudiTable, rows: Rows) -> None:
    """Hudi's own: the commit is taken back when it collides with what completed meanwhile, and only then."""
    clock, told = SleepyClock(), []

    def jvm() -> None:
        key = {"p": "a", "q": "b"}[part]
        LocalWriter(table).upsert(rows([key], ts=5, part=part))
        table.storage.replace_atomic(LOCK_FILE, Lease("jvm", 0, True).encode())

    lock = HeldUpLock(table.storage, clock, jvm)
    writer = LocalWriter(table, setting(lock, clock, lambda event: told.append(event.name)))
    if survives:
        writer.upsert(rows(["a"], ts=2))
        assert content(table) == {"a": 2, "b": 5}
    else:
        with pytest.raises(LeaseLostError):
            writer.upsert(rows(["a"], ts=2))
        assert content(table) == {"a": 5, "b": 1}
    assert ("write.taken_back" in told) is not survives
    assert not table.reload().timeline.pending().instants


def test_on_s3_a_late_commit_is_taken_back(s3_folder: Callable[[], Storage], rows: Rows) -> None:
    clock = SleepyClock()
    table = made(s3_folder(), rows)
    lock = HeldUpLock(table.storage, clock, lambda: upsert_with_lock(table, rows(["a"], ts=5), clock))
    with pytest.raises(LeaseLostError):
        LocalWriter(table, setting(lock, clock)).upsert(rows(["a"], ts=2))
    assert content(table) == {"a": 5, "b": 1}


def test_the_commit_bears_the_id_of_its_lock(table: HudiTable, rows: Rows) -> None:
    held: list[Event] = []
    lock = StorageLock(table.storage, events=Events(held.append))
    result = LocalWriter(table, CommitSetting(lock=lock)).upsert(rows(["a"], ts=2))
    ids = [event.facts["lock_id"] for event in held if event.name == "lock.acquired"]
    extra = table.reload().commit_metadata(result.instant).extra_metadata
    assert extra[LOCK_ID] == ids[-1]
    owner = Lease.parse(table.storage.read(LOCK_FILE), LOCK_FILE).owner
    assert agent_facts(owner)["id"] == ids[-1]


def test_a_stage_that_a_dead_writer_left_goes(table: HudiTable, rows: Rows) -> None:
    last = table.timeline.instants[-1]
    stage(table, last, b"{}")
    LocalWriter(table, CommitSetting(lock=StorageLock(table.storage))).upsert(rows(["a"], ts=2))
    assert table.storage.list_prefix(".hoodie/.stages") == []
    assert [i.action for i in table.reload().timeline] == [Action.COMMIT, Action.COMMIT]
