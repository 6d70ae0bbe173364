"""`spark.read.format("skep")`, which Spark 4 has: collected there only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import skep
from skep_table.query import ReadRequest, read
from skep_table.query.json_text import json_lines
from skep_table.table import HudiTable
from skep_writer import collect_arrow

pytestmark = pytest.mark.spark


@pytest.fixture
def source(spark: Any) -> Any:
    skep.register_source(spark)
    return spark.read.format("skep")


def lines(rows: Any) -> list[bytes]:
    return sorted(line for batch in rows.to_batches() for line in bytes(json_lines(batch)).split(b"\n") if line)


@pytest.mark.parametrize("name", ["0.15.0/cow_types_edge", "1.1.1/mor_upsert", "1.1.1/cow_custom_keygen"])
def test_a_snapshot_is_what_skep_reads_alone(name: str, source: Any, golden: Path) -> None:
    path = golden / name / "table"
    expected = read(HudiTable.open(path)).to_arrow()
    found = collect_arrow(source.load(str(path)))
    assert lines(found.cast(expected.schema)) == lines(expected)


def test_options_are_hudis_read_keys(source: Any, golden: Path) -> None:
    path = golden / "1.1.1" / "cow_cdc" / "table"
    keys = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
    expected = read(HudiTable.open(path), ReadRequest(query="cdc")).to_arrow()  # type: ignore[arg-type]
    assert lines(collect_arrow(source.options(**keys).load(str(path)))) == lines(expected)


def test_a_filter_reads_what_it_needs(source: Any, golden: Path) -> None:
    path = golden / "0.15.0" / "cow_upsert" / "table"
    expected = read(HudiTable.open(path), ReadRequest(where="qty > 50000")).to_arrow()
    assert source.option("where", "qty > 50000").load(str(path)).count() == expected.num_rows


def test_what_is_no_table_is_reported(source: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no Hudi table|NotATable|hoodie\.properties"):
        source.load(str(tmp_path)).count()


def test_filters_of_a_query_leave_out_files(source: Any, golden: Path) -> None:
    """Each file slice of so small a table is a partition of the frame."""
    path = golden / "0.15.0" / "cow_upsert" / "table"
    table = HudiTable.open(path)
    kept, *others = table.view().partitions()
    column = table.config.partition_fields[0]
    value = json.loads(next(iter(table_lines(table, kept))))[column]
    frame = source.load(str(path))
    wanted = frame.where(frame[column] == value)
    expected = read(table, ReadRequest(where=f"{column} = '{value}'")).to_arrow()
    assert lines(collect_arrow(wanted).cast(expected.schema)) == lines(expected)
    assert wanted.rdd.getNumPartitions() == len(table.view().slices(kept))
    assert frame.rdd.getNumPartitions() > wanted.rdd.getNumPartitions()
    assert others


def table_lines(table: HudiTable, partition: str) -> list[bytes]:
    return lines(read(table, ReadRequest(where=f"_hoodie_partition_path = '{partition}'", limit=1)).to_arrow())


def test_only_the_columns_of_an_option_are_there(source: Any, golden: Path) -> None:
    path = golden / "0.15.0" / "cow_upsert" / "table"
    assert source.option("columns", "qty, order_id").load(str(path)).columns == ["qty", "order_id"]
