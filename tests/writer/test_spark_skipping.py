"""Files that Spark leaves out by the indexes of the metadata table, for filters that it knows only while it plans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from indexed_tables import indexed, rows_of, written
from spark_plans import metric

import skep_writer.reading.pruned
from skep_format.table_config import TableType
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.services.metadata.indexing import drop_metadata
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import to_spark

pytestmark = pytest.mark.spark

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
KINDS = [(6, COW), (9, COW), (6, MOR), (9, MOR)]
CONDITIONS = {
    "id = 'k005'": 1,
    "id in ('k005', 'k105') and flag": 2,
    "id = 'none'": 0,
    "number < -500000000000000": 2,
    "number between 2000000000000000 and 2000500000000000": 4,
    "day < date '1968-01-01'": 2,
    "price > 25.5": 4,
    "at > timestamp '1993-12-16 00:00:00'": 4,
    "tag is null and number > 2500000000000000": 4,
    "ratio > 0 or id = 'k005'": 8,
    "cast(number as string) = '5'": 8,
    "number in (select number from values (1L) as t(number))": 8,
    "part = 'north' and id = 'k205'": 1,
}
"""Conditions, and how many of the eight files are opened at most: two each of four partitions."""


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"version {kind[0]} {kind[1].value}")
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    version, kind = request.param
    return indexed(written(tmp_path_factory.mktemp("indexed") / "t", version, kind))


@pytest.fixture
def read_by_tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of slices that Python tasks read, for each time that they are shared out."""
    shared = skep_writer.reading.pruned.task_shares
    found: list[int] = []

    def counting(tasks: Sequence[Any], cores: int) -> list[bytes]:
        found.append(len(tasks))
        return shared(tasks, cores)

    monkeypatch.setattr(skep_writer.reading.pruned, "task_shares", counting)
    return found


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.select("id", "number").collect()))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_opens_the_files_that_indexes_leave(
    condition: str, table: HudiTable, spark: Any, read_by_tasks: list[int]
) -> None:
    expected = rows(to_spark(table, ReadRequest(data_skipping=False), spark).where(condition))
    read_by_tasks.clear()
    frame = to_spark(table, ReadRequest(), spark).where(condition).select("id", "number")
    assert rows(frame) == expected
    assert metric(frame, "numFiles") + sum(read_by_tasks) <= most_files(table, condition)


def most_files(table: HudiTable, condition: str) -> int:
    """Log files make the bounds of a slice wider: no more than skep's own reader leaves."""
    if CONDITIONS[condition] == 8 or not table.config.is_mor:
        return CONDITIONS[condition]
    return explain(table, ReadRequest(where=condition)).steps[-1].slices


def test_the_files_of_other_partitions_are_opened_without_indexes(table: HudiTable, spark: Any) -> None:
    if table.config.is_mor:
        return
    frame = to_spark(table, ReadRequest(data_skipping=False), spark).where("id = 'k005'").select("id")
    assert [row.id for row in frame.collect()] == ["k005"]
    assert metric(frame, "numFiles") == 8


@pytest.mark.parametrize("kind", [COW, MOR])
def test_a_frame_keeps_its_rows_when_the_table_changes(kind: TableType, tmp_path: Path, spark: Any) -> None:
    """The query is planned after a write that moved what the indexes describe."""
    table = indexed(written(tmp_path / "t", 9, kind))
    frame = to_spark(table, ReadRequest(), spark)
    conditions = ["id = 'k005'", "number < -500000000000000", "id = 'k900'", "number is null"]
    expected = [rows(to_spark(table, ReadRequest(data_skipping=False), spark).where(each)) for each in conditions]
    writer = LocalWriter(HudiTable.open(table.storage))
    writer.upsert(rows_of(random.Random(7), 0, [1, 2, 5, 900], 99))
    writer.delete(pa.table({"id": ["k003", "k005"], "part": ["2024-01-01"] * 2}))
    assert read(HudiTable.open(table.storage), ReadRequest(where="id = 'k005'")).count() == 0
    assert [rows(frame.where(each)) for each in conditions] == expected


def test_other_indexes_leave_files_out_too(tmp_path: Path, spark: Any) -> None:
    """A secondary index, and without a record index the Bloom filters, of which no footer is read for it."""
    table = indexed(written(tmp_path / "t", 9, COW))
    row = read(table, ReadRequest(where="number IS NOT NULL")).to_arrow().slice(5, 1).to_pylist()[0]

    def files(table: HudiTable, condition: str) -> float:
        frame = to_spark(table, ReadRequest(), spark).where(condition).select("id")
        assert [found.id for found in frame.collect()] == [row["id"]]
        return metric(frame, "numFiles")

    assert files(table, f"number = {row['number']}") == 1
    assert files(table, f"number <=> {row['number']}") == 1
    drop_metadata(HudiTable.open(table.storage), [RECORD_INDEX])
    now = HudiTable.open(table.storage)
    assert set(now.config.metadata_partitions) == {"files", "column_stats", "bloom_filters", "partition_stats"}
    assert files(now, f"id = '{row['id']}'") == 1
