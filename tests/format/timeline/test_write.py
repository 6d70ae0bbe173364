"""Writing the timeline: instant times that only go up, and states that appear whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from skep_format.clock import SystemClock
from skep_format.errors import AlreadyExistsError, CommitConflictError
from skep_format.instant_time import InstantTime
from skep_format.storage import LocalStorage
from skep_format.table_config import TableConfig, TimelineZone, create_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import CleanerPlan
from skep_format.timeline.write import (
    complete,
    create_requested,
    delete_completed,
    delete_pending,
    request_instant,
    transition_to_inflight,
)
from skep_table.table import HudiTable


class SetClock(SystemClock):
    """A clock that never advances. Waiting on it is a failure: it would never end."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        pytest.fail("nothing waits for a clock")


NOON = datetime(2026, 11, 21, 12, 0, 0, 5_999, tzinfo=timezone.utc)


def make(path: Path, zone: TimelineZone = TimelineZone.UTC, version: int = 6) -> HudiTable:
    storage = LocalStorage(str(path))
    create_table_config(storage, TableConfig(name="t", timezone=zone, version=version))
    return HudiTable.open(storage)


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return make(tmp_path)


def files(table: HudiTable) -> list[str]:
    return [f.name for f in table.storage.list_prefix(table.layout.folder) if f.name != "hoodie.properties"]


def test_the_time_is_now_in_milliseconds(table: HudiTable) -> None:
    instant, _ = request_instant(table, Action.COMMIT, clock=SetClock(NOON))
    assert instant.requested_time == "20261121120000005"


def test_local_tables_have_local_times(tmp_path: Path) -> None:
    """Format guide 2.1: in the zone that the table's property names."""
    code = """
from pathlib import Path
from datetime import datetime, timezone
from skep_format.timeline.timeline import format_instant_time
from skep_format.table_config import TimelineZone
noon = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
print(format_instant_time(noon, TimelineZone.LOCAL), format_instant_time(noon, TimelineZone.UTC))
"""
    env = {"TZ": "Asia/Kolkata", "PYTHONPATH": ":".join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["20261121173000000", "20261121120000000"]


def test_times_go_up_when_the_clock_is_set_back(table: HudiTable) -> None:
    clock = SetClock(NOON)
    times = []
    for _ in range(5):
        instant, _ = request_instant(table.reload(), Action.COMMIT, clock=clock)
        times.append(instant.requested_time)
        clock.moment -= timedelta(hours=1)
    assert times == [f"2026112112000000{digit}" for digit in "56789"]


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("20261231235959999", "20270101000000000"),
        ("20270101000000", "20270101000001000"),  # seconds stand for their last millisecond
        ("20261121120000999001", "20261121120001000"),  # the metadata table's longer times
        ("30000000000000000", "30000000000000001"),  # not a date at all
    ],
)
def test_a_millisecond_after_the_last(table: HudiTable, last: str, following: str) -> None:
    create_requested(table, Instant(InstantTime(last), Action.COMMIT, State.REQUESTED))
    instant, _ = request_instant(table.reload(), Action.COMMIT, clock=SetClock(NOON))
    assert instant.requested_time == following
    assert following > last


def test_one_time_for_two_actions_is_given_to_one(table: HudiTable) -> None:
    """The requested files differ in name, so that exclusive creation alone would not detect it."""
    stale = table
    clock = SetClock(NOON)
    first, _ = request_instant(stale, Action.COMMIT, clock=clock)
    second, timeline = request_instant(stale, Action.CLEAN, clock=clock)
    third, _ = request_instant(stale, Action.COMMIT, clock=clock)
    assert first.requested_time < second.requested_time < third.requested_time
    assert timeline.instants == (first, second)
    assert len(files(table)) == 3  # the files of the failed attempt are deleted


def test_nobody_ends_up_below_an_instant_that_was_there_first(table: HudiTable) -> None:
    later, _ = request_instant(table, Action.COMMIT, clock=SetClock(NOON + timedelta(seconds=1)))
    mine, _ = request_instant(table, Action.CLEAN, clock=SetClock(NOON))  # the table was looked at before that
    assert mine.requested_time > later.requested_time


def test_who_is_never_first_gives_up(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(path: str, data: bytes, **how: Any) -> None:
        raise AlreadyExistsError("taken", path=path)

    monkeypatch.setattr(table.storage, "create_exclusive", taken)
    with pytest.raises(CommitConflictError, match="200 instant times"):
        request_instant(table, Action.COMMIT)
    assert files(table) == []


WORKER = """
import json, sys, time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from skep_format.clock import SystemClock
from skep_format.storage import LocalStorage
from skep_format.table_config import load_table_config
from skep_format.timeline.instant import Action
from skep_format.timeline.layout import layout_1
from skep_format.timeline.timeline import load_timeline
from skep_format.timeline.write import request_instant

folder, number = sys.argv[1], int(sys.argv[2])
stopped = datetime.now(timezone.utc) - timedelta(seconds=number)

class Clock(SystemClock):
    def now(self):
        return stopped

action = [Action.COMMIT, Action.CLEAN, Action.DELTA_COMMIT][number % 3]
storage = LocalStorage(folder)
config = load_table_config(storage)
table = SimpleNamespace(storage=storage, config=config, timeline=load_timeline(storage, layout_1(), config.timezone))
Path(folder, f"ready-{number}").touch()
while not Path(folder, "go").exists():
    time.sleep(0.001)
taken = []
for _ in range(10):
    before = table.timeline.last()
    instant, timeline = request_instant(table, action, clock=Clock())
    taken.append((before.requested_time if before else "", instant.requested_time))
    table.timeline = timeline
print(json.dumps(taken))
"""


def test_eight_processes_at_once_take_different_times_that_go_up(table: HudiTable) -> None:
    folder = Path(table.storage.root)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(8)
    ]
    while len(list(folder.glob("ready-*"))) < 8:
        assert all(worker.poll() is None for worker in workers)
        time.sleep(0.01)
    (folder / "go").touch()
    taken = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    times = [time for of_worker in taken for _, time in of_worker]
    assert len(set(times)) == 80
    for of_worker in taken:
        assert all(seen < time for seen, time in of_worker)
        assert of_worker == sorted(of_worker)
    assert {instant.requested_time for instant in table.reload().timeline.instants} == set(times)


# -- states ------------------------------------------------------------------------------------------------------------

METADATA = CommitMetadata(operation_type=WriteOperation.UPSERT, extra_metadata={"schema": "s"})


def test_a_commit_in_its_three_states(table: HudiTable) -> None:
    instant, _ = request_instant(table, Action.COMMIT, clock=SetClock(NOON))
    inflight = transition_to_inflight(table, instant, METADATA)
    assert table.reload().timeline.instants == (inflight,)
    assert table.reload().commit_metadata(inflight) == METADATA
    finished = complete(table, inflight, METADATA)
    time = "20261121120000005"
    assert files(table) == [f"{time}.commit", f"{time}.commit.requested", f"{time}.inflight"]
    assert table.reload().timeline.instants == (finished,)
    assert table.reload().commit_metadata(finished) == METADATA
    with pytest.raises(AlreadyExistsError):
        complete(table, inflight, METADATA)


def test_a_compaction_completes_as_a_commit(table: HudiTable) -> None:
    instant = create_requested(
        table, Instant(InstantTime("20261121120000005"), Action.COMPACTION, State.REQUESTED), b"plan"
    )
    assert complete(table, transition_to_inflight(table, instant), METADATA).action is Action.COMMIT
    assert "20261121120000005.commit" in files(table)


def test_layout_2_completes_at_a_time_of_its_own(tmp_path: Path) -> None:
    table = make(tmp_path, version=9)
    clock = SetClock(NOON)
    one, timeline = request_instant(table, Action.COMMIT, clock=clock)
    two, _ = request_instant(table, Action.DELTA_COMMIT, clock=clock)
    clock.moment -= timedelta(hours=1)
    first = complete(table.reload(), transition_to_inflight(table, two), METADATA, clock)
    second = complete(table.reload(), transition_to_inflight(table, one), METADATA, clock)
    assert first.completion_time is not None
    assert second.completion_time is not None
    assert one.requested_time < two.requested_time < first.completion_time < second.completion_time
    assert table.reload().timeline.instants == (second, first)
    assert table.reload().commit_metadata(first) == METADATA
    assert timeline.instants == (one,)


def test_plans_are_written_in_the_release_of_the_layout(table: HudiTable) -> None:
    plan = CleanerPlan(policy="KEEP_LATEST_COMMITS", extra_metadata={"a": "b"})
    instant, _ = request_instant(table, Action.CLEAN, plan)
    assert table.plan(instant) == plan
    assert table.requested_plan(CleanerPlan, transition_to_inflight(table, instant)) == plan


def test_pending_instants_are_taken_back_inflight_first(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    instant, _ = request_instant(table, Action.COMMIT)
    inflight = transition_to_inflight(table, instant)
    deleted: list[str] = []
    original = table.storage.delete
    monkeypatch.setattr(table.storage, "delete", lambda path: deleted.append(path) or original(path))
    delete_pending(table, inflight)
    assert [path.rpartition(".")[2] for path in deleted] == ["inflight", "requested"]
    assert files(table) == []


def test_a_plan_that_is_tried_again_keeps_its_request(table: HudiTable) -> None:
    instant, _ = request_instant(table, Action.COMPACTION)
    delete_pending(table, transition_to_inflight(table, instant), keep_requested=True)
    assert table.reload().timeline.instants == (instant,)


def test_a_completed_instant_is_pending_again_before_its_rollback(table: HudiTable) -> None:
    instant, _ = request_instant(table, Action.COMMIT)
    finished = complete(table, transition_to_inflight(table, instant), METADATA)
    assert delete_completed(table, finished).state is State.INFLIGHT
    assert [i.state for i in table.reload().timeline.instants] == [State.INFLIGHT]
