"""One test per golden case and query, and the list of the places where a Hudi release is at fault."""

from __future__ import annotations

from pathlib import Path

import golden_archives as archives
import golden_faults as faults
import pytest


def _cases(config: pytest.Config) -> list[archives.Case]:
    return archives.cases(archives.unpack(Path(config.cache.mkdir("golden"))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"case", "query"} <= set(metafunc.fixturenames):
        triples = [
            (case, query, faults.fault_of(case, query)) for case in _cases(metafunc.config) for query in case.queries
        ]
        ids = [f"{case.version}-{case.name}-{query.id}" for case, query, _ in triples]
        metafunc.parametrize(("case", "query", "fault"), triples, ids=ids)
    elif "case" in metafunc.fixturenames:
        found = _cases(metafunc.config)
        metafunc.parametrize("case", found, ids=[f"{case.version}-{case.name}" for case in found])
    elif "fault_entry" in metafunc.fixturenames:
        metafunc.parametrize("fault_entry", faults.FAULTS, ids=[fault.id for fault in faults.FAULTS])


@pytest.fixture(scope="session")
def golden_cases(pytestconfig: pytest.Config) -> list[archives.Case]:
    return _cases(pytestconfig)
