"""A table that commits can be made to, what it answers, and storage that fails or dies at a given call."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Instant
from skep_table.commit.create import TableSpec, create_table
from skep_table.context import TableContext
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


class Ticking:
    """A clock that goes a second ahead each time it is asked."""

    def __init__(self) -> None:
        self._seconds = itertools.count(1)
        self.start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.start + timedelta(seconds=next(self._seconds))

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None: ...


@dataclass
class Maker:
    """Makes commits in a folder, and asks it. Threads: one, so that calls come in the same order every time."""

    folder: Path
    clock: Ticking

    def setting(self, **options: Any) -> dict[str, Any]:
        named = {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}
        return {"runner": ThreadRunner(1), "clock": self.clock, "options": Options(named)}

    @property
    def table(self) -> HudiTable:
        return HudiTable.open(str(self.folder))

    def create(self, kind: TableType = TableType.COPY_ON_WRITE, **properties: str) -> Maker:
        keys: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts"}
        spec = TableSpec(name="t", schema=SCHEMA, type=kind, properties=properties, **keys)
        create_table(LocalStorage(str(self.folder)), spec)
        return self

    def frame(self, ts: int, *keys: str) -> pa.Table:
        """Keys are `partition/id`."""
        rows = [key.split("/") for key in keys]
        return pa.table([[r[1] for r in rows], [r[0] for r in rows], [ts] * len(rows)], schema=SCHEMA)

    def upsert(self, ts: int, *keys: str) -> str:
        """Returns the instant's time."""
        return (
            LocalWriter(self.table.with_context(**self.setting())).upsert(self.frame(ts, *keys)).instant.requested_time
        )

    def rows(self, **how: Any) -> dict[str, int]:
        """`partition/id` → ts."""
        found = read(self.table, ReadRequest(**how)).to_arrow().to_pylist()
        keys = [f"{row['part']}/{row['id']}" for row in found]
        assert len(keys) == len(set(keys)), "a key twice"
        return {key: row["ts"] for key, row in zip(keys, found, strict=True)}

    def copy(self, folder: Path) -> Maker:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return Maker(folder, self.clock)

    def path_of(self, instant: Instant) -> Path:
        """The file of an instant in its state."""
        return self.folder / self.table.layout.path(instant)

    def time_of(self, time: str) -> str:
        """By which incremental queries compare the write requested at `time`."""
        (instant,) = (each for each in self.table.timeline.data().completed() if each.requested_time == time)
        return self.table.format.reads.time_in_range(instant)

    def files(self) -> set[str]:
        return {str(f.relative_to(self.folder)) for f in self.folder.rglob("*.parquet")}


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "table", Ticking()).create()


@pytest.fixture
def mor_maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "table", Ticking()).create(TableType.MERGE_ON_READ)


@pytest.fixture
def golden_copy(golden: Path, tmp_path: Path) -> Callable[[str], Maker]:
    """A copy of a table that Hudi 0.15.0 wrote."""
    return lambda case: _copied(golden / "0.15.0" / case / "table", tmp_path / case)


@pytest.fixture
def golden_copy_of_version(golden: Path, tmp_path: Path, table_version: int) -> Callable[[str], Maker]:
    """A copy of a table of the version at hand, written by the first Hudi release that has it."""
    release = {6: "0.15.0", 8: "1.0.2", 9: "1.1.1"}[table_version]
    return lambda case: _copied(golden / release / case / "table", tmp_path / case)


def _copied(source: Path, folder: Path) -> Maker:
    clock = Ticking()
    clock.start = datetime(2030, 1, 1, tzinfo=timezone.utc)
    shutil.copytree(source, folder)
    return Maker(folder, clock)


def _commit_tests() -> ModuleType:
    name = "commit_fault_storage"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "commit" / "conftest.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def each_fault(tmp_path: Path) -> Callable[..., Iterator[tuple[Maker, HudiTable, Any]]]:
    """Copies of a table whose storage fails (`dies`: and at each one after it) at its first call, its second, …"""

    def each(maker: Maker, **how: bool) -> Iterator[tuple[Maker, HudiTable, Any]]:
        table = maker.table
        for at in itertools.count(1):
            copied = maker.copy(tmp_path / "run")
            storage = _commit_tests().FaultyStorage(str(copied.folder), at, **how)
            yield copied, HudiTable(TableContext(storage), table.config, table.timeline), storage
            if not storage.hit:
                return

    return each
