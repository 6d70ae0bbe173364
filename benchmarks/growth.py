"""What operations cost as a table grows: by partitions, commits, file groups or rows, ten and a hundred times as many.

Processor time, calls of storage and memory of an upsert of a row, a point read, a sync, `skep show`, plans of services.
A cost that follows what exists, and not what is asked for, shows as a row that grows. Hudi reads and writes the same
tables, up to ten times the smallest, by the time that passes in a warm session.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.grown_tables import KEY, KINDS, PARTITION, Kind, Size, make
from benchmarks.growth_worker import OPERATIONS, register
from benchmarks.measure import Measured
from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.report import Report
from benchmarks.upsert import HUDI_OPTIONS
from benchmarks.write import NO_SERVICES
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.errors import SkepError
from skep_format.table_config import TableType

Progress = Callable[[str], None]
TIMES: Final = (1, 10, 100)
AXES: Final[dict[str, Callable[[int], Size]]] = {
    "partitions": lambda count: Size(partitions=count),
    "active commits": lambda count: Size(commits=count),
    "archived commits": lambda count: Size(commits=count, archived=True),
    "file groups in a partition": lambda count: Size(groups=count),
    "rows in a file": lambda count: Size(rows=count),
}
SMALLEST: Final = {
    "partitions": 1_000,
    "active commits": 100,
    "archived commits": 100,
    "file groups in a partition": 100,
    "rows in a file": 20_000,
}
_HUDI: Final = {6: "0.15.0", 9: "1.2.0"}
_HUDI_TIMES: Final = (1, 10)
_REGISTERED_MOST: Final = 10_000
"""Partitions that are sent to the metastore; of more the table alone is, which makes no difference to later syncs."""


@dataclass
class GrowthReport(Report):
    """Tasks are an axis, a kind of table and an operation; contenders are the numbers that there are of what grows."""

    processor: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def show(self, console: Console) -> None:
        """A row for each operation: processor milliseconds, calls and MiB, at each size."""
        for axis, kind in dict.fromkeys(_parts(found.task)[:2] for found in self.measured):
            rows = [found for found in self.measured if _parts(found.task)[:2] == (axis, kind)]
            sizes = list(dict.fromkeys(found.contender for found in rows))
            table = Table(title=f"{axis}; {kind}", title_justify="left")
            for heading in ("", *(f"{size}: ms, calls, MiB" for size in sizes)):
                table.add_column(heading, justify="right" if heading else "left")
            for task in dict.fromkeys(found.task for found in rows):
                table.add_row(_parts(task)[2], *(self._cell(self.of(size, task)) for size in sizes))
            console.print(table)
        for note in self.notes:
            console.print(f"[dim]{note}[/]")

    def _cell(self, found: Measured) -> str:
        busy = self.processor.get((found.contender, found.task))
        if not busy:
            return f"{found.median * 1000:,.0f} elapsed" if found.median else found.failed or "not run"
        return f"{median(busy) * 1000:,.0f}, {sum(found.requests.values()):,}, {found.peak_bytes / 2**20:,.0f}"

    def as_json(self, now: Any) -> dict[str, Any]:
        """As all benchmarks have it, with processor seconds."""
        whole = super().as_json(now)
        for row in whole["measured"]:
            row["processor_seconds"] = self.processor.get((row["contender"], row["task"]), [])
        return whole


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Progress) -> Report:
    """`only` names axes, operations, `version 6` or `version 9` of tables, and `skep` or `Hudi`."""
    report = GrowthReport("growth", scale, runs)
    axes = [axis for axis in AXES if not only & set(AXES) or axis in only]
    operations = [name for name in OPERATIONS if not only & set(OPERATIONS) or name in only]
    kinds = [kind for kind in KINDS if not only & set(map(_short, KINDS)) or _short(kind) in only]
    who = only & {"skep", "Hudi"} or {"skep", "Hudi"}
    with tempfile.TemporaryDirectory(prefix="skep-growth-") as scratch, ExitStack() as stack:
        metastore = None
        if "skep" in who and any(name.startswith("sync") for name in operations):
            try:
                server = EmbeddedMetastore.start_or_join(Path(scratch, "warehouse"))
                metastore = stack.enter_context(server).uri
            except SkepError as reason:
                report.notes.append(f"no syncs: {reason.message}")
                operations = [name for name in operations if not name.startswith("sync")]
        for kind in kinds:
            small = Path(scratch, "small", _short(kind).replace(" ", ""))
            make(small, kind, Size(rows=100))
            if metastore is not None:
                register(small, metastore, partitions=True)
            with ExitStack() as session:
                hudi = _hudi(report, kind, small, session) if "Hudi" in who else None
                for axis, times in product(axes, TIMES if "skep" in who else _HUDI_TIMES):
                    size = max(int(SMALLEST[axis] * times * scale), times)
                    with tempfile.TemporaryDirectory(prefix="table-", dir=scratch) as folder:
                        place = Path(folder, "t")
                        progress(f"{kind.name}: {size:,} {axis}")
                        make(place, kind, AXES[axis](size))
                        if metastore is not None:
                            register(place, metastore, partitions=AXES[axis](size).partitions <= _REGISTERED_MOST)
                        for name in _on(kind, operations) if "skep" in who else ():
                            task = f"{axis}; {kind.name}; {name}"
                            _run(report, f"{size:,}", task, [name, place, small, kind.name, runs, metastore or ""])
                        if hudi is not None and times in _HUDI_TIMES:
                            _run_hudi(report, hudi, kind, place, f"{size:,}", axis, runs)
    return report


def _hudi(report: GrowthReport, kind: Kind, small: Path, session: ExitStack) -> Jvm | None:
    """A session of Hudi that has done its work on a small table once; None where this machine has none."""
    try:
        hudi = session.enter_context(Jvm(_HUDI[kind.version]))
        for work in _of_hudi(hudi, kind, small).values():
            work()
        return hudi
    except (PeerMissing, HudiRefused) as reason:
        report.notes.append(f"no Hudi: {str(reason)[:200]}")
        return None


def _of_hudi(hudi: Jvm, kind: Kind, place: Path) -> dict[str, Callable[[], float]]:
    """Hudi's operations on a table, each with the seconds that it takes."""
    where = f"id = '{KEY}' and part = '{PARTITION}'"
    options = {**HUDI_OPTIONS, **NO_SERVICES, **kind.options, "hoodie.table.name": "t"}
    options["hoodie.datasource.write.table.type"] = kind.type.value
    if kind.version != 6:
        options["hoodie.write.table.version"] = str(kind.version)
    schema = "id string not null, ts bigint, part string"
    rows = [{"id": KEY, "ts": 2, "part": PARTITION}]
    return {
        "point read": lambda: hudi.read(place, kind.options, columns=["ts"], where=where).seconds,
        "upsert of one row": lambda: hudi.write(place, rows, schema, options, operation="upsert"),
    }


def _run_hudi(report: GrowthReport, hudi: Jvm, kind: Kind, place: Path, size: str, axis: str, runs: int) -> None:
    for name, work in _of_hudi(hudi, kind, place).items():
        found = report.of(size, f"{axis}; {kind.name}; {name}, Hudi {hudi.release}")
        try:
            for _ in range(runs):
                found.run(hudi.pid, work)
        except HudiRefused as reason:
            found.failed = str(reason)[:200]


def _on(kind: Kind, operations: list[str]) -> Iterator[str]:
    for name in operations:
        if name != "plan of a compaction" or kind.type is TableType.MERGE_ON_READ:
            yield name


def _run(report: GrowthReport, size: str, task: str, arguments: list[object]) -> None:
    command = [sys.executable, "-m", "benchmarks.growth_worker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = report.of(size, task)
    if done.returncode != 0:
        found.failed = done.stderr.strip().rpartition("\n")[2][:200] or f"exit code {done.returncode}"
        return
    answer = json.loads(done.stdout.splitlines()[-1])
    found.seconds, found.requests, found.peak_bytes = answer["seconds"], answer["calls"], answer["peak"]
    report.processor[size, task] = answer["processor"]


def _short(kind: Kind) -> str:
    return kind.name.partition(",")[0]


def _parts(task: str) -> tuple[str, str, str]:
    axis, kind, operation = task.split("; ")
    return axis, kind, operation
