"""What the sync after a commit needs of the metastore is looked up while the files are written, and holds only as long
as nothing has changed there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import skep.metastore.syncing
import skep_sync.planning.ahead
from skep.lake import Lake
from skep_catalog.connection import Connections
from skep_table.events import Event

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]
VIEWS = {"cow": ["orders"], "mor": ["orders", "orders_ro", "orders_rt"]}
KINDS = pytest.mark.parametrize("kind", list(VIEWS))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that this thread makes."""
    made: list[str] = []
    call = Connections.call

    def noted(self: Connections, name: str, *args: Any, **more: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            made.append(name)
        return call(self, name, *args, **more)

    monkeypatch.setattr(Connections, "call", noted)
    return made


def after_commit(lake: Lake, database: str, act: Callable[[], None]) -> None:
    """Has `act` run once when the next commit is complete and not yet synced."""
    released = 0

    def listen(event: Event) -> None:
        nonlocal released
        released += event.name == "lock.released" and event.facts["lock"] == f"{database}.orders"
        if released == 2:
            released += 1
            act()

    lake.events.listen(listen)


def markers(lake: Lake, database: str, kind: str) -> set[str]:
    return {lake.metastore.table(database, name).parameters["last_commit_time_sync"] for name in VIEWS[kind]}


@KINDS
def test_only_the_lock_and_the_alterations_are_left(
    lake: Lake, database: str, orders: Orders, calls: list[str], kind: str
) -> None:
    table = lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day", type=kind)
    table.upsert(orders(1))
    after_commit(lake, database, calls.clear)
    result = table.upsert(orders(1, 2, ts=2))
    entries = "get_table_req" if kind == "cow" else "get_table_objects_by_name_req"
    assert calls == ["lock", entries, *["alter_table"] * len(VIEWS[kind]), "unlock"]
    assert markers(lake, database, kind) == {result.instant.requested_time}


@KINDS
def test_new_partitions_and_ones_that_were_dropped_are_added(
    lake: Lake, database: str, orders: Orders, kind: str
) -> None:
    table = lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day", type=kind)
    table.upsert(orders(1, day="a"))
    for name in VIEWS[kind]:
        lake.metastore.drop_partitions(database, name, ["day=a"])
    table.upsert(pa.concat_tables([orders(1, ts=2, day="a"), orders(2, day="b")]))
    for name in VIEWS[kind]:
        assert lake.metastore.partition_names(database, name) == ["day=a", "day=b"]


@KINDS
def test_what_others_set_meanwhile_stays(lake: Lake, database: str, orders: Orders, kind: str) -> None:
    table = lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day", type=kind)
    table.upsert(orders(1))

    def alter() -> None:
        for name in VIEWS[kind]:
            entry = lake.metastore.table(database, name)
            changed = replace(entry, parameters={**entry.parameters, "owner.team": "sales"})
            lake.metastore.alter_table(database, name, changed)

    after_commit(lake, database, alter)
    result = table.upsert(orders(2))
    assert markers(lake, database, kind) == {result.instant.requested_time}
    for name in VIEWS[kind]:
        assert lake.metastore.table(database, name).parameters["owner.team"] == "sales"


def test_commits_of_others_meanwhile_are_synced_too(lake: Lake, database: str, orders: Orders) -> None:
    lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day").upsert(orders(1, day="a"))
    other = Lake(lake.metastore, lake.warehouse, database=database)
    after_commit(lake, database, lambda: other.table("orders").upsert(orders(3, day="c")) and None)
    lake.table("orders").upsert(orders(2, day="b"))
    assert lake.metastore.partition_names(database, "orders") == ["day=a", "day=b", "day=c"]
    assert not lake.table("orders").sync().changed


@pytest.mark.parametrize("how", ["it failed", "it is old", "there are many partitions"])
def test_without_it_the_sync_looks_itself(
    lake: Lake, database: str, orders: Orders, calls: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no connection")

    if how == "it failed":
        monkeypatch.setattr(skep.metastore.syncing, "look_ahead", fail)
    elif how == "it is old":
        monkeypatch.setattr(skep_sync.planning.ahead, "_RECENT_SECONDS", 0.0)
    else:
        monkeypatch.setattr(skep.metastore.syncing, "_MOST_PARTITIONS", 0)
    table = lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day")
    table.upsert(orders(1, day="a"))
    after_commit(lake, database, calls.clear)
    table.upsert(orders(2, day="b"))
    assert "get_partitions_by_names" in calls
    assert lake.metastore.partition_names(database, "orders") == ["day=a", "day=b"]


def test_a_write_that_fails_leaves_no_look_to_the_next(
    lake: Lake, database: str, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day")
    table.upsert(orders(1, day="a"))
    with monkeypatch.context() as broken:
        broken.setattr("skep_table.write.rows.write_bucket", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.upsert(orders(2, day="a"))
    table.bulk_insert(orders(3, day="b"))
    assert lake.metastore.partition_names(database, "orders") == ["day=a", "day=b"]
