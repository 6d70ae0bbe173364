"""Reads through Spark: its own reader and skep's tasks together give what skep gives alone, for tables Hudi wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, plan, read
from skep_table.table import HudiTable
from skep_writer import collect_arrow, to_spark
from skep_writer.reading.native import split

pytestmark = pytest.mark.spark


def lines(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return sorted(line for batch in batches for line in bytes(json_lines(batch)).split(b"\n") if line)


def through_spark(table: HudiTable, request: ReadRequest, spark: Any) -> list[bytes]:
    schema = read(table, request).schema
    return lines(collect_arrow(to_spark(table, request, spark)).cast(schema).to_batches())


@pytest.mark.parametrize(
    ("name", "native", "merged"),
    [
        ("0.15.0/cow_types_edge", 2, 0),
        ("0.15.0/cow_special_chars_urlencode_hive", 15, 0),
        ("0.15.0/cow_schema_evolution", 1, 2),  # two files hold floats where there are doubles now
        ("1.1.1/cow_virtual_keys", 3, 0),  # rows do not contain their folder
    ],
)
def test_spark_reads_base_files_whose_columns_it_reads_alike(
    name: str, native: int, merged: int, golden: Path, spark: Any
) -> None:
    parts = split(spark, plan(HudiTable.open(golden / name / "table"), ReadRequest()))
    assert [len(part) for part in parts] == [native, merged]


def test_slices_with_logs_are_merged_by_skep(golden: Path, spark: Any) -> None:
    native, merged = split(spark, plan(HudiTable.open(golden / "0.15.0" / "mor_upsert" / "table"), ReadRequest()))
    assert merged
    assert all(task.slice.log_files for task in merged)
    assert not any(task.slice.log_files for task in native)


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(where="qty > 50", columns=("order_id", "city")),
        ReadRequest(columns=("city",)),
        ReadRequest(query="incremental"),  # type: ignore[arg-type]
        ReadRequest(query="cdc", columns=("op", "after")),  # type: ignore[arg-type]
    ],
    ids=["filter", "partition column alone", "incremental", "cdc"],
)
def test_every_query_is_answered_through_spark(request_: ReadRequest, golden: Path, spark: Any) -> None:
    table = HudiTable.open(golden / "1.1.1" / "cow_cdc" / "table")
    found = through_spark(table, request_, spark)
    assert found == lines(read(table, request_).to_batches())
    assert found


def test_a_frame_shows_the_table_as_it_was_when_it_was_made(golden: Path, spark: Any) -> None:
    """Its plan is made at once: a filter of Spark's own is put to the files by Spark."""
    table = HudiTable.open(golden / "0.15.0" / "cow_upsert" / "table")
    frame = to_spark(table, ReadRequest(), spark).where("qty > 50000").select("order_id", "qty")
    assert "PushedFilters: [IsNotNull(qty), GreaterThan(qty,50000)]" in frame._jdf.queryExecution().toString()
    expected = read(table, ReadRequest(where="qty > 50000", columns=("order_id", "qty"))).to_arrow()
    found = [json.loads(row) for row in frame.toJSON().collect()]
    assert sorted(row["order_id"] for row in found) == sorted(expected["order_id"].to_pylist())
