"""What the indexes of the metadata table save and cost, in skep and in JVM Hudi with the same index.

* An upsert of 1,000 keys into a table of 1,000,000 rows and one ten times as large, by the record index, Bloom filters
  and key columns (`SIMPLE`). The keys are in all files, which copy-on-write writes again, so that the larger table is
  measured in one run after the one to warm up; merge-on-read, by the record index, shows what the index itself costs.
* A small commit into 5 of 100 partitions, with no metadata table, with the listing of files, with statistics besides,
  and with all indexes.
* A look-up of one key by the record index, the table opened before; skep's in this process, without Spark.
* A filter on a column by which 1,000 files are sorted: how many files skep opens.

Versions 6 and 9 of tables: Hudi 0.15.0 writes the one, 1.2.0 the other.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.ours import Ours
from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS, Progress
from benchmarks.write import NO_SERVICES, TYPES
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ROWS, LARGER, KEYS = 1_000_000, 10, 1_000
MANY, TOUCHED = 100, 5
FILES = 1_000
WRITERS = {6: "0.15.0", 9: "1.2.0"}
LEAST_TIMES, MOST_COST, MOST_LOOK_UP_SECONDS = 5.0, 1.25, 0.02
MOST_GROWTH = 1.25
"""Of an upsert by the record index in a table ten times as large: its cost follows the keys."""

LISTING = {"hoodie.metadata.enable": "true"}
RECORD_INDEX = {
    **LISTING,
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
COLUMN_STATS = "hoodie.metadata.index.column.stats.enable"
EVERY = {**RECORD_INDEX, COLUMN_STATS: "true", "hoodie.metadata.index.bloom.filter.enable": "true"}
OFF = {"hoodie.metadata.enable": "false"}
INDEXES: Mapping[str, Mapping[str, str]] = {
    "RECORD_INDEX": RECORD_INDEX,
    "BLOOM": OFF,
    "SIMPLE": OFF,
}
TABLES = (("cow", ("RECORD_INDEX",)), ("cow", ("BLOOM", "SIMPLE")), ("mor", ("RECORD_INDEX",)))
"""The tables of each size, and the indexes by which each is written to."""
NONE = "no metadata table"
KEPT: Mapping[str, Mapping[str, str]] = {
    NONE: OFF,
    "the listing": {**LISTING, COLUMN_STATS: "false", "hoodie.metadata.index.partition.stats.enable": "false"},
    "the listing and statistics": {**LISTING, COLUMN_STATS: "true"},
    "all indexes": EVERY,
}


@dataclass(frozen=True)
class Contender:
    """Who writes, and the version of the tables that are written."""

    name: str
    version: int
    start: Callable[[], Worker]


def contenders() -> Iterator[Contender]:
    for version, release in WRITERS.items():
        yield Contender(f"skep in version {version}", version, Ours)
        yield Contender(f"Hudi {release}", version, partial(Jvm, release))


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("index", scale, runs)
    with tempfile.TemporaryDirectory(prefix="skep-index-") as scratch:
        for contender in contenders():
            if only and contender.name not in only:
                continue
            with ExitStack() as up:
                try:
                    worker = up.enter_context(contender.start())
                    small_commits(report, contender, worker, scale, runs, Path(scratch), progress)
                    upserts(report, contender, worker, scale, runs, Path(scratch), progress)
                except (PeerMissing, HudiRefused) as reason:
                    report.of(contender.name, upsert_task("RECORD_INDEX", "")).failed = str(reason)[:200]
                shutil.rmtree(scratch)
                Path(scratch).mkdir()
        if not only or "skep" in only:
            files_of_a_filter(report, scale, Path(scratch), progress)
    aims(report)
    return report


def upsert_task(index: str, size: str, kind: str = "cow") -> str:
    return f"{kind} upsert of {KEYS} keys by {index}{size}"


def small_task(kept: str, kind: str) -> str:
    return f"{kind} small commit, {kept}"


def upserts(
    report: Report, contender: Contender, worker: Worker, scale: float, runs: int, folder: Path, progress: Progress
) -> None:
    for times, size in ((1, ""), (LARGER, f", {LARGER} times the rows")):
        rows = max(int(ROWS * scale) * times, 10 * KEYS)
        for kind, indexes in TABLES:
            table = folder / "table"
            write(contender, worker, table, data.inserts(rows), "bulk_insert", INDEXES[indexes[0]], kind)
            for index in indexes:
                task, given = upsert_task(index, size, kind), {"hoodie.index.type": index, **INDEXES[index]}
                for turn in range(2 if size and kind == "cow" else runs + 1):
                    source = data.updates(KEYS, rows, 0, generation=turn + 1)
                    work = partial(write, contender, worker, table, source, "upsert", given, kind)
                    _run(report if turn else None, contender, task, worker, work)
                progress(f"{contender.name}: {task} {_median(report, contender, task)}")
            if (kind, *indexes) == ("cow", "RECORD_INDEX"):
                look_ups(report, contender, worker, table, rows, size, runs)
            shutil.rmtree(table)


def look_ups(
    report: Report, contender: Contender, worker: Worker, table: Path, rows: int, size: str, runs: int
) -> None:
    """Of keys that were not looked up before, in a table that is open: each turn is the median of several."""
    task = f"look-up of a key{size}"
    numbers = np.random.default_rng(3).integers(0, rows, 5 * (runs + 1)).tolist()
    opened = HudiTable.open(str(table)) if not isinstance(worker, Jvm) else None
    for turn in range(runs + 1):
        seconds = []
        for number in numbers[5 * turn : 5 * turn + 5]:
            where = f"id = '{data.key(number)}'"
            if opened is not None:
                start = time.perf_counter()
                found = read(opened, ReadRequest(where=where)).to_arrow().num_rows
                seconds.append(time.perf_counter() - start)
            else:
                options = {**RECORD_INDEX, "hoodie.enable.data.skipping": "true"}
                answer = worker.request(
                    "aggregate", path=str(table), options=options, expressions=["count(1) as n"], where=where
                )
                found, _ = answer["rows"][0]["n"], seconds.append(float(answer["seconds"]))
            if found != 1:
                raise AssertionError(f"{contender.name}: {found} rows of one key")
        if turn:
            report.of(contender.name, task).run(worker.pid, lambda: float(np.median(seconds)))  # noqa: B023


def small_commits(
    report: Report, contender: Contender, worker: Worker, scale: float, runs: int, folder: Path, progress: Progress
) -> None:
    rows = max(int(ROWS * scale) // 10, 10 * MANY)
    for kept, kind in product(KEPT, TYPES):
        table, task, given = folder / "table", small_task(kept, kind), {"hoodie.index.type": "BLOOM", **KEPT[kept]}
        write(contender, worker, table, data.inserts(rows, partitions=MANY), "bulk_insert", given, kind)
        for turn in range(runs + 1):
            source = data.small(KEYS, rows, MANY, TOUCHED, generation=turn + 1)
            work = partial(write, contender, worker, table, source, "upsert", given, kind)
            _run(report if turn else None, contender, task, worker, work)
        progress(f"{contender.name}: {task} {_median(report, contender, task)}")
        shutil.rmtree(table)


def write(
    contender: Contender,
    worker: Worker,
    table: Path,
    source: Path,
    operation: str,
    options: Mapping[str, str],
    kind: str = "cow",
) -> float:
    """The seconds of one commit."""
    where = {"path": str(table), "source": str(source)}
    if not isinstance(worker, Jvm):
        request = {**where, "operation": operation, "version": contender.version, "options": dict(options)}
        return float(worker.request("write", type=TYPES[kind], **request)["seconds"])
    given = {**HUDI_OPTIONS, **NO_SERVICES, "hoodie.datasource.write.operation": operation, **options}
    given["hoodie.datasource.write.table.type"] = TYPES[kind]
    if contender.version != 6:
        given["hoodie.write.table.version"] = str(contender.version)
    return float(worker.request("write_files", **where, options=given)["seconds"])


def files_of_a_filter(report: Report, scale: float, folder: Path, progress: Progress) -> None:
    """A filter on the column by which rows are spread over files, which statistics of columns leave one of."""
    files = max(10, int(FILES * scale))
    schema = pa.schema([("id", pa.string()), ("place", pa.int64())])
    spec = TableSpec(name="t", schema=schema, record_key=("id",), version=9)
    options = {**LISTING, COLUMN_STATS: "true"}
    table = create_table(LocalStorage(str(folder / "sorted")), spec, options)
    numbers = np.arange(files * 100)
    unlimited = {"hoodie.parquet.small.file.limit": 0, "hoodie.metadata.compact.max.delta.commits": files + 1}
    for part in np.array_split(numbers, files):
        rows = pa.table([pa.array(part).cast(pa.string()), pa.array(part)], schema=schema)
        LocalWriter(table.reload().with_options({**options, **unlimited})).insert(rows)
    opened = HudiTable.open(table.storage)
    there = sum(len(opened.view().slices(path)) for path in opened.view().partitions())
    left = explain(opened, ReadRequest(where=f"place = {len(numbers) // 2}")).steps[-1].slices
    report.notes.append(f"a filter on a sorted column opens {left} of {there} files")
    progress(report.notes[-1])


def aims(report: Report) -> None:
    for version, release in WRITERS.items():
        ours, theirs = f"skep in version {version}", f"Hudi {release}"
        larger = f", {LARGER} times the rows"
        for index, kind in (*((index, "cow") for index in INDEXES), ("RECORD_INDEX", "mor")):
            for size in ("", larger):
                task = upsert_task(index, size, kind)
                report.aim(f"{task}, times as fast as {theirs}", report.ratio(theirs, task, to=ours), LEAST_TIMES)
        for contender in (ours, theirs):
            few, many = (report.of(contender, upsert_task("RECORD_INDEX", size, "mor")).median for size in ("", larger))
            if few and many:
                text = f"{upsert_task('RECORD_INDEX', larger, 'mor')}, times that of the smaller table, {contender}"
                report.aim(text, many / few, MOST_GROWTH, at_most=True)
            for kind in TYPES:
                none, *others = (report.of(contender, small_task(kept, kind)).median for kept in KEPT)
                for kept, found in zip(list(KEPT)[1:], others, strict=True):
                    if none and found:
                        text = f"{kind} small commit with {kept}, times that without, {contender}"
                        report.aim(text, found / none, MOST_COST, at_most=True)
        task = "look-up of a key"
        report.aim(f"{task} in {ours}, seconds", report.of(ours, task).median, MOST_LOOK_UP_SECONDS, at_most=True)


def _run(report: Report | None, contender: Contender, task: str, worker: Worker, work: Callable[[], float]) -> None:
    if report is None:
        work()
    else:
        report.of(contender.name, task).run(worker.pid, work)


def _median(report: Report, contender: Contender, task: str) -> str:
    median = report.of(contender.name, task).median
    return "" if median is None else f"{median:.2f} s"
