"""What a run with several workers prints while it goes on: what runs, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pytest

from testrun.measured import file_of

EVERY_SECONDS = 20


def clock_time(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Progress:
    """One line each time that a while has passed, instead of a dot for each case."""

    def __init__(self, reporter: pytest.TerminalReporter, cases: Mapping[str, float], workers: int) -> None:
        self._reporter = reporter
        self._left = dict(cases)
        self._all, self._workers = sum(cases.values()), workers
        self._began = self._printed = time.monotonic()
        self._running: set[str] = set()
        self._failed = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)
        now = time.monotonic()
        if now - self._printed >= EVERY_SECONDS:
            self._printed = now
            self._reporter.ensure_newline()
            self._reporter.write_line(self._line(now))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.discard(nodeid)
        self._left.pop(nodeid, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letter for a case that passed."""
        return ("passed", "", "") if report.passed and report.when == "call" else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._reporter.ensure_newline()
            self._reporter.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)

    def _line(self, now: float) -> str:
        done = self._all - sum(self._left.values())
        took = now - self._began
        pace = took * self._workers / done if done > 60 else 1.0  # seconds for one of `measured.tsv`, on this machine
        remaining = clock_time(pace * (self._all - done) / self._workers)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{clock_time(took):>6}  {done / self._all:4.0%}, {remaining} left{failed}  {running(self._running)}"


def running(cases: Iterable[str]) -> str:
    return "  ".join(sorted({file_of(case) for case in cases}))
