"""Both times of an instant are chosen under the lock, from table version 8 on: distinct, and growing in its order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.clock import SYSTEM_CLOCK, SystemClock
from skep_format.errors import CommitConflictError, LeaseLostError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.timeline import format_instant_time
from skep_format.timeline.write import complete
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import schedule_clean
from skep_table.services.compaction.compact import compact, execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
MODE = "hoodie.write.concurrency.mode"
SKEW = "hoodie.time.generator.max_expected_clock_skew_ms"
# heartbeats are judged by the clock, too: they have to be tolerated for longer than clocks differ
SEVERAL = {MODE: "optimistic_concurrency_control", "hoodie.client.heartbeat.tolerable.misses": 30}
MINUTES = 60.0


class OtherClock(SystemClock):
    """Of another machine, so many seconds ahead of ours."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.seconds)


@pytest.fixture(params=[8, 9])
def table(request: pytest.FixtureRequest, tmp_path: object, rows: Rows) -> HudiTable:
    spec = TableSpec(
        name="t",
        schema=rows([]).schema,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
        version=request.param,
    )
    return create_table(LocalStorage(f"{tmp_path}/t"), spec)


def shared(table: HudiTable, seconds: float = 0, **options: object) -> HudiTable:
    setting: dict[str, Any] = {"lock": StorageLock(table.storage), "options": Options({**SEVERAL, **options})}
    return table.reload().with_context(clock=OtherClock(seconds), **setting)


def content(table: HudiTable) -> dict[str, int]:
    return {row["id"]: row["ts"] for row in read(table.reload(), ReadRequest()).to_arrow().to_pylist()}


def times(instants: list[Instant]) -> list[str]:
    return [str(time) for each in instants for time in (each.requested_time, each.completion_time) if time]


@pytest.mark.parametrize("ahead", [5 * MINUTES, -5 * MINUTES])
def test_of_writers_whose_clocks_differ_by_minutes(ahead: float, table: HudiTable, rows: Rows) -> None:
    done = []
    for ts, seconds in enumerate(itertools.islice(itertools.cycle([0.0, ahead, ahead / 2]), 7)):
        done.append(LocalWriter(shared(table, seconds)).upsert(rows(["a", f"k{ts}"], ts)).instant)
    assert times(done) == sorted(set(times(done)))
    assert content(table)["a"] == 6


@pytest.mark.parametrize("ahead", [5 * MINUTES, -5 * MINUTES])
def test_of_services_whose_clocks_differ_by_minutes(ahead: float, table: HudiTable, rows: Rows) -> None:
    """What completes after a plan was made has a later time, and is read above its result."""
    for ts in (1, 2):
        LocalWriter(shared(table)).upsert(rows(["a", "b"], ts))
    write = Transaction.begin(shared(table), Action.DELTA_COMMIT)
    write.inflight(CommitMetadata())
    planned = schedule_compaction(shared(table, ahead))
    assert planned is not None
    with write:
        done = write.complete(CommitMetadata())
    assert done.completion_time is not None
    assert done.requested_time < planned.requested_time < done.completion_time
    LocalWriter(shared(table, -ahead)).upsert(rows(["a"], 3))
    (compacted,) = execute_pending_compactions(shared(table, ahead))
    LocalWriter(shared(table)).upsert(rows(["b"], 4))
    assert content(table) == {"a": 3, "b": 4}
    last = shared(table).timeline.instants[-1].requested_time
    assert compacted.instant.completion_time is not None
    assert compacted.instant.completion_time < last


@settings(max_examples=20)  # each is a whole table
@given(st.lists(st.tuples(st.integers(-600, 600), st.sampled_from(["write", "compact", "clean"])), max_size=8))
def test_they_grow_whatever_the_clocks_show(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    rows = pa.table({"id": ["a"], "ts": [1]})
    spec = TableSpec(
        name="t", schema=rows.schema, record_key=("id",), ordering="ts", type=TableType.MERGE_ON_READ, version=9
    )
    table = create_table(LocalStorage(str(tmp_path_factory.mktemp("t"))), spec)
    seen: list[str] = []
    for seconds, what in steps:
        now = shared(table, seconds, **{"hoodie.cleaner.commits.retained": 1})
        if what == "write":
            seen += times([LocalWriter(now).upsert(rows).instant])
        elif what == "compact":
            seen += times([each.instant for each in compact(now)])
        elif (planned := schedule_clean(now)) is not None:
            seen.append(planned.requested_time)
    assert seen == sorted(set(seen))


class TestBesideWritersThatTakeTheirClockAsItIs:
    """Hudi's. A clock that is behind by no more than the expected difference shows a time after all that are there."""

    @pytest.mark.parametrize("skew", [200, 1000])
    def test_no_time_lies_in_the_future_of_a_clock_that_is_behind(
        self, skew: int, table: HudiTable, rows: Rows
    ) -> None:
        behind = SYSTEM_CLOCK.now
        for ts in range(3):
            done = LocalWriter(shared(table, **{SKEW: skew})).upsert(rows(["a"], ts)).instant
            clock = format_instant_time(behind() - timedelta(milliseconds=skew), table.config.timezone)
            assert max(times([done])) <= clock

    def test_of_plans_too(self, table: HudiTable, rows: Rows) -> None:
        for ts in (1, 2):
            LocalWriter(shared(table, **{SKEW: 500})).upsert(rows(["a"], ts))
        planned = schedule_compaction(shared(table, **{SKEW: 500}))
        assert planned is not None
        now = SYSTEM_CLOCK.now() - timedelta(milliseconds=500)
        assert planned.requested_time <= format_instant_time(now, table.config.timezone)

    def test_the_only_writer_is_dated_now(self, table: HudiTable, rows: Rows) -> None:
        before = format_instant_time(SYSTEM_CLOCK.now(), table.config.timezone)
        assert before <= LocalWriter(table.with_options({SKEW: 60_000})).upsert(rows(["a"])).instant.requested_time


class TestASecondCompletion:
    """The completed file has a time in its name: another one of the same instant would have another name."""

    def test_is_refused(self, table: HudiTable, rows: Rows) -> None:
        done = LocalWriter(table).upsert(rows(["a"])).instant
        pending = Instant(done.requested_time, done.action, State.INFLIGHT)
        with pytest.raises(FileExistsError, match="is completed already"):
            complete(table, pending, CommitMetadata())
        with pytest.raises(FileExistsError, match="is completed already"):
            complete(table.reload(), pending, CommitMetadata())
        assert len(table.reload().timeline.completed()) == 1

    def test_of_a_plan_that_another_executor_carried_out(
        self, table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped before its completed file, it goes on when its lock and its plan are another one's."""
        from skep_table.commit import pending

        for ts in (1, 2):
            LocalWriter(shared(table)).upsert(rows(["a"], ts))
        assert schedule_compaction(shared(table)) is not None
        stop = pending.complete_staged

        def stopped(of: Any, staged: Any) -> Instant:
            monkeypatch.setattr(pending, "complete_staged", stop)
            # as a JVM executor, which knows no stages
            complete(of, Instant(staged.instant.requested_time, Action.COMPACTION, State.INFLIGHT), CommitMetadata())
            return stop(of, staged)

        monkeypatch.setattr(pending, "complete_staged", stopped)
        with pytest.raises((LeaseLostError, CommitConflictError)):
            execute_pending_compactions(shared(table))
        names = [file.name for file in table.storage.list_folder(".hoodie/timeline").files]
        assert len([name for name in names if name.endswith(".commit")]) == 1


def test_a_failed_write_is_rolled_back_under_the_lock(
    table: HudiTable, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    roll_back = Transaction._roll_back

    def watched(self: Transaction, *given: Any) -> None:
        held.append(self._locked)
        roll_back(self, *given)

    monkeypatch.setattr(Transaction, "_roll_back", watched)
    monkeypatch.setattr(Transaction, "complete", lambda *_: 1 / random.Random(0).randrange(1))
    with pytest.raises(ZeroDivisionError):
        LocalWriter(shared(table)).upsert(rows(["a"]))
    assert held == [True]
    assert content(table) == {}
