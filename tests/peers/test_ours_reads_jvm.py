"""Fresh tables of many kinds, written by JVM Hudi: skep answers every query as the release that wrote them does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import peer_cases as cases
import pytest

from benchmarks.peers.jvm import HudiRefused, Jvm
from benchmarks.peers.spelling import difference
from skep_format.json_text import json_lines
from skep_format.options import Options
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

TYPE, END = "hoodie.datasource.query.type", "hoodie.datasource.read.end.instanttime"
BEGIN = cases.BEGIN
CDC = {TYPE: "incremental", "hoodie.datasource.query.incremental.format": "cdc"}


def parameters(targets: tuple[cases.Target, ...], asked: Callable[[cases.Target], str]) -> list[Any]:
    """Every case for these targets; `asked` names the release that a test of a target needs."""
    found = []
    for case in cases.CASES.values():
        for target in (target for target in targets if target in case.targets):
            for table_type in case.table_types:
                name = f"{target}-{table_type}-{case.name}"
                marks = [pytest.mark.peer(f"hudi-{asked(target)}")]
                marks += [] if name in cases.SAMPLE else [pytest.mark.slow]
                found.append(pytest.param(case, target, table_type, marks=marks, id=name))
    return found


class Tables:
    """The tables of this run, each made once: those of version 6 that 1.x writes are read by another release."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, cases.Target, str], cases.Making] = {}

    def get(self, case: cases.Case, target: cases.Target, table_type: str, jvm: Callable[[str], Jvm]) -> cases.Making:
        key = case.name, target, table_type
        if key not in self._made:
            made = case.making(jvm(target.release), self._folder / str(target), target, table_type)
            case.make(made)
            self._made[key] = made
        return self._made[key]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("tables"))


def questions(made: cases.Making, read_options: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The queries on a table: (name, read options). Times are taken from its timeline."""
    instants = made.instants()
    first, middle, before_last = instants[0], instants[len(instants) // 2], instants[-2]
    asked: dict[str, dict[str, str]] = {
        "snapshot": {},
        "incremental from the beginning": {TYPE: "incremental", BEGIN: "000"},
        "incremental after the first": {TYPE: "incremental", BEGIN: first.since},
        "incremental range": {TYPE: "incremental", BEGIN: first.since, END: before_last.since},
        "time travel to the first": {"as.of.instant": first.requested},
        "time travel to the middle": {"as.of.instant": middle.requested},
    }
    if made.table_type == cases.MOR:
        asked["read_optimized"] = {TYPE: "read_optimized"}
    if made.options.get("hoodie.table.cdc.enabled") == "true":
        asked["cdc from the beginning"] = {**CDC, BEGIN: "000"}
        asked["cdc after the first"] = {**CDC, BEGIN: first.since}
    for name, options in asked.items():
        yield name, {**read_options, **options}


def ours(path: Path, options: Mapping[str, str]) -> list[dict[str, Any]]:
    result = read(HudiTable.open(str(path)), ReadRequest.of(Options(options)))
    text = b"".join(bytes(json_lines(batch)) for batch in result.to_batches()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def images_parsed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """CDC rows with `before` and `after` as values: the order of names in their JSON text is no promise."""
    return [{name: _parsed(value) if name in IMAGES else value for name, value in row.items()} for row in rows]


IMAGES = ("before", "after")


def _parsed(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


@pytest.mark.parametrize(("case", "target", "table_type"), parameters((cases.NEW6,), lambda target: target.release))
def test_version_6_is_written_by_1_x(
    case: cases.Case, target: cases.Target, table_type: str, tables: Tables, jvm: Callable[[str], Jvm]
) -> None:
    """Makes the table that the next test reads with 0.15.0, while its writer is up."""
    made = tables.get(case, target, table_type, jvm)
    assert HudiTable.open(str(made.path)).config.version == 6


ASKED = (*cases.EVERY, cases.FIRST8)


@pytest.mark.parametrize(("case", "target", "table_type"), parameters(ASKED, lambda target: target.answered_by))
def test_every_query_is_answered_as_hudi_does(
    case: cases.Case,
    target: cases.Target,
    table_type: str,
    tables: Tables,
    jvm: Callable[[str], Jvm],
    request: pytest.FixtureRequest,
) -> None:
    if case.read_options:
        # 0.15.0 applies the options of one query to every later table: the tests after this get another session
        request.addfinalizer(request.getfixturevalue("_jvms").stop)
    made = tables.get(case, target, table_type, jvm)
    hudi = jvm(target.answered_by)
    asked, wrong = 0, []
    for name, options in questions(made, case.read_options):
        if (target, name) in case.unsettled:
            continue
        try:
            expected = hudi.read(made.path, cases.as_counted(target.answered_by, options)).rows
        except HudiRefused:
            continue  # nothing to compare with
        asked += 1
        try:
            found = ours(made.path, options)
            if CDC.items() <= options.items():
                found, expected = images_parsed(found), images_parsed(expected)
            differs = difference(found, expected)
        except Exception as error:
            differs = f"{type(error).__name__}: {error}"
        excused = case.exceptions.get((target, name)) or case.exceptions.get((None, name))
        if bool(differs) != bool(excused):
            wrong.append(f"{name}: {differs or 'as Hudi answers, though there is an exception'}")
    assert asked, "Hudi refused every query"
    assert not wrong, f"{len(wrong)} of {asked} queries differ ({made.path}):\n" + "\n".join(wrong)
