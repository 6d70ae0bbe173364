"""A table becomes merge-on-read and copy-on-write again: its rows stay, and Hudi's readers find all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faulty_storage import KilledAtChanges

from skep_format.errors import CommitConflictError, InputError, StorageError, UnsupportedError
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import schedule_clustering
from skep_table.services.compaction.compact import compact, schedule_compaction
from skep_table.services.fsck import fsck_at
from skep_table.table import HudiTable
from skep_table.upgrade.table_type import change_table_type, slices_of_delta_commits
from skep_table.write.local import LocalWriter

if TYPE_CHECKING:
    from conftest import Tables

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
VERSIONS = pytest.mark.parametrize("version", [6, 9])


def with_every_kind_of_slice(tables: Tables, version: int) -> None:
    """Logs over a base file, a base file of a delta commit after a compaction, a planned compaction."""
    tables.create(version, MOR)
    tables.upsert(1, "a/1", "b/2")
    tables.upsert(2, "a/1")
    compact(tables.opened())
    tables.upsert(3, "c/3")  # a new file of a delta commit
    tables.upsert(4, "b/2")
    schedule_compaction(tables.opened())
    tables.upsert(5, "b/2")


def hidden_from_hudi(table: HudiTable) -> set[str]:
    """The partitions of which Hudi's readers of copy-on-write tables miss a slice: their timeline has no delta commits,
    and files of earlier instants than its first one count as committed."""
    seen = [i.requested_time for i in table.timeline.completed().of(Action.COMMIT, Action.REPLACE_COMMIT)]
    view = table.view(metadata=False)
    return {
        path
        for path in view.partitions()
        for found in view.slices(path)
        if found.log_files or not (found.base_instant in seen or (seen and found.base_instant < seen[0]))
    }


def values(tables: Tables) -> dict[str, int]:
    """`partition/id` → ts."""
    found = read(tables.opened(), ReadRequest(columns=("part", "id", "ts"))).to_arrow().to_pylist()
    assert len(found) == sum(tables.rows().values())
    return {f"{row['part']}/{row['id']}": row["ts"] for row in found}


@VERSIONS
def test_a_table_becomes_copy_on_write(tables: Tables, version: int) -> None:
    with_every_kind_of_slice(tables, version)
    rows, raw = tables.rows(), dict(tables.opened().config.raw)
    assert hidden_from_hudi(tables.opened()) == {"b", "c"}
    assert {each.partition_path for each in slices_of_delta_commits(tables.opened())} == {"b", "c"}
    planned = change_table_type(tables.opened(), COW, plan=True)
    assert tables.opened().config.is_mor
    done = change_table_type(tables.opened(), COW)
    assert done == planned
    assert tables.opened().config.raw == {**raw, "hoodie.table.type": "COPY_ON_WRITE"}
    assert hidden_from_hudi(tables.opened()) == set()
    assert tables.rows() == rows
    tables.upsert(9, "a/1", "c/4")
    assert values(tables) == {"a/1": 9, "b/2": 5, "c/3": 3, "c/4": 9}
    assert tables.opened().timeline.last().action is Action.COMMIT
    assert fsck_at(tables.opened().context)[1] == []


@pytest.mark.parametrize("release", ["0.15.0", pytest.param("1.1.1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["mor_upsert", "mor_clustering", "mor_event_time", "mor_parquet_log"])
def test_tables_of_hudi(golden_table: Callable[[str, str], Tables], release: str, case: str) -> None:
    tables = golden_table(release, case)
    rows = tables.rows()
    change_table_type(tables.opened(), COW)
    assert tables.rows() == rows
    assert hidden_from_hudi(tables.opened()) == set()


@VERSIONS
def test_a_table_becomes_merge_on_read(tables: Tables, version: int) -> None:
    tables.create(version, COW)
    tables.upsert(1, "a/1", "b/2")
    rows, mode = tables.rows(), tables.opened().config.merge_mode
    assert change_table_type(tables.opened(), COW).is_empty
    change_table_type(tables.opened(), MOR)
    assert (tables.opened().config.is_mor, tables.opened().config.merge_mode) == (True, mode)
    assert tables.rows() == rows
    tables.upsert(2, "a/1")
    tables.upsert(1, "a/1")  # rows merge as they did: the ordering column counts
    assert values(tables) == {"a/1": 2, "b/2": 1}
    assert tables.opened().timeline.last().action is Action.DELTA_COMMIT
    change_table_type(tables.opened(), COW)
    assert values(tables) == {"a/1": 2, "b/2": 1}
    assert hidden_from_hudi(tables.opened()) == set()


@VERSIONS
@pytest.mark.parametrize("to", [COW, MOR])
def test_a_writer_that_planned_before_writes_as_the_table_is(tables: Tables, version: int, to: TableType) -> None:
    tables.create(version, MOR if to is COW else COW)
    tables.upsert(1, "a/1")
    before = LocalWriter(tables.opened())
    change_table_type(tables.opened(), to)
    before.upsert(tables.frame(2, "a/1", "b/2"))
    assert tables.opened().timeline.last().action is (Action.COMMIT if to is COW else Action.DELTA_COMMIT)
    assert values(tables) == {"a/1": 2, "b/2": 2}
    assert to is MOR or hidden_from_hudi(tables.opened()) == set()


@VERSIONS
def test_a_table_without_any_commit(tables: Tables, version: int) -> None:
    tables.create(version, MOR)
    assert not change_table_type(tables.opened(), COW).is_empty
    change_table_type(tables.opened(), MOR)
    tables.upsert(1, "a/1", "b/2")  # delta commits only, without logs
    change_table_type(tables.opened(), COW)
    assert hidden_from_hudi(tables.opened()) == set()
    assert values(tables) == {"a/1": 1, "b/2": 1}


@VERSIONS
def test_what_keeps_a_table_merge_on_read(tables: Tables, version: int) -> None:
    tables.create(version, MOR)
    tables.upsert(1, "a/1")
    tables.upsert(2, "a/1")
    with pytest.raises(InputError, match="readers of copy-on-write tables pass over"):
        change_table_type(tables.opened(), COW, compacts=False)
    compact(tables.opened())
    planned = schedule_clustering(
        tables.opened(options={"hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true"})
    )
    assert planned is not None
    with pytest.raises(CommitConflictError, match=planned.requested_time):
        change_table_type(tables.opened(), COW)
    assert tables.opened().config.is_mor


@pytest.mark.parametrize("version", [pytest.param(6, marks=pytest.mark.slow), 9])
def test_a_kill_at_any_change_leaves_all_rows(tables: Tables, tmp_path: Path, version: int) -> None:
    tables.create(version, MOR)
    tables.upsert(1, "a/1")
    compact(tables.opened())
    LocalWriter(tables.opened()).bulk_insert(tables.frame(2, "b/2"))
    tables.upsert(3, "b/2")
    rows, at, types = tables.rows(), 0, []
    while True:
        at += 1
        copied = tables.copy(tmp_path / "run")
        storage = KilledAtChanges(str(copied.folder), at)
        with suppress(StorageError):
            change_table_type(copied.opened(storage), COW)
        types.append(copied.opened().config.is_mor)
        assert copied.rows() == rows
        if not types[-1]:
            assert hidden_from_hudi(copied.opened()) == set()
        if not storage.hit:
            break
    assert types == sorted(types, reverse=True), "one switch"
    assert set(types) == {True, False}


@VERSIONS
def test_consistent_hashing_is_of_merge_on_read_tables(tables: Tables, version: int) -> None:
    tables.create(version, MOR)
    options = {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
    stored = tables.opened().with_options(options)
    LocalWriter(stored).upsert(tables.frame(1, "a/1"))
    with pytest.raises(UnsupportedError, match="a copy-on-write table can't have"):
        change_table_type(tables.opened(), COW)
    assert tables.opened().config.is_mor
