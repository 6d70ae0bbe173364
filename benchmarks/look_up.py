"""Finding 100,000 keys in 200 base files of one partition: an upsert's look-up, on threads and in eight Spark tasks.

The keys are spread over all files, so that neither ranges nor filters leave one out. Beside the time: the reads of
footers and key columns of base files.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Measured
from benchmarks.report import Report
from benchmarks.upsert import Progress
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.rows import ArrowRows

ROWS, FILES, CHANGED, TASKS = 1_000_000, 200, 100_000, 8
TASK = f"look-up in {FILES} files"
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


class CountedReads(LocalStorage):
    """A local folder that notes each read of a base file in a file, whichever process reads."""

    def __init__(self, root: str, notes: str) -> None:
        super().__init__(root)
        self.notes = notes

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedReads, (self.root, self.notes)

    def read_suffix(self, path: str, length: int) -> bytes:
        self._note("footers", path)
        return super().read_suffix(path, length)

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        self._note("key columns", path)
        return super().open_input(path, size=size)

    def _note(self, kind: str, path: str) -> None:
        if path.endswith(".parquet"):
            with Path(self.notes).open("a") as notes:
                notes.write(f"{kind}\n")


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    report = Report("look-up", scale, runs)
    rows, changed = max(int(ROWS * scale), FILES), max(int(CHANGED * scale), TASKS)
    with tempfile.TemporaryDirectory(prefix="skep-look-up-") as scratch:
        folder = Path(scratch)
        progress(f"a table of {rows} rows in {FILES} files")
        _make_table(folder / "base", rows)
        changes = _rows(np.random.default_rng(1).choice(rows, changed, replace=False), 2)
        if not only or "threads" in only:
            progress("on threads")
            for turn in range(runs + 1):
                table = _copy(folder, turn)
                _run(report if turn else None, "threads", ArrowRows, table, lambda t: _threads(t).upsert(changes))
        if not only or "spark" in only:
            progress(f"in {TASKS} Spark tasks")
            _spark(report, runs, folder, changes)
    return report


def _threads(table: HudiTable) -> LocalWriter:
    return LocalWriter(table.with_context(runner=ThreadRunner(TASKS)))


def _spark(report: Report, runs: int, folder: Path, changes: pa.Table) -> None:
    import pyspark
    from pyspark import cloudpickle

    from skep_catalog.java import find_java
    from skep_writer import SparkWriter, make_spark
    from skep_writer.writing.spark_rows import SparkRows

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    java = {"JAVA_HOME": str(find_java(pyspark.__version__).home)}
    spark = make_spark(java, master="local[2]", conf={"spark.driver.memory": "2g"})
    try:
        source = folder / "changes"
        source.mkdir()
        step = -(-changes.num_rows // TASKS)
        for number in range(TASKS):
            pq.write_table(changes.slice(number * step, step), source / f"{number}.parquet")
        frame = spark.read.parquet(str(source)).repartition(TASKS)
        options = {"skep.spark.collect.max.bytes": 0}  # as for frames that are too large for the driver
        for turn in range(runs + 1):
            table = _copy(folder, turn).with_options(options)
            _run(report if turn else None, "spark", SparkRows, table, lambda t: SparkWriter(t, spark).upsert(frame))
    finally:
        spark.stop()


def _run(
    report: Report | None, contender: str, rows: type, table: HudiTable, upsert: Callable[[HudiTable], Any]
) -> None:
    """One upsert, of which the time and the reads of the tagging count."""
    measured = report.of(contender, TASK) if report else Measured(contender, TASK)
    notes, real = Path(table.storage.notes), rows.tag  # type: ignore[attr-defined]

    def tag(self: Any, *how: Any) -> Any:
        def timed() -> float:
            start = time.perf_counter()
            tagged.append(real(self, *how))
            return time.perf_counter() - start

        tagged: list[Any] = []
        notes.unlink(missing_ok=True)
        measured.run(os.getpid(), timed)
        measured.requests = dict(Counter(notes.read_text().splitlines()))
        return tagged[0]

    rows.tag = tag  # type: ignore[attr-defined]
    try:
        upsert(table)
    finally:
        rows.tag = real  # type: ignore[attr-defined]
        shutil.rmtree(table.storage.root)


def _make_table(folder: Path, rows: int) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(folder)), spec)
    split = {"hoodie.copyonwrite.insert.auto.split": "false", "hoodie.copyonwrite.insert.split.size": rows // FILES}
    LocalWriter(table.with_options(split)).insert(_rows(np.arange(rows), 1))


def _rows(numbers: Any, ts: int) -> pa.Table:
    keys = pa.array([f"{number * 2654435761 % (1 << 32):010d}" for number in numbers.tolist()])
    return pa.table([keys, pa.repeat("p", len(keys)), pa.repeat(ts, len(keys)).cast(pa.int64())], schema=SCHEMA)


def _copy(folder: Path, turn: int) -> HudiTable:
    target = folder / f"copy{turn}"
    shutil.copytree(folder / "base", target)
    return HudiTable.open(CountedReads(str(target), str(folder / "reads")))
