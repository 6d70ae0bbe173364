"""Indexes that Hudi has made are kept by writes and services of skep, and agree with the files after each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import cluster
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

TABLES = [
    ("0.15.0", "cow_column_stats"),
    pytest.param("0.15.0", "cow_record_index", marks=pytest.mark.slow),
    pytest.param("1.0.2", "cow_column_stats", marks=pytest.mark.slow),
    ("1.0.2", "cow_record_index"),
    pytest.param("1.0.2", "cow_upsert_mdt", marks=pytest.mark.slow),
    pytest.param("1.1.1", "cow_column_stats", marks=pytest.mark.slow),
    pytest.param("1.1.1", "cow_record_index", marks=pytest.mark.slow),
    ("1.1.1", "cow_upsert_mdt"),
]


def rows_of(table: HudiTable) -> pa.Table:
    names = [field.name for field in table.schema().fields]
    return read(table, ReadRequest(columns=names, metadata=False)).to_arrow().sort_by("order_id")


def renamed(rows: pa.Table, prefix: str) -> pa.Table:
    """The same rows under other keys."""
    at = rows.schema.get_field_index("order_id")
    keys = [f"{prefix}{key}" for key in rows["order_id"].to_pylist()]
    return rows.set_column(at, rows.schema.field(at), pa.array(keys, rows.schema.field(at).type))


def same(table: HudiTable) -> None:
    found = check_metadata_table(table.reload())
    assert not found.differences, found.differences


@pytest.mark.parametrize(("release", "case"), TABLES)
def test_writes_and_services_keep_them(release: str, case: str, golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / release / case / "table", tmp_path / "t")
    table = HudiTable.open(str(tmp_path / "t"))
    partitions = table.config.metadata_partitions
    same(table)
    rows = rows_of(table)
    write = lambda **more: LocalWriter(table.reload().with_options(more))  # noqa: E731
    steps: list[Callable[[], object]] = [
        lambda: write().upsert(rows.slice(0, 2)),
        lambda: write().insert(renamed(rows, "new-")),
        lambda: write().delete(rows.slice(1, 1)),
        lambda: roll_back_instant(table, table.reload().timeline.data().completed().instants[-1].requested_time),
        lambda: write().delete(rows.slice(2, 1)),
        lambda: cluster(table.reload().with_options({"hoodie.clustering.plan.strategy.sort.columns": "order_id"})),
        lambda: clean(table.reload().with_options({"hoodie.cleaner.commits.retained": "1"})),
        lambda: write().insert_overwrite(renamed(rows.slice(0, 1), "other-")),
    ]
    for step in steps:
        step()
        assert table.reload().config.metadata_partitions == partitions
        same(table)
