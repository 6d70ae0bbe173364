"""As users live it: one job writes, a sync announces it, and engines see it at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_asking import Engine, EngineRefused
from engine_starting import engine_param
from engine_tables import PLAIN, plain

from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.jvm import Jvm
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_table.table import HudiTable

TOKEN = "a-token-of-the-callers"


def with_engine(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", [engine_param(name)], indirect=True)


@pytest.fixture
def lake(engine: Engine, tmp_path: Path) -> Iterator[Lake]:
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(tmp_path / "lake"), database="scenario")
        yield lake
        with contextlib.suppress(Exception):
            for name in client.tables("scenario"):
                client.drop_table("scenario", name)


@contextlib.contextmanager
def service(*words: str) -> Iterator[str]:
    """`skep serve` in a process of its own, and its address."""
    code = "from skep.cli.main import main; main()"
    environment = {**os.environ, "SKEP_SERVE_TOKEN": TOKEN}
    command = [sys.executable, "-c", code, "serve", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(timeout=60)


def until(look: Callable[[], object], wanted: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        found: object
        try:
            found = look()
        except EngineRefused as refused:  # the table is not there yet
            found = refused
        if found == wanted:
            return
        assert time.monotonic() < deadline, f"after {seconds:g} s: {found!r}, not {wanted!r}"
        time.sleep(0.5)


@with_engine("presto-0.287")
def test_a_jvm_writer_calls_back_and_presto_sees_its_commits(engine: Engine, lake: Lake, tmp_path: Path) -> None:
    """JVM Hudi → HTTP callback → skep serve → metastore → Presto."""
    path = tmp_path / "lake" / "orders"
    options = {
        "hoodie.table.name": "orders",
        "hoodie.database.name": "scenario",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.commit.callback.on": "true",
        "hoodie.write.commit.callback.http.api.key": TOKEN,
    }
    schema = "id string, ts bigint, amount double, part string"

    def rows(ids: range, ts: int) -> list[dict[str, object]]:
        return [{"id": f"id-{i}", "ts": ts, "amount": i + ts, "part": f"p{i % 2}"} for i in ids]

    def sums() -> list[tuple[object, ...]]:
        return sorted(engine.ask("select part, count(*), sum(amount) from scenario.orders group by part").rows)

    try:
        jvm = Jvm("0.15.0")
    except PeerMissing as missing:
        pytest.skip(str(missing))
    with jvm, service("-m", engine.metastore, "-w", str(tmp_path), "--allow", str(tmp_path / "lake")) as address:
        options["hoodie.write.commit.callback.http.url"] = f"{address}/callback"
        jvm.write(path, rows(range(4), 1), schema, options, operation="insert")
        until(sums, [("p0", 2, 4.0), ("p1", 2, 6.0)])
        jvm.write(path, rows(range(2, 6), 2), schema, options, operation="upsert")
        until(sums, [("p0", 3, 11.0), ("p1", 3, 14.0)])
    synced = lake.metastore.table("scenario", "orders").parameters["last_commit_time_sync"]
    assert synced == HudiTable.open(str(path)).timeline.data().completed().instants[-1].requested_time


@with_engine("hive-2.3.10")
def test_hive_sees_a_commit_that_waited_for_another_writer(engine: Engine, lake: Lake) -> None:
    """skep's writer → hook → Hive, while a second writer holds the table's lock."""
    table = lake.create_table("shared", PLAIN, key="id", ordering="ts", partition_by="part")
    table.insert(plain(range(4), 1))

    def amounts() -> list[tuple[object, ...]]:
        return sorted(engine.ask("select id, amount from scenario.shared").rows)

    before = amounts()
    other = HmsLock(lake.metastore.own_connection(), "scenario", "shared", purpose="another writer")
    other.acquire(30)
    writer = threading.Thread(target=lambda: table.upsert(plain(range(2, 5), 2)))
    writer.start()
    try:
        time.sleep(3)
        assert writer.is_alive(), "the writer did not wait for the lock"
        assert amounts() == before
    finally:
        other.release()
        writer.join(timeout=120)
    assert amounts() == [("id-000", 1.0), ("id-001", 1.25), ("id-002", 2.5), ("id-003", 2.75), ("id-004", 3.0)]
