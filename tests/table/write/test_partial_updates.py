"""Partial updates: a write sets some columns of stored rows, and every kind of read completes them from below."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError, KeyFieldError, SchemaError, UnsupportedError
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.merge.rows import DELETED, PARTIAL
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact, compact_logs
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult

STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.string()),
        ("s", STRUCT),
    ]
)
Make = Callable[..., HudiTable]
MOR_8_9 = pytest.mark.parametrize("version", [8, 9])


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def table(schema: pa.Schema = SCHEMA, version: int = 9, **spec: Any) -> HudiTable:
        wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **spec}
        wanted.setdefault("type", TableType.MERGE_ON_READ)
        folder = tmp_path / f"t{len(list(tmp_path.iterdir()))}"
        return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=schema, version=version, **wanted))

    return table


def rows(*given: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    names = [name for name in schema.names if any(name in row for row in given)]
    return pa.Table.from_pylist(list(given), pa.schema([schema.field(name) for name in names]))


def whole(key: str, ts: int, a: int | None = 0, b: str | None = "b0", x: int = 0) -> dict[str, Any]:
    return {"id": key, "part": "p", "ts": ts, "a": a, "b": b, "s": {"x": x, "y": "y"}}


def some(key: str, ts: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "part": "p", "ts": ts, **values}


def options(table: HudiTable, **given: str) -> HudiTable:
    every = {f"hoodie.{key.replace('__', '.')}": value for key, value in given.items()}
    return table.with_context(options=Options(every), runner=ThreadRunner(1))


def partly(table: HudiTable, *given: dict[str, Any], **settings: str) -> WriteResult:
    return LocalWriter(options(table, **settings)).upsert(rows(*given), partial=True)


def found(table: HudiTable, **how: Any) -> dict[str, dict[str, Any]]:
    listed = read(table.reload(), ReadRequest(**how)).to_arrow().select(SCHEMA.names).to_pylist()
    return {row["id"]: row for row in listed}


def blocks(table: HudiTable, result: WriteResult) -> list[LogBlock]:
    logs = [stat.path for stat in result.metadata.stats if stat.is_log]
    return [each for path in logs for each in read_blocks(pa.OSFile(f"{table.storage.root}/{path}"), path)]


# -- what is written ---------------------------------------------------------------------------------------------------


@MOR_8_9
def test_a_block_has_the_columns_that_are_set(make: Make, version: int) -> None:
    table = make(version=version)
    LocalWriter(table).upsert(rows(whole("k1", 1), whole("k2", 1)))
    result = partly(table, some("k2", 2, a=7))
    (block,) = blocks(table, result)
    assert (block.type, block.is_partial) == (BlockType.AVRO_DATA, True)
    assert block.schema.names() == (*table.schema().with_meta().names()[:5], "part", "ts", "a")
    (row,) = block.records().to_pylist()
    assert (row["_hoodie_record_key"], row["ts"], row["a"]) == ("k2", 2, 7)
    assert found(table) == {"k1": whole("k1", 1), "k2": whole("k2", 2, a=7)}


@MOR_8_9
def test_blocks_of_parquet_too(make: Make, version: int) -> None:
    table = make(version=version)
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    result = partly(table, some("k1", 2, b="new"), logfile__data__block__format="parquet")
    (block,) = blocks(table, result)
    assert (block.type, block.is_partial) == (BlockType.PARQUET_DATA, True)
    assert found(table) == {"k1": whole("k1", 2, b="new")}


def test_new_keys_are_rows_whose_other_columns_are_null(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    partly(table, some("k1", 2, a=2), some("new", 1, a=3))
    new = {**whole("new", 1, a=3), "b": None, "s": None}
    assert found(table) == {"k1": whole("k1", 2, a=2), "new": new}


def test_new_keys_that_lack_a_required_column_are_refused(make: Make) -> None:
    schema = SCHEMA.set(4, pa.field("b", pa.string(), nullable=False))
    table = make(schema)
    LocalWriter(table).upsert(rows(whole("k1", 1), schema=schema))
    LocalWriter(table).upsert(rows(some("k1", 2, a=2)), partial=True)
    before = found(table)
    with pytest.raises(SchemaError, match="column b, which may not be null") as error:
        LocalWriter(table).upsert(rows(some("k1", 3, a=4), some("new", 3, a=3)), partial=True)
    assert error.value.fields["column"] == "b"
    assert found(table) == before == {"k1": whole("k1", 2, a=2)}
    assert not table.reload().timeline.pending().instants


@pytest.mark.parametrize("index", ["BLOOM", "SIMPLE", "BUCKET"])
def test_a_key_whose_row_was_deleted_is_written_whole(make: Make, index: str) -> None:
    """A reader would complete it from the base file, where the row still is."""
    settings = {"index__type": index, "bucket__index__num__buckets": "1"}
    table = make()
    LocalWriter(options(table, **settings)).upsert(rows(whole("k1", 1, b="old"), whole("k2", 1)))
    LocalWriter(options(table, **settings)).delete(rows({"id": "k1", "part": "p"}))
    result = partly(table, some("k1", 2, a=5), some("k2", 2, a=6), **settings)
    assert [each.is_partial for each in blocks(table, result)] == [True, False]
    lonely = {**whole("k1", 2, a=5), "b": None, "s": None}
    assert found(table) == {"k1": lonely, "k2": whole("k2", 2, a=6)}
    compact(options(table, compact__inline__max__delta__commits="1", **settings))
    assert found(table) == {"k1": lonely, "k2": whole("k2", 2, a=6)}


def test_an_index_that_computes_the_group_writes_new_keys_whole(make: Make) -> None:
    settings = {"index__type": "BUCKET", "bucket__index__num__buckets": "1"}
    table = make()
    LocalWriter(options(table, **settings)).upsert(rows(whole("k1", 1)))
    result = partly(table, some("k1", 2, a=5), some("new", 2, a=6), **settings)
    assert [(each.is_partial, each.records().num_rows) for each in blocks(table, result)] == [(True, 1), (False, 1)]
    assert found(table)["new"] == {**whole("new", 2, a=6), "b": None, "s": None}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_copy_on_write_tables_of_all_versions_take_them_too(make: Make, version: int) -> None:
    table = make(version=version, type=TableType.COPY_ON_WRITE)
    LocalWriter(table).upsert(rows(whole("k1", 1), whole("k2", 5)))
    partly(table, some("k1", 2, a=5), some("k2", 4, a=6), some("new", 1, a=7))
    new = {**whole("new", 1, a=7), "b": None, "s": None}
    assert found(table) == {"k1": whole("k1", 2, a=5), "k2": whole("k2", 5), "new": new}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_logs_of_version_6_hold_whole_rows(make: Make) -> None:
    table = make(version=6)
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    with pytest.raises(UnsupportedError, match="table t: no partial updates: log files of table version 6"):
        partly(table, some("k1", 2, a=5))
    assert found(table) == {"k1": whole("k1", 1)}


def test_an_index_that_moves_rows_needs_whole_ones(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    with pytest.raises(UnsupportedError, match="its index moves rows"):
        partly(table, some("k1", 2, a=5), index__type="GLOBAL_SIMPLE")


def test_rows_bring_their_ordering_value(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    with pytest.raises(KeyFieldError, match="ordering column ts"):
        partly(table, {"id": "k1", "part": "p", "a": 5})


def test_rows_set_something(make: Make) -> None:
    table = make(ordering=None, partition_by=())
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    with pytest.raises(InputError, match="sets no column but the record key"):
        partly(table, {"id": "k1"})


def test_a_struct_is_set_as_a_whole(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    part = SCHEMA.set(5, pa.field("s", pa.struct([("x", pa.int64())])))
    with pytest.raises(SchemaError, match=r"column s\.y"):
        LocalWriter(table).upsert(rows(some("k1", 2, s={"x": 4}), schema=part), partial=True)
    partly(table, some("k1", 3, s={"x": 4, "y": None}))
    assert found(table)["k1"]["s"] == {"x": 4, "y": None}


def test_without_asking_for_it_a_frame_has_all_columns(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    with pytest.raises(SchemaError, match="column b of the table is missing"):
        LocalWriter(table).upsert(rows(some("k1", 2, a=5)))


# -- reads and services ------------------------------------------------------------------------------------------------


@MOR_8_9
def test_several_over_one_another(make: Make, version: int) -> None:
    table = make(version=version)
    writer = LocalWriter(table)
    first = writer.upsert(rows(whole("k1", 1), whole("k2", 1), whole("k3", 1)))
    second = partly(table, some("k1", 2, a=2), some("k2", 2, a=2))
    third = partly(table, some("k1", 3, b="b3"), some("k3", 3, b="b3"))
    late = partly(table, some("k1", 1, a=99))
    expected = {"k1": whole("k1", 3, a=2, b="b3"), "k2": whole("k2", 2, a=2), "k3": whole("k3", 3, b="b3")}
    assert found(table) == expected
    assert found(table, as_of=second.instant.requested_time) == {
        "k1": whole("k1", 2, a=2), "k2": whole("k2", 2, a=2), "k3": whole("k3", 1)
    }  # fmt: skip
    since = {"query": "incremental", "since": second.instant.completion_time}
    assert found(table, **since) == {key: expected[key] for key in ("k1", "k3")}
    assert compact_logs(options(table, log__compaction__blocks__threshold="2"))
    assert found(table) == expected
    compact(options(table, compact__inline__max__delta__commits="1"))
    assert found(table) == found(table, query="read_optimized") == expected
    assert found(table, as_of=third.instant.requested_time) == expected, "before the late one"
    assert len({each.instant.requested_time for each in (first, second, third, late)}) == 4


def test_a_log_compaction_writes_a_block_for_each_set_of_columns(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(*(whole(f"k{n}", 1) for n in range(5))))
    partly(table, some("k0", 2, a=2), some("k1", 2, a=2))
    partly(table, some("k1", 3, b="b3"), some("k2", 3, b="b3"))
    LocalWriter(table).upsert(rows(whole("k3", 4)))
    LocalWriter(table).delete(rows({"id": "k4", "part": "p"}))
    expected = found(table)
    (done,) = compact_logs(options(table, log__compaction__blocks__threshold="2"))
    table = table.reload()
    (stat,) = table.commit_metadata(done.instant).stats
    found_blocks = list(read_blocks(pa.OSFile(f"{table.storage.root}/{stat.path}"), stat.path))
    kinds = [(each.type, each.is_partial) for each in found_blocks]
    assert kinds == [(BlockType.AVRO_DATA, True)] * 3 + [(BlockType.AVRO_DATA, False), (BlockType.DELETE, False)]
    assert all(HeaderKey.COMPACTED_BLOCK_TIMES in each.headers for each in found_blocks)
    assert found(table) == expected


def test_changes_have_whole_images(make: Make) -> None:
    table = make()
    writer = LocalWriter(table)
    first = writer.upsert(rows(whole("k1", 1), whole("k2", 1)))
    partly(table, some("k1", 2, a=2))
    request = ReadRequest(query="cdc", since=first.instant.completion_time)
    (change,) = read(table.reload(), request).to_arrow().to_pylist()
    assert change["op"] == "u"
    assert '"a":0' in change["before"]
    assert all(part in change["after"] for part in ('"a":2', '"b":"b0"'))


def test_new_columns_may_come_with_them(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1), whole("k2", 1)))
    wide = SCHEMA.append(pa.field("more", pa.string()))
    LocalWriter(table).upsert(rows(some("k1", 2, more="m"), schema=wide), partial=True)
    partly(table, some("k1", 3, a=3))
    listed = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
    assert {row["id"]: (row["a"], row["b"], row["more"]) for row in listed} == {
        "k1": (3, "b0", "m"),
        "k2": (0, "b0", None),
    }


def test_of_several_rows_with_one_key_the_greatest_counts(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1)))
    partly(table, some("k1", 3, a=3), some("k1", 2, a=2))
    assert found(table) == {"k1": whole("k1", 3, a=3)}


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
def test_partial_blocks_of_hudi_are_compacted(golden: Path, tmp_path: Path, release: str) -> None:
    shutil.copytree(golden / release / "mor_partial_update" / "table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))

    def rows_now() -> list[dict[str, Any]]:
        listed = read(table.reload(), ReadRequest()).to_arrow().to_pylist()
        return sorted(listed, key=lambda row: row["_hoodie_record_key"])

    def data(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in listed]

    before = rows_now()
    by_position = ReadRequest(options={"hoodie.merge.use.record.positions": "true"})
    placed = read(table.reload(), by_position).to_arrow().to_pylist()
    assert sorted(placed, key=lambda row: row["_hoodie_record_key"]) == before
    assert compact_logs(options(table, log__compaction__blocks__threshold="2"))
    assert rows_now() == before
    assert compact(options(table, compact__inline__max__delta__commits="1"))
    assert data(rows_now()) == data(before)


# -- updates that are computed -----------------------------------------------------------------------------------------


def test_computed_updates_mix_with_whole_rows_and_deletes(make: Make) -> None:
    table = make()
    LocalWriter(table).upsert(rows(whole("k1", 1), whole("k2", 1), whole("k3", 1)))

    def compute(snapshot: HudiTable) -> pa.Table:
        stored = read(snapshot, ReadRequest()).to_arrow().sort_by("id")
        changed = stored.select([RECORD_KEY, PARTITION_PATH, FILE_NAME, *SCHEMA.names])
        at = changed.schema.get_field_index("a")
        changed = changed.set_column(at, changed.schema.field(at), pa.array([10, 20, 30], pa.int64()))
        changed = changed.append_column(DELETED, pa.array([False, False, True]))
        return changed.append_column(PARTIAL, pa.array([True, False, True]))

    result = LocalWriter(table).change(compute, {"a"})
    types = [(each.type, each.is_partial) for each in blocks(table, result)]
    assert types == [(BlockType.AVRO_DATA, True), (BlockType.AVRO_DATA, False), (BlockType.DELETE, False)]
    assert found(table) == {"k1": whole("k1", 1, a=10), "k2": whole("k2", 1, a=20)}


@pytest.mark.parametrize(
    ("version", "given", "partial"),
    [(9, {}, True), (9, {"spark__sql__merge__into__partial__updates": "false"}, False), (6, {}, False)],
)
def test_computed_updates_are_whole_rows_where_partial_ones_are_off(
    make: Make, version: int, given: dict[str, str], partial: bool
) -> None:
    table = make(version=version)
    LocalWriter(table).upsert(rows(whole("k1", 1)))

    def compute(snapshot: HudiTable) -> pa.Table:
        stored = read(snapshot, ReadRequest()).to_arrow()
        changed = stored.select([RECORD_KEY, PARTITION_PATH, FILE_NAME, *SCHEMA.names])
        return changed.append_column(DELETED, pa.array([False])).append_column(PARTIAL, pa.array([True]))

    result = LocalWriter(options(table, **given)).change(compute, {"a"})
    assert [each.is_partial for each in blocks(table, result)] == [partial]
    assert found(table) == {"k1": whole("k1", 1)}
