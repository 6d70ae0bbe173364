"""Handles that outlive what they were made from: a renamed or dropped table, a closed lake, a metastore that died."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import skep
from skep.lake import Lake
from skep_catalog.embedded import running
from skep_catalog.lock import HmsLock
from skep_format.errors import (
    CatalogError,
    InputError,
    LeaseLostError,
    LockTimeoutError,
    NoSuchTableError,
    SkepError,
    TableMismatchError,
)
from skep_table.events import Event
from skep_table.lock import held

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]


def ids(table: skep.Table) -> list[int]:
    return sorted(table.read(columns="id").to_arrow()["id"].to_pylist())


def entries(lake: Lake, database: str) -> list[str]:
    return [entry.name for entry in lake.metastore.tables_of(database)]


class TestRenamed:
    @pytest.mark.parametrize(
        "use",
        [
            pytest.param(lambda table, rows: table.upsert(rows), id="upsert"),
            pytest.param(lambda table, rows: table.delete(rows), id="delete"),
            pytest.param(lambda table, _: table.sync(), id="sync"),
            pytest.param(lambda table, _: table.savepoint(), id="savepoint"),
        ],
    )
    def test_the_old_handle_makes_no_second_name(
        self, use: Callable[[skep.Table, pa.Table], object], lake: Lake, database: str, orders: Orders
    ) -> None:
        old = lake.create_table("orders", orders(), key="id")
        old.upsert(orders(1))
        new = lake.rename_table("orders", "sales")
        with pytest.raises(NoSuchTableError, match=r"orders is not in the metastore any more: it was renamed"):
            use(old, orders(2))
        assert entries(lake, database) == ["sales"]
        assert not new.hudi.timeline.pending().instants
        assert ids(old) == [1]
        new.upsert(orders(3))
        assert ids(old) == [1, 3]

    def test_between_commit_and_sync(self, lake: Lake, database: str, orders: Orders) -> None:
        table = lake.create_table("orders", orders(), key="id")
        released = 0

        def rename(event: Event) -> None:
            nonlocal released
            released += event.name == "lock.released" and event.facts["lock"] == f"{database}.orders"
            if released == 2:  # the commit is complete
                released += 1
                lake.rename_table("orders", "sales")

        lake.events.listen(rename)
        with pytest.warns(skep.SyncWarning, match="is complete, and is not synced: .* renamed or dropped"):
            table.upsert(orders(1))
        assert entries(lake, database) == ["sales"]
        assert ids(lake.table("sales")) == [1]

    def test_it_waits_for_a_writer_that_is_completing(self, lake: Lake, database: str, orders: Orders) -> None:
        lake.create_table("orders", orders(), key="id")
        hasty = Lake(
            lake.metastore,
            lake.warehouse,
            None,
            database,
            lake.options.with_values({"skep.write.lock.timeout.seconds": 1}),
        )
        with held(HmsLock(lake.metastore, database, "orders"), 10), pytest.raises(LockTimeoutError):
            hasty.rename_table("orders", "sales")
        assert entries(lake, database) == ["orders"]


class TestDropped:
    def test_the_old_handle_does_not_bring_it_back(self, lake: Lake, database: str, orders: Orders) -> None:
        table = lake.create_table("orders", orders(), key="id")
        table.upsert(orders(1))
        lake.drop_table("orders")
        with pytest.raises(NoSuchTableError, match=r"lake\.register"):
            table.upsert(orders(2))
        with pytest.raises(NoSuchTableError):
            table.sync()
        assert entries(lake, database) == []
        lake.register(table.path, "orders")
        table.upsert(orders(2))  # its entry is there again
        assert ids(table) == [1, 2]

    def test_recreated_at_another_place(self, lake: Lake, database: str, orders: Orders, tmp_path: Path) -> None:
        old = lake.create_table("orders", orders(), key="id")
        lake.drop_table("orders")
        new = lake.create_table("orders", orders(), key="id", location=str(tmp_path / "another"))
        new.upsert(orders(1))
        with pytest.raises(TableMismatchError, match=r"lies at .*another now"):
            old.upsert(orders(2))
        with pytest.raises(TableMismatchError):
            old.sync()
        assert str(lake.metastore.table(database, "orders").storage.location).endswith(f"{tmp_path}/another")
        assert (ids(old), ids(new)) == ([], [1])


def test_a_closed_lake_refuses_at_once(tmp_path: Path, orders: Orders) -> None:
    """Also a write that another thread has under way; what is there can still be read."""
    lake = skep.connect(warehouse=str(tmp_path / "lake"))
    table = lake.create_table("orders", orders(), key="id")
    table.upsert(orders(1))
    inside, closed, failures = threading.Event(), threading.Event(), []

    def pause(event: Event) -> None:
        if event.name == "write.files.start":
            inside.set()
            assert closed.wait(60)

    def write() -> None:
        try:
            table.upsert(orders(2))
        except SkepError as error:
            failures.append(error)

    lake.events.listen(pause)
    writing = threading.Thread(target=write)
    writing.start()
    assert inside.wait(60)
    lake.close()
    closed.set()
    writing.join(60)
    assert "closed" in str(failures[0])
    for use in (
        lambda: table.upsert(orders(3)),
        table.sync,
        table.compact,
        lake.tables,
        lambda: lake.table("orders"),
        lambda: lake.create_table("more", orders(), key="id"),
        lambda: lake.register(table.path),
        lambda: lake.rename_table("orders", "more"),
        lambda: lake.drop_table("orders"),
        lambda: lake.sql("select 1"),
        lambda: lake.spark,
        lambda: table.read().to_spark(),
    ):
        with pytest.raises(InputError, match="closed"):
            use()
    assert ids(table) == [1]
    assert not table.hudi.timeline.pending().instants
    lake.close()


def kill(warehouse: str) -> None:
    server = running(Path(warehouse, ".metastore"))
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)


@pytest.mark.engine("metastore")
def test_an_embedded_metastore_that_dies_is_started_again(tmp_path: Path, orders: Orders) -> None:
    """Between writes, in the midst of one, and under a lock; the others who use it join the new one."""
    folder = str(tmp_path / "lake")
    with skep.connect(warehouse=folder) as lake, skep.connect(warehouse=folder) as other:
        table = lake.create_table("orders", orders(), key="id")
        table.upsert(orders(1))
        kill(folder)
        table.upsert(orders(2))
        assert lake.metastore.table("default", "orders").parameters["last_commit_time_sync"]
        assert other.tables() == ["default.orders"]
        other.table("orders").upsert(orders(3))
        assert other._embedded is not None
        assert other._embedded.use is not None
        assert not other._embedded.use.started
        assert ids(table) == [1, 2, 3]

        lock = HmsLock(lake.metastore, "default", "orders")
        lock.acquire(10)
        kill(folder)
        try:
            lock.ensure_held()  # the server keeps its locks in its database
        except LeaseLostError:
            pass
        else:
            with pytest.raises(LockTimeoutError):
                HmsLock(other.metastore, "default", "orders").acquire(0.5)
        lock.release()

        def kill_once(event: Event) -> None:
            if event.name == "write.files.start" and not killed:
                killed.append(event)
                kill(folder)

        killed: list[Event] = []
        lake.events.listen(kill_once)
        table.upsert(orders(4))
        assert killed
        assert ids(table) == [1, 2, 3, 4]
    with pytest.raises(CatalogError, match="closed"):
        lake.metastore.databases()
