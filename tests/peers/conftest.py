"""The peers as fixtures. Tests that ask JVM Hudi are marked `peer("hudi-<release>")` and run release by release."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers.bundle import RELEASES, PeerMissing, bundle
from benchmarks.peers.jvm import Jvm, Jvms

HERE = Path(__file__).parent


def _load(name: str, path: Path) -> None:
    """A helper module beside the tests, imported once under `name` (the tests are no packages)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


_load("engine_services", HERE.parents[1] / "docker" / "engine_services.py")
_load("engine_launch", HERE.parent / "engines" / "launch.py")
_load("peer_rows", HERE / "rows.py")
_load("peer_arrow", HERE / "arrow_rows.py")
_load("peer_cases", HERE / "cases.py")
_load("peer_rarer_cases", HERE / "rarer_cases.py")
_load("peer_shared", HERE / "shared.py")
_load("peer_hive_entries", HERE / "hive_entries.py")
_load("peer_hive_tables", HERE / "hive_sync_tables.py")
_load("peer_byte_histories", HERE / "byte_histories.py")
_load("peer_byte_files", HERE / "byte_files.py")
_load("peer_metadata_records", HERE / "metadata_records.py")


@pytest.fixture(scope="session")
def _jvms() -> Iterator[Jvms]:
    jvms = Jvms()
    yield jvms
    jvms.stop()


@pytest.fixture
def jvm(_jvms: Jvms) -> Callable[[str], Jvm]:
    """JVM Hudi of a release; the test is skipped with the reason where this machine can't run it."""

    def of(release: str) -> Jvm:
        try:
            return _jvms.of(release)
        except PeerMissing as missing:
            pytest.skip(str(missing))

    return of


@pytest.fixture
def by_rows(jvm: Callable[[str], Jvm]) -> Iterator[Callable[[str], Jvm]]:
    """A session of Hudi whose ORC reader is not the vectorized one."""
    key, used = "spark.sql.orc.enableVectorizedReader", list[Jvm]()

    def of(release: str) -> Jvm:
        used.append(jvm(release))
        used[0].sql(f"SET {key}=false")
        return used[0]

    yield of
    for each in used:
        each.sql(f"RESET {key}")


@pytest.fixture
def no_jvm(_jvms: Jvms) -> None:
    """Stops the session of the tests before: the test starts its own."""
    _jvms.stop()
    try:
        for release in RELEASES:
            bundle(release)
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def is_thorough(request: pytest.FixtureRequest) -> bool:
    """Whether a test checks all that it can after each of its steps (--all), or a sample, as each commit has it."""
    return bool(request.config.getoption("--all"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one release together, the newest first: each JVM is started once, and 0.15.0 reads what 1.x wrote."""
    mine = [index for index, item in enumerate(items) if HERE in item.path.parents]
    ordered = sorted((items[index] for index in mine), key=_release)
    for index, item in zip(mine, ordered, strict=True):
        items[index] = item


def _release(item: pytest.Item) -> tuple[int, ...]:
    """Newest release first, tests that ask none last."""
    names = (str(name) for marker in item.iter_markers("peer") for name in marker.args)
    releases = [name.removeprefix("hudi-").split(".") for name in names if name.startswith("hudi-")]
    return min((tuple(-int(part) for part in release) for release in releases), default=(1,))
