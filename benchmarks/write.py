"""A life of a table of either type: bulk insert, upsert, delete, compaction; small commits among many partitions.

With `--table-version` the lives alone, in tables of that version, beside skep in version 6; `--lives` chooses some of
them. Otherwise, beside them: writes from Arrow without a JVM, against delta-rs (`arrow_write`); changes of a small
part of one file (`changed_part`); Spark's plain write of the same rows, growth with the partitions, memory of a worker
(`beside_write`). The contenders are up together and live one after the other in each turn, the first of which warms up,
so that their times are of the same minutes. All read the same Parquet files, use two cores, snappy, no metadata table
and no services after commits; what they wrote is compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.arrow_write import measure_arrow
from benchmarks.beside_write import beside
from benchmarks.changed_part import measure_changes
from benchmarks.ours import Ours
from benchmarks.peers.bundle import WRITERS, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, Progress, Size, sums

TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
SMALL_ROWS, MANY, TOUCHED = 1_000, 100, 5
SMALL = "small commit"
NO_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.compact.inline": "false", "hoodie.archive.automatic": "false"}
# How many times as fast as the faster of the Hudis each task is to be.
AIMS = {
    "cow bulk insert": 2.5,
    "cow upsert": 5.0,
    "cow delete": 5.0,
    "cow small commit": 5.0,
    "mor upsert": 4.0,
    "mor small commit": 5.0,
    "mor compaction": 4.0,
}


@dataclass(frozen=True)
class Contender:
    """Who writes, and the version of the tables that are written."""

    name: str
    start: Callable[[], Worker]
    version: int


def contenders(version: int) -> Iterator[Contender]:
    yield Contender("skep", Ours, version)
    if version != 6:
        yield Contender("skep in version 6", Ours, 6)
    for release in WRITERS[version]:
        yield Contender(f"Hudi {release}", partial(Jvm, release), version)


@dataclass(frozen=True)
class Step:
    """`task`: what it is measured as, if it is."""

    task: str | None
    source: Path | None
    operation: str


def steps(kind: str, size: Size) -> Iterator[Step]:
    yield Step(f"{kind} bulk insert", size.inserts(), "bulk_insert")
    yield Step(f"{kind} upsert", size.changes(), "upsert")
    yield Step(f"{kind} delete", data.inserts(max(1, size.updated // 2), start=1), "delete")
    if kind == "mor":
        yield Step("mor compaction", None, "compact")


def small_steps(kind: str, size: Size) -> Iterator[Step]:
    """A table of many partitions, and a commit into a few of them."""
    rows = max(MANY, size.inserted // 10)
    yield Step(None, data.inserts(rows, partitions=MANY), "bulk_insert")
    yield Step(f"{kind} {SMALL}", data.small(min(SMALL_ROWS, rows), rows, MANY, TOUCHED), "upsert")


LIVES = {f"{kind}{rest}": kind for kind in TYPES for rest in ("", f" {SMALL}")}
"""Life → the type of its table."""


def measure(
    *,
    scale: float,
    runs: int,
    only: frozenset[str],
    progress: Progress,
    table_version: int = 6,
    lives: Sequence[str] = tuple(LIVES),
) -> Report:
    name = "write" if table_version == 6 else f"write-version-{table_version}"
    size, report = Size.of(scale), Report(name, scale, runs)
    with tempfile.TemporaryDirectory(prefix="skep-write-") as scratch:
        with ExitStack() as up:
            workers: dict[Contender, Worker] = {}
            for contender in contenders(table_version):
                if only and contender.name not in only:
                    continue
                try:
                    workers[contender] = up.enter_context(contender.start())
                except PeerMissing as reason:
                    report.of(contender.name, "cow upsert").failed = str(reason)[:200]
            for life in lives:
                progress(f"{life}: {runs} turns after one to warm up")
                take_turns(report, workers, life, size, runs, Path(scratch) / "table")
                for contender in workers:
                    for task in (task for task in AIMS if task in tasks_of(life, size)):
                        if (median := report.of(contender.name, task).median) is not None:
                            progress(f"{contender.name}: {task} {median:.2f} s")
        if table_version == 6:
            beside(report, runs, only, size, Path(scratch), progress)
            measure_arrow(report, runs, only, size, Path(scratch), progress)
            measure_changes(report, runs, only, scale, Path(scratch), progress)
    for task in (task for life in lives for task in tasks_of(life, size) if task in AIMS):
        for release in WRITERS[table_version]:
            report.aim(f"{task}, times as fast as Hudi {release}", report.ratio(f"Hudi {release}", task), AIMS[task])
    return report


def steps_of(life: str, size: Size) -> Iterator[Step]:
    return steps(life, size) if life in TYPES else small_steps(LIVES[life], size)


def tasks_of(life: str, size: Size) -> list[str]:
    return [step.task for step in steps_of(life, size) if step.task is not None]


def take_turns(report: Report, workers: dict[Contender, Worker], life: str, size: Size, runs: int, table: Path) -> None:
    """Each contender lives once in each turn. One that fails takes no more turns."""
    agreed: dict[str, Any] | None = None
    for turn in range(runs + 1):
        for contender, worker in list(workers.items()):
            try:
                made = steps_of(life, size)
                found = live(report if turn else None, contender, worker, LIVES[life], made, table)
            except HudiRefused as reason:
                report.of(contender.name, tasks_of(life, size)[0]).failed = str(reason)[:200]
                del workers[contender]
                shutil.rmtree(table, ignore_errors=True)
                continue
            agreed = agreed or found
            if found != agreed:
                raise AssertionError(f"{contender.name} wrote other rows than others: {found}, {agreed}")


def live(
    report: Report | None, contender: Contender, worker: Worker, kind: str, made: Iterator[Step], table: Path
) -> dict[str, Any]:
    """What is in the table in the end."""
    for step in made:
        if step.operation == "compact":
            schedule_compaction(worker, table, contender.version)
        work = partial(write, worker, table, kind, step, contender.version)
        if report is None or step.task is None:
            work()
        else:
            report.of(contender.name, step.task).run(worker.pid, work)
    found = sums(worker, table)
    shutil.rmtree(table)
    return found


def schedule_compaction(worker: Worker, table: Path, version: int) -> None:
    if isinstance(worker, Jvm):
        worker.request(
            "sql", text=f"call run_compaction(op => 'schedule', path => '{table}')", settings=settings(worker, version)
        )
    else:
        worker.request("schedule_compaction", path=str(table))


def write(worker: Worker, table: Path, kind: str, step: Step, version: int) -> float:
    """The seconds of one commit."""
    if step.operation == "compact":
        return compact(worker, table, version)
    where = {"path": str(table), "source": str(step.source)}
    if not isinstance(worker, Jvm):
        request = {**where, "operation": step.operation, "type": TYPES[kind], "version": version}
        return float(worker.request("write", **request)["seconds"])
    options = {
        **HUDI_OPTIONS,
        **NO_SERVICES,
        **of_version(worker, version),
        "hoodie.datasource.write.table.type": TYPES[kind],
        "hoodie.datasource.write.operation": step.operation,
        "hoodie.delete.shuffle.parallelism": "2",
    }
    return float(worker.request("write_files", **where, options=options)["seconds"])


def compact(worker: Worker, table: Path, version: int) -> float:
    """Of what is planned."""
    if not isinstance(worker, Jvm):
        return float(worker.request("compact", path=str(table))["seconds"])
    text = f"call run_compaction(op => 'run', path => '{table}')"
    return float(worker.request("sql", text=text, settings=settings(worker, version))["seconds"])


def of_version(worker: Jvm, version: int) -> dict[str, str]:
    """The options of a release that knows several versions."""
    known = worker.release != "0.15.0"
    return {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"} if known else {}


def settings(worker: Jvm, version: int) -> dict[str, str]:
    off = {"hoodie.metadata.enable": "false", "hoodie.embed.timeline.server": "false"}
    # A plan is wanted after the first delta commit, and with all there is in it.
    now = {"hoodie.compact.inline.max.delta.commits": "1", "hoodie.compaction.target.io": "1000000"}
    return {**off, **now, **of_version(worker, version)}
