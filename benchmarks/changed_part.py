"""Writes that change a small part of one large file: neighbouring keys, the newest day, new rows, a few deletes.

skep, delta-rs and PyIceberg, where it is installed, have the rows in memory before the time is taken, the Hudis read
them from Parquet in a warm session. All keep 2,000,000 rows in one file of one partition, use two cores, and take turns
on the same tables, after one turn to warm up; what is in the tables in the end is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.arrow_write import DELTA, SKEP
from benchmarks.ours import ArrowWriter
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, VERSION_6, Progress, sums

ROWS, FEW, DELETED, DAYS, OF_DAY = 2_000_000, 1_000, 10, 30, 10_000
ICEBERG = "PyIceberg"
NEIGHBOURS = "1,000 neighbouring rows into one file of 2,000,000"
NEWEST = "10,000 rows of the newest day of 30"
FILL = "1,000 new rows into the file"
DELETE = "delete of 10 keys"
ONE_FILE = {
    "hoodie.parquet.max.file.size": str(1 << 30),
    "hoodie.parquet.small.file.limit": str(1 << 29),
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
# task → how many times as fast as delta-rs, and as the faster Hudi, skep is to be.
AIMS = {NEIGHBOURS: (5.0, 20.0), NEWEST: (3.0, 0.0), FILL: (0.0, 0.0), DELETE: (0.0, 0.0)}


@dataclass(frozen=True)
class Change:
    """One write: the rows of some numbers, in a later generation."""

    task: str
    operation: str
    numbers: np.ndarray
    generation: int

    def source(self) -> Path:
        return data.chosen(self.numbers, self.generation)


def changes(turn: int, rows: int) -> Iterator[Change]:
    """Those of one turn, each at another place than in the turns before."""
    few = min(FEW, rows // 100)
    start = (turn + 1) * rows // 50
    day = rows // DAYS
    yield Change(NEIGHBOURS, "upsert", np.arange(start, start + few), turn + 1)
    yield Change(NEWEST, "upsert", rows - day + np.arange(0, day, max(1, day // min(OF_DAY, day))), turn + 1)
    yield Change(FILL, "upsert", np.arange(rows + turn * few, rows + (turn + 1) * few), 0)
    yield Change(DELETE, "delete", np.arange(DELETED) + turn * DELETED, 0)


def measure_changes(
    report: Report, runs: int, only: frozenset[str], scale: float, folder: Path, progress: Progress
) -> None:
    """Adds these contenders' measurements and aims to a report."""
    rows = max(int(ROWS * scale), 3_000)
    known: dict[str, Callable[[], Worker]] = {
        SKEP: partial(ArrowWriter, "COPY_ON_WRITE"),
        DELTA: partial(ArrowWriter, "delta"),
    }
    if find_spec("pyiceberg") is not None:
        known[ICEBERG] = partial(ArrowWriter, "iceberg")
    known |= {f"Hudi {release}": partial(Jvm, release) for release in RELEASES}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, start in known.items():
            if only and name not in only:
                continue
            try:
                workers[name] = stack.enter_context(start())
            except PeerMissing as reason:
                report.of(name, NEIGHBOURS).failed = str(reason)[:200]
        if not workers:
            return
        progress(f"{', '.join(workers)}: {runs} turns of changes of one file after one to warm up")
        source = data.inserts(rows, partitions=1)
        for name, worker in workers.items():
            write(worker, folder / f"changed-{name}", source, "bulk_insert")
        for turn in range(runs + 1):
            for change in changes(turn, rows):
                for name, worker in list(workers.items()):
                    work = partial(write, worker, folder / f"changed-{name}", change.source(), change.operation)
                    try:
                        report.of(name, change.task).run(worker.pid, work) if turn else work()
                    except HudiRefused as reason:
                        report.of(name, change.task).failed = str(reason)[:200]
                        del workers[name]
        check({name: found(worker, folder / f"changed-{name}") for name, worker in workers.items()})
    for task, (delta, hudi) in AIMS.items():
        if delta:
            report.aim(f"{task}: times as fast as {DELTA}", report.ratio(DELTA, task, SKEP), delta)
        for release in RELEASES if hudi else ():
            report.aim(f"{task}: times as fast as Hudi {release}", report.ratio(f"Hudi {release}", task, SKEP), hudi)


def write(worker: Worker, table: Path, source: Path, operation: str) -> float:
    """The seconds of one commit."""
    if not isinstance(worker, Jvm):
        worker.request("load_changes", source=str(source))
        return float(worker.request("change", path=str(table), operation=operation, options=ONE_FILE)["seconds"])
    options = {**HUDI_OPTIONS, **ONE_FILE, "hoodie.datasource.write.operation": operation}
    options |= VERSION_6 if worker.release != "0.15.0" else {}
    return float(worker.request("write_files", path=str(table), source=str(source), options=options)["seconds"])


def found(worker: Worker, table: Path) -> Any:
    return sums(worker, table) if isinstance(worker, Jvm) else worker.request("sums", path=str(table))["rows"][0]


def check(answers: dict[str, Any]) -> None:
    if len({repr(sorted(answer.items())) for answer in answers.values()}) > 1:
        raise AssertionError(f"contenders wrote other rows: {answers}")
