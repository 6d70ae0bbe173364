"""Many clients of one SQL server at one small merge-on-read table: skep's, and Spark's own Thrift server with Hudi.

Each client sends four queries and one UPDATE of one row, over and over; a run ends after a time. The sum of what the
updates added shows whether one was lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa
from pyhive import exc, hive
from thrift.transport.TTransport import TTransportException

from benchmarks.measure import memory_of
from benchmarks.peers.bundle import RELEASES, PeerMissing, bundle
from benchmarks.report import Report
from benchmarks.upsert import Progress
from skep.lake import connect

CLIENTS = (1, 8, 32)
SECONDS, ROWS = 20.0, 64
SKEP = "skep"
QUERIES = (
    "select sum(n) from counts",
    "select n, note from counts where id = {id}",
    "select count(*) from counts where n >= 0",
    "select note, max(n) as most from counts group by note order by note limit 3",
)
UPDATE = "update counts set n = n + 1 where id = {id}"
WAIT_SECONDS = 90.0
SPARK = Path(__file__).parents[1] / "tests" / "engines" / "spark_thrift.py"
HUDI = (
    "set hoodie.write.concurrency.mode=optimistic_concurrency_control",
    "set hoodie.cleaner.policy.failed.writes=LAZY",
    "set hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "set hoodie.metadata.enable=false",
)


@dataclass
class Load:
    """What the clients of one run saw."""

    seconds: float = 0.0
    queries: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    processor: float = 0.0

    @property
    def statements(self) -> int:
        return len(self.queries) + len(self.updates)

    def __str__(self) -> str:
        each = f"{self.statements / self.seconds:.1f} statements a second"
        found = [each, f"query {_spread(self.queries)}", f"update {_spread(self.updates)}"]
        found.append(f"{self.processor / max(self.statements, 1):.3f} s of processor each")
        failed = f"{len(self.failed)} of {len(self.failed) + len(self.updates)} updates failed"
        return ", ".join([*found, failed + (f", such as: {self.failed[0][:160]}" if self.failed else "")])


def _spread(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return f"{seconds[0]:.3f} s" if seconds else "none"
    return f"{median(seconds):.3f} s (95th of 100: {quantiles(seconds, n=20)[-1]:.3f})"


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("server", scale, runs)
    contenders = {SKEP: _skep, **{f"Spark with Hudi {release}": release for release in RELEASES[:1]}}
    for name, how in contenders.items():
        if only and name not in only:
            continue
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-server-")))
            try:
                served = stack.enter_context(_skep(folder) if how is _skep else _spark(folder, str(how)))
            except PeerMissing as reason:
                report.notes.append(f"{name} is not measured: {reason}")
                continue
            added = 0
            for clients in CLIENTS:
                task = f"{clients} clients, seconds for 100 statements"
                measured, failed = report.of(name, task), 0
                for turn in range(runs + 1):
                    seconds = max(SECONDS * scale, 1.0) / (4 if turn == 0 else 1)
                    with memory_of(served.pid) as peak:
                        load = _run(served, clients, seconds)
                    added += len(load.updates)
                    if turn:
                        measured.seconds.append(100 * load.seconds / max(load.statements, 1))
                        measured.peak_bytes = max(measured.peak_bytes, peak.bytes)
                        failed += len(load.failed)
                        progress(f"{name}, {clients} clients: {load}")
                        report.notes.append(f"{name}, {clients} clients: {load}")
                if name == SKEP:
                    report.aim(f"{clients} clients: updates that failed", failed, 0, at_most=True)
            with contextlib.closing(served.client()) as client:
                found = _rows(client, "select sum(n) from counts")[0][0]
            if found != added:
                raise AssertionError(f"{name}: {added} updates were acknowledged, and the sum is {found}")
    for clients in CLIENTS:
        task = f"{clients} clients, seconds for 100 statements"
        for release in RELEASES[:1]:
            report.aim(f"{clients} clients: times Spark's", report.ratio(f"Spark with Hudi {release}", task), 5)
    return report


@dataclass
class Served:
    """A server with the table, and what each client sets first."""

    port: int
    pid: int
    settings: tuple[str, ...] = ()

    def client(self) -> Any:
        connection = hive.connect("127.0.0.1", port=self.port)
        for text in self.settings:
            _rows(connection, text)
        return connection


def _run(served: Served, clients: int, seconds: float) -> Load:
    load, guard, began = Load(), threading.Lock(), threading.Barrier(clients + 1)
    until = [0.0]

    def client(number: int) -> None:
        chosen = random.Random(number)
        with contextlib.closing(served.client()) as connection:
            began.wait(WAIT_SECONDS)
            while time.monotonic() < until[0]:
                for text in (*QUERIES, UPDATE):
                    is_update, start = text is UPDATE, time.monotonic()
                    try:
                        _rows(connection, text.format(id=chosen.randrange(ROWS)))
                    except exc.OperationalError as error:
                        with guard:
                            load.failed.append(str(error.args[0].status.errorMessage if error.args else error))
                        continue
                    with guard:
                        (load.updates if is_update else load.queries).append(time.monotonic() - start)

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(client, number) for number in range(clients)]
        processor = _processor(served.pid)
        start = time.monotonic()
        until[0] = start + seconds
        began.wait(WAIT_SECONDS)
        for future in futures:
            future.result()
    load.seconds, load.processor = time.monotonic() - start, _processor(served.pid) - processor
    return load


def _rows(connection: Any, text: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(text)
        found: list[tuple[Any, ...]] = cursor.fetchall() if text.startswith("select") else []
        return found


def _processor(pid: int) -> float:
    import psutil

    root = psutil.Process(pid)
    spent = [each.cpu_times() for each in (root, *root.children(recursive=True))]
    return sum(each.user + each.system for each in spent)


# -- the servers -------------------------------------------------------------------------------------------------------


@contextmanager
def _skep(folder: Path) -> Iterator[Served]:
    """`skep sql-server` in a process of its own, on a lake with an embedded metastore."""
    with connect(warehouse=str(folder / "lake")) as lake:
        uri = lake.metastore.uri
        key = pa.field("id", pa.int64(), nullable=False)
        schema = pa.schema([key, ("n", pa.int64()), ("note", pa.string()), ("ts", pa.int64())])
        lake.create_table("counts", schema, key="id", ordering="ts", type="mor").upsert(_first(schema))
        port = _free_port()
        command = [
            str(Path(sys.executable).with_name("skep")),
            "sql-server",
            "--metastore",
            uri,
            "--warehouse",
            str(folder / "lake"),
        ]
        with _process([*command, "--port", str(port), "--anonymous-writes"], folder / "log") as pid:
            served = Served(port, pid)
            _wait(served, folder / "log")
            yield served


@contextmanager
def _spark(folder: Path, release: str) -> Iterator[Served]:
    """Spark's Thrift server with Hudi's bundle; its table is made by Hudi."""
    jar = bundle(release)
    with connect(warehouse=str(folder / "lake")) as lake:
        port = _free_port()
        command = [sys.executable, str(SPARK), str(port), lake.metastore.uri, str(jar), str(folder)]
        with _process(command, folder / "log") as pid:
            served = Served(port, pid, HUDI)
            _wait(served, folder / "log")
            with contextlib.closing(served.client()) as client:
                _rows(
                    client,
                    "create table counts (id bigint, n bigint, note string, ts bigint) using hudi"
                    f" location '{folder}/counts' tblproperties (type='mor', primaryKey='id', preCombineField='ts')",
                )
                values = ", ".join(f"({each}, 0, 'note {each % 7}', 1)" for each in range(ROWS))
                _rows(client, f"insert into counts values {values}")
            yield served


def _first(schema: pa.Schema) -> pa.Table:
    ids = list(range(ROWS))
    return pa.table(
        {"id": ids, "n": [0] * ROWS, "note": [f"note {each % 7}" for each in ids], "ts": [1] * ROWS}, schema=schema
    )


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[int]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(served: Served, log: Path) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            served.client().close()
            return
        except (TTransportException, OSError, exc.Error):
            if time.monotonic() > until:
                raise TimeoutError(f"the server does not answer: {log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
