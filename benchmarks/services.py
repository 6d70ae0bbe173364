"""Compaction, clustering and cleaning of the same tables, planned alike, by skep without a JVM and by JVM Hudi, warm.

* compaction: 1,000,000 rows in 10 partitions with 200,000 updates in logs; clustering: 1,000,000 rows in many files,
  by two sort columns. The plans are on the timeline, by skep: what is measured is carrying them out.
* cleaning: 1,000 partitions × 30 commits, planned, then carried out; and as a process of its own from its start.

Every run gets a fresh copy of the table, and what came out is compared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import data
from benchmarks.ours import Services
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS
from skep_format.names import PARTITION_METAFILE, BaseFileName
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.write import complete, request_instant, transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import schedule_clustering
from skep_table.services.compaction.compact import schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ROWS, UPDATED = 1_000_000, 200_000
PARTITIONS, COMMITS, RETAINED = 1000, 30, 10
COMPACT, CLUSTER = "compaction", "clustering by two columns"
PLAN, CLEAN, PROCESS = "planning a clean", "clean carried out", "clean as a process"
SORT = Options({"hoodie.clustering.plan.strategy.sort.columns": "customer,ordered_at"})
CLEANER = {"hoodie.cleaner.commits.retained": str(RETAINED)}
HUDI = {"hoodie.metadata.enable": "false", "hoodie.embed.timeline.server": "false"}
VERSION_6 = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
_COMMAND = "from skep.cli.main import main; main()"
Progress = Callable[[str], None]


class Contender(Protocol):
    """Carries out what is planned on the table at a path, and gives the seconds it took."""

    def compact(self, path: Path) -> float: ...

    def cluster(self, path: Path) -> float: ...

    def clean(self, path: Path, *, plan: bool) -> float: ...


class Ours:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def compact(self, path: Path) -> float:
        return float(self._worker.request("compact", path=str(path))["seconds"])

    def cluster(self, path: Path) -> float:
        return float(self._worker.request("cluster", path=str(path))["seconds"])

    def clean(self, path: Path, *, plan: bool) -> float:
        return float(self._worker.request("clean", path=str(path), options=CLEANER, plan=plan)["seconds"])


class Theirs:
    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._settings = {**HUDI, **(VERSION_6 if jvm.release != "0.15.0" else {})}

    def compact(self, path: Path) -> float:
        return self._call(f"call run_compaction(op => 'run', path => '{path}')")

    def cluster(self, path: Path) -> float:
        return self._call(f"call run_clustering(op => 'execute', path => '{path}')")

    def clean(self, path: Path, *, plan: bool) -> float:
        options = {**HUDI_OPTIONS, **CLEANER, **self._settings}
        return float(self._jvm.request("clean", path=str(path), options=options, plan=plan)["seconds"])

    def _call(self, text: str) -> float:
        return float(self._jvm.request("sql", text=text, settings=self._settings)["seconds"])


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("services", scale, runs)
    with tempfile.TemporaryDirectory(prefix="skep-services-") as scratch:
        tables = Tables(Path(scratch), scale)
        progress(f"tables of {tables.rows} rows and of {tables.partitions} partitions x {COMMITS} commits")
        tables.make()
        for name, start, contender in contenders():
            if only and name not in only:
                continue
            progress(f"{name}: {runs} runs after one to warm up")
            try:
                begin = time.perf_counter()
                with start() as worker:
                    started = time.perf_counter() - begin
                    for number in range(runs + 1):
                        one_round(report if number else None, name, worker, contender(worker), tables)
                for task in (COMPACT, CLUSTER, PLAN, CLEAN):
                    progress(f"{name}: {task} {report.of(name, task).median:.2f} s")
                _process(report, name, started, tables)
            except (PeerMissing, HudiRefused) as reason:
                report.of(name, COMPACT).failed = str(reason)[:200]
    for release in RELEASES:
        for task, wanted in ((COMPACT, 4.0), (CLUSTER, 3.0), (PLAN, 5.0), (PROCESS, 5.0)):
            report.aim(f"{task}, times as fast as Hudi {release}", report.ratio(f"Hudi {release}", task), wanted)
    report.notes.append(f"{PROCESS}: from the start of the interpreter, or of the JVM, to its end")
    return report


def contenders() -> Iterator[tuple[str, Callable[[], Worker], Callable[[Any], Contender]]]:
    yield "skep", Services, Ours
    for release in RELEASES:
        yield f"Hudi {release}", lambda release=release: Jvm(release), Theirs


def one_round(report: Report | None, name: str, worker: Worker, contender: Contender, tables: Tables) -> None:
    """Each task on a copy of its table; measured when there is a report."""

    def timed(task: str, work: Callable[[], float]) -> None:
        if report is None:
            work()
        else:
            report.of(name, task).run(worker.pid, work)

    with tables.copy("compact") as path:
        timed(COMPACT, lambda: contender.compact(path))
        check(name, COMPACT, read_optimized(path), tables.compacted)
    with tables.copy("cluster") as path:
        # A clustering's plan names whole addresses: it is made where it is carried out.
        assert schedule_clustering(HudiTable.open(str(path)).with_context(options=SORT)) is not None
        timed(CLUSTER, lambda: contender.cluster(path))
        check(name, CLUSTER, read_optimized(path), tables.clustered)
        if len(list(path.rglob("*.parquet"))) <= tables.small_files:
            raise AssertionError(f"{name} clustered nothing")
    with tables.copy("clean") as path:
        timed(PLAN, lambda: contender.clean(path, plan=True))
        timed(CLEAN, lambda: contender.clean(path, plan=False))
        check(name, CLEAN, len(list(path.glob("p*/*.parquet"))), tables.left_by_clean)


def _process(report: Report, name: str, started: float, tables: Tables) -> None:
    """Hudi's is the start of its session and a clean in it: nobody cleans with less."""
    found = report.of(name, PROCESS)
    for number in range(report.runs):
        if name == "skep":
            with tables.copy("clean") as path:
                found.run(os.getpid(), lambda path=path: _clean_command(path))
        else:
            seconds = started + report.of(name, PLAN).seconds[number] + report.of(name, CLEAN).seconds[number]
            found.seconds.append(seconds)
            found.peak_bytes = report.of(name, CLEAN).peak_bytes


def _clean_command(path: Path) -> float:
    options = [f"--option={key}={value}" for key, value in CLEANER.items()]
    command = [sys.executable, "-c", _COMMAND, "clean", str(path), *options, "--output", "jsonl"]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def check(name: str, task: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{name}, {task}: {found} came out, expected {expected}")


def read_optimized(path: Path) -> tuple[int, Any]:
    """Rows and the sum of their times: base files alone."""
    request = ReadRequest(query="read_optimized", columns=("ts",))  # type: ignore[arg-type]
    times = read(HudiTable.open(str(path)), request).to_arrow()["ts"].to_numpy()
    return len(times), int(times.sum())


class Tables:
    """The tables, each made once, and copies of them whose data files are links."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._folder = folder
        self.rows = max(int(ROWS * scale), 1000)
        self.updated = max(int(UPDATED * scale), 100)
        self.partitions = max(int(PARTITIONS * scale), 10)
        self.small_files = 0

    def make(self) -> None:
        self._compact()
        self._cluster()
        self._clean()

    def copy(self, name: str) -> _Copy:
        return _Copy(self._folder / name, self._folder / "copy")

    def _compact(self) -> None:
        table = self._table("compact", TableType.MERGE_ON_READ)
        LocalWriter(table).bulk_insert(data.rows(np.arange(self.rows)))
        changed = np.random.default_rng(1).choice(self.rows, self.updated, replace=False)
        LocalWriter(table).upsert(data.rows(np.sort(changed), 1))
        assert schedule_compaction(table) is not None
        times = read(table.reload(), ReadRequest(columns=("ts",))).to_arrow()["ts"].to_numpy()
        self.compacted = len(times), int(times.sum())

    def _cluster(self) -> None:
        table = self._table("cluster", TableType.COPY_ON_WRITE)
        for part in np.array_split(np.arange(self.rows), 4):
            LocalWriter(table).bulk_insert(data.rows(part))
        self.clustered = read_optimized(self._folder / "cluster")
        self.small_files = len(list((self._folder / "cluster").rglob("*.parquet")))

    def _clean(self) -> None:
        """Files of no content: a cleaner looks at names, sizes and commits."""
        table = self._table("clean", TableType.COPY_ON_WRITE)
        paths = [f"p{number:04}" for number in range(self.partitions)]
        for path in paths:
            (self._folder / "clean" / path).mkdir()
            (self._folder / "clean" / path / PARTITION_METAFILE).write_text(
                f"commitTime=1\npartitionDepth=1\n# {path}\n"
            )
        before = "null"
        for _ in range(COMMITS):
            table = table.reload()
            instant, _ = request_instant(table, Action.COMMIT)
            time = instant.requested_time
            instant = transition_to_inflight(table, instant)
            stats = {}
            for number, path in enumerate(paths):
                file_id = f"{number:08x}-0000-0000-0000-000000000000-0"
                name = str(BaseFileName(file_id, "0-0-0", time))
                (self._folder / "clean" / path / name).write_bytes(b"PAR1")
                stats[path] = (
                    WriteStat(
                        file_id=file_id, path=f"{path}/{name}", partition_path=path, prev_commit=before,
                        num_writes=1, file_size_in_bytes=4, total_write_bytes=4,
                    ),
                )  # fmt: skip
            schema = {"schema": table.config.create_schema or ""}
            upsert = CommitMetadata(
                partition_to_write_stats=stats, operation_type=WriteOperation.UPSERT, extra_metadata=schema
            )
            complete(table, instant, upsert)
            before = time
        self.left_by_clean = self.partitions * (RETAINED + 1)

    def _table(self, name: str, type: TableType) -> HudiTable:
        spec = TableSpec(
            name="measured", schema=data.SCHEMA, record_key=("id",), ordering="ts", partition_by=("part",), type=type
        )
        return create_table(LocalStorage(str(self._folder / name)), spec)


class _Copy:
    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target

    def __enter__(self) -> Path:
        """What is in the folder of the timeline is copied, since Hudi writes some of it again."""
        shutil.copytree(self._source, self._target, copy_function=_link_data)
        return self._target

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._target)


def _link_data(source: str, target: str) -> None:
    if "/.hoodie/" in source:
        shutil.copy2(source, target)
    else:
        os.link(source, target)
