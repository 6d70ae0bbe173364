"""Batches with an id: what detecting a repeated one costs, and that none is missed or committed twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage

from skep_format.errors import InputError
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts.batches import BATCH_ID, BATCHES_FOLDER, CommitLabel, NoCommit
from skep_table.services.cleaning.archive import archive
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
COMMITS = 1_050


def rows(v: int = 0) -> pa.Table:
    return pa.table({"id": ["a"], "v": [v]}, SCHEMA)


def new_table(folder: Path) -> HudiTable:
    return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, record_key=("id",)))


def batches(folder: Path) -> list[Path]:
    return [file for file in (folder / BATCHES_FOLDER).rglob("2*") if file.is_file()]


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than 1,000 commits with batch ids, all but a few archived, of a table that has no record of batches."""
    folder = tmp_path_factory.mktemp("long") / "t"
    first = LocalWriter(new_table(folder)).insert(rows(), batch_id="batch 0").instant
    timeline = folder / ".hoodie"
    done = json.loads((timeline / f"{first.requested_time}.commit").read_text())
    for number in range(1, COMMITS):
        time = f"2020{number // 600 + 1:02d}01{number % 600 // 60:02d}{number % 60:02d}00000"
        done["extraMetadata"][BATCH_ID] = f"batch {number}"
        (timeline / f"{time}.commit").write_text(json.dumps(done))
        (timeline / f"{time}.inflight").write_text("")
        (timeline / f"{time}.commit.requested").write_text("")
    few = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.cleaner.commits.retained": "1"}
    archive(HudiTable.open(LocalStorage(str(folder)), few))
    shutil.rmtree(folder / BATCHES_FOLDER)
    assert len(HudiTable.open(str(folder)).timeline) < 10
    return folder


def look_up_calls(storage: CountingStorage, batch_id: str) -> list[tuple[str, str]]:
    """What the first check of a write calls, and the one under the lock."""
    table = HudiTable.open(storage)
    label = CommitLabel({}, batch_id)
    storage.calls.clear()
    label.check(table)
    label.check(table)
    return [(call.method, call.path.rpartition("/")[0]) for call in storage.calls]


def test_the_look_up_costs_the_same_whatever_the_history(long_history: Path, tmp_path: Path) -> None:
    shutil.copytree(long_history, tmp_path / "long")
    LocalWriter(new_table(tmp_path / "short")).insert(rows(), batch_id="one")
    long, short = (CountingStorage(LocalStorage(str(tmp_path / name))) for name in ("long", "short"))
    look_up_calls(long, "the first adds the history to the record")
    assert len(batches(tmp_path / "long")) == COMMITS
    calls = look_up_calls(long, "new")
    assert [method for method, _ in calls] == [method for method, _ in look_up_calls(short, "new")]
    assert len(calls) == 2
    assert all(folder.startswith(BATCHES_FOLDER) for _, folder in calls)


@pytest.mark.parametrize("number", [1, 600, COMMITS - 1, 0])
def test_a_batch_is_detected_however_long_ago_it_was_committed(long_history: Path, tmp_path: Path, number: int) -> None:
    shutil.copytree(long_history, tmp_path / "t")
    for _ in range(2):  # adding the history to the record, and after it
        with pytest.raises(NoCommit) as found:
            CommitLabel({}, f"batch {number}").check(HudiTable.open(str(tmp_path / "t")))
        assert found.value.metadata.extra_metadata[BATCH_ID] == f"batch {number}"
        assert found.value.repeated


def test_a_commit_that_fails_leaves_its_batch_to_be_written(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    with pytest.raises(InputError):
        LocalWriter(table).insert(rows().append_column("x", pa.array([object.__name__])).drop(["id"]), batch_id="b")
    refuse: Callable[[Any], None] = _fail
    with pytest.raises(RuntimeError):
        LocalWriter(table.with_context(conflict_check=refuse)).insert(rows(), batch_id="b")
    assert len(batches(tmp_path / "t")) == 0, "undone with the commit"
    assert not LocalWriter(table).insert(rows(), batch_id="b").repeated
    assert LocalWriter(table).insert(rows(), batch_id="b").repeated
    assert len(batches(tmp_path / "t")) == 1


def _fail(_candidate: Any) -> None:
    raise RuntimeError("lost")


def test_a_batch_whose_commit_was_rolled_back_can_be_written_again(tmp_path: Path) -> None:
    from skep_table.commit.undo.rollback import roll_back

    table = new_table(tmp_path / "t")
    LocalWriter(table).insert(rows(1))
    done = LocalWriter(table).insert(rows(2), batch_id="b").instant
    table = table.reload()
    roll_back(table, done)
    assert not LocalWriter(table).insert(rows(3), batch_id="b").repeated


def test_writes_without_id_do_not_touch_the_record(tmp_path: Path) -> None:
    LocalWriter(new_table(tmp_path / "t")).insert(rows())
    assert not (tmp_path / "t" / BATCHES_FOLDER).exists()


def test_ids_are_any_text(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for batch_id in ("", "a/b", "../../x", "ä" * 500, "a b\n"):
        assert not LocalWriter(table).insert(rows(), batch_id=batch_id).repeated
        assert LocalWriter(table).insert(rows(), batch_id=batch_id).repeated
