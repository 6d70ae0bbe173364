"""Fixtures and options that all suites share.

--engines=NAMES and --peers=NAMES choose which real engines and other implementations are asked (`none`, `all`, or names
separated by commas); --quick chooses none of them. What is not chosen is deselected, not skipped. Which cases of the
chosen tests run, and where, is decided by `testrun/`.
Among the engines' names may be how they are started: `auto` (as processes, and the images' own tests), `processes`, or
`containers` (all of them that have an image).
On CI (the variable CI is set) a skip is a failure: a machine that lacks what a test needs must not look like a pass.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers as hypothesis_providers

from testrun.plugin import WORK, needs

# A machine shared with other work pauses tests at random; what blocks is caught by pytest's own time limit.
# Each run tries new examples, and few: what one run misses a later one finds.
hypothesis.settings.register_profile("skep", deadline=None, max_examples=25)
# CI answers for a change: it tries the same examples each time, and leaves the search for new ones to others.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("all", deadline=None, max_examples=100)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "skep")
if os.environ.get("CI"):
    # Hypothesis also draws from the constants of the modules that are loaded, which depend on the tests before.
    hypothesis_providers._get_local_constants = lambda: hypothesis_providers._local_constants

# The Java of Spark sessions, also of those in processes that tests start: many short-lived JVMs and little data, where
# the optimising compiler and a parallel collector take more than they give back (40 % of the writer tests' CPU).
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def memory_folder() -> str | None:
    """A file system in memory with room for the suite; None where there is none. LocalStorage syncs each file that a
    commit names: on a disk that takes more of the suite's time than all its computing."""
    folder = Path("/dev/shm")
    try:
        status = os.statvfs(folder)
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    usable = os.access(folder, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    return str(folder) if usable and min(status.f_bavail * status.f_frsize, available) > ROOM_BYTES else None


ROOM_BYTES = 8 << 30
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and (found := memory_folder()):
    os.environ["PYTEST_DEBUG_TEMPROOT"] = found  # workers and processes that tests start inherit it

TESTS = Path(__file__).parent


# Every session makes the folder of its warehouse, by default in the working directory. Each run has one of its own: it
# must not meet tables of an earlier one.
if "SPARK_SUBMIT_OPTS" not in os.environ:
    warehouse = tempfile.mkdtemp(prefix="spark-warehouse-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ['SPARK_LAUNCHER_OPTS']} -Dspark.sql.warehouse.dir={warehouse}"
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)


def load_helper(name: str, path: Path) -> ModuleType:
    """A helper module beside the tests, imported once under `name` (the tests are no packages)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


# Not in a hook: the conftest files of folders given on the command line are imported before any hook runs.
load_helper("ended_process", TESTS / "ended_process.py")
load_helper("golden_archives", TESTS / "golden" / "archives.py")
load_helper("golden_faults", TESTS / "golden" / "faults.py")
load_helper("golden_requests", TESTS / "golden" / "requests.py")
load_helper("runs_first", TESTS / "table" / "runs_first.py")
load_helper("captured_tables", TESTS / "table" / "captured_tables.py")
load_helper("copied_groups", TESTS / "table" / "copied_groups.py")
load_helper("counting_storage", TESTS / "table" / "counting_storage.py")
load_helper("log_positions", TESTS / "table" / "log_positions.py")
load_helper("sql_lakes", TESTS / "sql" / "sql_lakes.py")
load_helper("golden_metadata", TESTS / "table" / "metadata_table" / "golden_metadata.py")
load_helper("faulty_storage", TESTS / "table" / "commit" / "faulty_storage.py")
load_helper("layout_1_names", TESTS / "table" / "upgrade" / "layout_1_names.py")
load_helper("left_behind", TESTS / "table" / "commit" / "left_behind.py")
load_helper("sleepy_clock", TESTS / "table" / "commit" / "sleepy_clock.py")
load_helper("metadata_listings", TESTS / "table" / "metadata_write" / "listings.py")
load_helper("indexing_acts", TESTS / "table" / "services" / "indexing_acts.py")
load_helper("ringed_tables", TESTS / "table" / "services" / "ringed_tables.py")
load_helper("own_record_index", TESTS / "table" / "write" / "own_record_index.py")
load_helper("indexed_tables", TESTS / "table" / "query" / "indexed_tables.py")
load_helper("random_filters", TESTS / "table" / "query" / "random_filters.py")
load_helper("named_things", TESTS / "skep" / "named_things.py")
load_helper("source_tree", TESTS / "house" / "source_tree.py")
ENGINE_TIMINGS = load_helper("engine_timings", TESTS / "engines" / "timings.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        hypothesis.settings.load_profile("all")
    load_helper("client_contract", TESTS / "catalog" / "client_contract.py")
    load_helper("refusing_proxy", TESTS / "catalog" / "refusing_proxy.py")
    load_helper("instant_files", TESTS / "table" / "instant_files.py")
    load_helper("many_partitions", TESTS / "table" / "many_partitions.py")
    load_helper("spark_answers", TESTS / "writer" / "spark_answers.py")
    load_helper("spark_plans", TESTS / "writer" / "spark_plans.py")
    config.pluginmanager.register(load_helper("metastore_fixtures", TESTS / "catalog" / "metastore_fixtures.py"))
    config.pluginmanager.register(load_helper("storage_fixtures", TESTS / "table" / "storage_fixtures.py"))
    config.pluginmanager.register(load_helper("hdfs_fixtures", TESTS / "table" / "hdfs_fixtures.py"))
    config.pluginmanager.register(ENGINE_TIMINGS)
    config.pluginmanager.register(load_helper("raised_errors", TESTS / "raised_errors.py"))
    config.pluginmanager.register(load_helper("zookeeper_fixtures", TESTS / "locks" / "zookeeper_fixtures.py"))


@pytest.fixture(autouse=True)
def _no_option_was_warned_of() -> None:
    """A process warns of an option once; so does each test."""
    from skep_format import options

    options._warned.clear()


@pytest.fixture(autouse=True)
def _logging_is_as_before() -> Iterator[None]:
    """The command line sets the logging of its process: a command that a test calls in this one has -v for itself."""
    loggers = logging.getLogger(), logging.getLogger("skep")
    before = [(logger, logger.level, logger.filters[:]) for logger in loggers]
    yield
    for logger, level, filters in before:
        logger.setLevel(level)
        logger.filters[:] = filters


LITTER = ("skep-warehouse", "spark-warehouse", "metastore_db", "derby.log")


@pytest.fixture(autouse=True)
def _nothing_is_left_in_the_working_directory() -> Iterator[None]:
    """What a test leaves there by a default that it did not change."""

    def there() -> set[str]:
        return {name for name in LITTER if (TESTS.parent / name).exists()}

    before = there()
    yield
    assert not (left := there() - before), f"left in {TESTS.parent} by this test, or one beside it: {sorted(left)}"


@pytest.fixture(autouse=True)
def table_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of tables for which a test chooses none: that of --table-version, else by a parameter of its own.

    A suite that runs on several: `pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)`.
    """
    from skep_table.commit.create import TableSpec
    from skep_table.write.planning.settings import TABLE_VERSION

    version: int = getattr(request, "param", None) or request.config.getoption("--table-version")
    monkeypatch.setitem(TableSpec.__init__.__kwdefaults__, "version", version)
    object.__setattr__(TABLE_VERSION, "default", version)
    return version


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Iterator[Path]:
    """The folder of the golden tables, `<hudi version>/<case>/table`: shared by all tests, so never write into it."""
    import golden_archives

    yield from _unpacked(pytestconfig, golden_archives.VERSIONS)


@pytest.fixture(scope="session")
def older_golden(pytestconfig: pytest.Config) -> Iterator[Path]:
    """The folder of the golden tables of versions before 6, `<case>/table`: never write into it, either."""
    import golden_archives

    for folder in _unpacked(pytestconfig, (golden_archives.OLDER,)):
        yield folder / golden_archives.OLDER


def _unpacked(pytestconfig: pytest.Config, versions: tuple[str, ...]) -> Iterator[Path]:
    import golden_archives

    folder = golden_archives.unpack(Path(pytestconfig.cache.mkdir("golden")), versions)
    before = set(folder.rglob("*"))
    yield folder
    if written := set(folder.rglob("*")) ^ before:
        shutil.rmtree(folder)  # it is kept from run to run
        pytest.fail(f"golden tables were written to: {sorted(map(str, written))[:9]}")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for the whole run: two cores, four attempts a task so that retries are real, an odd time zone."""
    from skep_catalog.class_archive import spark_environment
    from skep_writer import make_spark

    session = make_spark(
        spark_environment(),
        master="local[2,4]",
        conf={"spark.driver.memory": "1g", "spark.sql.session.timeZone": "America/New_York"},
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


# -- choosing ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("skep")
    engines = "real engines: none, auto, processes, containers, or names by comma"
    group.addoption("--engines", default="auto", metavar="NAMES", help=engines)
    group.addoption("--peers", default="all", metavar="NAMES", help="implementations: none, all, or names by comma")
    group.addoption("--table-version", type=int, default=6, metavar="N", help="of tables that tests make: 6, 8 or 9")


WAYS = {"processes", "containers"}


def chosen(item: pytest.Item, marker_name: str, choice: str) -> bool:
    """Whether the item is among the choice: by the name in its marker, the first `-`-part of it, or unmarked."""
    markers = list(item.iter_markers(marker_name))
    wanted = {name.strip() for name in choice.split(",")} - {"auto", "all"}
    if not markers or not wanted - WAYS:
        return "processes" not in wanted or not any("containers" in marker.args for marker in markers)
    names = {str(word) for marker in markers for word in marker.args}
    return bool(wanted & (names | {name.partition("-")[0] for name in names}))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = config.getoption("--quick")
    engines, peers = ("none", "none") if quick else (config.getoption("--engines"), config.getoption("--peers"))
    for marker, choice in (("engine", engines), ("peer", peers)):
        if deselected := [item for item in items if not chosen(item, marker, choice)]:
            config.stash[WORK].not_chosen.update(needs(marker, item) for item in deselected)
            config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if chosen(item, marker, choice)]


# -- no silent skips on CI ---------------------------------------------------------------------------------------------


def on_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if on_ci() and report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("may_skip"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {skip_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if on_ci() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {skip_reason(report)}"
    return report


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
