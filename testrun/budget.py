"""Which cases a run takes: those that fit into the time budget of their suite.

Every test keeps one case. What is left of the budget goes to the tests that have had the least time so far, so that a
thousand cases of a millisecond all run before the second case of a test that takes ten seconds. Which cases of a test
come first is decided by a checksum of their names: always the same, and neither a release nor a type of table is left
out of all tests.
"""

from __future__ import annotations

import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testrun.measured import file_of, name_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True, slots=True)
class Budgets:
    """Seconds by suite. A suite is a folder below tests/; that of a file is the innermost one that has a budget."""

    seconds: Mapping[str, float]

    @classmethod
    def load(cls, name: str, file: Path = FILE) -> Budgets:
        """Those of the run `name`, a table of the file."""
        with file.open("rb") as source:
            return cls(tomllib.load(source)[name])

    def suite(self, case: str) -> str:
        """ValueError where no folder above the case has a budget."""
        file = Path(file_of(case))
        found = next((str(folder) for folder in file.parents if str(folder) in self.seconds), None)
        if found is None:
            raise ValueError(f"{FILE.name} has no budget for a folder of tests/{file}")
        return found

    def choose(self, cases: Mapping[str, float]) -> set[str]:
        """Of cases with their seconds, those that run."""
        suites: dict[str, dict[str, float]] = defaultdict(dict)
        for case, seconds in cases.items():
            suites[self.suite(case)][case] = seconds
        return {case for suite, of_suite in suites.items() for case in fitting(of_suite, self.seconds[suite])}


def fitting(cases: Mapping[str, float], budget: float) -> set[str]:
    """The cases of one suite that fit into its seconds, and one of each test in any event."""
    tests: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        tests[name_of(case)].append(case)
    turns: list[tuple[float, int, str]] = []
    for of_test in tests.values():
        had = 0.0
        for case in sorted(of_test, key=_checksum):
            turns.append((had, _checksum(case)[0], case))
            had += cases[case]
    chosen, spent = set(), 0.0
    for had, _, case in sorted(turns):
        if had == 0 or spent + cases[case] <= budget:
            chosen.add(case)
            spent += cases[case]
    return chosen


def _checksum(case: str) -> tuple[int, str]:
    return zlib.crc32(case.encode()), case
