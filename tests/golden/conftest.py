"""One test per golden case and query, and the list of the places where a Hudi release is at fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import golden_archives as archives
import golden_faults as faults
import pytest


def _cases(config: pytest.Config, versions: Iterable[str] = archives.VERSIONS) -> list[archives.Case]:
    return archives.cases(archives.unpack(Path(config.cache.mkdir("golden")), versions), versions)


def has_metadata_table(case: archives.Case) -> bool:
    return bool(case.facts["hoodie_properties"].get("hoodie.table.metadata.partitions"))


# Fixtures that stand for cases, and which.
CASES = {
    "case": lambda case: True,
    "case_with_metadata_table": has_metadata_table,
    "case_for_hudi_rs": lambda case: archives.hudi_rs_differs(case) is None,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"case", "query"} <= set(metafunc.fixturenames):
        triples = [
            (case, query, faults.fault_of(case, query)) for case in _cases(metafunc.config) for query in case.queries
        ]
        ids = [f"{case.version}-{case.name}-{query.id}" for case, query, _ in triples]
        metafunc.parametrize(("case", "query", "fault"), triples, ids=ids)
    for fixture, chosen in CASES.items():
        if fixture in metafunc.fixturenames and "query" not in metafunc.fixturenames:
            found = [case for case in _cases(metafunc.config) if chosen(case)]
            metafunc.parametrize(fixture, found, ids=[f"{case.version}-{case.name}" for case in found])
    if "older_case" in metafunc.fixturenames:
        older = [(case, query) for case in _cases(metafunc.config, [archives.OLDER]) for query in case.queries]
        metafunc.parametrize(("older_case", "query"), older, ids=[f"{case.name}-{query.id}" for case, query in older])
    if "fault_entry" in metafunc.fixturenames:
        metafunc.parametrize("fault_entry", faults.FAULTS, ids=[fault.id for fault in faults.FAULTS])


@pytest.fixture(scope="session")
def golden_cases(pytestconfig: pytest.Config) -> list[archives.Case]:
    return _cases(pytestconfig)
