"""What each test took when it was measured last: `measured.tsv`, written by `./dev test --measure`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).with_name("measured.tsv")
UNMEASURED_SECONDS = 0.01
"""Of a case of a file that was never measured."""
WORTH_LISTING_SECONDS = 0.03
"""Of the mean case of a test; those below are listed together, a line for each file."""
KINDS = ("engine", "peer", "spark", "metastore", "unit")
"""What a test needs beside Python, the dearest first."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A test: the mean seconds of a case, without the start of what the whole run shares, and how many cases it has
    that are not slow; or the short tests of a file together."""

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
    """All tests that take long enough to be listed, and by file what the others take."""

    tests: Mapping[str, Timed]
    short: Mapping[str, Timed] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path = FILE) -> Measured:
        if not file.exists():
            return cls({})
        rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        found = {name: Timed(float(seconds), kind, int(cases)) for seconds, cases, kind, name in rows}
        tests = {name: timed for name, timed in found.items() if "::" in name}
        return cls(tests, {name: timed for name, timed in found.items() if name not in tests})

    def save(self, file: Path = FILE) -> None:
        lines = [(name, f"{timed.seconds:.2f}", timed) for name, timed in self.tests.items()]
        lines += [(name, f"{timed.seconds:.4f}", timed) for name, timed in self.short.items()]
        rows = (f"{seconds}\t{timed.cases}\t{timed.kind}\t{name}\n" for name, seconds, timed in sorted(lines))
        file.write_text("".join(rows), encoding="utf-8")

    def seconds(self, case: str) -> float:
        timed = self.tests.get(name_of(case)) or self.short.get(file_of(case))
        return timed.seconds if timed else UNMEASURED_SECONDS

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
        tests = {name: test for name, test in self.tests.items() if name not in kinds and file_of(name) in files}
        of_short: dict[str, list[float]] = defaultdict(list)
        for name, of_test in seconds.items():
            if name not in cases:
                continue
            mean = round(statistics.mean(of_test), 2)
            if mean >= WORTH_LISTING_SECONDS:
                tests[name] = Timed(mean, kinds[name], cases[name])
            else:
                of_short[file_of(name)] += of_test
        run = set(map(file_of, seconds))
        short = {file: timed for file, timed in self.short.items() if file not in run and file in files}
        short |= {file: Timed(round(statistics.mean(each), 4), "unit", len(each)) for file, each in of_short.items()}
        return Measured(tests, short)
