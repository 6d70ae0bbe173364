"""Reading: a merge-on-read table of 1,000,000 rows with 200,000 updates in Avro log blocks, written by JVM Hudi 0.15.0.

Snapshot count and sum with skep, JVM Hudi and hudi-rs; the scan of a copy-on-write table beside pyarrow's own of the
same files; a key looked up; the memory of a streamed read of 20,000,000 rows; and reads through Spark (spark_reads.py).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import data, spark_reads
from benchmarks.ours import Ours, Reader
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, Progress, write_ours

ROWS, UPDATED, STREAMED = 1_000_000, 200_000, 20_000_000
SNAPSHOT, SCAN, LOOK_UP, STREAM = "snapshot count and sum", "copy-on-write scan", "key looked up", "streamed read"
COLUMN = "amount"
MOR_OPTIONS = {
    **HUDI_OPTIONS,
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.logfile.data.block.format": "avro",
    "hoodie.compact.inline": "false",
}


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("read", scale, runs)
    with tempfile.TemporaryDirectory(prefix="skep-read-") as scratch:
        mor, cow, long = (Path(scratch) / name for name in ("mor", "cow", "long"))
        rows, updated = max(int(ROWS * scale), 100), max(int(UPDATED * scale), 20)
        progress("JVM Hudi 0.15.0 writes the merge-on-read table")
        try:
            write_mor(mor, rows, updated)
        except PeerMissing as reason:
            report.notes.append(f"nothing measured: {reason}")
            return report
        contenders = Contenders(report, runs, only, progress)
        snapshots(contenders, mor)
        progress("skep writes the copy-on-write tables")
        with Ours() as writer:
            write_ours(writer, cow, data.inserts(rows), "bulk_insert")
        scans(contenders, cow)
        look_ups(contenders, mor, rows)
        streams(contenders, long, max(int(STREAMED * scale), 1000))
    aims(report)
    spark_reads.measure_into(report, only=only, progress=progress)
    return report


class Contenders:
    """Runs a task in a fresh process of each contender: once to warm up, then measured; all must answer alike."""

    def __init__(self, report: Report, runs: int, only: frozenset[str], progress: Progress) -> None:
        self.report = report
        self._runs, self._only, self._progress = runs, only, progress

    def run(self, task: str, name: str, start: Callable[[], Worker], do: str, **fields: Any) -> dict[str, Any] | None:
        """The last answer; None when the contender is left out or refused."""
        if self._only and name not in self._only:
            return None
        self._progress(f"{task}: {name}")
        measured, last = self.report.of(name, task), {}
        try:
            with start() as worker:
                worker.request(do, **fields)

                def work() -> float:
                    last.update(worker.request(do, **fields))
                    return float(last["seconds"])

                for _ in range(self._runs):
                    measured.run(worker.pid, work)
        except (PeerMissing, HudiRefused) as reason:
            measured.failed = str(reason)[:200]
            return None
        return last


def write_mor(table: Path, rows: int, updated: int) -> None:
    """Bulk insert, then the updates: with the Bloom index they go to log files."""
    with Jvm("0.15.0") as hudi:
        for source, operation in ((data.inserts(rows), "bulk_insert"), (data.updates(updated, rows, 0), "upsert")):
            options = {**MOR_OPTIONS, "hoodie.datasource.write.operation": operation}
            hudi.request("write_files", path=str(table), source=str(source), options=options)
    if not list(table.rglob(".*.log.*")):
        raise AssertionError("the updates did not go to log files")


def snapshots(contenders: Contenders, table: Path) -> None:
    answers = {}
    for kind in ("skep", "hudi-rs"):
        found = contenders.run(
            SNAPSHOT, kind, lambda kind=kind: Reader(kind), "count_and_sum", path=str(table), column=COLUMN
        )
        if found:
            answers[kind] = found["rows"], found["total"]
    for release in RELEASES:
        expressions = ["count(1) as rows", f"sum({COLUMN}) as total"]
        found = contenders.run(
            SNAPSHOT,
            f"Hudi {release}",
            lambda release=release: Jvm(release),
            "aggregate",
            path=str(table),
            options={},
            expressions=expressions,
        )
        if found:
            answers[release] = found["rows"][0]["rows"], found["rows"][0]["total"]
    if len(set(answers.values())) > 1:
        raise AssertionError(f"the answers differ: {answers}")


def scans(contenders: Contenders, table: Path) -> None:
    for kind in ("skep", "pyarrow", "hudi-rs"):
        contenders.run(SCAN, kind, lambda kind=kind: Reader(kind), "scan", path=str(table))


def look_ups(contenders: Contenders, table: Path, rows: int) -> None:
    key = data.key(rows // 2)
    found = contenders.run(LOOK_UP, "skep", lambda: Reader("skep"), "look_up", path=str(table), key=key)
    if found:
        groups = len({file.name.partition("_")[0] for file in table.rglob("*.parquet")})
        contenders.report.notes.append(
            f"key looked up: {found['rows']} row, {found['opened']} files opened, {groups} file groups"
        )


def streams(contenders: Contenders, table: Path, rows: int) -> None:
    """The table is written in pieces, so that its input needs no more room than one."""
    piece = min(rows, 1_000_000)
    with Ours() as writer:
        for start in range(0, rows, piece):
            source = data.inserts(piece, start)
            write_ours(writer, table, source, "bulk_insert")
            if start:
                shutil.rmtree(source)
    contenders.run(STREAM, "skep", lambda: Reader("skep"), "scan", path=str(table))
    shutil.rmtree(table)


def aims(report: Report) -> None:
    report.aim("snapshot, times as fast as Hudi 0.15.0", report.ratio("Hudi 0.15.0", SNAPSHOT), 2)
    report.aim("snapshot, times as fast as Hudi 1.2.0", report.ratio("Hudi 1.2.0", SNAPSHOT), 3)
    report.aim("snapshot, times as fast as hudi-rs", report.ratio("hudi-rs", SNAPSHOT), 1)
    report.aim("scan, time against pyarrow's", report.ratio("skep", SCAN, to="pyarrow"), 1.1, at_most=True)
    streamed = report.of("skep", STREAM).peak_bytes
    report.aim("streamed read, peak MiB", streamed / 2**20 if streamed else None, 1024, at_most=True)
