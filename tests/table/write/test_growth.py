"""What a small commit costs follows what it changes, not what the table holds: calls counted, not seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from counting_storage import METHODS, CountingStorage

from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SMALL_FILTERS = {"hoodie.index.bloom.num_entries": "10", "hoodie.bloom.index.filter.dynamic.max.entries": "10"}


def cost(folder: Path, kind: TableType, operation: str, index: str, partitions: int) -> Counter[str]:
    """The calls of a commit of ten rows into one of so many partitions, each of which has a file."""
    setting = {"runner": ThreadRunner(1), "options": Options({**SMALL_FILTERS, "hoodie.index.type": index})}
    numbers = list(range(partitions))
    rows = pa.table({"id": [f"k{n}" for n in numbers], "part": [f"p{n}" for n in numbers], "ts": numbers})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    LocalWriter(create_table(LocalStorage(str(folder)), spec).with_context(**setting)).bulk_insert(rows)
    storage = CountingStorage(LocalStorage(str(folder)))
    change = pa.table({"id": [f"k{n}" for n in range(10)], "part": ["p1"] * 10, "ts": [partitions] * 10})
    result = getattr(LocalWriter(HudiTable.open(storage).with_context(**setting)), operation)(change)
    assert result.partitions == ("p1",)
    return storage.calls.counts()


@pytest.mark.parametrize(
    ("operation", "index"),
    [
        ("upsert", "BLOOM"),
        ("upsert", "SIMPLE"),
        ("insert", "BLOOM"),
        ("insert_overwrite", "BLOOM"),
        ("delete", "BLOOM"),
    ],
)
@pytest.mark.parametrize("kind", list(TableType))
def test_partitions_that_a_commit_leaves_alone_cost_nothing(
    kind: TableType, operation: str, index: str, tmp_path: Path
) -> None:
    few, many = (cost(tmp_path / str(count), kind, operation, index, count) for count in (3, 15))
    assert few.total() > 10
    assert many == few


def first_write(folder: Path, partitions: int) -> Counter[str]:
    """The calls of a commit that begins so many partitions with a row each."""
    storage = CountingStorage(LocalStorage(str(folder)))
    numbers = list(range(partitions))
    rows = pa.table({"id": [f"k{n}" for n in numbers], "part": [f"p{n}" for n in numbers], "ts": numbers})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(storage, spec)
    storage.calls.clear()
    result = LocalWriter(table.with_context(options=Options(SMALL_FILTERS))).upsert(rows)
    assert (result.files, result.inserted) == (partitions, partitions)
    return storage.calls.counts()


def test_partitions_that_would_be_two_lines_are_announced_one_by_one(tmp_path: Path) -> None:
    days = [f"d{number}" for number in range(150)] + ["a\u2028b"]
    rows = pa.table({"id": days, "part": days, "ts": [1] * 151})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), ordering="ts")
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")))
    table = create_table(storage, spec)
    storage.calls.clear()
    LocalWriter(table.with_context(options=Options(SMALL_FILTERS))).bulk_insert(rows)
    assert storage.calls.counts()["create_exclusive"] > 2 * 151
    assert HudiTable.open(str(tmp_path / "t")).view().partitions() == sorted(days)


@pytest.mark.parametrize("partitions", [400, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_each_file_of_a_commit_of_many_costs_the_same_few_calls(partitions: int, tmp_path: Path) -> None:
    few, many = first_write(tmp_path / "few", 200), first_write(tmp_path / "many", partitions)
    files = partitions - 200
    each = {name: (many[name] - few[name]) / files for name in METHODS if many[name] != few[name]}
    assert each == {
        "list_prefix": 1,  # the partition's files: may the key be there?
        "exists": 1,  # whether the commit still takes files, when the file is written
        "create_exclusive": 1,  # the metafile
        "list_folder": 1,  # whether another partition lies in its folder, behind the metafile
        "open_write": 1,
    }
