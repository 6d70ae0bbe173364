"""What a benchmark found: a table on the screen, a JSON file beside the code."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measured

RESULTS = Path(__file__).parent / "results"


@dataclass
class Target:
    """A number to reach: `found` must be at least (or, with `at_most`, at most) `wanted`."""

    text: str
    found: float
    wanted: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted


@dataclass
class Report:
    """All measurements of one benchmark. Ratios are against skep's time in the same task."""

    name: str
    scale: float
    runs: int
    measured: list[Measured] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, contender: str, task: str) -> Measured:
        """The measurement of a contender at a task, made when asked for first."""
        found = self._find(contender, task)
        if found is None:
            found = Measured(contender, task)
            self.measured.append(found)
        return found

    def ratio(self, contender: str, task: str, to: str = "skep") -> float | None:
        """How many times as long `contender` takes as `to` does. None when one of them has not run."""
        mine, other = self._find(to, task), self._find(contender, task)
        if mine is None or other is None or not mine.median or not other.median:
            return None
        return other.median / mine.median

    def share_of_requests(self, contender: str, task: str, of: str = "skep") -> float | None:
        """The requests of `of` as a share of those of `contender`. None when one of them has not run."""
        mine, other = self._find(of, task), self._find(contender, task)
        if mine is None or other is None or not mine.requests or not other.requests:
            return None
        return sum(mine.requests.values()) / sum(other.requests.values())

    def _find(self, contender: str, task: str) -> Measured | None:
        return next((found for found in self.measured if (found.contender, found.task) == (contender, task)), None)

    def aim(self, text: str, found: float | None, wanted: float, *, at_most: bool = False) -> None:
        if found is not None:
            self.targets.append(Target(text, found, wanted, at_most))

    def show(self, console: Console) -> None:
        for task in dict.fromkeys(found.task for found in self.measured):
            console.print(self._table(task))
        for target in self.targets:
            mark = "[green]met[/]" if target.met else "[red]missed[/]"
            sign = "≤" if target.at_most else "≥"
            console.print(f"{mark}  {target.text}: {target.found:.2f} (wanted {sign} {target.wanted:g})")
        for note in self.notes:
            console.print(f"[dim]{note}[/]")

    def save(self) -> Path:
        RESULTS.mkdir(exist_ok=True)
        now = dt.datetime.now(dt.timezone.utc)
        file = RESULTS / f"{self.name}-{now:%Y%m%d-%H%M%S}.json"
        file.write_text(json.dumps(self.as_json(now), indent=1) + "\n")
        return file

    def as_json(self, now: dt.datetime) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "at": now.isoformat(timespec="seconds"),
            "scale": self.scale,
            "runs": self.runs,
            "machine": machine(),
            "measured": [
                {
                    "contender": found.contender,
                    "task": found.task,
                    "median_seconds": found.median,
                    "seconds": found.seconds,
                    "peak_bytes": found.peak_bytes,
                    "times_as_long_as_skep": self.ratio(found.contender, found.task),
                    "requests": found.requests,
                    "failed": found.failed,
                }
                for found in self.measured
            ],
            "targets": [
                {"text": t.text, "found": t.found, "wanted": t.wanted, "at_most": t.at_most, "met": t.met}
                for t in self.targets
            ],
            "notes": self.notes,
        }

    def _table(self, task: str) -> Table:
        table = Table(title=task, title_justify="left")
        rows = [found for found in self.measured if found.task == task]
        headings = ["", "median s", "best", "worst", "peak MiB", "× skep"]
        if any(found.requests for found in rows):
            headings.append("requests")
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("", "requests") else "right")
        for found in rows:
            table.add_row(found.contender, *self._cells(found))
        return table

    def _cells(self, found: Measured) -> Sequence[str]:
        if found.median is None:
            return [found.failed or "not run", "", "", "", ""]
        ratio = self.ratio(found.contender, found.task)
        return [
            f"{found.median:.2f}",
            f"{min(found.seconds):.2f}",
            f"{max(found.seconds):.2f}",
            f"{found.peak_bytes / 2**20:.0f}",
            f"{ratio:.2f}" if ratio else "",
            *([_counted(found.requests)] if found.requests else []),
        ]


def _counted(requests: dict[str, int]) -> str:
    return f"{sum(requests.values())}: " + ", ".join(f"{count} {kind}" for kind, count in requests.items())


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was with other things when the run ended."""
    return {
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("skep-hudi", "pyspark", "pyarrow", "hudi")},
    }
