"""How long a process with one line takes, and how fast Arrow's rows get into an engine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.engine_choice.environments import SAIL
from benchmarks.engine_choice.rounds import ENVIRONMENT, HERE
from benchmarks.measure import Measured
from benchmarks.report import Report

ONE_LINE = "a process that answers one line"
MOST_SECONDS = 300
ROWS = (1_000_000, 4_000_000)


def measure_starts(report: Report, runs: int, progress: Callable[[str], None]) -> None:
    """The contenders in turn, after one of each to warm up the disk's cache."""
    with tempfile.TemporaryDirectory() as folder:
        skep = [str(Path(sys.executable).parent / "skep"), "sql", "--warehouse", folder, "select 1 + 1 as n"]
        commands: dict[str, Sequence[str]] = {
            "skep sql, Sail": skep,
            "skep sql, Spark": [*skep, "--engine", "spark"],
            "Sail, by the translator": [sys.executable, str(HERE / "start_skep.py")],
            "Sail, own client": [str(SAIL.python), str(HERE / "start_sail.py")],
            "Sail over Flight SQL, its port closed": [str(SAIL.python), str(HERE / "start_sail.py"), "flight"],
            "Sail, pyspark-client": [str(SAIL.python), "-W", "ignore", str(HERE / "start_sail.py"), "pyspark"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        for turn in range(runs + 1):
            progress(f"processes that answer one line, turn {turn}")
            for name, command in commands.items():
                found = report.of(name, ONE_LINE) if turn else Measured(name, ONE_LINE)
                _run(found, command)


def measure_feeds(report: Report, runs: int, scale: float, progress: Callable[[str], None]) -> list[str]:
    """Each way in, in a process of its own; the first run of each is not counted. The sums, which have to be equal."""
    ways = {
        "DuckDB, a stream": (sys.executable, "duckdb"),
        "Sail, a data source in Python": (str(SAIL.python), "source"),
        "Sail, a local relation": (str(SAIL.python), "relation"),
        "Sail, an Arrow file": (str(SAIL.python), "arrow"),
        "Sail, a Parquet file": (str(SAIL.python), "parquet"),
    }
    sums = []
    for rows in ROWS:
        count = int(rows * scale)
        for name, (python, way) in ways.items():
            progress(f"{count:,} rows into {name}")
            found = report.of(name, f"{count:,} rows of 12 columns handed over, and sums by groups of them")
            command = [python, "-W", "ignore", str(HERE / "feed.py"), way, str(count), str(runs)]
            printed = _run(found, command, is_timed=False)
            if printed is not None:
                answer = json.loads(printed.splitlines()[-1])
                found.seconds = answer["seconds"]
                sums.append(f"{count}: {answer['sums']}")
    return sums


def _run(found: Measured, command: Sequence[str], *, is_timed: bool = True) -> str | None:
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
    printed = ["", ""]

    def wait() -> float:
        try:
            printed[:] = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            printed[:] = process.communicate()
        return time.perf_counter() - begin

    found.run(process.pid, wait)
    if not is_timed:
        found.seconds.clear()
    if process.returncode:
        found.failed = " ".join(printed[1].split())[-200:]
        found.seconds.clear()
        return None
    return printed[0]
