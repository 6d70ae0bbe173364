"""A partial update that fails or dies at any storage call leaves the rows as before or as after."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema({"id": pa.string(), "ts": pa.int64(), "a": pa.int64(), "b": pa.string()})
Content = dict[str, tuple[int, int | None, str | None]]


def writer(storage: Storage | str) -> LocalWriter:
    return LocalWriter(HudiTable.open(storage).with_context(runner=ThreadRunner(1)))


def update(storage: Storage | str) -> None:
    """Of a row that is there, one that was deleted, and a new one: two blocks over a slice, and another base file."""
    frame = pa.table({"id": ["k", "gone", "new"], "ts": [2, 2, 2], "a": [20, 21, 22]})
    writer(storage).upsert(frame, partial=True)


def content(folder: Path) -> Content:
    found = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key twice"
    return {row["id"]: (row["ts"], row["a"], row["b"]) for row in found}


@pytest.mark.parametrize(
    "dies", [pytest.param(False, marks=pytest.mark.slow, id="fails"), pytest.param(True, id="dies")]
)
def test_a_fault_at_any_call(dies: bool, tmp_path: Path, faulty: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    seeded, folder = tmp_path / "seeded", tmp_path / "run"
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), ordering="ts", type=TableType.MERGE_ON_READ, version=9
    )
    create_table(LocalStorage(str(seeded)), spec)
    stored = {"id": ["k", "gone", "other"], "ts": [1, 1, 1], "a": [1, 1, 1], "b": ["b", "b", "b"]}
    writer(str(seeded)).upsert(pa.table(stored))
    writer(str(seeded)).delete(pa.table({"id": ["gone"]}))
    before = {"k": (1, 1, "b"), "other": (1, 1, "b")}
    after = {"k": (2, 20, "b"), "other": (1, 1, "b"), "gone": (2, 21, None), "new": (2, 22, None)}
    at = 1
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage, failed = faulty(str(folder), at, dies=dies), False
        try:
            update(storage)
        except SkepError:
            failed = True
        found, where = content(folder), storage.calls[at - 1] if storage.hit else "no fault"
        assert found in (before, after), where
        assert failed or found == after, where
        update(str(folder))
        assert content(folder) == after, where
        if not storage.hit:
            break
        at += 1
    assert at > 20
