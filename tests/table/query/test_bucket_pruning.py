"""A filter that binds the hashed columns opens the files of their buckets alone, and answers as with all opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType, update_table_config
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.plan import plan
from skep_table.query.read import read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

BUCKETS = 8
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("part", pa.string()), ("v", pa.int64())])
INDEX = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(BUCKETS)}
RECORDED = [*INDEX, "hoodie.bucket.index.hash.field"]


def made(folder: Path, index: dict[str, str] = INDEX, **spec: Any) -> HudiTable:
    wanted: dict[str, Any] = {"record_key": ("id",), "partition_by": ("part",), **spec}
    table = create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=SCHEMA, **wanted))
    ids = [*(f"k{n}" for n in range(38)), "a,b", "a:b,c"]
    rows = pa.table([ids, [n % 5 for n in range(40)], ["p", "q"] * 20, range(40)], schema=SCHEMA)
    writer = LocalWriter(table.with_context(options=Options(index)))
    writer.insert(rows)
    writer.upsert(rows.slice(10, 10))
    return table.reload()


def opened(table: HudiTable, where: str, **options: str) -> set[tuple[str, str]]:
    tasks = plan(table, ReadRequest(where=where, options=options))
    return {(task.slice.partition_path, task.slice.file_id[:8]) for task in tasks}


def answer(table: HudiTable, where: str) -> list[int]:
    found: list[int] = read(table, ReadRequest(where=where, columns=("v",))).to_arrow()["v"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("kind", list(TableType), ids=lambda kind: kind.value)
def test_one_bucket_of_each_partition_for_one_key(tmp_path: Path, kind: TableType) -> None:
    table = made(tmp_path, type=kind)
    # the filters of base files are not asked in slices that have logs: what is left out here is so by bucket
    for number, key in enumerate([*(f"k{n}" for n in range(38)), "a,b", "a:b,c"]):
        assert len({bucket for _, bucket in opened(table, f"id = '{key}'")}) <= 1
        assert answer(table, f"id = '{key}'") == [number]
    assert answer(table, "id in ('k1', 'k2', 'nobody') and v < 9") == [1, 2]
    assert answer(table, "id = 'k1' or v = 7") == [1, 7]
    assert len(opened(table, "v = 7")) > BUCKETS


def test_columns_that_are_hashed_out_of_several(tmp_path: Path) -> None:
    hashed = {**INDEX, "hoodie.bucket.index.hash.field": "n"}
    table = made(tmp_path, hashed, record_key=("id", "n"), type=TableType.MERGE_ON_READ)
    for n in range(5):
        assert len({bucket for _, bucket in opened(table, f"n = {n}")}) == 1
        assert answer(table, f"n = {n}") == list(range(n, 40, 5))
    assert len({bucket for _, bucket in opened(table, "id = 'k1'")}) > 1
    assert answer(table, "id = 'k6' and n = 1") == [6]


def test_all_columns_of_a_key_have_to_be_bound(tmp_path: Path) -> None:
    table = made(tmp_path, record_key=("n", "id"))
    assert len({bucket for _, bucket in opened(table, "id = 'k6' and n = 1")}) == 1
    assert answer(table, "id = 'k6' and n = 1") == [6]
    assert answer(table, "id = 'k6'") == [6]


def test_one_key_column_and_several_partition_columns(tmp_path: Path) -> None:
    table = made(tmp_path, partition_by=("part", "n"))
    for number in range(0, 38, 7):
        assert answer(table, f"id = 'k{number}'") == [number]


def test_a_table_that_has_not_recorded_its_index_is_read_by_the_readers_options(tmp_path: Path) -> None:
    """Hudi's writers record nothing: its readers get the same options as its writers."""
    table = made(tmp_path, type=TableType.MERGE_ON_READ)
    update_table_config(table.storage, dict.fromkeys(RECORDED))
    table = table.reload()
    assert len({bucket for _, bucket in opened(table, "id = 'k3'")}) > 1
    assert len({bucket for _, bucket in opened(table, "id = 'k3'", **INDEX)}) == 1
    # wrong options, or written by another index: all is read
    few = {**INDEX, "hoodie.bucket.index.num.buckets": "2"}
    assert len({bucket for _, bucket in opened(table, "id = 'k3'", **few)}) > 1


def test_an_option_leaves_buckets_aside(tmp_path: Path) -> None:
    table = made(tmp_path, type=TableType.MERGE_ON_READ)
    off = {"hoodie.bucket.index.query.pruning": "false"}
    assert len({bucket for _, bucket in opened(table, "id = 'k3'", **off)}) > 1
    assert len({bucket for _, bucket in opened(table.with_options(off), "id = 'k3'")}) > 1


@pytest.mark.parametrize("by", ["option", "folder"])
def test_buckets_that_hudi_counts_by_partition_leave_out_nothing(tmp_path: Path, by: str) -> None:
    table = made(tmp_path, type=TableType.MERGE_ON_READ)
    options = {}
    if by == "option":
        options = {"hoodie.bucket.index.partition.expressions": "p,4"}
    else:
        (tmp_path / ".hoodie/.bucket_index/partition_bucket_index_meta/configs").mkdir(parents=True)
        table = table.reload()
    assert len({bucket for _, bucket in opened(table, "id = 'k3'", **options)}) > 1
