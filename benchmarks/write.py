"""A life of a table of either type: bulk insert, upsert, delete, and small commits into half of the partitions.

Each contender writes a new table in each run, warmed up by one whole life before. All read the same Parquet files, use
two cores, snappy, table version 6, no metadata table and no services after commits; what they wrote is compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, VERSION_6, Say, Size, contenders, sums

TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
SMALL_ROWS = 1_000
NO_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.compact.inline": "false", "hoodie.archive.automatic": "false"}
# How many times as fast as the faster of the Hudis each task is to be.
AIMS = {
    "cow bulk insert": 2.5,
    "cow upsert": 5.0,
    "cow delete": 5.0,
    "cow small commit": 5.0,
    "mor upsert": 4.0,
    "mor small commit": 5.0,
}


@dataclass(frozen=True)
class Step:
    task: str
    source: Path
    operation: str


def steps(kind: str, size: Size) -> Iterator[Step]:
    yield Step(f"{kind} bulk insert", size.inserts(), "bulk_insert")
    yield Step(f"{kind} upsert", size.changes(), "upsert")
    yield Step(f"{kind} delete", data.inserts(max(1, size.updated // 2), start=1), "delete")
    yield Step(f"{kind} small commit", data.small(min(SMALL_ROWS, size.inserted), size.inserted), "upsert")


def measure(*, scale: float, runs: int, only: frozenset[str], say: Say) -> Report:
    size, report = Size.of(scale), Report("write", scale, runs)
    agreed: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="skep-write-") as scratch:
        for name, start, _ in contenders():
            if only and name not in only:
                continue
            say(f"{name}: {runs} lives of each type after one to warm up")
            try:
                with start() as worker:
                    for kind in TYPES:
                        for turn in range(runs + 1):
                            live(report if turn else None, name, worker, kind, size, Path(scratch) / "table", agreed)
            except (PeerMissing, HudiRefused) as reason:
                report.of(name, "cow upsert").failed = str(reason)[:200]
            for task in AIMS:
                if (median := report.of(name, task).median) is not None:
                    say(f"{name}: {task} {median:.2f} s")
    for task, least in AIMS.items():
        for release in RELEASES:
            report.aim(f"{task}, times as fast as Hudi {release}", report.ratio(f"Hudi {release}", task), least)
    return report


def live(
    report: Report | None,
    name: str,
    worker: Worker,
    kind: str,
    size: Size,
    table: Path,
    agreed: dict[str, dict[str, Any]],
) -> None:
    for step in steps(kind, size):
        work = partial(write, worker, table, kind, step)
        if report is None:
            work()
        else:
            report.of(name, step.task).run(worker.pid, work)
    found = sums(worker, table)
    if found != agreed.setdefault(kind, found):
        raise AssertionError(f"{name} wrote other rows than the contender before: {found}, {agreed[kind]}")
    shutil.rmtree(table)


def write(worker: Worker, table: Path, kind: str, step: Step) -> float:
    """The seconds of one commit."""
    where = {"path": str(table), "source": str(step.source)}
    if not isinstance(worker, Jvm):
        request = {**where, "operation": step.operation, "type": TYPES[kind]}
        return float(worker.request("write", **request)["seconds"])
    options = {
        **HUDI_OPTIONS,
        **NO_SERVICES,
        **(VERSION_6 if worker.release != "0.15.0" else {}),
        "hoodie.datasource.write.table.type": TYPES[kind],
        "hoodie.datasource.write.operation": step.operation,
        "hoodie.delete.shuffle.parallelism": "2",
    }
    return float(worker.request("write_files", **where, options=options)["seconds"])
