"""How long each metastore and engine took to start, reported at the end of a run, whichever worker started it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Timing:
    """One start."""

    name: str
    kind: str
    seconds: float


TIMINGS: pytest.StashKey[list[Timing]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TIMINGS] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (
        output := getattr(session.config, "workeroutput", None)
    ) is not None:  # a worker sends it to the process that prints
        output["engine_timings"] = [asdict(timing) for timing in session.config.stash[TIMINGS]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    reported = getattr(node, "workeroutput", {}).get("engine_timings", [])
    node.config.stash[TIMINGS] += [Timing(**timing) for timing in reported]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if timings := config.stash[TIMINGS]:
        terminalreporter.section("engines: seconds to start")
        for timing in timings:
            terminalreporter.write_line(f"{timing.seconds:6.1f}  {timing.name} ({timing.kind})")
