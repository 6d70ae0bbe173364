"""The times of instants, beside writers that date theirs before they show them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from skep_format.clock import SYSTEM_CLOCK, SystemClock
from skep_format.instant_time import InstantTime
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.timeline import format_instant_time
from skep_format.timeline.write import create_requested, transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import Heartbeat, heartbeat_path
from skep_table.commit.undo.rollback import roll_back
from skep_table.locks.storage import StorageLock
from skep_table.services.cleaning.clean import schedule_clean
from skep_table.services.clustering.cluster import cluster, schedule_clustering
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
SEVERAL = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


@pytest.fixture
def table(tmp_path: object, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    return create_table(LocalStorage(f"{tmp_path}/t"), spec)


def now(table: HudiTable, seconds: float = 0) -> str:
    return format_instant_time(SYSTEM_CLOCK.now() + timedelta(seconds=seconds), table.config.timezone)


def shared(table: HudiTable, **options: object) -> dict[str, Any]:
    return {"lock": StorageLock(table.storage), "options": Options(options)}


def written(table: HudiTable, rows: pa.Table, **options: object) -> str:
    return LocalWriter(table.with_context(**shared(table, **options))).upsert(rows).instant.requested_time


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_an_instant_that_is_dated_but_not_shown_is_later_than_what_completes_meanwhile(
    table: HudiTable, rows: Rows
) -> None:
    hidden = now(table)
    done = written(table, rows(["a"]), **SEVERAL)
    assert now(table, -60) < done < hidden, "Hudi reads what is done, and what it writes lies above it"
    create_requested(table.reload(), Instant(hidden, Action.COMMIT, State.REQUESTED))
    assert hidden < written(table, rows(["b"]), **SEVERAL) < now(table)


def test_the_first_instant_of_two_is_the_earlier_one(table: HudiTable, rows: Rows) -> None:
    first = written(table, rows(["a"]))
    assert now(table, -5) < first, "a single writer's is dated now"
    assert first < written(table, rows(["a"]), **SEVERAL)


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_how_far_is_an_option(table: HudiTable, rows: Rows) -> None:
    lag = {"skep.write.instant.lag.seconds": 3600}
    assert written(table, rows(["a"]), **SEVERAL, **lag) < now(table, -3000)
    assert now(table, -5) < written(table, rows(["a"]), **SEVERAL, **{"skep.write.instant.lag.seconds": 0})


PLANS = {
    Action.COMPACTION: schedule_compaction,
    Action.REPLACE_COMMIT: schedule_clustering,
    Action.CLEAN: schedule_clean,
}


@pytest.fixture
def merge_on_read(tmp_path: object, rows: Rows) -> HudiTable:
    """Two slices, one of them with a log, and a file that nobody needs any more."""
    spec = TableSpec(
        name="t",
        schema=rows([]).schema,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
    )
    table = create_table(LocalStorage(f"{tmp_path}/mor"), spec)
    for ts in (1, 2):
        written(table, rows(["a"], ts), **SEVERAL)
    compact(table.with_context(**shared(table)))
    written(table, rows(["a"], 3), **SEVERAL)
    written(table, rows(["b"], part="q"), **SEVERAL)
    return table.reload()


@pytest.mark.parametrize("table_version", [6], indirect=True)
@pytest.mark.parametrize("mode", [{}, SEVERAL], ids=["single", "several"])
@pytest.mark.parametrize("action", PLANS, ids=str)
def test_plans_are_backdated_whatever_mode_the_service_has(
    action: Action, mode: dict[str, str], merge_on_read: HudiTable
) -> None:
    """The service does not know its neighbours. Dated now, it would take the writers after it along."""
    table, before = merge_on_read, merge_on_read.timeline.instants[-1].requested_time
    options = {"hoodie.cleaner.commits.retained": 1, "hoodie.clustering.plan.strategy.small.file.limit": 10**9}
    planned = PLANS[action](table.with_context(**shared(table, **mode, **options)))
    assert planned is not None
    assert planned.action is action
    assert before < planned.requested_time < now(table, -5)


def test_a_service_of_the_only_process_is_dated_now(merge_on_read: HudiTable) -> None:
    planned = schedule_compaction(merge_on_read)
    assert planned is not None
    assert now(merge_on_read, -5) < planned.requested_time


def test_times_rise_across_writers_and_services_in_both_modes(merge_on_read: HudiTable, rows: Rows) -> None:
    """In the order in which they were asked for, and no two are alike."""
    table, asked = merge_on_read, [i.requested_time for i in merge_on_read.timeline.instants]
    for ts, mode in enumerate([SEVERAL, {}, SEVERAL, SEVERAL], 10):
        asked.append(written(table, rows(["a"], ts), **mode))
        setting = shared(table, **{"hoodie.cleaner.commits.retained": 1})
        asked += [done.instant.requested_time for done in compact(table.reload().with_context(**setting))]
        cleaned = schedule_clean(table.reload().with_context(**setting))
        assert cleaned is not None
        asked.append(cleaned.requested_time)
        failed = create_requested(table.reload(), Instant(after(asked[-1]), Action.DELTA_COMMIT, State.REQUESTED))
        asked += [failed.requested_time, roll_back(table.reload().with_context(**setting), failed).start_rollback_time]
    assert asked == sorted(set(asked))
    assert len(asked) > 20


def after(time: str) -> str:
    return f"{int(time) + 1:017d}"


class ObservedClock(SystemClock):
    """Reports each sleep, and lets it be much longer."""

    def __init__(self, on_sleep: Callable[[], None]) -> None:
        self.slept, self.on_sleep = 0.0, on_sleep

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept += max(seconds, 1)
        self.on_sleep()


def shown_by_hudi(table: HudiTable, state: State = State.REQUESTED, seconds: float = 0) -> Instant:
    """An instant and its heartbeat as a JVM writer shows them, so many seconds after its date."""
    instant = Instant(InstantTime(now(table, -seconds)), Action.COMMIT, State.REQUESTED)
    table.storage.replace_atomic(heartbeat_path(instant.requested_time), b"")
    create_requested(table, instant)
    return transition_to_inflight(table, instant) if state is State.INFLIGHT else instant


class TestOneThatWasOnlyJustShown:
    """JVM writers look at the table after that, and write below what is later than theirs and complete already."""

    def written(self, table: HudiTable, rows: pa.Table, clock: ObservedClock, **options: object) -> Instant:
        setting = {"lock": StorageLock(table.storage), "clock": clock, "options": Options({**SEVERAL, **options})}
        return LocalWriter(table.with_context(**setting)).upsert(rows).instant

    def test_is_let_look_before_a_later_one_completes(self, table: HudiTable, rows: Rows) -> None:
        hudis = shown_by_hudi(table)
        pending: list[str] = []

        def looks() -> None:
            pending.extend(i.requested_time for i in table.reload().timeline.pending().data())
            transition_to_inflight(table, hudis)

        done = self.written(table, rows(["a"]), ObservedClock(looks))
        assert hudis.requested_time < done.requested_time
        assert pending == [hudis.requested_time, done.requested_time]

    def test_for_as_long_as_instants_are_dated_back(self, table: HudiTable, rows: Rows) -> None:
        shown_by_hudi(table)
        clock = ObservedClock(lambda: None)
        self.written(table, rows(["a"]), clock)
        assert 8 <= clock.slept <= 11
        shown_by_hudi(table)
        clock = ObservedClock(lambda: pytest.fail("it must not wait"))
        self.written(table, rows(["a"]), clock, **{"skep.write.instant.lag.seconds": 0})

    @pytest.mark.parametrize("of", ["one that has looked", "one that had its time", "a dead one", "skep's own"])
    def test_others_are_not_waited_for(self, of: str, table: HudiTable, rows: Rows) -> None:
        inflight = State.INFLIGHT if of == "one that has looked" else State.REQUESTED
        hudis = shown_by_hudi(table, inflight, seconds=15 if of == "one that had its time" else 0)
        if of in ("a dead one", "skep's own"):
            table.storage.delete(heartbeat_path(hudis.requested_time))
        heart = Heartbeat(table.context)
        if of == "skep's own":
            heart.announce(hudis.requested_time)
        self.written(table, rows(["a"]), ObservedClock(lambda: pytest.fail("it waits")))
        heart.stop()

    def test_before_a_clustering_completes(self, merge_on_read: HudiTable) -> None:
        table = merge_on_read
        hudis = shown_by_hudi(table)
        clock = ObservedClock(lambda: None if clock.slept > 1 else transition_to_inflight(table, hudis) and None)
        options = Options({"hoodie.clustering.plan.strategy.small.file.limit": 10**9})
        cluster(table.reload().with_context(lock=StorageLock(table.storage), clock=clock, options=options))
        assert clock.slept == 1
