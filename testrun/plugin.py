"""The plugin: chooses cases by the budgets, orders and divides them, and reports what each suite cost.

--quick takes what a machine with Python alone can run, --all every case. --order=SEED shuffles files and cases;
--measure writes `measured.tsv`.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import pytest

from testrun.budget import Budgets
from testrun.measured import KINDS, Measured, file_of, name_of
from testrun.progress import Progress, clock_time
from testrun.schedule import LongestFirst, unit_of

MEASURED: pytest.StashKey[Measured] = pytest.StashKey()
WORK: pytest.StashKey[Work] = pytest.StashKey()


class Work:
    """What a process found out about its part of the run; a worker passes it to the process that prints."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        """Cases by suite, for time."""
        self.not_chosen: Counter[str] = Counter()
        """Cases by what they need, which the run was asked to leave out."""
        self.cases: Counter[str] = Counter()
        """How many each test has, without those that are slow."""
        self.took: dict[str, tuple[str, float]] = {}
        """Case → its kind, and its seconds without what the run shares."""
        self.shared: dict[str, float] = defaultdict(float)
        """Seconds by fixture of the whole run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("skep")
    group.addoption("--all", action="store_true", help="every case, also what takes too long for every commit")
    group.addoption("--quick", action="store_true", help="what a machine with Python alone can run, in minutes")
    group.addoption("--budgets", metavar="NAME", default="commit", help="a table of testrun/budgets.toml")
    group.addoption("--order", metavar="SEED", help="files, and the cases of each, in a random order")
    group.addoption("--measure", action="store_true", help="write testrun/measured.tsv by what the tests take now")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MEASURED] = Measured.load()
    config.stash[WORK] = Work()


# -- choosing ----------------------------------------------------------------------------------------------------------


def run_name(config: pytest.Config) -> str:
    return "quick" if config.getoption("quick") else str(config.getoption("budgets"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the choice by options and markers (tests/conftest.py)."""
    if seed := config.getoption("order"):
        shuffle(items, seed)
    measured, budgets = config.stash[MEASURED], Budgets.load(run_name(config))
    fast = [item.nodeid for item in items if not item.get_closest_marker("slow")]
    config.stash[WORK].cases.update(map(name_of, fast))
    if config.getoption("all") or chosen_by_name(config):
        return
    keep = budgets.choose(fast, measured)
    left_out = [item for item in items if item.nodeid not in keep]
    if left_out:
        config.stash[WORK].left_out.update(budgets.suite(item.nodeid) for item in left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid in keep]


def chosen_by_name(config: pytest.Config) -> bool:
    """Whether somebody names tests: then these run, whatever they take."""
    return any("::" in word for word in config.args) or bool(config.option.keyword)


def shuffle(items: list[pytest.Item], seed: str) -> None:
    """Tests that share what takes long to start (an engine, a release of Hudi) stay together."""
    groups: dict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        shared = sorted(str(marker.args) for marker in item.iter_markers() if marker.name in ("engine", "peer"))
        groups[(unit_of(item.nodeid) if shared else file_of(item.nodeid), *shared)].append(item)
    dice, order = random.Random(seed), list(groups.values())
    dice.shuffle(order)
    for group in order:
        dice.shuffle(group)
    items[:] = [item for group in order for item in group]


# -- dividing ----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst:
    return LongestFirst(config, log, config.stash[MEASURED], bool(config.getoption("order")), _announce(config))


def _announce(config: pytest.Config) -> Callable[[Sequence[str], int], None]:
    """Starts the lines on progress, once the cases are known."""

    def announce(cases: Sequence[str], workers: int) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.verbosity >= 0:
            seconds = {case: config.stash[MEASURED].seconds(case) for case in cases}
            config.pluginmanager.register(Progress(reporter, seconds, workers))

    return announce


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    began = time.monotonic()
    try:
        return (yield)
    finally:
        if fixturedef.scope == "session":
            request.config.stash[WORK].shared[fixturedef.argname] += time.monotonic() - began  # with those it needs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    work, began = item.config.stash[WORK], time.monotonic()
    shared = sum(work.shared.values())
    try:
        return (yield)
    finally:
        took = time.monotonic() - began - (sum(work.shared.values()) - shared)
        work.took[item.nodeid] = kind_of(item), max(took, 0.0)


def kind_of(item: pytest.Item) -> str:
    names = {str(word) for marker in item.iter_markers("engine") for word in marker.args}
    fixtures = set(getattr(item, "fixturenames", ()))
    if names - OF_PYTHON:
        return "engine"
    if item.get_closest_marker("peer"):
        return "peer"
    if "spark" in names | fixtures or item.get_closest_marker("spark"):
        return "spark"
    return "metastore" if "metastore_server" in fixtures or item.get_closest_marker("metastore") else "unit"


def needs(marker_name: str, item: pytest.Item) -> str:
    """What a test that was not chosen takes, and how to get it."""
    if marker_name == "peer":
        return f"other implementations: {JDK_AND_MAVEN}"
    names = {str(word).partition("-")[0] for marker in item.iter_markers("engine") for word in marker.args}
    if names & {"containers"}:
        return "containers: docker and debootstrap"
    return f"engines and metastores: {JDK_AND_MAVEN}" if names - OF_PYTHON else "time alone (storms, long jobs)"


TOLERANCE = 1.2
"""How much more than its budget a suite may take without a warning: machines differ."""
OF_PYTHON = {"spark", "metastore", "storm"}
"""Names of engines that come with `skep-hudi[local]`."""
JDK_AND_MAVEN = "a JDK 17 and Maven (apt-get install openjdk-17-jdk-headless maven postgresql), 3 GB of jars"


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        work = session.config.stash[WORK]
        output["work"] = {
            "left_out": dict(work.left_out),
            "not_chosen": dict(work.not_chosen),
            "cases": dict(work.cases),
            "took": work.took,
            "shared": dict(work.shared),
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {}).get("work")
    if found is not None:
        work = node.config.stash[WORK]
        work.left_out = Counter(found["left_out"])  # each worker leaves out the same
        work.not_chosen, work.cases = Counter(found["not_chosen"]), Counter(found["cases"])
        work.took.update({case: (kind, seconds) for case, (kind, seconds) in found["took"].items()})
        for name, seconds in found["shared"].items():
            work.shared[name] += seconds


# -- reporting ---------------------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    work, budgets = config.stash[WORK], Budgets.load(run_name(config))
    missing(terminalreporter, work.not_chosen)
    if len(work.took) < 100:  # somebody runs a few tests
        return
    took, cases = by(budgets.suite, work.took)
    terminalreporter.section("suites: minutes of a worker, beside what the budget allows")
    for suite, seconds in sorted(took.items(), key=lambda item: -item[1]):
        over = (
            "  OVER ITS BUDGET" if seconds > TOLERANCE * budgets.seconds[suite] and not config.getoption("all") else ""
        )
        left_out = f"{work.left_out[suite]} left out" if work.left_out[suite] else ""
        budget = clock_time(budgets.seconds[suite])
        terminalreporter.write_line(
            f"{clock_time(seconds):>6} of {budget:>5}  {suite:24} {cases[suite]:5} cases  {left_out:>14}{over}"
        )
    took, cases = by(lambda case: work.took[case][0], work.took)
    for kind in KINDS:
        terminalreporter.write_line(f"{clock_time(took[kind]):>6}           {kind:24} {cases[kind]:5} cases")
    dearest = sorted(work.shared.items(), key=lambda item: -item[1])[:12]
    shared = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in dearest)
    terminalreporter.write_line(f"shared by the run: {shared}")
    if total := work.left_out.total():
        terminalreporter.write_line(f"left out for time: {total} cases, and those marked slow; --all runs them")
    if config.getoption("measure"):
        files = {str(path.relative_to(config.rootpath / "tests")) for path in (config.rootpath / "tests").rglob("*.py")}
        run = ((case, kind, seconds) for case, (kind, seconds) in work.took.items())
        config.stash[MEASURED].with_run(run, work.cases, files).save()


def by(group: Callable[[str], str], took: Mapping[str, tuple[str, float]]) -> tuple[dict[str, float], Counter[str]]:
    """Seconds and number of the cases of each group."""
    seconds: dict[str, float] = defaultdict(float)
    cases: Counter[str] = Counter()
    for case, (_, of_case) in took.items():
        seconds[group(case)] += of_case
        cases[group(case)] += 1
    return seconds, cases


def missing(terminalreporter: pytest.TerminalReporter, not_chosen: Counter[str]) -> None:
    """What this machine lacks or the run was asked to leave out, and how many tests want it."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        reasons[str(reason).removeprefix("Skipped: ")] += 1
    if reasons or not_chosen:
        terminalreporter.section("not tested here")
        for reason, count in [*reasons.most_common(), *not_chosen.most_common()]:
            terminalreporter.write_line(f"{count:5} tests: {reason}")
