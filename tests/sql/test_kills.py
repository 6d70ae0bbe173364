"""A statement whose process dies at any call of the storage takes effect whole or not at all; the next one goes on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from faulty_storage import FaultyStorage

from skep.handles.by_path import open_table
from skep.handles.table import Table
from skep.services.runner import Services
from skep_format.errors import SkepError
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.merge.rows import DELETED
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.joint import ChangePart
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult
from tests.tables_at import create_at

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("value", pa.int64())])
Content = list[tuple[str, str, int, int]]
QUICK_STEP = 11
"""The quick cases die at each eleventh call, the slow ones at every call."""


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    columns: list[Any] = list(zip(*values, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def merge(table: Table) -> None:
    """Deletes b, updates a, adds x in a new partition, and deletes c, which the source does not have."""
    source = rows(("a", "p", 2, 20), ("b", "p", 2, -1), ("x", "new", 2, 5))
    found = table.merge(source, on=["id", "part"]).when_matched_delete("source.value < 0")
    found.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete().execute()


def joint(table: Table) -> None:
    """Two callers' statements in one commit: c is deleted by neither of them, and a is changed by both."""

    def computed(where: str) -> ChangePart:
        def compute(snapshot: HudiTable) -> pa.Table:
            columns = (RECORD_KEY, PARTITION_PATH, FILE_NAME, *SCHEMA.names)
            found = read(snapshot, ReadRequest(columns=columns, where=where)).to_arrow().select(columns)
            changed = found.set_column(found.schema.get_field_index("value"), "value", pc.add(found["value"], 1))
            return changed.append_column(DELETED, pa.array([False] * found.num_rows))

        return ChangePart(compute)

    outcomes = LocalWriter(table.hudi).together([computed("id = 'a'"), computed("id <> 'c'")])
    assert all(isinstance(each, WriteResult) for each in outcomes)


STATEMENTS: dict[str, tuple[Callable[[Table], object], Content]] = {
    "merge": (merge, [("a", "p", 2, 20), ("x", "new", 2, 5)]),
    "update": (
        lambda t: t.update(set={"value": "value + 1", "ts": "ts + 1"}, where="value <> 2"),
        [("a", "p", 2, 2), ("b", "p", 1, 2), ("c", "q", 2, 4)],
    ),
    "delete": (lambda t: t.delete(where="part = 'p' AND value < 2 OR id = 'c'"), [("b", "p", 1, 2)]),
}


def cases() -> list[Any]:
    found = []
    for kind in ("cow", "mor"):
        for name in STATEMENTS:
            for dies in (True, False):
                how = "dies" if dies else "fails"
                if dies and (name, kind) in {("merge", "cow"), ("joint", "mor"), ("delete", "mor")}:
                    found.append(pytest.param(kind, name, dies, QUICK_STEP, id=f"{kind}-{name}-{how}-at-some"))
                found.append(
                    pytest.param(kind, name, dies, 1, id=f"{kind}-{name}-{how}-at-each", marks=pytest.mark.slow)
                )
    return found


def content(folder: Path) -> Content:
    found = open_table(folder).read(columns=SCHEMA.names).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["ts"], row["value"]) for row in found)


def on(storage: FaultyStorage) -> Table:
    """Read and written through the storage, without a metastore."""
    return Table(HudiTable.open(storage), Services())


@pytest.mark.parametrize(("kind", "name", "dies", "step"), cases())
def test_a_statement_that_is_interrupted_takes_effect_whole_or_not_at_all(
    kind: str, name: str, dies: bool, step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    statement, after = STATEMENTS[name]
    before = [("a", "p", 1, 1), ("b", "p", 1, 2), ("c", "q", 1, 3)]
    seeded, folder = tmp_path / "seeded", tmp_path / "run"
    create_at(seeded, SCHEMA, {}, key="id", ordering="ts", partition_by="part", type=kind).upsert(rows(*before))
    at, outcomes = 1, set()
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeded, folder)
        storage = FaultyStorage(str(folder), at, dies=dies)
        failed = False
        try:
            statement(on(storage))
        except SkepError:
            failed = True
        found, where = content(folder), storage.calls[at - 1] if storage.hit else "no fault"
        assert found in (before, after), where
        assert failed or found == after, where
        outcomes.add(found == after)
        open_table(folder).update(set={"value": "value + 100"})
        assert content(folder) == [(*row[:3], row[3] + 100) for row in found], where
        assert not open_table(folder).hudi.timeline.pending().instants, where
        if not storage.hit:
            break
        at += step
    assert at > 20
    assert outcomes == {True, False}
