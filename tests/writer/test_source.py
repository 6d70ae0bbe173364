"""`spark.read.format("skep")`, which Spark 4 has: collected there only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import skep
from skep_format.json_text import json_lines
from skep_table.query import ReadRequest, read
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


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_of_one_query_leave_no_rows_out_of_another(source: Any, golden: Path, spark: Any, pushed: str) -> None:
    """Spark 4.3 keeps the filters that a Python source has taken for later queries of the same frame."""
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting, None)
    spark.conf.set(setting, pushed)
    try:
        path = golden / "0.15.0" / "cow_upsert" / "table"
        frame = source.load(str(path))
        everything = read(HudiTable.open(path)).to_arrow()
        parts = everything.group_by("_hoodie_partition_path").aggregate([([], "count_all")]).to_pylist()
        for part in parts:
            wanted = frame.where(frame["_hoodie_partition_path"] == part["_hoodie_partition_path"])
            assert wanted.count() == part["count_all"]
        assert len(parts) > 1
        assert frame.count() == everything.num_rows
    finally:
        spark.conf.unset(setting) if before is None else spark.conf.set(setting, before)


def test_only_the_columns_of_an_option_are_there(source: Any, golden: Path) -> None:
    path = golden / "0.15.0" / "cow_upsert" / "table"
    assert source.option("columns", "qty, order_id").load(str(path)).columns == ["qty", "order_id"]
