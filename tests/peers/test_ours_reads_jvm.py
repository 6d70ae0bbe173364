"""Fresh tables of many kinds, written by JVM Hudi: skep answers every query as the release that wrote them does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peer_cases as cases
import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference
from skep_table.options import Options
from skep_table.query import ReadRequest, read
from skep_table.query.json_text import json_lines
from skep_table.table import HudiTable

TYPE, BEGIN, END = (
    "hoodie.datasource.query.type",
    "hoodie.datasource.read.begin.instanttime",
    "hoodie.datasource.read.end.instanttime",
)
CDC = {TYPE: "incremental", "hoodie.datasource.query.incremental.format": "cdc"}


def parameters() -> Iterator[Any]:
    for case in cases.CASES.values():
        for target in case.targets:
            for table_type in case.table_types:
                name = f"{target}-{table_type}-{case.name}"
                marks = [pytest.mark.peer(f"hudi-{target.release}")]
                marks += [] if name in cases.SAMPLE else [pytest.mark.slow]
                yield pytest.param(case, target, table_type, marks=marks, id=name)


def questions(made: cases.Making) -> Iterator[tuple[str, dict[str, str]]]:
    """What is asked of a table: (name, read options). Times are taken from its timeline."""
    yield "snapshot", {}
    if made.table_type == cases.MOR:
        yield "read_optimized", {TYPE: "read_optimized"}
    instants = made.instants()
    first, middle, before_last = instants[0], instants[len(instants) // 2], instants[-2]
    yield "incremental from the beginning", {TYPE: "incremental", BEGIN: "000"}
    yield "incremental after the first", {TYPE: "incremental", BEGIN: first.since}
    yield "incremental range", {TYPE: "incremental", BEGIN: first.since, END: before_last.since}
    yield "time travel to the first", {"as.of.instant": first.requested}
    yield "time travel to the middle", {"as.of.instant": middle.requested}
    if made.options.get("hoodie.table.cdc.enabled") == "true":
        yield "cdc from the beginning", {**CDC, BEGIN: "000"}
        yield "cdc after the first", {**CDC, BEGIN: first.since}


def ours(path: Path, options: dict[str, str]) -> list[dict[str, Any]]:
    result = read(HudiTable.open(str(path)), ReadRequest.of(Options(options)))
    text = b"".join(bytes(json_lines(batch)) for batch in result.to_batches()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize(("case", "target", "table_type"), parameters())
def test_every_query_is_answered_as_hudi_does(
    case: cases.Case, target: cases.Target, table_type: str, jvm: Callable[[str], Jvm], tmp_path: Path
) -> None:
    hudi = jvm(target.release)
    made = case.making(hudi, tmp_path, target, table_type)
    case.make(made)
    asked, wrong = 0, []
    for name, options in questions(made):
        try:
            expected = hudi.read(made.path, options).rows
        except HudiRefused:
            continue  # nothing to compare with
        asked += 1
        try:
            differs = difference(ours(made.path, options), expected)
        except Exception as error:
            differs = f"{type(error).__name__}: {error}"
        excused = case.exceptions.get((target, name)) or case.exceptions.get((None, name))
        if bool(differs) != bool(excused):
            wrong.append(f"{name}: {differs or 'as Hudi answers, though an exception says otherwise'}")
    assert asked, "Hudi refused every query"
    assert not wrong, f"{len(wrong)} of {asked} queries differ ({made.path}):\n" + "\n".join(wrong)
