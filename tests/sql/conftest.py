"""Lakes for statements, with and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sql_lakes import NoSession

from skep.lake import Lake
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_sql.protocols import TIME_ZONE


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))


@pytest.fixture
def lake(metastore: Metastore, database: str, tmp_path: Path) -> Lake:
    """Without Spark: queries of statements are run by Sail, and any that needs Spark fails."""
    return Lake(metastore, str(tmp_path / "lake"), NoSession(), database=database)


@pytest.fixture
def spark_lake(metastore: Metastore, database: str, tmp_path: Path, spark: object) -> Lake:
    """With the suite's session."""
    return Lake(metastore, str(tmp_path / "lake"), SparkHolder(spark), database)  # type: ignore[arg-type]


@pytest.fixture
def in_utc(spark: Any) -> Iterator[Any]:
    """A session with the time zone that Sail has."""
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, "UTC")
    yield spark
    spark.conf.set(TIME_ZONE, before)
