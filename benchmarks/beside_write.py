"""Beside the lives of `write`: Spark's plain Parquet write, what a commit costs in larger tables, a worker's memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks import data
from benchmarks.measure import Measured, memory_of
from benchmarks.ours import Ours
from benchmarks.report import Report
from benchmarks.upsert import Progress, Size

PLAIN = "Spark's plain parquet"
SORTED = "sorted bulk insert"
SORT = {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}
# Else the larger source is read by more tasks, and its partitions have more files.
ONE_A_PARTITION = {"hoodie.bulkinsert.sort.mode": "PARTITION_PATH_REPARTITION"}
FEW, MANY, ROWS_A_PARTITION, CHANGED = 10, 1_000, 1_000, 10_000
# Sorted by one task: each task that reads a part of the source would write a file of its own.
ONE_FILE = {**SORT, "hoodie.parquet.max.file.size": str(8 << 30), "hoodie.bulkinsert.shuffle.parallelism": "1"}
DENSE_ROWS, DENSE_WIDTH = 590_000, 1_000  # more than half a gigabyte


def beside(report: Report, runs: int, only: frozenset[str], size: Size, folder: Path, progress: Progress) -> None:
    if only and "skep" not in only:
        return
    with Ours() as worker:
        progress("Spark's plain write of the same rows")
        plain(report, runs, worker, size, folder)
        progress(f"commits into one partition of {FEW} and of {MANY}")
        growth(report, runs, worker, folder)
    with Ours() as worker:  # one that holds nothing of what came before
        progress("memory of a worker")
        memory(report, worker, folder)


def plain(report: Report, runs: int, worker: Ours, size: Size, folder: Path) -> None:
    source, table = str(size.inserts()), folder / "plain"

    def ours() -> float:
        return _write(worker, table, source, "bulk_insert", SORT)

    def spark(*sort: str) -> Callable[[], float]:
        request = {"path": str(table), "source": source, "by": "part", "sort": list(sort)}
        return lambda: float(worker.request("write_parquet", **request)["seconds"])

    for turn in range(runs + 1):
        for contender, task, work in (
            (PLAIN, "cow bulk insert", spark()),
            (PLAIN, SORTED, spark("part", "id")),
            ("skep", SORTED, ours),
        ):
            if turn:
                report.of(contender, task).run(worker.pid, work)
            else:
                work()
            shutil.rmtree(table)
    for task in ("cow bulk insert", SORTED):
        report.aim(f"{task}, times as fast as Spark's plain write", report.ratio(PLAIN, task), 1)


def growth(report: Report, runs: int, worker: Ours, folder: Path) -> None:
    """Ten thousand rows into one partition, a tenth of which are there: the same partition in a larger table."""
    rows = max(1, int(ROWS_A_PARTITION * min(1, report.scale)))
    for partitions in (FEW, MANY):
        source = str(data.inserts(rows * partitions, partitions=partitions))
        _write(worker, folder / f"of{partitions}", source, "bulk_insert", ONE_A_PARTITION)

    def grow(partitions: int) -> Measured:
        measured = report.of("skep", f"upsert into one of {partitions} partitions")
        source, table = str(data.one_partition(10 * rows, partitions)), folder / "grown"
        shutil.copytree(folder / f"of{partitions}", table)
        os.sync()  # else the write waits for what the copy has left to the disk, which grows with the table
        measured.run(worker.pid, lambda: _write(worker, table, source, "upsert", {}))
        shutil.rmtree(table)
        return measured

    for turn in range(3 * runs + 1):  # in turn, and more often: they are short
        few, many = grow(FEW), grow(MANY)
        if not turn:
            few.seconds.clear()
            many.seconds.clear()
    if few.median and many.median:
        report.aim("growth of a commit with the partitions", many.median / few.median, 1.2, at_most=True)


def memory(report: Report, worker: Ours, folder: Path) -> None:
    """An upsert into one large base file; a smaller one where the scale is."""
    table, count = folder / "dense", max(1_000, int(DENSE_ROWS * min(1, report.scale)))
    _write(worker, table, str(data.dense(count, DENSE_WIDTH)), "bulk_insert", ONE_FILE)
    (file,) = table.rglob("*.parquet")
    size = file.stat().st_size >> 20
    with memory_of(worker.pid) as peak:
        _write(worker, table, str(data.dense(max(1, count // 100), DENSE_WIDTH, 1)), "upsert", {})
    shutil.rmtree(table)
    report.aim(f"MiB of a Python worker, upsert into a file of {size} MiB", peak.python / 2**20, 1024, at_most=True)


def _write(worker: Ours, table: Path, source: str, operation: str, options: dict[str, str]) -> float:
    request = {"path": str(table), "source": source, "operation": operation, "options": options}
    return float(worker.request("write", **request)["seconds"])
