"""Writes that began before another and ended after it: an entry that is synced up to the other has not seen them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skep_catalog.client import Metastore
from skep_sync.sync import sync_table
from skep_table.table import HudiTable

pytestmark = pytest.mark.metastore
Write = Callable[..., HudiTable]

HOUR = 3600


def end_at(table: HudiTable, number: int, seconds: float) -> None:
    """Has a completed write end at a time, as storage reports it."""
    instant = table.timeline.data().completed().instants[number]
    os.utime(Path(table.storage.root, table.layout.path(instant)), (seconds, seconds))


@pytest.fixture
def overtaken(write: Write, metastore: Metastore, database: str) -> Callable[[float, float], HudiTable]:
    """Of three writes the second is unseen when the table is synced, and there afterwards; when the last two ended."""

    def make(second: float, third: float) -> HudiTable:
        for number in (1, 2, 3):
            table = write("t", number, day=f"day{number}")
        instant = table.timeline.data().completed().instants[1]
        file = Path(table.storage.root, table.layout.path(instant))
        file.rename(file.with_suffix(".hidden"))
        end_at(table.reload(), 0, third - 5)
        end_at(table.reload(), 1, third)
        sync_table(HudiTable.open(table.storage), metastore, database)  # a snapshot would know when they ended
        assert metastore.partition_names(database, "t") == ["day=day1", "day=day3"]
        file.with_suffix(".hidden").rename(file)
        end_at(table, 1, second)
        return HudiTable.open(table.storage)

    return make


@pytest.mark.parametrize("later", [5.25, 0.25], ids=["seconds later", "within the second"])
def test_it_is_seen_by_its_end(
    overtaken: Callable[[float, float], HudiTable], metastore: Metastore, database: str, later: float
) -> None:
    third = int(time.time()) - 10
    sync_table(overtaken(third + later, third), metastore, database)
    assert metastore.partition_names(database, "t") == ["day=day1", "day=day2", "day=day3"]


def test_it_ended_in_the_second_of_the_other(
    overtaken: Callable[[float, float], HudiTable], metastore: Metastore, database: str
) -> None:
    """Object stores report times in seconds: its own sync, right after it, finds the marker where the table is."""
    third = int(time.time()) - 1
    table = overtaken(third, third)
    assert sync_table(table, metastore, database).counts == {"partitions added": 1}
    assert metastore.partition_names(database, "t") == ["day=day1", "day=day2", "day=day3"]
    assert not sync_table(table, metastore, database).changed


def test_the_next_commit_makes_up_for_it(
    overtaken: Callable[[float, float], HudiTable], write: Write, metastore: Metastore, database: str
) -> None:
    third = int(time.time()) - HOUR
    table = overtaken(third, third)
    assert not sync_table(table, metastore, database).changed, "long ago: its writer has synced, or it died"
    sync_table(write("t", 4, day="day1"), metastore, database)
    assert metastore.partition_names(database, "t") == ["day=day1", "day=day2", "day=day3"]
