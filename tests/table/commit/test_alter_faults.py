"""Faults at each call of a change of columns: the table has its old columns or its new ones."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import SkepError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.change import AddColumn, ChangeType, ColumnChange, DropColumn, RenameColumn
from skep_format.schema.types import LongType, StringType
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.slices.history import FOLDER
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("old", pa.string()), ("ts", pa.int64())])
FIRST: list[ColumnChange] = [RenameColumn("old", "new"), ChangeType("n", LongType())]
SECOND: list[ColumnChange] = [DropColumn("n"), AddColumn("n", StringType(), after="id"), RenameColumn("new", "old")]
Content = list[dict[str, Any]]


def writer(storage: Storage | str, **options: str) -> LocalWriter:
    return LocalWriter(HudiTable.open(storage).with_context(runner=ThreadRunner(1), options=Options(options)))


def content(folder: Path) -> Content:
    table = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow()
    rows = table.select([name for name in table.schema.names if not name.startswith("_")]).sort_by("id")
    return list(rows.to_pylist())


CASES = [
    pytest.param(kind, times, dies, marks=[] if (kind, times, dies) == ("mor", 2, True) else [pytest.mark.slow])
    for kind in ("cow", "mor")
    for times in (1, 2)
    for dies in (False, True)
]


@pytest.mark.parametrize(("kind", "times", "dies"), CASES)
def test_columns_are_as_before_or_after(
    kind: str, times: int, dies: bool, tmp_path: Path, faulty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    seeded = tmp_path / "seeded"
    of_type = TableType.MERGE_ON_READ if kind == "mor" else TableType.COPY_ON_WRITE
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", type=of_type)
    create_table(LocalStorage(str(seeded)), spec)
    rows = [{"id": key, "n": 1, "old": f"{key}1", "ts": 1} for key in "ab"]
    writer(str(seeded)).upsert(pa.Table.from_pylist(rows, SCHEMA))
    writer(str(seeded)).upsert(pa.Table.from_pylist([{**rows[1], "old": "b2", "ts": 2}], SCHEMA))
    change = FIRST
    if times == 2:
        writer(str(seeded)).alter(FIRST)
        change = SECOND
    before = content(seeded)
    whole = tmp_path / "whole"
    shutil.copytree(seeded, whole)
    writer(str(whole)).alter(change)
    after = content(whole)
    assert after != before
    assert [row["old" if times == 2 else "new"] for row in after] == ["a1", "b2"]
    at, folder = 1, tmp_path / "run"
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage = faulty(str(folder), at, dies=dies)
        failed = False
        try:
            writer(storage).alter(change)
        except SkepError:
            failed = True
        found, where = content(folder), storage.calls[at - 1] if storage.hit else "no fault"
        assert found in (before, after), where
        assert failed or found == after, where
        new = pa.table({"id": ["z"], "ts": pa.array([9], pa.int64())})
        writer(str(folder), **{"hoodie.write.set.null.for.missing.columns": "true"}).upsert(new)
        assert content(folder) == [*found, {**dict.fromkeys(found[0]), "id": "z", "ts": 9}], where
        timeline = HudiTable.open(str(folder)).timeline
        assert not timeline.pending().instants
        completed = {instant.requested_time for instant in timeline.completed().data()}
        kept = {path.name.partition(".")[0] for path in (folder / FOLDER).glob("*.schemacommit")}
        assert kept <= completed, where
        if not storage.hit:
            break
        at += 1
    assert at > 15
