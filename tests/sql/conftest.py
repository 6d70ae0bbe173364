"""Lakes for statements, with and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_lakes import NoSession

from skep.lake import Lake
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore


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
