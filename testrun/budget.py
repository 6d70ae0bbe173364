"""Which cases a run takes: those that fit into the time budget of their suite.

Short tests, which are not listed one by one, run whole and are paid from the budget first. Every other test keeps one
case, unless that is longer than any of the run may be. What is left of the budget goes to tests that have had the least
time so far, so that a thousand cases of a millisecond all run before the second case of a test that takes ten seconds.
Which cases of a test come first is decided by a checksum of their names: always the same, and neither a release nor a
type of table is left out of all tests.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testrun.measured import Measured, Timed, file_of, name_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True, slots=True)
class Budgets:
    """Seconds by suite. A suite is a folder below tests/; that of a file is the innermost one that has a budget."""

    seconds: Mapping[str, float]
    longest: float = math.inf
    """Seconds of a case beyond which a test is left out whole."""

    @classmethod
    def load(cls, name: str, file: Path = FILE) -> Budgets:
        """Those of the run `name`, a table of the file."""
        with file.open("rb") as source:
            found = dict(tomllib.load(source)[name])
        return cls(longest=found.pop("longest", math.inf), seconds=found)

    def suite(self, case: str) -> str:
        """ValueError where no folder above the case has a budget."""
        found = self._suite(case)
        if found is None:
            raise ValueError(f"{FILE.name} has no budget for a folder of tests/{file_of(case)}")
        return found

    def _suite(self, case: str) -> str | None:
        return next((str(folder) for folder in Path(file_of(case)).parents if str(folder) in self.seconds), None)

    def choose(self, cases: Iterable[str], measured: Measured) -> set[str]:
        """Of cases, those that run: all of a test that is not listed, and as many of the others as shares_of allows.

        That is decided by `measured` alone: whether all tests are collected or a few, of these the same cases run.
        """
        by_test: dict[str, list[str]] = defaultdict(list)
        for case in cases:
            by_test[name_of(case)].append(case)
        shares: dict[str, int] = {}
        suites: dict[str, dict[str, Timed]] = {self.suite(name): {} for name in by_test}
        for name, test in measured.tests.items():
            suite = self._suite(name)
            if suite not in suites:
                continue
            if test.seconds > self.longest:
                shares[name] = 0
            else:
                suites[suite][name] = test
        short: dict[str | None, float] = defaultdict(float)
        for name, timed in measured.short.items():
            short[self._suite(name)] += timed.seconds * timed.cases
        for suite, tests in suites.items():
            shares |= shares_of(tests, self.seconds[suite] - short[suite])
        return {
            case for name, of_test in by_test.items() for case in sorted(of_test, key=_checksum)[: shares.get(name)]
        }


def shares_of(tests: Mapping[str, Timed], budget: float) -> dict[str, int]:
    """How many cases of each test of a suite fit into its seconds; one at least."""
    turns = sorted((turn * test.seconds, name) for name, test in tests.items() for turn in range(test.cases))
    shares: dict[str, int] = defaultdict(int)
    spent = 0.0
    for had, name in turns:
        seconds = tests[name].seconds
        if had == 0 or spent + seconds <= budget:
            shares[name] += 1
            spent += seconds
    return shares


def _checksum(case: str) -> tuple[int, str]:
    return zlib.crc32(case.encode()), case
