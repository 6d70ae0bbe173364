"""Syncing a metastore: skep beside Hudi's own tool, each run a whole process, on one metastore, with its calls counted.

A table of 2,000 partitions goes through its life: first sync, nothing to do, a new column, 500 partitions dropped. A
table of 10,000 partitions gets one more. Beside them: the bare calls of the first sync, the server's own time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import memory_of
from benchmarks.metastore_proxy import CountingProxy
from benchmarks.peers.bundle import RELEASES, PeerMissing, bundle, java
from benchmarks.report import Report
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Database, Partition, TableEntry
from skep_catalog.spark import find_spark
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

PARTITIONS, DROPPED, MANY = 2_000, 500, 10_000
FIRST, NOTHING, COLUMN, COLUMN_NONE, DROP, ONE = (
    "first sync of all partitions",
    "nothing to do",
    "a new column, taken to all partitions",
    "a new column, in the table only",
    "partitions dropped",
    "one new partition among many",
)
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("part", pa.string())])
Progress = Callable[[str], None]
Program = Callable[[Path, str, str], list[str]]
"""Table, metastore, database → the command that syncs."""


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("sync", scale, runs)
    partitions, many = max(int(PARTITIONS * scale), 8), max(int(MANY * scale), 8)
    with tempfile.TemporaryDirectory(prefix="skep-sync-") as scratch:
        progress(f"skep writes tables of {partitions} and {many} partitions")
        short = _life(Path(scratch, "short"), partitions, max(int(DROPPED * scale), 2))
        long = _growth(Path(scratch, "long"), many, runs + 1)
        with EmbeddedMetastore.start_or_join(Path(scratch, "warehouse")) as server:
            bench = Bench(report, server, runs, progress)
            asked = [one for one in contenders() if not only or one[0] in only]
            present = [(name, program) for name, program in asked if bench.has(name, program)]
            for number in range(runs + 1):
                for name, program in present:
                    bench.life(name, program, short, warm_up=number == 0)
                if not only or "skep" in only:
                    bench.only_column(short, warm_up=number == 0)
                if not only or "bare calls" in only:
                    bench.bare_calls(short, warm_up=number == 0)
            bench.growth(present, long)
            bench.summarise()
    aims(report)
    return report


# -- the contenders ----------------------------------------------------------------------------------------------------


def contenders() -> Iterator[tuple[str, Program]]:
    yield "skep", ours
    for release in RELEASES:
        yield f"Hudi {release}", partial(theirs, release)


def ours(path: Path, uri: str, database: str, *settings: str) -> list[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    skep = [str(Path(sys.executable).with_name("skep")), "sync", "apply"]
    return [*skep, str(path), "--metastore", uri, "--database", database, "--table", "t", *words]


def theirs(release: str, path: Path, uri: str, database: str) -> list[str]:
    tool = [java(), "-Xmx1g", "-cp", f"{bundle(release)}:{find_spark().jars}/*", "org.apache.hudi.hive.HiveSyncTool"]
    where = ["--base-path", f"file://{path}", "--database", database, "--table", "t", "--partitioned-by", "part"]
    values = ["--partition-value-extractor", "org.apache.hudi.hive.SinglePartPartitionValueExtractor"]
    # Without it Hudi registers bigint, which a metastore refuses to turn into skep's timestamp and back.
    how = ["--sync-mode", "hms", "--metastore-uris", uri, "--support-timestamp"]
    return [*map(str, tool), *where, *values, *how]


# -- the tables --------------------------------------------------------------------------------------------------------


@dataclass
class Commits:
    """A table whose commits can be taken off its timeline and put back."""

    path: Path
    names: list[str]
    dropped: int = 0  # how many partitions the last of them drops
    instants: list[str] = field(default_factory=list)

    def note(self) -> None:
        """The commit that was made last is one of them."""
        self.instants.append(HudiTable.open(str(self.path)).timeline.data().completed().instants[-1].requested_time)

    def show(self, count: int) -> None:
        """Only the first `count` of them."""
        hidden, shown = self.path.parent / f"{self.path.name}-hidden", self.path / ".hoodie"
        hidden.mkdir(exist_ok=True)
        for place, instant in enumerate(self.instants):
            source, target = (hidden, shown) if place < count else (shown, hidden)
            for file in list(source.glob(f"{instant}.*")):
                file.rename(target / file.name)


def _life(path: Path, partitions: int, dropped: int) -> Commits:
    """All partitions; a new column; the last partitions are dropped."""
    commits = _new(path, partitions)
    _writer(path).upsert(_rows(commits.names[:1]).append_column("added", pa.array(["x"])))
    commits.note()
    _writer(path).delete_partitions(commits.names[-dropped:])
    commits.note()
    commits.dropped = dropped
    return commits


def _growth(path: Path, partitions: int, more: int) -> Commits:
    """Many partitions; then commits that add one each."""
    commits = _new(path, partitions)
    for number in range(more):
        _writer(path).upsert(_rows([f"q{number:06}"]))
        commits.note()
    return commits


def _new(path: Path, partitions: int) -> Commits:
    names = [f"p{number:06}" for number in range(partitions)]
    create_table(
        LocalStorage(str(path)), TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",))
    )
    _writer(path).bulk_insert(_rows(names))
    commits = Commits(path, names)
    commits.note()
    return commits


def _writer(path: Path) -> LocalWriter:
    return LocalWriter(HudiTable.open(str(path)))


def _rows(names: Sequence[str]) -> pa.Table:
    """A row for each partition."""
    return pa.table([[f"k-{name}" for name in names], pa.array([1] * len(names), pa.int64()), names], SCHEMA)


# -- runs --------------------------------------------------------------------------------------------------------------


class Bench:
    """Runs the contenders in turn, so that a machine's moods meet all: once to warm up and to count their calls,
    then measured; each time into a new database."""

    def __init__(self, report: Report, server: EmbeddedMetastore, runs: int, progress: Progress) -> None:
        self.report, self.server, self.runs, self.progress = report, server, runs, progress
        self.metastore = Metastore.connect(server.uri)
        self._databases = 0

    def has(self, name: str, program: Program) -> bool:
        try:
            program(Path(), "", "")
        except PeerMissing as reason:
            self.report.of(name, FIRST).failed = str(reason)[:200]
            return False
        return True

    def life(self, name: str, program: Program, commits: Commits, *, warm_up: bool) -> None:
        with self._database() as database:
            for shown, task in ((1, FIRST), (1, NOTHING), (2, COLUMN), (3, DROP)):
                commits.show(shown)
                self._run(name, task, program, commits.path, database, warm_up=warm_up)
            left = len(self.metastore.partition_names(database, "t"))
            assert left == len(commits.names) - commits.dropped, (name, left)

    def growth(self, contenders: Sequence[tuple[str, Program]], commits: Commits) -> None:
        with ExitStack() as stack:
            databases = {name: stack.enter_context(self._database()) for name, _ in contenders}
            commits.show(1)
            for name, program in contenders:
                self._process(name, program, commits.path, self.server.uri, databases[name])
            for number in range(self.runs + 1):
                commits.show(number + 2)
                for name, program in contenders:
                    self._run(name, ONE, program, commits.path, databases[name], warm_up=number == 0)
            for name, database in databases.items():
                found = self.metastore.partition_names(database, "t")
                assert len(found) == len(commits.names) + self.runs + 1, (name, len(found))

    def only_column(self, commits: Commits, *, warm_up: bool) -> None:
        def program(path: Path, uri: str, database: str) -> list[str]:
            return ours(path, uri, database, "skep.sync.cascade=none")

        with self._database() as database:
            commits.show(1)
            self._process("skep", program, commits.path, self.server.uri, database)
            commits.show(2)
            self._run("skep", COLUMN_NONE, program, commits.path, database, warm_up=warm_up)

    def bare_calls(self, commits: Commits, *, warm_up: bool) -> None:
        """The calls that a first sync needs and nothing else: a table, its partitions, the markers."""
        commits.show(1)
        with self._database() as database:
            self._process("skep", ours, commits.path, self.server.uri, database)
            entry = replace(self.metastore.table(database, "t"), origin=None)
            names = self.metastore.partition_names(database, "t")
            made = [replace(one, origin=None) for one in self.metastore.partitions(database, "t", names)]
            self.metastore.drop_table(database, "t")
            if warm_up:
                self._bare(entry, made)
            else:
                self.report.of("bare calls", FIRST).run(os.getpid(), partial(self._bare, entry, made))

    def _bare(self, entry: TableEntry, partitions: list[Partition]) -> float:
        """On as many connections, in batches as large as a sync's."""
        size = min(1000, -(-len(partitions) // 4))
        batches = [partitions[start : start + size] for start in range(0, len(partitions), size)]
        start = time.perf_counter()
        self.metastore.create_table(entry)
        with ThreadPoolExecutor(4) as pool:
            add = self.metastore.add_partitions
            list(pool.map(lambda batch: add(entry.database, entry.name, batch), batches))
        self.metastore.alter_table(entry.database, entry.name, self.metastore.table(entry.database, entry.name))
        return time.perf_counter() - start

    def _run(self, name: str, task: str, program: Program, path: Path, database: str, *, warm_up: bool) -> None:
        if warm_up:
            with CountingProxy(self.server.uri) as proxy:
                self._process(name, program, path, proxy.uri, database)
            calls = ", ".join(f"{call} {count}" for call, count in proxy.calls.most_common())
            self.report.notes.append(f"{task}, {name}: {proxy.calls.total()} calls ({calls})")
            return
        measured = self.report.of(name, task)
        start = time.perf_counter()
        process = subprocess.Popen(
            program(path, self.server.uri, database),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        with memory_of(process.pid) as peak:
            _, errors = process.communicate()
        assert process.returncode == 0, f"{name}: {task}: {errors[-2000:]}"
        measured.seconds.append(time.perf_counter() - start)
        measured.peak_bytes = max(measured.peak_bytes, peak.bytes)

    def _process(self, name: str, program: Program, path: Path, uri: str, database: str) -> None:
        command = program(path, uri, database)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"

    def summarise(self) -> None:
        for measured in self.report.measured:
            self.progress(f"{measured.contender}: {measured.task} {measured.median:.2f} s")

    @contextmanager
    def _database(self) -> Iterator[str]:
        self._databases += 1
        name = f"run{self._databases}"
        self.metastore.create_database(Database(name))
        try:
            yield name
        finally:
            for table in self.metastore.tables(name):
                self.metastore.drop_table(name, table)
            self.metastore.drop_database(name)


def _environment() -> dict[str, str]:
    """As installed: Python keeps what it has compiled, which not every developer's shell lets it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def aims(report: Report) -> None:
    hudi = "Hudi 0.15.0"
    for text, task, wanted in (
        ("nothing to do", NOTHING, 10),
        ("first sync", FIRST, 2.3),
        ("one new partition among many", ONE, 10),
        ("partitions dropped", DROP, 7),
        ("a new column, taken to all partitions", COLUMN, 1.4),
    ):
        report.aim(f"{text}, against {hudi}", report.ratio(hudi, task), wanted)
    medians = {(found.contender, found.task): found.median for found in report.measured}
    column, only = medians.get((hudi, COLUMN)), medians.get(("skep", COLUMN_NONE))
    report.aim(f"a new column, in the table only, against {hudi}", column / only if column and only else None, 10)
    bare = report.ratio("skep", FIRST, to="bare calls")
    report.aim("first sync, against the bare calls", bare, 1.2, at_most=True)
