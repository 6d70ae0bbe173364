"""Tables of one's own to sync, and the fixtures that the tests of the sync share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.storage import open_storage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Write = Callable[..., HudiTable]


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))


@pytest.fixture
def golden_copy(golden: Path, tmp_path: Path) -> Callable[..., HudiTable]:
    """A golden table of one's own."""

    def make(version: str, case: str, name: str | None = None) -> HudiTable:
        folder = tmp_path / "tables" / (name or case)
        shutil.copytree(golden / version / case / "table", folder)
        return HudiTable.open(str(folder))

    return make


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Makes a small table where there is none, and upserts rows with key `id`, partition `day`."""

    def rows(
        name: str, *ids: int, day: object = "2026-01-01", folder: Path | None = None, **columns: object
    ) -> HudiTable:
        path = str((folder or tmp_path / "tables") / name)
        frame = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([day] * len(ids)),
                **{column: pa.array([value] * len(ids)) for column, value in columns.items()},
            }
        )
        storage = open_storage(path)
        if not storage.exists(".hoodie/hoodie.properties"):
            create_table(storage, TableSpec(name=name, schema=frame.schema, record_key=("id",), partition_by=("day",)))
        LocalWriter(HudiTable.open(path)).upsert(frame)
        return HudiTable.open(path)

    return rows
