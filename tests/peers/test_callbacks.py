"""Real commit callbacks: JVM Hudi writes and notifies `skep serve`, over HTTP and Kafka, and the metastore follows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.jvm import Jvm
from benchmarks.peers.kafka import broker, class_path
from skep_catalog.client import Metastore
from skep_sync.following.receiver import parse_callback
from skep_sync.sync import plan_sync
from skep_table.table import HudiTable

TOKEN = "correct-horse-battery-staple"
WAIT = 120.0
RELEASES = [
    pytest.param("0.15.0", marks=pytest.mark.peer("hudi-0.15.0")),
    pytest.param("1.2.0", marks=[pytest.mark.peer("hudi-1.2.0"), pytest.mark.slow]),
]


def options(name: str, database: str, kind: str, url: str, release: str) -> dict[str, str]:
    older = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
    return {
        "hoodie.table.name": name,
        "hoodie.database.name": database,
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.write.commit.callback.on": "true",
        "hoodie.write.commit.callback.http.url": url,
        "hoodie.write.commit.callback.http.api.key": TOKEN,
        **(older if release != "0.15.0" else {}),
    }


def rows(*ids: int, day: str, **more: object) -> list[dict[str, Any]]:
    return [{"id": number, "ts": 1, "day": day, **more} for number in ids]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)


@contextlib.contextmanager
def service(folder: Path, uri: str, *words: str) -> Iterator[str]:
    """`skep serve` in a process of its own; yields its address, and ends it as a supervisor would."""
    command = [sys.executable, "-c", "from skep.cli.main import main; main()", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "-w", str(folder), "--allow", str(folder), "-m", uri, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SKEP_SERVE_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.metastore
@pytest.mark.parametrize("release", RELEASES)
def test_a_commit_of_hudi_is_in_the_metastore_without_hudis_sync(
    release: str, jvm: Callable[[str], Jvm], metastore: Metastore, database: str, tmp_path: Path
) -> None:
    hudi = jvm(release)
    with service(tmp_path, metastore.uri) as url:
        for name, kind in (("cow", "COPY_ON_WRITE"), ("mor", "MERGE_ON_READ")):
            place = tmp_path / name
            given = options(name, database, kind, f"{url}/callback", release)
            hudi.write(place, rows(1, 2, day="a"), "id long, ts long, day string", given, operation="insert")
            until(lambda name=name: metastore.find_table(database, name))
            wider = "id long, ts long, day string, note string"
            hudi.write(place, rows(1, 3, day="b", note="new"), wider, given, operation="upsert")
            until(lambda place=place: not plan_sync(HudiTable.open(place), metastore, database))
            names = [column.name for column in metastore.table(database, name).storage.columns]
            assert "note" in names
            assert metastore.partition_names(database, name) == ["day=a", "day=b"]
    assert metastore.tables(database) == ["cow", "mor", "mor_ro", "mor_rt"]


@pytest.fixture
def sent() -> Iterator[tuple[str, list[bytes]]]:
    """An address that takes what Hudi sends, as it comes."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", bodies
    server.shutdown()
    server.server_close()


@pytest.mark.peer("hudi-0.15.0", "kafka")
@pytest.mark.slow
@pytest.mark.metastore
def test_callbacks_from_a_kafka_topic(
    jvm: Callable[[str], Jvm],
    sent: tuple[str, list[bytes]],
    metastore: Metastore,
    database: str,
    tmp_path: Path,
) -> None:
    """Hudi's Kafka callback is in another jar than its Spark bundle and sends the same JSON: that of a real commit is
    put into a real topic here."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    try:
        class_path()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    url, bodies = sent
    place = tmp_path / "lake" / "cow"
    given = options("cow", database, "COPY_ON_WRITE", url, "0.15.0")
    jvm("0.15.0").write(place, rows(1, day="a"), "id long, ts long, day string", given, operation="insert")
    (body,) = bodies
    assert parse_callback(body).table == "cow"
    assert json.loads(body)["hoodieWriteStat"]
    (tmp_path / "kafka").mkdir()
    with broker(tmp_path / "kafka") as address:
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        for message in (b"no callback", json.dumps({**json.loads(body), "basePath": "/etc"}).encode(), body):
            producer.produce("commits", message, key="cow")
        producer.flush(60)
        words = ("--kafka", address, "--kafka-topic", "commits", "--kafka-group", "syncs")
        with service(tmp_path / "lake", metastore.uri, *words):
            until(lambda: metastore.find_table(database, "cow"))
        consumer = Consumer({"bootstrap.servers": address, "group.id": "syncs"})
        (committed,) = consumer.committed([TopicPartition("commits", 0)], timeout=60)
        consumer.close()
    assert committed.offset == 3
    assert not plan_sync(HudiTable.open(place), metastore, database)
