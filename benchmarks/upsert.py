"""Bulk insert of 1,000,000 rows × 12 columns into 10 partitions, then an upsert of 100,000 rows, half of them new.

Each contender writes into a new table in each run, warmed up by one whole round before. All read the same Parquet
files, use two cores, snappy, table version 6 and no metadata table, and what they wrote is checked. Beside them: the
floor (pyarrow reads and rewrites the files that the upsert touches) and Spark's own partitioned Parquet write.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from benchmarks import data
from benchmarks.ours import Ours
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report

ROWS, CHANGED = 1_000_000, 100_000
BULK, UPSERT = "bulk insert", "upsert"
Progress = Callable[[str], None]

HUDI_OPTIONS = {
    "hoodie.table.name": "measured",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.index.type": "BLOOM",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.compression.codec": "snappy",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}
VERSION_6 = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}


@dataclass(frozen=True)
class Size:
    """How many rows are inserted, and how many of the upsert's are updates and new."""

    inserted: int
    updated: int
    new: int

    @classmethod
    def of(cls, scale: float) -> Size:
        changed = max(int(CHANGED * scale), 2)
        return cls(max(int(ROWS * scale), data.PARTITIONS), changed // 2, changed - changed // 2)

    def inserts(self) -> Path:
        return data.inserts(self.inserted)

    def changes(self) -> Path:
        return data.updates(self.updated, self.inserted, self.new)


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    size, report = Size.of(scale), Report("upsert", scale, runs)
    expected = check_sums(size)
    with tempfile.TemporaryDirectory(prefix="skep-upsert-") as scratch:
        folder = Path(scratch)
        for name, start, write in contenders():
            if only and name not in only:
                continue
            progress(f"{name}: {runs} runs after one to warm up")
            try:
                with start() as worker:
                    for round_number in range(runs + 1):
                        one_round(report if round_number else None, name, worker, write, size, folder, expected)
                for task in (BULK, UPSERT):
                    progress(f"{name}: {task} {report.of(name, task).median:.2f} s")
            except (PeerMissing, HudiRefused) as reason:
                report.of(name, UPSERT).failed = str(reason)[:200]
        if not only or only & {"floor", "spark parquet"}:
            progress("floor, and Spark's plain write")
            beside(report, size, folder, runs)
    aims(report)
    return report


# -- the contenders ----------------------------------------------------------------------------------------------------

Write = Callable[[Worker, Path, Path, str], float]


def contenders() -> Iterator[tuple[str, Callable[[], Worker], Write]]:
    yield "skep", Ours, write_ours
    for release in RELEASES:
        yield f"Hudi {release}", lambda release=release: Jvm(release), write_hudi


def write_ours(worker: Worker, table: Path, source: Path, operation: str) -> float:
    return float(worker.request("write", path=str(table), source=str(source), operation=operation)["seconds"])


def write_hudi(worker: Worker, table: Path, source: Path, operation: str) -> float:
    assert isinstance(worker, Jvm)
    options = {**HUDI_OPTIONS, "hoodie.datasource.write.operation": operation}
    options |= VERSION_6 if worker.release != "0.15.0" else {}
    return float(worker.request("write_files", path=str(table), source=str(source), options=options)["seconds"])


def one_round(
    report: Report | None, name: str, worker: Worker, write: Write, size: Size, folder: Path, expected: dict[str, Any]
) -> None:
    """A new table: bulk insert and upsert, both measured when there is a report; then the rows are checked."""
    table = folder / "table"
    sources = ((BULK, size.inserts(), "bulk_insert"), (UPSERT, size.changes(), "upsert"))
    for task, source, operation in sources:
        work = lambda source=source, operation=operation: write(worker, table, source, operation)  # noqa: E731
        if report is None:
            work()
        else:
            report.of(name, task).run(worker.pid, work)
    found = sums(worker, table)
    if found != expected:
        raise AssertionError(f"{name} wrote other rows: {found}, expected {expected}")
    shutil.rmtree(table)


# -- what is expected --------------------------------------------------------------------------------------------------

SUMS = ("count(1) as rows", "count(distinct id) as keys", "sum(amount) as amount", "sum(ts) as ts")


def sums(worker: Worker, table: Path) -> dict[str, Any]:
    if isinstance(worker, Jvm):
        return dict(worker.request("aggregate", path=str(table), options={}, expressions=list(SUMS))["rows"][0])
    return dict(worker.request("sums", path=str(table))["rows"][0])


def check_sums(size: Size) -> dict[str, Any]:
    """The sums over the table after the upsert, from the input."""
    columns = ["id", "amount", "ts"]
    base = ds.dataset(size.inserts()).to_table(columns).to_pandas()
    changes = ds.dataset(size.changes()).to_table(columns).to_pandas()
    after = base.set_index("id").drop(changes["id"], errors="ignore").reset_index()
    amount = after["amount"].sum() + changes["amount"].sum()
    rows = len(after) + len(changes)
    return {
        "rows": rows,
        "keys": rows,
        "amount": format(amount, "f"),
        "ts": int(after["ts"].sum() + changes["ts"].sum()),
    }


# -- beside them -------------------------------------------------------------------------------------------------------


def beside(report: Report, size: Size, folder: Path, runs: int) -> None:
    with Ours() as worker:
        table, copy, plain = folder / "table", folder / "copy", folder / "plain"
        write_ours(worker, table, size.inserts(), "bulk_insert")
        for round_number in range(runs + 1):
            floor = lambda: float(worker.request("rewrite", path=str(table), target=str(copy))["seconds"])  # noqa: E731
            spark = lambda: float(  # noqa: E731
                worker.request("write_parquet", path=str(plain), source=str(size.inserts()), by="part")["seconds"]
            )
            if round_number:
                report.of("floor: pyarrow rewrites the files", UPSERT).run(worker.pid, floor)
                report.of("Spark's plain parquet", BULK).run(worker.pid, spark)
            else:
                floor(), spark()
            shutil.rmtree(copy)
            shutil.rmtree(plain)
        shutil.rmtree(table)


def aims(report: Report) -> None:
    for release in RELEASES:
        report.aim(f"upsert, times as fast as Hudi {release}", report.ratio(f"Hudi {release}", UPSERT), 4)
    report.notes.append("peak: resident memory of the process tree, JVM and Python workers included, sampled")
