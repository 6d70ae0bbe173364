"""Indexes made and dropped by their kinds and names."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage
from metadata_listings import SCHEMA, frame, new_table

from skep_format.errors import (
    EntryExistsError,
    InputError,
    MetadataTableError,
    SchemaError,
    SkepError,
    UnsupportedError,
)
from skep_format.runner import ThreadRunner
from skep_format.table_config import TableType
from skep_table.query import ReadRequest
from skep_table.query.read import explain
from skep_table.services.metadata.indexing import TableIndex, build_index, drop_index, index_named, indexes_of
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

KINDS = ["bloom_filters", "column_stats", "record_index"]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", TableType.MERGE_ON_READ)
    plain = HudiTable.open(made.storage)
    LocalWriter(plain).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    return plain.reload()


def names(table: HudiTable) -> list[str]:
    return [each.name for each in indexes_of(table.reload())]


@pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_a_kind(table: HudiTable, kind: str) -> None:
    assert indexes_of(table) == []
    made = build_index(table, index_named(kind))
    assert kind in [each.kind for each in indexes_of(made)]
    LocalWriter(HudiTable.open(table.storage)).upsert(frame(("a", "p", 2), ("d", "p", 3)))
    assert not check_metadata_table(table.reload()).differences
    with pytest.raises(EntryExistsError, match=f"already has an index {kind}"):
        build_index(table, index_named(kind))
    assert drop_index(table, kind) == (kind,)
    assert kind not in names(table)


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_a_secondary_index_comes_with_the_record_index(table: HudiTable) -> None:
    made = build_index(table, index_named("secondary_index", "by_ts", ["ts"]))
    assert indexes_of(made)[1] == TableIndex("by_ts", "secondary_index", ("ts",), "secondary_index_by_ts")
    assert names(table) == ["record_index", "by_ts"]
    LocalWriter(HudiTable.open(table.storage)).upsert(frame(("a", "p", 2), ("d", "p", 3)))
    found = check_metadata_table(table.reload())
    assert [each.partition for each in found.partitions] == ["files", "record_index", "secondary_index_by_ts"]
    assert not found.differences
    assert drop_index(table, "BY_TS") == ("by_ts",)
    assert names(table) == ["record_index"]


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_queries_use_it_at_once(table: HudiTable) -> None:
    build_index(table, index_named("secondary_index", columns=["ts"]))
    shown = str(explain(table.reload(), ReadRequest(where="ts = 2")))
    assert "by the secondary index ts" in shown


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_column_statistics_of_named_columns(table: HudiTable) -> None:
    build_index(table, index_named("column_stats", columns=["ts"]))
    assert {each.name: each.columns for each in indexes_of(table.reload())} == {
        "column_stats": ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key", "ts"),
        "partition_stats": (),
    }
    drop_index(table, "column_stats")
    build_index(table, index_named("column_stats", columns=["id"]))
    assert "id" in indexes_of(table.reload())[0].columns


@pytest.mark.parametrize(
    ("kind", "name", "columns", "error", "message"),
    [
        ("btree", None, (), InputError, "btree is no kind of index"),
        ("record_index", "mine", (), InputError, "has one index of the kind record_index"),
        ("secondary_index", "two", ("id", "ts"), InputError, "of one column, found id, ts"),
        ("secondary_index", "a/b", ("ts",), InputError, "'a/b' is no name of an index"),
        ("secondary_index", "record_index", ("ts",), InputError, "'record_index' is no name of an index"),
        ("secondary_index", None, ("nope",), SchemaError, "no column nope"),
        ("secondary_index", None, ("price",), UnsupportedError, "column price is a double"),
        ("record_index", None, ("ts",), SchemaError, "is of its record key"),
        ("column_stats", None, ("nope",), SchemaError, "no column for statistics"),
    ],
)
@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_what_can_not_be_made_is_refused(
    tmp_path: Path, kind: str, name: str | None, columns: tuple[str, ...], error: type[Exception], message: str
) -> None:
    schema = SCHEMA.append(pa.field("price", pa.float64()))
    table = HudiTable.open(new_table(tmp_path / "t", TableType.COPY_ON_WRITE, schema=schema).storage)
    LocalWriter(table).insert(frame(("a", "p", 1)).append_column("price", pa.array([1.0])))
    with pytest.raises(error, match=message):
        build_index(table.reload(), index_named(kind, name, columns))
    assert table.reload().config.metadata_partitions == ()


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_version_6_has_no_secondary_index(table: HudiTable) -> None:
    with pytest.raises(UnsupportedError, match="has version 6, and Hudi has secondary_index from version 8 on"):
        build_index(table, index_named("secondary_index", columns=["ts"]))
    assert table.reload().config.metadata_partitions == ()


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_a_partitioned_record_index_has_no_secondary_index(table: HudiTable) -> None:
    partitioned = table.with_options({"hoodie.metadata.record.level.index.enable": "true"})
    secondary = index_named("secondary_index", columns=["ts"])
    with pytest.raises(UnsupportedError, match="to be partitioned"):
        build_index(partitioned, secondary)
    build_index(partitioned, index_named("record_index"))
    with pytest.raises(UnsupportedError, match="to be partitioned"):
        build_index(table, secondary)


@pytest.mark.parametrize("table_version", [9], indirect=True)
def test_a_partitioned_record_index_takes_new_partitions(table: HudiTable) -> None:
    build_index(table.with_options({"hoodie.metadata.record.level.index.enable": "true"}), index_named("record_index"))
    for number in range(2):
        LocalWriter(table.reload()).upsert(frame(("n", "new", number), ("o", f"new{number}", number)))
    assert check_metadata_table(table.reload()).differences == ()


def test_not_where_writes_drop_the_metadata_table(table: HudiTable) -> None:
    off = table.with_options({"hoodie.metadata.enable": "false"})
    with pytest.raises(InputError, match="the next write would drop the index"):
        build_index(off, index_named("record_index"))


def test_not_beside_an_outdated_metadata_table(table: HudiTable) -> None:
    built = build_index(table, index_named("record_index"))
    LocalWriter(HudiTable.open(table.storage)).upsert(frame(("a", "p", 2)))
    last = built.reload().timeline.completed().instants[-1].requested_time
    folder = Path(table.storage.root) / ".hoodie" / "metadata" / ".hoodie"
    for path in folder.rglob(f"{last}*"):
        path.unlink()
    with pytest.raises(MetadataTableError, match="lacks completed writes"):
        build_index(HudiTable.open(table.storage), index_named("bloom_filters"))


def test_an_index_that_is_not_there_is_not_dropped(table: HudiTable) -> None:
    with pytest.raises(InputError, match="has no index by_ts"):
        drop_index(table, "by_ts")


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
def test_more_entries_have_more_file_groups(table: HudiTable) -> None:
    small = {
        "hoodie.metadata.record.index.min.filegroup.count": "2",
        "hoodie.metadata.record.index.max.filegroup.size": "48",
    }
    rows = frame(*((f"key {number}", "pq"[number % 2], number % 7) for number in range(40)))
    LocalWriter(HudiTable.open(table.storage)).insert(rows)
    made = build_index(table.reload().with_options(small), index_named("secondary_index", columns=["ts"]))
    metadata = made.metadata_table()
    assert metadata is not None
    assert [len(metadata.group_readers(name)) for name in ("record_index", "secondary_index_ts")] == [86, 86]
    found = metadata.record_keys_of("secondary_index_ts", pa.array(["5"]), 1 << 20)
    assert found is not None
    assert sorted(found.to_pylist()) == sorted(f"key {number}" for number in range(40) if number % 7 == 5)
    assert not check_metadata_table(made).differences


@pytest.mark.parametrize("table_version", [8, 9], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_while_an_index_is_built(table: HudiTable, after: bool, step: int, tmp_path: Path) -> None:
    """What the settings name is whole after each kill, and the index can be built again."""
    definition = index_named("secondary_index", columns=["ts"])
    few = {"hoodie.metadata.record.index.min.filegroup.count": "2"}
    work = tmp_path / "work"

    def killed(at: int) -> FaultyStorage:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(table.storage.root, work)
        storage = FaultyStorage(str(work), at, dies=True, after=after)
        with suppress(SkepError):
            build_index(HudiTable.open(storage, few).with_context(runner=ThreadRunner(1)), definition)
        return storage

    calls = len(killed(1 << 30).calls)
    for at in range(1, calls + 1, step):
        killed(at)
        left = HudiTable.open(str(work), few)
        if left.config.metadata_partitions:
            assert not check_metadata_table(left).differences, at
        LocalWriter(HudiTable.open(str(work))).upsert(frame(("a", "p", 9)))
        if definition.name not in left.reload().config.metadata_partitions:
            build_index(left.reload(), definition)
        found = check_metadata_table(left.reload())
        assert {each.partition for each in found.partitions} == {"files", "record_index", "secondary_index_ts"}
        assert not found.differences, at
