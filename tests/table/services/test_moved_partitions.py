"""Partitions under other paths, renamed or of nulls as Hudi before 0.12 named theirs, and a kill on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import KilledAtChanges
from sleepy_clock import SleepyClock

from skep_format.errors import InputError, SkepError, UnsupportedError
from skep_format.names import DEFAULT_PARTITION
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.fsck import fsck_at
from skep_table.services.repairs.duplicates import MovedPartition, move_deprecated, rename_partition
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

BOTH = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("hour", pa.int32()), ("ts", pa.int64())])
KEPT = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
Row = tuple[str, str | None, int, int]


def made(folder: Path, *rows: Row, options: Any = KEPT, **more: Any) -> HudiTable:
    spec: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **more}
    table = create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, **spec), options)
    LocalWriter(table).insert(frame(*rows))
    return HudiTable.open(str(folder))


def frame(*rows: Row) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def stored(table: HudiTable) -> dict[str, list[Row]]:
    names = ("_hoodie_partition_path", *SCHEMA.names)
    found: dict[str, list[Row]] = {}
    for row in read(HudiTable.open(table.storage), ReadRequest(columns=names)).to_arrow().to_pylist():
        found.setdefault(row["_hoodie_partition_path"], []).append(tuple(row[name] for name in SCHEMA.names))
    return {path: sorted(rows) for path, rows in found.items()}


def commits(table: HudiTable) -> Callable[[Any], object]:
    return lambda change: change(LocalWriter(HudiTable.open(table.storage).with_context(runner=ThreadRunner(1))))


@BOTH
@pytest.mark.parametrize("kind", TableType, ids=["cow", "mor"])
def test_a_partition_gets_another_path_by_one_commit(kind: TableType, tmp_path: Path) -> None:
    table = made(tmp_path / "t", ("a", "p", 1, 1), ("b", "p", 1, 1), ("c", "q", 1, 1), type=kind)
    LocalWriter(table).upsert(frame(("a", "p", 2, 2)))
    before = stored(table)
    fresh = HudiTable.open(table.storage)
    assert rename_partition(fresh, "p", "new", None) == MovedPartition("p", "new", 2)
    assert stored(table) == before
    done = rename_partition(fresh, "p", "new", commits(table))
    assert done == MovedPartition("p", "new", 2, moved=True)
    assert stored(table) == {"new": [("a", "new", 2, 2), ("b", "new", 1, 1)], "q": [("c", "q", 1, 1)]}
    now = HudiTable.open(table.storage)
    assert len(now.timeline.data()) == len(fresh.timeline.data()) + 1
    assert set(now.config.metadata_partitions) >= {"files", "column_stats", "record_index"}
    assert fsck_at(now.context, metadata=True)[1] == []
    LocalWriter(now.with_options({"hoodie.index.type": "RECORD_INDEX"})).upsert(frame(("b", "new", 3, 3)))
    assert stored(table)["new"] == [("a", "new", 2, 2), ("b", "new", 3, 3)]
    rename_partition(HudiTable.open(table.storage), "new", "p", commits(table))  # whose former groups are replaced
    assert stored(table)["p"] == [("a", "p", 2, 2), ("b", "p", 3, 3)]


def test_paths_are_those_of_the_table(tmp_path: Path) -> None:
    table = made(
        tmp_path / "t",
        ("a", "x/y", 7, 1),
        ("b", None, 7, 1),
        partition_by=("part", "hour"),
        hive_style=True,
        url_encode=True,
    )
    rename_partition(HudiTable.open(table.storage), "part=x%2Fy/hour=7", "part=z%3D/hour=8", commits(table))
    null = f"part={DEFAULT_PARTITION}/hour=7"
    assert stored(table) == {"part=z%3D/hour=8": [("a", "z=", 8, 1)], null: [("b", None, 7, 1)]}
    rename_partition(HudiTable.open(table.storage), null, "part=w/hour=7", commits(table))
    rename_partition(
        HudiTable.open(table.storage), "part=z%3D/hour=8", f"part={DEFAULT_PARTITION}/hour=9", commits(table)
    )
    assert stored(table)[f"part={DEFAULT_PARTITION}/hour=9"] == [("a", None, 9, 1)]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("part=p/hour=1", "part=p/hour=1", "path already"),
        ("part=nix/hour=1", "part=z/hour=1", "no partition 'part=nix/hour=1'"),
        ("part=p/hour=1", "part=q/hour=1", "has rows"),
        ("part=p/hour=1", "part=z/hour=x", "'x' is no value of partition column hour, which is int32"),
        ("part=p/hour=1", "part=z/hour=01", "make the path 'part=z/hour=1'"),
        ("part=p/hour=1", "z/1", "make the path 'part=z/hour=1'"),
        ("part=p/hour=1", "part=z", "1 levels"),
    ],
)
def test_what_is_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    rows = (("a", "p", 1, 1), ("b", "q", 1, 1))
    table = made(tmp_path / "t", *rows, options={}, partition_by=("part", "hour"), hive_style=True)
    found, instants = stored(table), table.timeline.instants
    for commit in (None, commits(table)):
        with pytest.raises(SkepError, match=message):
            rename_partition(table, before, after, commit)
    assert (stored(table), HudiTable.open(table.storage).timeline.instants) == (found, instants)
    plain = made(tmp_path / "u", ("a", "p", 1, 1), options={}, partition_by=())
    with pytest.raises(UnsupportedError, match="is not partitioned"):
        rename_partition(plain, "", "p", None)
    with pytest.raises(UnsupportedError, match="is not partitioned"):
        move_deprecated(plain, None)


@pytest.fixture
def deprecated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HudiTable]:
    """A table as Hudi 0.11 wrote it: nulls are in a partition named `default`."""

    def make(folder: Path, *rows: Row, **more: Any) -> HudiTable:
        with monkeypatch.context() as former:
            former.setattr("skep_table.keys.partition_path.DEFAULT_PARTITION", "default")
            return made(folder, *rows, **more)

    return make


@BOTH
def test_rows_of_the_deprecated_partition_join_those_of_nulls(
    deprecated: Callable[..., HudiTable], tmp_path: Path
) -> None:
    table = deprecated(tmp_path / "t", ("a", None, 1, 1), ("b", "p", 1, 1))
    assert set(stored(table)) == {"default", "p"}
    LocalWriter(table).upsert(frame(("c", None, 1, 1)))
    (planned,) = move_deprecated(HudiTable.open(table.storage), None)
    assert planned == MovedPartition("default", DEFAULT_PARTITION, 1)
    (done,) = move_deprecated(HudiTable.open(table.storage), commits(table))
    assert (done.rows, done.moved) == (1, True)
    assert stored(table) == {DEFAULT_PARTITION: [("a", None, 1, 1), ("c", None, 1, 1)], "p": [("b", "p", 1, 1)]}
    assert move_deprecated(HudiTable.open(table.storage), commits(table)) == []
    assert fsck_at(HudiTable.open(table.storage).context, metadata=True)[1] == []


def test_some_columns_may_be_null_or_in_paths_only(deprecated: Callable[..., HudiTable], tmp_path: Path) -> None:
    rows: tuple[Row, ...] = (("a", None, 1, 1), ("b", "p", 1, 1))
    table = deprecated(tmp_path / "t", *rows, partition_by=("part", "hour"), hive_style=True)
    assert [each.after for each in move_deprecated(table, commits(table))] == [f"part={DEFAULT_PARTITION}/hour=1"]
    assert set(stored(table)) == {f"part={DEFAULT_PARTITION}/hour=1", "part=p/hour=1"}
    dropped = {"properties": {"hoodie.datasource.write.drop.partition.columns": "true"}}
    table = deprecated(tmp_path / "u", *rows, options={}, **dropped)
    assert [each.after for each in move_deprecated(table, commits(table))] == [DEFAULT_PARTITION]
    assert set(stored(table)) == {DEFAULT_PARTITION, "p"}


def test_a_value_default_and_a_key_of_both_are_refused(deprecated: Callable[..., HudiTable], tmp_path: Path) -> None:
    table = made(tmp_path / "t", ("a", "default", 1, 1))
    with pytest.raises(InputError, match="have the value 'default'"):
        move_deprecated(table, commits(table))
    table = deprecated(tmp_path / "u", ("a", None, 1, 1))
    LocalWriter(table.with_options({"hoodie.metadata.enable": "false"})).insert(frame(("a", None, 1, 1)))
    found = stored(table)
    with pytest.raises(InputError, match=f"key 'a' is in partition 'default' and in '{DEFAULT_PARTITION}'"):
        move_deprecated(HudiTable.open(table.storage), commits(table))
    assert stored(table) == found


@pytest.mark.parametrize("act", ["rename", pytest.param("deprecated", marks=pytest.mark.slow)])
def test_a_kill_leaves_the_rows_in_one_of_the_two(
    act: str, deprecated: Callable[..., HudiTable], tmp_path: Path
) -> None:
    rows: tuple[Row, ...] = (("a", None, 1, 1), ("b", None, 1, 1), ("c", "q", 1, 1))
    if act == "rename":
        table = made(tmp_path / "t", *rows, options={})
    else:
        table = deprecated(tmp_path / "t", *rows, options={})
    before, work, at, hit = stored(table), tmp_path / "work", 0, True

    def run(storage: Any, clock: SleepyClock) -> None:
        def commit(change: Any) -> None:
            change(LocalWriter(HudiTable.open(storage).with_context(runner=ThreadRunner(1), clock=clock)))

        if act == "rename":
            rename_partition(HudiTable.open(storage), DEFAULT_PARTITION, "z", commit)
        else:
            move_deprecated(HudiTable.open(storage), commit)

    after: dict[str, list[Row]] | None = None
    while hit:
        at += 1
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(tmp_path / "t", work)
        storage = KilledAtChanges(str(work), at)
        with suppress(SkepError):
            run(storage, SleepyClock())
        hit = storage.hit
        now = HudiTable.open(str(work))
        found = stored(now)
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        if found == before:
            run(LocalStorage(str(work)), clock)
        after = after or stored(now)
        assert stored(now) == after, at
    assert after is not None
    assert sorted(row[0] for each in after.values() for row in each) == ["a", "b", "c"]
    assert len(after) == 2
    assert at > 10
