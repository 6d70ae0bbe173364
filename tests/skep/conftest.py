"""A lake over the suite's metastore, with a database of its own for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep.lake import Lake
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_format.options import Options
from skep_table.events import Event, Events


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def lake(metastore: Metastore, database: str, tmp_path: Path, heard: list[Event]) -> Lake:
    """Without Spark: frames of this process are written and read right here."""
    return Lake(metastore, str(tmp_path / "lake"), database=database, events=Events(heard.append))


@pytest.fixture
def spark_lake(metastore: Metastore, database: str, tmp_path: Path, spark: object) -> Lake:
    return Lake(metastore, str(tmp_path / "lake"), SparkHolder(spark), database, Options())  # type: ignore[arg-type]


@pytest.fixture
def orders() -> Callable[..., pa.Table]:
    """A few rows with key `id`, ordering `ts`, partition `day`."""

    def make(*ids: int, ts: int = 1, note: str = "first", day: str = "2026-01-01") -> pa.Table:
        count = len(ids)
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "note": pa.array([note] * count, pa.string()),
                "ts": pa.array([ts] * count, pa.int64()),
                "day": pa.array([day] * count, pa.string()),
            }
        )

    return make
