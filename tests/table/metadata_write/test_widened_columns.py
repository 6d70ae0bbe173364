"""Columns that get a wider type beside column statistics: each file keeps bounds of the type that it was written in,
and those of a partition are of the new type, as in Hudi's tables (1.1.1: {"int": 5} of the older file, {"long": 5} to
{"long": 1099511627776} of the partition).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

DAY = datetime.date(2020, 1, 2)
TEXT = {"skep.write.columns.become.text": "true"}
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
WIDENED: dict[str, tuple[pa.DataType, Any, pa.DataType, Any, dict[str, str], str]] = {
    "long": (pa.int32(), 5, pa.int64(), 2**40, {}, "5"),
    "double": (pa.int32(), 5, pa.float64(), 2.5, {}, "5"),
    "of_float": (pa.float32(), 1.5, pa.float64(), 2.25, {}, "1.5"),
    "decimal": (pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(12, 4), Decimal("12345678.1234"), {}, "1.25"),
    "of_date": (pa.date32(), DAY, pa.string(), "zz", TEXT, "'2020-01-02'"),
    "of_int": (pa.int32(), 9, pa.string(), "zz", TEXT, "'9'"),
    "of_long": (pa.int64(), 9, pa.float32(), 2.5, {"skep.write.lossy.casts": "true"}, "9"),
}


def rows(kind: pa.DataType, value: Any, part: str, *ids: str) -> pa.Table:
    many = len(ids)
    return pa.table({"id": list(ids), "part": [part] * many, "v": pa.array([value] * many, kind), "ts": [1] * many})


def check(table: HudiTable, condition: str, expected: Sequence[str]) -> None:
    differences = check_metadata_table(table.reload()).differences
    assert not differences
    answer = read(table.reload(), ReadRequest(where=condition)).to_arrow()
    assert sorted(answer["id"].to_pylist()) == sorted(expected)


COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
CASES = [
    *[("long", kind, version) for kind in TableType for version in (6, 8, 9)],
    *[("decimal", MOR, 6), ("decimal", COW, 9), ("of_date", COW, 8), ("of_date", MOR, 9)],
    *[("double", MOR, 9), ("of_float", COW, 9), ("of_int", MOR, 9), ("of_long", COW, 9)],
]


@pytest.mark.parametrize(("case", "kind", "version"), CASES)
def test_bounds_of_both_types_hold(case: str, kind: TableType, version: int, tmp_path: Path) -> None:
    before, old, after, new, more, literal = WIDENED[case]
    options = Options({**INDEXED, **more})
    spec = TableSpec(
        name="t",
        schema=rows(before, old, "x", "a").schema,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=kind,
        version=version,
    )
    table = create_table(LocalStorage(str(tmp_path)), spec, options)
    write = lambda: LocalWriter(table.reload().with_options(options))  # noqa: E731
    for part in ("x", "y"):
        write().bulk_insert(rows(before, old, part, f"{part}1", f"{part}2"))
    write().upsert(rows(after, new, "x", "x1"))
    check(table, f"v = {literal}", ["x2", "y1", "y2"])
    write().bulk_insert(rows(after, new, "y", "y3"))  # widens a partition that the column's change left alone
    check(table, f"v = {literal}", ["x2", "y1", "y2"])
    write().insert(rows(after, new, "x", "x4"))
    write().delete(rows(after, new, "y", "y1"))
    check(table, f"v = {literal}", ["x2", "y2"])
    assert len(read(table.reload(), ReadRequest()).to_arrow()) == 5
