"""Spark frames written into a table that Hudi bootstrapped: the tasks read skeleton and source."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from skep_table.query import read
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_writer import SparkWriter, to_spark

pytestmark = pytest.mark.spark


def test_an_upsert_keeps_the_other_rows_of_the_file(spark: Any, golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "0.15.0" / "cow_bootstrap_metadata_only", tmp_path / "case")
    options = {"hoodie.bootstrap.base.path": str(tmp_path / "case" / "source")}
    table = HudiTable.open(str(tmp_path / "case" / "table"), options)

    def content() -> dict[str, dict[str, Any]]:
        rows = read(table.reload()).to_arrow().drop_columns(["_hoodie_file_name"]).to_pylist()
        return {row["order_id"]: row for row in rows}

    before = content()
    frame = to_spark(table, ReadRequest(where="city = 'chennai'"), spark).limit(1)
    meta = [name for name in frame.columns if name.startswith("_hoodie")]
    (key,) = (row.order_id for row in frame.select("order_id").collect())
    changed = frame.where(f"order_id = '{key}'").drop(*meta, "note").selectExpr("*", "'x' note")
    SparkWriter(table.with_options({"skep.spark.collect.max.bytes": "0"}), spark).upsert(changed)
    after = content()
    assert after[key]["note"] == "x"
    assert {k: row for k, row in after.items() if k != key} == {k: row for k, row in before.items() if k != key}
    rewritten = [s for s in table.reload().view().slices("city=chennai") if s.base_instant != "00000000000001"]
    assert len(rewritten) == 1
