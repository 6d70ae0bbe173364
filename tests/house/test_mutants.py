"""The faults of `./dev mutants` fit the code and the tests as they are."""

from __future__ import annotations

import ast

import pytest

from mutants.__main__ import ROOT, Mutant, load

MUTANTS = load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_a_module_that_python_reads(mutant: Mutant) -> None:
    ast.parse(mutant.applied(ROOT))
    assert mutant.found != mutant.becomes
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_few_mutants_need_more_than_plain_python() -> None:
    assert sum(bool(mutant.needs) for mutant in MUTANTS) <= 4
