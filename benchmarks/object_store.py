"""Tables on an S3 server on loopback, each request delayed by 30 ms: skep and JVM Hudi in turn, requests counted.

Each contender has a table of 10 partitions and one of many, made before and not measured. Measured on the first: an
upsert of 100,000 rows, a snapshot, a clean; on the second: an upsert of one row. All use two cores, snappy, table
version 6, no metadata table and no services after commits; the rows they end with are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks import data
from benchmarks.object_proxy import ObjectStore
from benchmarks.ours import Objects
from benchmarks.peers.bundle import PeerMissing, bundle, fetched
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, SUMS, Progress, Size
from benchmarks.write import NO_SERVICES

DELAY_SECONDS = 0.030
MANY = 1_000
RELEASE = "0.15.0"
HADOOP_AWS = ("org.apache.hadoop", "hadoop-aws", "3.3.4")  # of pyspark 3.5's Hadoop
AWS_SDK = ("com.amazonaws", "aws-java-sdk-bundle", "1.12.262")
UPSERT, SMALL, SNAPSHOT, CLEAN = "upsert of many rows", "upsert of one row", "snapshot count and sums", "clean"
CLEANER = {"hoodie.cleaner.commits.retained": "1"}


class Contender(Protocol):
    name: str

    @property
    def worker(self) -> Worker: ...

    def write(self, table: str, source: Path, operation: str) -> float: ...

    def sums(self, table: str) -> tuple[float, dict[str, Any]]: ...

    def clean(self, table: str) -> float: ...


class Skep:
    """skep's own engine, without a JVM."""

    name = "skep"

    def __init__(self, store: ObjectStore) -> None:
        self.worker = Objects(store.options)

    def write(self, table: str, source: Path, operation: str) -> float:
        return _seconds(self.worker.request("write", path=table, source=str(source), operation=operation))

    def sums(self, table: str) -> tuple[float, dict[str, Any]]:
        found = self.worker.request("sums", path=table)
        return _seconds(found), found["rows"][0]

    def clean(self, table: str) -> float:
        return _seconds(self.worker.request("clean", path=table, options=CLEANER))


class Hudi:
    """JVM Hudi over Hadoop's S3A."""

    name = f"Hudi {RELEASE}"

    def __init__(self, store: ObjectStore) -> None:
        jars = [bundle(RELEASE), fetched(*HADOOP_AWS), fetched(*AWS_SDK)]
        settings = {f"spark.hadoop.{key}": value for key, value in store.options.items()}
        self.worker = Jvm(RELEASE, {**settings, "spark.jars": ",".join(map(str, jars))})

    def write(self, table: str, source: Path, operation: str) -> float:
        options = {**HUDI_OPTIONS, **NO_SERVICES, "hoodie.datasource.write.operation": operation}
        return _seconds(self.worker.request("write_files", path=table, source=str(source), options=options))

    def sums(self, table: str) -> tuple[float, dict[str, Any]]:
        options = {"hoodie.metadata.enable": "false"}
        found = self.worker.request("aggregate", path=table, options=options, expressions=list(SUMS))
        return _seconds(found), found["rows"][0]

    def clean(self, table: str) -> float:
        options = {**HUDI_OPTIONS, **CLEANER}
        return _seconds(self.worker.request("clean", path=table, options=options, plan=False))


def _seconds(answer: dict[str, Any]) -> float:
    return float(answer["seconds"])


@dataclass(frozen=True)
class Sizes:
    """What is written: the usual rows, and one row of a table of many partitions."""

    usual: Size
    partitions: int

    @classmethod
    def of(cls, scale: float) -> Sizes:
        return cls(Size.of(scale), max(10, int(MANY * min(1.0, scale))))

    def many(self) -> Path:
        return data.inserts(self.partitions * 10, partitions=self.partitions)

    def one(self) -> Path:
        return data.small(1, self.partitions * 10, self.partitions, 1)


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    sizes, report = Sizes.of(scale), Report("object-store", scale, runs)
    rows: dict[str, dict[str, Any]] = {}
    with ObjectStore() as store, ExitStack() as workers:
        store.make_bucket("lake")
        contenders = list(started(store, only, report, workers))
        for contender in contenders:
            store.delay = 0.0
            progress(f"{contender.name}: its tables of 10 and of {sizes.partitions} partitions")
            contender.write(path_of(contender, "few"), sizes.usual.inserts(), "bulk_insert")
            contender.write(path_of(contender, "many"), sizes.many(), "bulk_insert")
        store.delay = DELAY_SECONDS
        for turn in range(runs + 1):
            for contender in contenders:
                progress(f"{contender.name}: {f'run {turn}' if turn else 'a run to warm up'}")
                rows[contender.name] = one_turn(report if turn else None, contender, store, sizes)
    if len({repr(sorted(found.items())) for found in rows.values()}) > 1:
        raise AssertionError(f"the contenders' tables hold different rows: {rows}")
    for task, least in ((SMALL, 3.0), (UPSERT, 1.0), (SNAPSHOT, 1.0), (CLEAN, 1.0)):
        report.aim(f"{task}, times as fast as Hudi {RELEASE}", report.ratio(Hudi.name, task), least)
        if (share := report.share_of_requests(Hudi.name, task)) is not None:
            report.aim(f"{task}, share of Hudi {RELEASE}'s requests", share, 0.5, at_most=True)
    return report


def started(store: ObjectStore, only: frozenset[str], report: Report, workers: ExitStack) -> Iterator[Contender]:
    for kind in (Skep, Hudi):
        if only and kind.name not in only:
            continue
        try:
            contender = kind(store)
        except (PeerMissing, HudiRefused) as reason:
            report.of(kind.name, SMALL).failed = str(reason)[:200]
            continue
        workers.enter_context(contender.worker)
        yield contender


def path_of(contender: Contender, table: str) -> str:
    return f"s3a://lake/{contender.name.replace(' ', '-').lower()}/{table}"


def one_turn(report: Report | None, contender: Contender, store: ObjectStore, sizes: Sizes) -> dict[str, Any]:
    """Each task once; the sums over the table of 10 partitions."""
    few, many = path_of(contender, "few"), path_of(contender, "many")
    sums: dict[str, Any] = {}

    def snapshot() -> float:
        seconds, found = contender.sums(few)
        sums.update(found)
        return seconds

    for task, work in (
        (SMALL, lambda: contender.write(many, sizes.one(), "upsert")),
        (UPSERT, lambda: contender.write(few, sizes.usual.changes(), "upsert")),
        (SNAPSHOT, snapshot),
        (CLEAN, lambda: contender.clean(few)),
    ):
        store.take_requests()
        if report is None:
            work()
            continue
        found = report.of(contender.name, task)
        found.run(contender.worker.pid, work)
        found.requests = store.take_requests()
    return sums
