"""Reading through Spark: skep's frames beside those of JVM Hudi's own reader, on tables of version 6 that skep wrote.

Warm sessions of all contenders are up together and take turns run by run, so that what else the machine does falls on
all of them alike. 17 columns are the 12 of the rows and Hudi's five.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.ours import Ours
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import Progress, write_ours

ROWS, CHANGED = 1_100_000, 100_000
SLICES, DELTAS, TOUCHED_SHARE, DELTA_ROWS = 1_000, 50, 0.05, 1_000
FILTERED, FILTERED_ROWS = 200, 200_000
PLANNED, PLANNED_COMMITS = 1_000, 10
WARM_UPS = 2
SUMS = ("count(1) as rows", "sum(amount) as amount", "sum(quantity) as quantity", "sum(ts) as ts")
ALL_COLUMNS = (*SUMS, "max(note) as note", "max(_hoodie_commit_time) as commit")


@dataclass(frozen=True)
class Task:
    """A query that all contenders answer alike, and what is wanted of skep's time."""

    name: str
    make: Callable[[Worker, Path, float], None]
    do: str
    fields: Mapping[str, Any]
    wanted: float
    """At least so many times as fast as Hudi 0.15.0."""


# -- the tables --------------------------------------------------------------------------------------------------------


def copy_on_write(ours: Worker, table: Path, scale: float) -> None:
    write_ours(ours, table, data.inserts(_scaled(ROWS, scale)), "bulk_insert")


def merge_on_read(ours: Worker, table: Path, scale: float) -> None:
    """Two commits of changes on top, spread over all slices; each changes every eleventh row or so."""
    rows = _scaled(ROWS, scale)
    _write(ours, table, data.inserts(rows), "bulk_insert")
    for generation in (1, 2):
        _write(ours, table, data.updates(_scaled(CHANGED, scale), rows, 0, generation), "upsert")


def small_deltas(ours: Worker, table: Path, scale: float) -> None:
    """One slice in each partition; every small commit changes rows of the same twentieth of them."""
    slices = max(int(SLICES * scale), 20)
    rows = slices * 1_000
    _write(ours, table, data.inserts(rows, partitions=slices), "bulk_insert")
    touched = max(1, int(slices * TOUCHED_SHARE))
    for generation in range(1, max(int(DELTAS * scale), 3) + 1):
        source = data.small(max(touched, int(DELTA_ROWS * scale)), rows, slices, touched, generation)
        _write(ours, table, source, "upsert")


def many_partitions(ours: Worker, table: Path, scale: float) -> None:
    source = data.inserts(max(int(FILTERED_ROWS * scale), FILTERED), partitions=FILTERED)
    write_ours(ours, table, source, "bulk_insert")


def many_files(ours: Worker, table: Path, scale: float) -> None:
    """Each commit adds a file to each partition."""
    partitions = max(int(PLANNED * scale), 10)
    for commit in range(PLANNED_COMMITS):
        source = data.inserts(partitions, commit * partitions, partitions)
        write_ours(ours, table, source, "bulk_insert")


def _write(ours: Worker, table: Path, source: Path, operation: str) -> None:
    options = {"hoodie.compact.inline": "false"}
    ours.request(
        "write", path=str(table), source=str(source), operation=operation, type="MERGE_ON_READ", options=options
    )


def _scaled(count: int, scale: float) -> int:
    return max(int(count * scale), 100)


ONE_OF_MANY = {"where": "part = 'region_7'", "expressions": SUMS}
TASKS = (
    Task("Spark, copy-on-write, sums", copy_on_write, "aggregate", {"expressions": SUMS}, 1.2),
    Task("Spark, copy-on-write, six columns", copy_on_write, "aggregate", {"expressions": ALL_COLUMNS}, 1.2),
    Task("Spark, merge-on-read, sums", merge_on_read, "aggregate", {"expressions": SUMS}, 2),
    Task("Spark, merge-on-read, six columns", merge_on_read, "aggregate", {"expressions": ALL_COLUMNS}, 2),
    Task("Spark, 50 small delta commits on 1 of 20 slices", small_deltas, "aggregate", {"expressions": SUMS}, 2),
    Task("Spark, one of 200 partitions", many_partitions, "aggregate", ONE_OF_MANY, 1),
    Task("Spark, plan of 10,000 files", many_files, "plan", {}, 1),
)


# -- the measurement ---------------------------------------------------------------------------------------------------


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("read-spark", scale, runs)
    measure_into(report, only=only, progress=progress)
    return report


def measure_into(report: Report, *, only: frozenset[str], progress: Progress) -> None:
    """Adds the rows of reads through Spark to a report. `only` names contenders; none is all of them."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-spark-reads-")))
        ours = stack.enter_context(Ours())
        contenders: dict[str, Worker] = {}
        if not only or "skep" in only:
            contenders["skep"] = ours
        for release in RELEASES:
            name = f"Hudi {release}"
            if only and name not in only:
                continue
            try:
                contenders[name] = stack.enter_context(Jvm(release))
            except (PeerMissing, HudiRefused) as reason:
                report.notes.append(f"{name} is not measured: {reason}")
        made: tuple[object, Path] | None = None
        for task in TASKS:
            if made is None or made[0] is not task.make:
                if made is not None:
                    shutil.rmtree(made[1])
                made = (task.make, scratch / f"table-{len(report.measured)}")
                progress(f"{task.name}: skep writes the table")
                task.make(ours, made[1], report.scale)
            _turns(report, task, made[1], contenders, progress)
    for task in TASKS:
        found = report.ratio("Hudi 0.15.0", task.name)
        report.aim(f"{task.name}: times as fast as Hudi 0.15.0", found, task.wanted)
    planned = report.of("skep", TASKS[-1].name).median
    report.aim(f"{TASKS[-1].name}: seconds", planned, 1, at_most=True)


def _turns(report: Report, task: Task, table: Path, contenders: Mapping[str, Worker], progress: Progress) -> None:
    """Every contender answers in turn, as often as is measured; the answers must be the same."""
    answers: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for at in range(WARM_UPS + report.runs):
        for name, worker in contenders.items():
            measured = report.of(name, task.name)
            if measured.failed:
                continue

            def work(worker: Worker = worker) -> float:
                last.update(worker.request(task.do, path=str(table), options={}, **task.fields))
                return float(last["seconds"])

            try:
                if at < WARM_UPS:
                    work()
                else:
                    measured.run(worker.pid, work)
            except HudiRefused as reason:
                measured.failed = str(reason)[:200]
                continue
            answers[name] = last.get("rows")
            if name == "skep" and "files" in last and at == 0:
                report.notes.append(f"{task.name}: Spark's reader opened {last['files']} files")
    different = {name: answer for name, answer in answers.items() if answer != answers.get("skep", answer)}
    if different:
        raise AssertionError(f"{task.name}: the answers differ: {answers}")
    medians = {name: report.of(name, task.name).median for name in contenders}
    progress(f"{task.name}: " + ", ".join(f"{name} {median:.2f} s" for name, median in medians.items() if median))
