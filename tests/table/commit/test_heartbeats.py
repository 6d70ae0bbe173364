"""A writer that lives is never rolled back, one that is dead always is; and a writer knows when others gave it up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import (
    AlreadyExistsError,
    CommitConflictError,
    LeaseLostError,
    OptionError,
    WriteError,
)
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.write import create_requested, transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import FOLDER, Heartbeat, heartbeat_path, writer_details
from skep_table.commit.transaction import Transaction
from skep_table.commit.undo.rollback import request_rollback
from skep_table.runtime.process import ProcessName, this_process
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
# A machine that is busy with other work lets a heart miss many beats.
FAST = {"hoodie.client.heartbeat.interval_in_ms": 50, "hoodie.client.heartbeat.tolerable.misses": 400}


@pytest.fixture
def table(tmp_path: Path, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


def setting(**options: object) -> dict[str, Any]:
    return {"options": Options({key.replace("__", "."): value for key, value in options.items()})}


def pending(table: HudiTable) -> list[str]:
    return [instant.requested_time for instant in table.reload().timeline.data().pending()]


def hearts(table: HudiTable) -> list[str]:
    return [file.name for file in table.storage.list_prefix(FOLDER)]


def started(table: HudiTable, options: dict[str, object] | None = None) -> Transaction:
    transaction = Transaction.begin(table.with_context(options=Options(options or {})), Action.COMMIT)
    transaction.inflight(CommitMetadata())
    return transaction


def age(table: HudiTable, time_: str, seconds: float) -> None:
    file = Path(table.storage.root) / heartbeat_path(time_)
    then = time.time() - seconds
    os.utime(file, (then, then))


def foreign(table: HudiTable, time_: str, seconds: float | None) -> None:
    """A pending instant of a JVM writer; its heartbeat is so old, or not there."""
    requested = create_requested(table, Instant(InstantTime(time_), Action.COMMIT, State.REQUESTED))
    transition_to_inflight(table, requested)
    if seconds is not None:
        table.storage.create_exclusive(heartbeat_path(time_), b"")
        age(table, time_, seconds)


@pytest.mark.parametrize("policy", ["EAGER", "LAZY"])
def test_an_active_writer_completes_whatever_others_do(policy: str, table: HudiTable, rows: Rows) -> None:
    first = started(table, {"hoodie.cleaner.policy.failed.writes": policy})
    LocalWriter(table.with_context(**setting(hoodie__cleaner__policy__failed__writes=policy))).insert(rows(["a"]))
    assert pending(table) == [first.instant.requested_time] == hearts(table)
    with first:
        first.complete(CommitMetadata())
    assert pending(table) == hearts(table) == []


def test_an_instant_is_never_seen_without_its_heartbeat(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    create = LocalStorage.create_exclusive

    def watched(self: LocalStorage, path: str, data: bytes, **how: Any) -> None:
        seen.append(path)
        create(self, path, data, **how)

    monkeypatch.setattr(LocalStorage, "create_exclusive", watched)
    with started(table) as transaction:
        time_ = transaction.instant.requested_time
        assert seen.index(heartbeat_path(time_)) < seen.index(
            table.layout.path(replace(transaction.instant, state=State.REQUESTED))
        )
        transaction.complete(CommitMetadata())


@pytest.mark.parametrize(("seconds", "lives"), [(None, False), (5, True), (119, True), (121, False)])
def test_a_jvm_writer_lives_for_two_intervals_of_a_minute(
    seconds: float | None, lives: bool, table: HudiTable, rows: Rows
) -> None:
    foreign(table, "20310101000000000", seconds)
    LocalWriter(table).insert(rows(["a"]))
    assert (pending(table) == ["20310101000000000"]) is lives
    assert (hearts(table) == ["20310101000000000"]) is lives


def test_a_writer_that_was_silent_too_long_does_not_complete(table: HudiTable, rows: Rows) -> None:
    lost: list[LeaseLostError] = []
    slow = Transaction.begin(table.with_context(options=Options(FAST), on_lost=lost.append), Action.COMMIT)
    slow.inflight(CommitMetadata())
    table.storage.delete(heartbeat_path(slow.instant.requested_time))  # another writer gave it up
    deadline = time.monotonic() + 10
    while not lost:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(LeaseLostError, match="taken for dead by another writer"), slow:
        slow.complete(CommitMetadata())
    assert lost[0].fields["instant"] == slow.instant.requested_time
    assert pending(table) == hearts(table) == []


def test_an_error_of_stopped_tasks_becomes_the_loss(table: HudiTable) -> None:
    """Spark reports that its job was cancelled; the reason is the heartbeat."""
    lost = threading.Event()
    setting = {"options": Options(FAST), "on_lost": lambda _error: lost.set()}
    slow = Transaction.begin(table.with_context(**setting), Action.COMMIT)
    table.storage.delete(heartbeat_path(slow.instant.requested_time))
    assert lost.wait(60)
    with pytest.raises(LeaseLostError), slow:
        raise RuntimeError("Job 7 cancelled part of cancelled job group")


def test_the_heart_beats_while_the_job_runs(table: HudiTable) -> None:
    with started(table, FAST) as transaction:
        file = Path(table.storage.root) / heartbeat_path(transaction.instant.requested_time)
        first = file.stat().st_mtime_ns
        deadline = time.monotonic() + 10
        while file.stat().st_mtime_ns == first:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        facts = writer_details(table.storage, transaction.instant.requested_time)
        assert ProcessName.parse(facts) == this_process()
        transaction.complete(CommitMetadata())
    heartbeat = f"heartbeat-{transaction.instant.requested_time}"
    assert not [thread for thread in threading.enumerate() if thread.name == heartbeat]


def test_a_heart_takes_no_time_that_is_anothers(table: HudiTable) -> None:
    one, two = Heartbeat(table.context), Heartbeat(table.context)
    one.announce("20310101000000000")
    with pytest.raises(AlreadyExistsError):
        two.announce("20310101000000000")
    two.announce("20310101000000001")
    two.stop()
    assert hearts(table) == ["20310101000000000"]
    one.stop()
    assert hearts(table) == []


DIES = """
import os, sys
from skep_table.commit.undo.rollback import request_rollback
from skep_table.commit.transaction import Transaction
from skep_table.table import HudiTable
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import CommitMetadata

transaction = Transaction.begin(HudiTable.open(sys.argv[1]), Action.COMMIT)
transaction.inflight(CommitMetadata())
os._exit(9)
"""


def test_a_process_that_has_certainly_ended_is_not_waited_for(table: HudiTable, rows: Rows) -> None:
    subprocess.run([sys.executable, "-c", DIES, table.storage.root], check=False)
    (dead,) = pending(table)
    assert hearts(table) == [dead]
    LocalWriter(table).insert(rows(["a"]))
    assert pending(table) == hearts(table) == []
    assert [i.action for i in table.reload().timeline] == [Action.ROLLBACK, Action.COMMIT]


def test_a_process_on_another_machine_may_live(table: HudiTable, rows: Rows) -> None:
    subprocess.run([sys.executable, "-c", DIES, table.storage.root], check=False)
    (there,) = pending(table)
    text = table.storage.read(heartbeat_path(there)).decode()
    elsewhere = text.replace(this_process().machine, "0123456789")
    assert elsewhere != text
    table.storage.replace_atomic(heartbeat_path(there), elsewhere.encode())
    LocalWriter(table).insert(rows(["a"]))
    assert pending(table) == [there]
    age(table, there, 121)
    LocalWriter(table).insert(rows(["b"]))
    assert pending(table) == []


def test_never_leaves_even_the_dead(table: HudiTable, rows: Rows) -> None:
    foreign(table, "20310101000000000", None)
    LocalWriter(table.with_context(**setting(hoodie__cleaner__policy__failed__writes="NEVER"))).insert(rows(["a"]))
    assert pending(table) == ["20310101000000000"]


class TestModes:
    @pytest.mark.parametrize("policy", ["EAGER", "NEVER"])
    def test_optimistic_writers_are_lazy(self, policy: str, table: HudiTable, rows: Rows) -> None:
        optimistic = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
        LocalWriter(table.with_context(options=Options(optimistic))).insert(rows(["a"]))
        wrong = Options({**optimistic, "hoodie.cleaner.policy.failed.writes": policy})
        before = table.reload().timeline.instants
        with pytest.raises(OptionError, match=r"needs hoodie\.cleaner\.policy\.failed\.writes=LAZY"):
            LocalWriter(table.with_context(options=wrong)).insert(rows(["b"]))
        assert table.reload().timeline.instants == before


def test_a_write_that_fails_leaves_no_heartbeat(table: HudiTable) -> None:
    with pytest.raises(WriteError), started(table):
        raise WriteError("broken")
    assert hearts(table) == []


def test_an_active_writer_is_not_rolled_back_by_name_either(table: HudiTable, rows: Rows) -> None:
    LocalWriter(table).insert(rows(["a"]))
    create_savepoint(table)
    first = table.reload().timeline.instants[0].requested_time
    running = started(table)
    with pytest.raises(CommitConflictError, match="is active"):
        roll_back_instant(table, running.instant.requested_time)
    with pytest.raises(CommitConflictError, match="is active"):
        restore(table, first)
    with running:
        running.complete(CommitMetadata())
    assert pending(table) == []


def test_a_writer_that_gives_up_is_left_to_roll_back_its_own(table: HudiTable, rows: Rows) -> None:
    """It does so without the lock: the holder of the lock meanwhile does not do it, too."""
    giving_up = started(table)
    request_rollback(table.reload(), giving_up.instant)
    LocalWriter(table).insert(rows(["a"]))
    assert len(table.reload().timeline.pending().of(Action.ROLLBACK)) == 1
    giving_up.abort(None)
    LocalWriter(table).insert(rows(["b"]))
    assert not table.reload().timeline.pending().instants
