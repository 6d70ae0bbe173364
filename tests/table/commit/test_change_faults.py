"""Faults at each call of a write with change data: its changes are there or not, as a whole, and no log is left."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_format.names import LogFileName
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
Content = tuple[list[tuple[str, int]], list[tuple[str, str | None, str | None]]]
"""The rows, and the changes that led to them."""


def rows(*values: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def opened(storage: Storage | str) -> HudiTable:
    return HudiTable.open(storage).with_context(runner=ThreadRunner(1))


def upsert(storage: Storage | str) -> None:
    LocalWriter(opened(storage)).upsert(rows(("a", "p", 2), ("x", "p", 1), ("y", "new", 1)))


def delete(storage: Storage | str) -> None:
    LocalWriter(opened(storage)).delete(rows(("a", "p", 0), ("c", "q", 0)))


def compact(storage: Storage | str) -> None:
    execute_pending_compactions(opened(storage))


def content(folder: Path) -> Content:
    table = HudiTable.open(str(folder))
    found = read(table, ReadRequest()).to_arrow().to_pylist()
    changes = read(table, ReadRequest(query="cdc")).to_arrow().to_pylist()  # type: ignore[arg-type]
    return (
        sorted((row["id"], row["ts"]) for row in found),
        sorted(((each["op"], _of(each["before"]), _of(each["after"])) for each in changes), key=str),
    )


def _of(image: str | None) -> str | None:
    """Without the meta columns that some images have: their times differ from run to run."""
    return None if image in (None, "null") else image.partition('"id"')[2].replace(" ", "")


def assert_no_log_is_left(folder: Path) -> None:
    table = HudiTable.open(str(folder))
    named = {
        path
        for i in table.timeline.data().completed()
        for stat in table.commit_metadata(i).stats
        for path in stat.paths
    }
    for file in folder.rglob("*.cdc"):
        assert LogFileName.parse(file.name) is not None
        assert str(file.relative_to(folder)) in named, f"{file} was left behind"


CASES: dict[str, tuple[Callable[[Storage | str], None], TableType]] = {
    "upsert": (upsert, TableType.COPY_ON_WRITE),
    "delete": (delete, TableType.COPY_ON_WRITE),
    "compact": (compact, TableType.MERGE_ON_READ),
}


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize(
    ("name", "dies"),
    [
        pytest.param(name, dies, marks=[] if dies and name != "delete" else [pytest.mark.slow])
        for name in CASES
        for dies in (False, True)
    ],
)
def test_a_fault_at_any_call_leaves_the_changes_before_or_after(
    name: str, dies: bool, tmp_path: Path, faulty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    change, kind = CASES[name]
    seeded = tmp_path / "seeded"
    properties = {"hoodie.table.cdc.enabled": "true"}
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=kind,
        properties=properties,
    )
    create_table(LocalStorage(str(seeded)), spec)
    LocalWriter(opened(str(seeded))).upsert(rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1)))
    if kind is TableType.MERGE_ON_READ:
        LocalWriter(opened(str(seeded))).upsert(rows(("a", "p", 2)))
        LocalWriter(opened(str(seeded))).delete(rows(("c", "q", 0)))
        assert schedule_compaction(opened(str(seeded))) is not None
    before = content(seeded)
    whole = tmp_path / "whole"
    shutil.copytree(seeded, whole)
    change(str(whole))
    after = content(whole)
    assert list(whole.rglob("*.cdc")) or (kind is TableType.MERGE_ON_READ and opened(str(whole)).config.version == 6)
    at, folder = 1, tmp_path / "run"
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage, failed = faulty(str(folder), at, dies=dies), False
        try:
            change(storage)
        except SkepError:
            failed = True
        found, where = content(folder), storage.calls[at - 1] if storage.hit else "no fault"
        assert found in (before, after), where
        assert failed or found == after, where
        LocalWriter(opened(str(folder))).upsert(rows(("z", "p", 9)))
        execute_pending_compactions(opened(str(folder)))
        assert ("z", 9) in content(folder)[0], where
        assert_no_log_is_left(folder)
        if not storage.hit:
            break
        at += 1
    assert at > 20
