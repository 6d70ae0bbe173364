"""Real metastores and engines as fixtures: each started once in a run, one engine at a time, and stopped for certain.

What can't be had on a machine is skipped with the reason, which on CI is a failure. The logs stay in .pytest_cache.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

HERE = Path(__file__).parent


def _load(name: str, path: Path) -> None:
    """A helper module beside the tests, imported once under `name` (the tests are no packages)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


for _name in ("engine_services", "engine_images"):
    _load(_name, HERE.parents[1] / "docker" / f"{_name}.py")
for _name in ("launch", "containers", "flink_sql", "asking", "values", "starting", "tables", "matrix"):
    _load(f"engine_{_name}", HERE / f"{_name}.py")

from engine_asking import Engine  # noqa: E402 - loaded just now
from engine_containers import ContainerLauncher  # noqa: E402
from engine_launch import Launcher, ProcessLauncher, Running  # noqa: E402
from engine_services import ServiceMissing  # noqa: E402
from engine_starting import ENGINES, METASTORES, engine_param, start_engine, start_metastore  # noqa: E402
from engine_tables import RECIPES, UNLISTED, Made  # noqa: E402
from engine_timings import TIMINGS  # noqa: E402

from skep.lake import Lake  # noqa: E402
from skep_catalog.client import Metastore  # noqa: E402
from skep_catalog.embedded import EmbeddedMetastore  # noqa: E402

T = TypeVar("T")
RUNNING: pytest.StashKey[list[Running]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUNNING] = []


@pytest.hookimpl(trylast=True)  # a test's own fixtures may still want them
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nothing of these tests goes on beside those of other folders, which the fixtures' session would let it do."""
    if nextitem is None or HERE not in nextitem.path.parents:
        for running in item.config.stash[RUNNING]:
            running.stop()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="session")
def processes(pytestconfig: pytest.Config, scratch: Path) -> ProcessLauncher:
    logs = Path(pytestconfig.cache.mkdir("engines"))
    return ProcessLauncher(scratch, logs, pytestconfig.stash[TIMINGS], pytestconfig.stash[RUNNING])


@pytest.fixture(scope="session")
def launcher(
    pytestconfig: pytest.Config, processes: ProcessLauncher, scratch: Path, tmp_path_factory: pytest.TempPathFactory
) -> Launcher:
    """As processes, unless --engines=containers asks for the images."""
    if "containers" not in pytestconfig.getoption("--engines").split(","):
        return processes
    golden = Path(pytestconfig.cache.mkdir("golden"))
    return ContainerLauncher(processes, scratch, [tmp_path_factory.getbasetemp(), golden])


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=pytest.mark.engine(name)) for name in ("metastore-2.3.9", *METASTORES)],
)
def any_metastore(
    request: pytest.FixtureRequest, launcher: Launcher, processes: ProcessLauncher, scratch: Path
) -> Iterator[str]:
    """The address of a metastore: the embedded one, then each of the other releases."""
    if request.param == "metastore-2.3.9":
        with EmbeddedMetastore.start_or_join(scratch / "embedded") as server:
            yield server.uri
        return
    running = _started(lambda: start_metastore(request.param, launcher, processes, f"file://{scratch}/warehouse"))
    yield running.uri
    running.stop()


@pytest.fixture(scope="session", params=[engine_param(name) for name in ENGINES])
def engine(
    request: pytest.FixtureRequest,
    launcher: Launcher,
    processes: ProcessLauncher,
    scratch: Path,
    metastore_server: EmbeddedMetastore,
) -> Iterator[Engine]:
    """One engine after the other over the suite's metastore. Hive 4 wants a metastore of its own release."""
    name = request.param
    own = None
    uri = metastore_server.uri
    if name == "hive-4.0.1":
        own = _started(lambda: start_metastore("metastore-4.0.1", launcher, processes, f"file://{scratch}/warehouse"))
        uri = own.uri
    running, found = _started(
        lambda: start_engine(name, launcher, processes, scratch, uri, f"file://{scratch}/warehouse")
    )
    yield found
    found.close()
    running.stop()
    if own is not None:
        own.stop()


@pytest.fixture(scope="session")
def zoo(metastore_server: EmbeddedMetastore, scratch: Path) -> Iterator[Callable[[str, str], Made]]:
    """The tables that engines are asked for, by recipe and type: each made once in a run, when first asked for."""
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        lake = Lake(client, str(scratch / "lake"), database="zoo")
        yield functools.cache(lambda name, kind: {**RECIPES, **UNLISTED}[name].make(lake, kind))


@pytest.fixture(scope="session")
def tables(
    zoo: Callable[[str, str], Made], engine: Engine, metastore_server: EmbeddedMetastore, scratch: Path
) -> Iterator[Callable[[str, str], Made]]:
    """The same, known to the metastore of the running engine."""
    if engine.metastore == metastore_server.uri:
        yield zoo
        return
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(scratch / "lake"), database="zoo")

        def registered(name: str, kind: str) -> Made:
            made = zoo(name, kind)
            lake.register(made.table.path, made.table.name)
            return made

        yield functools.cache(registered)


def _started(start: Callable[[], T]) -> T:
    try:
        return start()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
