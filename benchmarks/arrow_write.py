"""Writes from Arrow without a JVM: skep on either table type beside delta-rs, which merges by key and partition.

The rows are in memory before the time is taken. The contenders take turns, each round into new tables, after one round
to warm up; both write snappy and use two threads, and what they wrote is compared.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.ours import ArrowWriter
from benchmarks.report import Report
from benchmarks.upsert import Progress, Size

SKEP, MERGE_ON_READ, DELTA = "skep without Spark", "skep without Spark (mor)", "delta-rs"
BULK, UPSERT = "bulk insert from Arrow", "upsert from Arrow"
# (task, contender) → how many times as fast as delta-rs it is to be.
AIMS = {(BULK, SKEP): 1.0, (UPSERT, SKEP): 1.5, (UPSERT, MERGE_ON_READ): 2.5}
KINDS = {SKEP: "COPY_ON_WRITE", MERGE_ON_READ: "MERGE_ON_READ", DELTA: "delta"}


def measure_arrow(
    report: Report, runs: int, only: frozenset[str], size: Size, folder: Path, progress: Progress
) -> None:
    """Adds these contenders' measurements and aims to a report."""
    names = [name for name in KINDS if not only or name in only]
    if not names:
        return
    progress(f"{', '.join(names)}: {runs} rounds in turn after one to warm up")
    with ExitStack() as stack:
        workers = {name: stack.enter_context(ArrowWriter(KINDS[name])) for name in names}
        for worker in workers.values():
            worker.request("load", inserts=str(size.inserts()), changes=str(size.changes()))
        agreed: Any = None
        for turn in range(runs + 1):
            for name, worker in workers.items():
                table = folder / "arrow"
                for task in (BULK, UPSERT):
                    seconds = float(worker.request(task.partition(" ")[0], path=str(table))["seconds"])
                    if turn:
                        report.of(name, task).run(worker.pid, lambda seconds=seconds: seconds)
                found = worker.request("sums", path=str(table))["rows"]
                agreed = agreed or found
                if found != agreed:
                    raise AssertionError(f"{name} wrote other rows than others: {found}, {agreed}")
                shutil.rmtree(table)
    for (task, name), least in AIMS.items():
        report.aim(f"{task}, {name}: times as fast as {DELTA}", report.ratio(DELTA, task, name), least)
