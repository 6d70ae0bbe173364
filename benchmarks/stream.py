"""A stream of JSON records into a table: `skep stream`, and a PySpark job with Hudi's bundle that does the same.

1,000,000 records are upserted into a new table, from a folder of files and from a topic of Kafka; then 1,000 records,
half of them new, into that table. Both are whole processes, from their start to their end: skep on threads, Hudi on
Spark with two cores, its structured streaming sink with `availableNow` for the topic. At last such rounds from files in
a process that is up. What the contenders wrote is compared.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from benchmarks.peers.bundle import RELEASES, PeerMissing, bundle, java
from benchmarks.peers.kafka import broker, spark_source
from benchmarks.report import Report
from benchmarks.stream_records import SCHEMA_OF_AVRO, expected_sums, records, sums
from benchmarks.upsert import Progress
from benchmarks.write import NO_SERVICES

RECORDS, SMALL, FILES = 1_000_000, 1_000, 10
SKEP: Final = "skep"
TOPIC: Final = "orders"
WARM: Final = f"{SMALL} records from files, in a process that is up"
FASTER, FASTER_SMALL, SMALL_SECONDS = 4.0, 10.0, 1.0
JOB: Final = Path(__file__).with_name("stream_job.py")
HUDI_OPTIONS: Final[Mapping[str, str]] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.metadata.enable": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    **NO_SERVICES,
}


@dataclass(frozen=True)
class Source:
    """Where records are: a folder, or a topic of a broker."""

    name: str
    folder: Path
    address: str | None = None

    def add(self, lines: list[bytes], number: int) -> None:
        """Puts records there."""
        if self.address is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for part in range(FILES if len(lines) > SMALL else 1):
                portion = lines[part :: FILES if len(lines) > SMALL else 1]
                (self.folder / f"{number:04d}-{part:02d}.json").write_bytes(b"\n".join(portion) + b"\n")
            return
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 50})
        for line in lines:
            while True:
                try:
                    producer.produce(TOPIC, line)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()


@dataclass(frozen=True)
class Contender:
    """A command that brings a table up to a source, and one of a process that does so again and again."""

    name: str
    command: Callable[[Source, Path], list[str]]
    worker: Callable[[Source, Path], list[str]]


def skep_command(source: Source, table: Path, folder: Path) -> list[str]:
    """`skep stream` as a shell would start it."""
    schema = folder / "order.avsc"
    schema.write_text(json.dumps(SCHEMA_OF_AVRO))
    given = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.metadata.enable": "false",
        "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
    }
    if source.address is None:
        given["hoodie.streamer.source.dfs.root"] = str(source.folder)
    else:
        given |= {
            "bootstrap.servers": source.address,
            "auto.offset.reset": "earliest",
            "hoodie.streamer.source.kafka.topic": TOPIC,
        }
    return [
        str(Path(sys.executable).with_name("skep")), "stream", "--target-base-path", str(table),
        "--target-table", "orders", "--table-type", "COPY_ON_WRITE", "--op", "UPSERT", "--source-ordering-field", "ts",
        "--source-class", "JsonDFSSource" if source.address is None else "JsonKafkaSource",
        "--schemaprovider-class", "FilebasedSchemaProvider",
        *(part for key, value in given.items() for part in ("--hoodie-conf", f"{key}={value}")),
    ]  # fmt: skip


def skep_worker(source: Source, table: Path, folder: Path) -> list[str]:
    """The same flags for `skep.Streamer`."""
    _, _, *flags = skep_command(source, table, folder)
    return [sys.executable, str(JOB.with_name("stream_rounds.py")), *flags]


def hudi_command(release: str, source: Source, table: Path, folder: Path) -> list[str]:
    """A PySpark job of its own."""
    jars = [bundle(release), *(spark_source() if source.address is not None else ())]
    job = {
        "jars": [str(each) for each in jars],
        "folder": str(folder),
        "files": str(source.folder),
        "address": source.address,
        "topic": TOPIC,
        "table": str(table),
        "checkpoint": f"{table}-checkpoint",
        "options": {**HUDI_OPTIONS, **({} if release == "0.15.0" else {"hoodie.write.table.version": "6"})},
    }
    return [sys.executable, str(JOB), json.dumps(job)]


def contenders(folder: Path) -> Iterator[Contender]:
    yield Contender(SKEP, partial(skep_command, folder=folder), partial(skep_worker, folder=folder))
    for release in RELEASES:
        job = partial(hudi_command, release, folder=folder)
        yield Contender(f"Hudi {release}", job, job)


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report, count = Report("stream", scale, runs), max(int(RECORDS * scale), 10 * SMALL)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-stream-")))
        address = None
        try:
            address = stack.enter_context(broker(scratch))
            spark_source()
        except PeerMissing as reason:
            report.notes.append(f"Kafka is not measured: {reason}")
        whole = records(count)
        for name, place in (("files", None), ("Kafka", address)):
            if name == "Kafka" and place is None:
                continue
            for contender in contenders(scratch):
                if only and contender.name not in only:
                    continue
                source = Source(name, scratch / f"in-{contender.name}-{name}", place)
                try:
                    _measure(report, contender, source, whole, count, runs, scratch, progress)
                except (PeerMissing, JobError) as reason:
                    report.of(contender.name, f"{count} records from {name}").failed = str(reason)[-300:]
    _aims(report, count)
    return report


class JobError(Exception):
    """A process that failed; the message is the end of what it printed."""


def _measure(
    report: Report, contender: Contender, source: Source, whole: list[bytes], count: int, runs: int, scratch: Path,
    progress: Progress,
) -> None:  # fmt: skip
    """The first load into a new table each run, into the last of which small rounds follow."""
    first, small = f"{count} records from {source.name}", f"{SMALL} records from {source.name}"
    _forget(source)
    source.add(whole, 0)
    table = scratch / "table"
    for turn in range(runs + 1):
        for left in (table, Path(f"{table}-checkpoint")):
            shutil.rmtree(left, ignore_errors=True)
        _run(report, contender, first if turn else None, contender.command(source, table))
    progress(f"{contender.name}: {first} {report.of(contender.name, first).median:.2f} s")
    for turn in range(runs):
        source.add(_small(count, turn), turn + 1)
        _run(report, contender, small, contender.command(source, table))
    progress(f"{contender.name}: {small} {report.of(contender.name, small).median:.2f} s")
    if source.address is None:
        _rounds(report, contender, source, table, count, runs)
        progress(f"{contender.name}: {WARM} {report.of(contender.name, WARM).median:.2f} s")
    found, expected = sums(table), expected_sums(count, SMALL, runs if source.address else 2 * runs + 1)
    if found != expected:
        raise AssertionError(f"{contender.name} wrote other rows from {source.name}: {found}, expected {expected}")


def _small(count: int, turn: int) -> list[bytes]:
    return records(SMALL, count - SMALL // 2 + turn * SMALL // 2, generation=turn + 1)


def _rounds(report: Report, contender: Contender, source: Source, table: Path, count: int, runs: int) -> None:
    """Rounds in one process, the first to warm up; it does one for each line that it gets, and prints the seconds."""
    command = [*contender.worker(source, table), "--rounds"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment()
    ) as process:

        def work() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("seconds "):
                    return float(line.removeprefix("seconds "))
            raise JobError(f"the process ended with {process.wait()}")

        for turn in range(runs, 2 * runs + 1):
            source.add(_small(count, turn), turn + 1)
            if turn == runs:
                work()
            else:
                report.of(contender.name, WARM).run(process.pid, work)


def _forget(source: Source) -> None:
    if source.address is None:
        shutil.rmtree(source.folder, ignore_errors=True)
        return
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": source.address})
    if TOPIC in admin.list_topics(timeout=30).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        while TOPIC in admin.list_topics(timeout=30).topics:
            time.sleep(0.2)
    for _ in range(50):
        with suppress(Exception):  # the name is free again a moment after the list leaves the topic out
            admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
            return
        time.sleep(0.2)
    raise PeerMissing(f"Kafka does not make the topic {TOPIC}")


def _run(report: Report, contender: Contender, task: str | None, command: list[str]) -> None:
    if task is None:
        _process(command)
    else:
        report.of(contender.name, task).run(psutil.Process().pid, lambda: _process(command))


def _process(command: list[str]) -> float:
    """The seconds from the start to the end of a process."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    if done.returncode:
        raise JobError((done.stdout + done.stderr).strip()[-2000:])
    return time.perf_counter() - start


def _environment() -> dict[str, str]:
    home = str(java().resolve().parents[1])
    return {**os.environ, "JAVA_HOME": home, "TZ": "UTC", "PYSPARK_PYTHON": sys.executable, "OMP_NUM_THREADS": "2"}


def _aims(report: Report, count: int) -> None:
    for name in ("files", "Kafka"):
        first, small = f"{count} records from {name}", f"{SMALL} records from {name}"
        for release in RELEASES:
            hudi = f"Hudi {release}"
            report.aim(f"{first}, times as fast as {hudi}", report.ratio(hudi, first), FASTER)
            report.aim(f"{small}, times as fast as {hudi}", report.ratio(hudi, small), FASTER_SMALL)
        report.aim(f"{small}, seconds", report.of(SKEP, small).median, SMALL_SECONDS, at_most=True)
    for release in RELEASES:
        report.aim(f"{WARM}, times as fast as Hudi {release}", report.ratio(f"Hudi {release}", WARM), FASTER_SMALL)
