"""The times of instants, beside writers that date theirs before they show them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from skep_table.clock import SYSTEM_CLOCK
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.setting import CommitSetting
from skep_table.locks.storage import StorageLock
from skep_table.options import Options
from skep_table.storage import LocalStorage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.timeline import format_instant_time
from skep_table.timeline.write import create_requested
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
SEVERAL = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


@pytest.fixture
def table(tmp_path: object, rows: Rows) -> HudiTable:
    spec = TableSpec(name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts")
    return create_table(LocalStorage(f"{tmp_path}/t"), spec)


def now(table: HudiTable, seconds: float = 0) -> str:
    return format_instant_time(SYSTEM_CLOCK.now() + timedelta(seconds=seconds), table.config.timezone)


def written(table: HudiTable, rows: pa.Table, **options: object) -> str:
    setting = CommitSetting(lock=StorageLock(table.storage), options=Options(options))
    return LocalWriter(table, setting).upsert(rows).instant.requested_time


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


def test_how_far_is_an_option(table: HudiTable, rows: Rows) -> None:
    lag = {"skep.write.instant.lag.seconds": 3600}
    assert written(table, rows(["a"]), **SEVERAL, **lag) < now(table, -3000)
    assert now(table, -5) < written(table, rows(["a"]), **SEVERAL, **{"skep.write.instant.lag.seconds": 0})
