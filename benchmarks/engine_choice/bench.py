"""`./dev bench engines-without-jvm`: Sail as it is and by skep's translator, each beside Spark, and what each costs.

What the engines answer is compared first, then times are taken. The tables and every wrong answer are written to
`benchmarks/engine_choice/FOUND.md`, the times to `benchmarks/results/`, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.engine_choice import page
from benchmarks.engine_choice.environments import PYSAIL, SAIL, wheels
from benchmarks.engine_choice.rounds import (
    DOCUMENTED,
    EVERYDAY,
    MODES,
    SAIL_NAME,
    SKEP,
    TPC_H,
    Round,
    compare,
    right,
)
from benchmarks.engine_choice.speed import ONE_LINE, measure_feeds, measure_starts
from benchmarks.report import Report

WANTED = {DOCUMENTED: 0.6, EVERYDAY: 55 / 60, TPC_H: 20 / 22}
MOST_SECONDS = 1
CLIENT = ("pysail", "grpcio", "protobuf")
PYSPARK_CLIENT = ("pyspark-client", "pandas", "numpy", "googleapis-common-protos", "grpcio-status")
PARTS = {"answers", "times"}


def measure(*, scale: float, runs: int, only: frozenset[str], progress: Callable[[str], None]) -> Report:
    """`only`: `answers` or `times`; both where neither is named."""
    report = Report("engines-without-jvm", scale, runs)
    parts = only & PARTS or PARTS
    if "answers" in parts:
        with tempfile.TemporaryDirectory() as folder:
            rounds: list[Round] = []
            for mode in MODES:
                rounds.append(compare(mode, Path(folder), scale, progress))
                page.write("answers", page.answers(rounds))
        _aims(report, rounds[0])
    if "times" in parts:
        before = os.getloadavg()[0]
        measure_starts(report, runs, progress)
        report.notes += measure_feeds(report, runs, scale, progress)
        took = report.of("Sail, own client", ONE_LINE).median
        report.aim("Sail: seconds of a process that answers one line", took, MOST_SECONDS, at_most=True)
        page.write("times", page.times(report, before, SAIL.bytes_of(*CLIENT, *PYSPARK_CLIENT), wheels(PYSAIL)))
    return report


def _aims(report: Report, first: Round) -> None:
    for contender in (SKEP, SAIL_NAME):
        listed = first.lists(contender, by_types=True)
        for group, wanted in WANTED.items():
            share = right(listed.through[group]) / len(first.judgements[contender][group])
            report.aim(f"{contender}: share of the {group} by an allow-list", share, wanted)
