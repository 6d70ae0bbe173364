"""Every golden table by every query that Hudi was asked: a frame holds what skep's own reader gives, value by value."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import golden_archives as archives
import pytest
import spark_answers
from golden_requests import asked

from skep_table.table import HudiTable

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]


def features(case: archives.Case, query: archives.Query) -> tuple[Any, ...]:
    """Of what a sample must have every pair: table, release, query, and how its range and listing are given."""
    kind = "snapshot" if query.kind.startswith("snapshot_") else query.kind
    return case.name, case.version, kind, tuple(sorted(query.options))


@functools.cache
def chosen(root: Path) -> list[tuple[archives.Case, list[archives.Query], list[archives.Query]]]:
    """Each case with the queries that are always asked, and with the rest."""
    asked_of = [(case, query) for case in archives.cases(root) for query in case.queries]
    sample = spark_answers.pairwise(asked_of, [features(*each) for each in asked_of])
    names = {(case, query.id) for case, query in sample}
    found = []
    for case in archives.cases(root):
        queries = list(case.queries)
        always = [query for query in queries if (case, query.id) in names]
        found.append((case, always, [query for query in queries if query not in always]))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    cases = chosen(archives.unpack(Path(metafunc.config.cache.mkdir("golden"))))
    found = [pytest.param(case, always, id=f"{case.version}-{case.name}") for case, always, _ in cases]
    found += [
        pytest.param(case, rest, id=f"{case.version}-{case.name}-rest", marks=pytest.mark.slow)
        for case, _, rest in cases
        if rest
    ]
    metafunc.parametrize(("case", "queries"), found)


def test_a_frame_holds_what_skep_reads_alone(case: archives.Case, queries: list[archives.Query], spark: Any) -> None:
    table = HudiTable.open(case.table)
    differences = {query.id: spark_answers.difference(table, asked(case, query), spark) for query in queries}
    assert not {name: found for name, found in differences.items() if found}
