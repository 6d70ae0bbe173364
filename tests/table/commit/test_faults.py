"""Storage fails or dies at each call in turn: the table reads as before or after, and the next write cleans up."""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_format.logfile import BlockType, read_blocks
from skep_format.names import BaseFileName, LogFileName
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

Snapshot = dict[str, tuple[str, int]]
# Calls in the same order every time; each row a row group of its own, so that those which do not change are copied.
ONE_THREAD = {"runner": ThreadRunner(1), "options": Options({"hoodie.parquet.block.size": "1"})}


def snapshot(folder: Path) -> Snapshot:
    found: Snapshot = {}
    for row in read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist():
        assert row["id"] not in found, "a key twice"
        found[row["id"]] = (row["part"], row["ts"])
    return found


def assert_clean(folder: Path) -> None:
    """No pending instant, no marker, no data file and no live log block of an instant that is not complete."""
    table = HudiTable.open(str(folder))
    assert not table.timeline.pending().instants
    assert not [file for file in (folder / ".hoodie").rglob("*") if ".temp" in str(file) and file.is_file()]
    completed = {instant.requested_time for instant in table.timeline.completed().data()}
    for file in folder.rglob("*.parquet"):
        name = BaseFileName.parse(file.name)
        assert name is not None
        assert name.instant_time in completed, f"{file} was left behind"
    left: dict[tuple[str, str], set[str]] = defaultdict(set)
    logs = [(name, file) for file in folder.rglob(".*.log.*") if (name := LogFileName.parse(file.name)) is not None]
    for name, file in sorted(logs, key=lambda each: each[0].sort_key):
        assert name.instant_time in completed, f"{file} was left behind"
        for block in read_blocks(pa.OSFile(str(file)), file.name):
            blocks = left[name.file_id, name.instant_time]
            if block.is_rollback:
                blocks.discard(block.target_instant_time)
            elif block.type is not BlockType.CORRUPT and block.instant_time not in completed:
                blocks.add(block.instant_time)
    assert not any(left.values()), "blocks of a failed write that no rollback removed"


def cases(*hows: dict[str, bool]) -> list[Any]:
    """Both types of tables with each way to fail; merge-on-read where the writer does not die is slow."""
    return [
        pytest.param(
            kind,
            how,
            id=f"{'mor' if is_mor else 'cow'}-{'+'.join(how) or 'fails'}",
            marks=[pytest.mark.slow] if is_mor and "dies" not in how else [],
        )
        for kind in TableType
        for is_mor in [kind is TableType.MERGE_ON_READ]
        for how in hows
    ]


@pytest.fixture
def seeded(request: pytest.FixtureRequest, tmp_path: Path, rows: Callable[..., pa.Table]) -> Path:
    """Three rows; in a merge-on-read table one of them was updated, so that its slice has a log file."""
    folder = tmp_path / "seeded"
    schema = rows([]).schema
    spec = TableSpec(
        name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", type=request.param
    )
    table = create_table(LocalStorage(str(folder)), spec)
    writer = LocalWriter(table.with_context(**ONE_THREAD))
    writer.bulk_insert(pa.concat_tables([rows(["a", "b"], ts=0), rows(["c"], part="q")]))
    writer.upsert(rows(["a", "b"]))
    return folder


BEFORE = {"a": ("p", 1), "b": ("p", 1), "c": ("q", 1)}
AFTER = {"a": ("p", 2), "b": ("p", 1), "c": ("q", 1), "d": ("p", 2), "e": ("new", 2)}
NEXT = {"z": ("p", 9)}


def change(table: HudiTable, rows: Callable[..., pa.Table]) -> None:
    """An update, an insert into its partition, and a partition that was not there."""
    writer = LocalWriter(table.with_context(**ONE_THREAD))
    writer.upsert(pa.concat_tables([rows(["a", "d"], ts=2), rows(["e"], ts=2, part="new")]))


def each_call(seeded: Path, tmp_path: Path, faulty: Any, **how: bool) -> Iterator[tuple[Path, Any]]:
    at = 1
    while True:
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage = faulty(str(folder), at, **how)
        yield folder, storage
        if not storage.hit:
            return
        at += 1


def before_or_after(seeded: Path, tmp_path: Path, rows: Callable[..., pa.Table], faulty: Any, **how: bool) -> int:
    """The number of calls that the change makes; at each it failed, and the table read as it must."""
    runs = 0
    for folder, storage in each_call(seeded, tmp_path, faulty, **how):
        failed: SkepError | None = None
        try:
            change(HudiTable.open(storage), rows)
        except SkepError as error:
            failed = error
        found = snapshot(folder)
        where = storage.calls[storage.at - 1] if storage.hit else "no fault"
        assert found in (BEFORE, AFTER), where
        if failed is None:
            assert found == AFTER, where
        LocalWriter(HudiTable.open(str(folder)).with_context(**ONE_THREAD)).upsert(rows(["z"], ts=9))
        assert snapshot(folder) == {**found, **NEXT}, where
        assert_clean(folder)
        runs += 1
    return runs


@pytest.mark.parametrize(
    ("seeded", "how"), cases({}, {"dies": True}, {"dies": True, "after": True}, {"after": True}), indirect=["seeded"]
)
def test_a_fault_at_any_call_leaves_the_table_before_or_after(
    how: dict[str, bool],
    seeded: Path,
    tmp_path: Path,
    rows: Callable[..., pa.Table],
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    assert before_or_after(seeded, tmp_path, rows, faulty, **how) > 25


@pytest.mark.parametrize("seeded", TableType, ids=["cow", "mor"], indirect=True)
@pytest.mark.parametrize("how", [{}, pytest.param({"dies": True, "after": True}, marks=pytest.mark.slow)], ids=str)
def test_so_does_a_fault_of_a_write_that_lists_its_markers(
    how: dict[str, bool],
    seeded: Path,
    tmp_path: Path,
    rows: Callable[..., pa.Table],
    faulty: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    monkeypatch.setattr("skep_table.write.output.files.MANY_FILES", 1)
    assert before_or_after(seeded, tmp_path, rows, faulty, **how) > 25


@pytest.mark.parametrize("seeded", TableType, ids=["cow", "mor"], indirect=True)
def test_a_write_that_fails_once_cleans_up_by_itself(
    seeded: Path, tmp_path: Path, rows: Callable[..., pa.Table], faulty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """When only one call fails, what follows it works: nothing waits for the next writer."""
    caplog.set_level(logging.CRITICAL, "skep")
    for folder, storage in each_call(seeded, tmp_path, faulty):
        try:
            change(HudiTable.open(storage), rows)
        except SkepError:
            assert snapshot(folder) == BEFORE, storage.calls[storage.at - 1]
            assert_clean(folder)


@pytest.mark.parametrize(("seeded", "how"), cases({}, {"dies": True}), indirect=["seeded"])
def test_a_rollback_that_fails_or_dies_is_finished_by_the_next_writer(
    how: dict[str, bool], seeded: Path, tmp_path: Path, rows: Callable[..., pa.Table], faulty: Any
) -> None:
    dead = tmp_path / "dead"
    shutil.copytree(seeded, dead)
    table = HudiTable.open(str(dead))
    change(table, rows)
    last = table.reload().timeline.last()
    assert last is not None
    # what a writer leaves that died just before its completed file: its markers too
    stats = table.reload().commit_metadata(last).stats
    table.storage.delete(table.layout.path(last))
    for stat in stats:
        kind = table.format.logs.marker_type.value if stat.is_log else "MERGE"
        marker = dead / ".hoodie/.temp" / last.requested_time / f"{stat.path}.marker.{kind}"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    for folder, storage in each_call(dead, tmp_path, faulty, **how):
        try:
            LocalWriter(HudiTable.open(storage).with_context(**ONE_THREAD)).upsert(rows(["y"], ts=5))
        except SkepError:
            assert snapshot(folder) in (BEFORE, {**BEFORE, "y": ("p", 5)})
        LocalWriter(HudiTable.open(str(folder)).with_context(**ONE_THREAD)).upsert(rows(["z"], ts=9))
        found = snapshot(folder)
        found.pop("y", None)
        assert found == {**BEFORE, **NEXT}, storage.calls[storage.at - 1] if storage.hit else ""
        assert_clean(folder)
        rollbacks = [i for i in HudiTable.open(str(folder)).timeline.instants if i.action.value == "rollback"]
        assert rollbacks
