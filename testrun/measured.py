"""What each test took when it was measured last: `measured.tsv`, written by `./dev test --measure`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("measured.tsv")
UNMEASURED_SECONDS = 0.01
"""Of a case that `measured.tsv` does not list: one so short that it is not written down, or a new one."""
WORTH_LISTING_SECONDS = 0.03
KINDS = ("engine", "peer", "spark", "metastore", "unit")
"""What a test needs beside Python, the dearest first."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A test: the median seconds of a case, without the start of what the whole run shares, and how many cases it has
    that are not slow."""

    seconds: float
    kind: str
    cases: int


def name_of(case: str) -> str:
    """`tests/a/test_b.py::test_c[d]` → `a/test_b.py::test_c`."""
    return case.partition("[")[0].removeprefix("tests/")


def file_of(case: str) -> str:
    return case.partition("::")[0].removeprefix("tests/")


@dataclass(frozen=True, slots=True)
class Measured:
    """All tests that take long enough to be listed."""

    tests: Mapping[str, Timed]

    @classmethod
    def load(cls, file: Path = FILE) -> Measured:
        if not file.exists():
            return cls({})
        rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        return cls({test: Timed(float(seconds), kind, int(cases)) for seconds, cases, kind, test in rows})

    def save(self, file: Path = FILE) -> None:
        rows = (f"{test.seconds:.2f}\t{test.cases}\t{test.kind}\t{name}\n" for name, test in sorted(self.tests.items()))
        file.write_text("".join(rows), encoding="utf-8")

    def seconds(self, case: str) -> float:
        test = self.tests.get(name_of(case))
        return test.seconds if test else UNMEASURED_SECONDS

    def with_run(
        self, took: Iterable[tuple[str, str, float]], cases: Mapping[str, int], files: Container[str]
    ) -> Measured:
        """With the times of a run, (case, kind, seconds) each, and the number of cases that each test has.

        Tests of files that are not there any more are left out.
        """
        seconds: dict[str, list[float]] = defaultdict(list)
        kinds: dict[str, str] = {}
        for case, kind, of_case in took:
            seconds[name_of(case)].append(of_case)
            kinds[name_of(case)] = kind
        kept = {name: test for name, test in self.tests.items() if name not in kinds and file_of(name) in files}
        run = {
            name: Timed(round(statistics.median(of_test), 2), kinds[name], cases[name])
            for name, of_test in seconds.items()
            if name in cases
        }
        return Measured(kept | {name: test for name, test in run.items() if test.seconds >= WORTH_LISTING_SECONDS})
