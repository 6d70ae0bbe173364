"""Statements that change rows: skep's `lake.sql`, JVM Hudi's Spark SQL and delta-rs, on both table types.

1,000,000 rows × 12 columns in 10 partitions; MERGE of 100,000, half of them new, then UPDATE and DELETE of one row in a
hundred, spread over all files. skep and Hudi begin each round with copies of one table that skep wrote, and merge from
another table of the lake and a view of Parquet files; delta-rs has a table of its own, of one type, and its source in
memory. The contenders take turns, after one round to warm up, and what they wrote is compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.ours import FOLDER
from benchmarks.peers.bundle import RELEASES, PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm, Worker
from benchmarks.report import Report
from benchmarks.sql_writers import SUMMED, sums
from benchmarks.upsert import VERSION_6, Progress, Size

SKEP, DELTA = "skep", "delta-rs"
KINDS = {"copy-on-write": "COPY_ON_WRITE", "merge-on-read": "MERGE_ON_READ"}
UPDATED, DELETED = "customer < 1000", "customer >= 99000"  # of 100,000, so each is a row in a hundred
SET = {"quantity": "quantity + 1", "ts": "ts + 1"}
CHANGES = "changes"
STATEMENTS = {
    "MERGE": f"MERGE INTO {{table}} t USING {CHANGES} s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE": f"UPDATE {{table}} SET {', '.join(f'{name} = {value}' for name, value in SET.items())} WHERE {UPDATED}",
    "DELETE": f"DELETE FROM {{table}} WHERE {DELETED}",
}
SUMS = (
    "count(1) as rows",
    "count(distinct id) as keys",
    "sum(amount) as amount",
    "sum(ts) as ts",
    "sum(quantity) as quantity",
)
FASTER_THAN_HUDI, FASTER_THAN_DELTA = 4, 1

HUDI_SETTINGS = {
    "hoodie.metadata.enable": "false",
    "hoodie.index.type": "BLOOM",
    "hoodie.parquet.compression.codec": "snappy",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}


class Statements(Worker):
    """skep's lake or delta-rs, without Spark; see sql_writers.py."""

    def __init__(self, kind: str) -> None:
        threads = {"OMP_NUM_THREADS": "2", "TOKIO_WORKER_THREADS": "2"}
        super().__init__(kind, FOLDER / "sql_writers.py", [kind], threads)


# -- the contenders ----------------------------------------------------------------------------------------------------


class Skep:
    """`lake.sql`."""

    def __init__(self, worker: Worker, changes: Path) -> None:
        self.worker = worker
        worker.request("register", path=str(changes), name=CHANGES)

    def begin(self, table: Path, name: str) -> None:
        self.worker.request("register", path=str(table), name=name)

    def run(self, task: str, table: Path, name: str) -> float:  # noqa: ARG002 - the lake knows where it is
        return float(self.worker.request("run", statement=STATEMENTS[task].format(table=name))["seconds"])

    def sums(self, table: Path) -> dict[str, Any]:
        return dict(self.worker.request("sums", path=str(table))["rows"][0])


class Hudi:
    """Spark SQL with Hudi's extensions, in a warm session."""

    def __init__(self, worker: Jvm, source: Path) -> None:
        self.worker = worker
        self._settings = HUDI_SETTINGS | (VERSION_6 if worker.release != "0.15.0" else {})
        worker.sql(f"CREATE TEMPORARY VIEW {CHANGES} AS SELECT * FROM parquet.`{source}`")

    def begin(self, table: Path, name: str) -> None:
        self.worker.sql(f"CREATE TABLE {name} USING hudi LOCATION '{table}'")

    def run(self, task: str, table: Path, name: str) -> float:  # noqa: ARG002 - the session knows where it is
        return self.worker.sql(STATEMENTS[task].format(table=name), self._settings).seconds

    def sums(self, table: Path) -> dict[str, Any]:
        return dict(self.worker.request("aggregate", path=str(table), options={}, expressions=list(SUMS))["rows"][0])


class Delta:
    """delta-rs."""

    def __init__(self, worker: Worker, source: Path) -> None:
        self.worker = worker
        worker.request("load", source=str(source))

    def begin(self, table: Path, name: str) -> None:
        pass

    def run(self, task: str, table: Path, name: str) -> float:  # noqa: ARG002 - it has no names
        fields: dict[str, dict[str, Any]] = {
            "MERGE": {},
            "UPDATE": {"set": SET, "where": UPDATED},
            "DELETE": {"where": DELETED},
        }
        return float(self.worker.request(task.lower(), path=str(table), **fields[task])["seconds"])

    def sums(self, table: Path) -> dict[str, Any]:
        return dict(self.worker.request("sums", path=str(table))["rows"][0])


Contender = Skep | Hudi | Delta


# -- the measurement ---------------------------------------------------------------------------------------------------


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    size, report = Size.of(scale), Report("sql", scale, runs)
    expected = expected_sums(size)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-sql-")))
        ours = stack.enter_context(Statements("skep"))
        progress("skep writes the tables that it and Hudi change")
        for kind in KINDS.values():
            ours.request("make", path=str(folder / kind), source=str(size.inserts()), type=kind)
        ours.request("make", path=str(folder / CHANGES), source=str(size.changes()), type=KINDS["copy-on-write"])
        contenders: dict[str, Contender] = {}
        if not only or SKEP in only:
            contenders[SKEP] = Skep(ours, folder / CHANGES)
        for name, release in ((f"Hudi {release}", release) for release in RELEASES):
            if only and name not in only:
                continue
            try:
                contenders[name] = Hudi(stack.enter_context(Jvm(release)), size.changes())
            except PeerMissing as reason:
                report.notes.append(f"{name} is not measured: {reason}")
        if not only or DELTA in only:
            delta = stack.enter_context(Statements("delta"))
            delta.request("make", path=str(folder / "delta"), source=str(size.inserts()), type="")
            contenders[DELTA] = Delta(delta, size.changes())
        for kind in KINDS:
            for turn in range(runs + 1):
                for name, contender in contenders.items():
                    _round(report, name, contender, kind, turn, folder, expected)
            for task in _tasks(kind):
                medians = {name: report.of(name, task).median for name in contenders}
                progress(f"{task}: " + ", ".join(f"{name} {took:.2f} s" for name, took in medians.items() if took))
    _aims(report)
    report.notes.append("delta-rs has one type of tables and is measured in both rounds; its source is in memory")
    return report


def _round(
    report: Report, name: str, contender: Contender, kind: str, turn: int, folder: Path, expected: dict[str, Any]
) -> None:
    """All statements on a new copy of the table, measured but for the first round; then its rows are checked."""
    tasks = {task: report.of(name, task) for task in _tasks(kind)}
    if any(measured.failed for measured in tasks.values()):
        return
    copied = f"measured_{KINDS[kind].lower()}_{turn}"
    table = folder / name.replace(" ", "-") / copied
    shutil.copytree(folder / ("delta" if name == DELTA else KINDS[kind]), table)
    contender.begin(table, copied)
    for task, measured in tasks.items():
        statement = task.partition(",")[0]
        try:
            work = partial(contender.run, statement, table, copied)
            if turn:
                measured.run(contender.worker.pid, work)
            else:
                work()
        except HudiRefused as reason:
            measured.failed = str(reason)[:200]
            return
    found = contender.sums(table)
    if found != expected:
        raise AssertionError(f"{name} wrote other rows, {kind}: {found}, expected {expected}")
    shutil.rmtree(table)


def _tasks(kind: str) -> Iterator[str]:
    return (f"{statement}, {kind}" for statement in STATEMENTS)


def expected_sums(size: Size) -> dict[str, Any]:
    """The sums over the table after all statements, from the input."""
    columns = [*SUMMED, "customer"]
    base, changes = (ds.dataset(source).to_table(columns) for source in (size.inserts(), size.changes()))
    rest = base.filter(pc.invert(pc.is_in(base["id"], changes["id"].combine_chunks())))
    rows = pa.concat_tables([rest, changes])
    updated = pc.less(rows["customer"], 1000)
    for name in SET:
        raised = pc.add(rows[name], pc.cast(updated, rows[name].type))
        rows = rows.set_column(rows.schema.get_field_index(name), name, raised)
    return sums(rows.filter(pc.less(rows["customer"], 99_000)))


def _aims(report: Report) -> None:
    for kind in KINDS:
        for task in _tasks(kind):
            for release in RELEASES:
                found = report.ratio(f"Hudi {release}", task)
                report.aim(f"{task}: times as fast as Hudi {release}", found, FASTER_THAN_HUDI)
            report.aim(f"{task}: times as fast as {DELTA}", report.ratio(DELTA, task), FASTER_THAN_DELTA)
