"""Spark and threads write one bucketed table in turn: each finds the other's file groups, whatever the keys are."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.storage import LocalStorage
from skep_table.table_config import TableType
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter

BUCKETS = 4
NUMBERS = range(40)
UTC = dt.timezone.utc
KEYS: dict[str, pa.Array] = {
    "texts": pa.array([f"k{n}é" if n % 2 else f"k{n}" for n in NUMBERS]),
    "longs": pa.array([n * 10**15 - 7 for n in NUMBERS], pa.int64()),
    "decimals": pa.array([Decimal(n * 7).scaleb(-2) for n in NUMBERS], pa.decimal128(12, 2)),
    "dates": pa.array([dt.date(1970, 1, 1) + dt.timedelta(days=n * 9) for n in NUMBERS]),
    "times": pa.array([dt.datetime(2024, 1, 1, n % 24, n, tzinfo=UTC) for n in NUMBERS], pa.timestamp("us", "UTC")),
    "truths": pa.array([bool(n % 2) for n in NUMBERS]),
}


@pytest.mark.parametrize(("keys", "kind"), list(zip(KEYS, itertools.cycle(TableType), strict=False)))
def test_rounds_in_turn(keys: str, kind: TableType, spark: Any, tmp_path: Path) -> None:
    """The record key is the column and a number, and the column alone is hashed."""

    def rows(value: int) -> pa.Table:
        return pa.table({"k": KEYS[keys], "n": pa.array(NUMBERS, pa.int32()), "v": pa.array([value] * len(NUMBERS))})

    spec = TableSpec(
        name="t",
        schema=rows(0).schema,
        record_key=("k", "n"),
        type=kind,
        properties={
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(BUCKETS),
            "hoodie.bucket.index.hash.field": "k",
        },
    )
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)

    def frame(made: pa.Table) -> Any:
        """Through Parquet, so that no value passes through Python and its time zone."""
        place = tmp_path / f"{uuid.uuid4()}.parquet"
        pq.write_table(made, place)
        return spark.read.parquet(str(place))

    threads, sparks = LocalWriter(table), SparkWriter(table, spark)
    threads.upsert(rows(1).slice(0, 20))
    sparks.upsert(frame(rows(2).slice(10)))
    threads.upsert(rows(3).slice(0, 5))
    sparks.delete(frame(rows(0).slice(35).select(["k", "n"])))
    now = table.reload()
    found = read(now, ReadRequest(columns=("k", "n", "v"))).to_arrow().sort_by("n")
    assert found["v"].to_pylist() == [3] * 5 + [1] * 5 + [2] * 25
    assert found["k"].combine_chunks().equals(KEYS[keys].slice(0, 35))
    groups = [group.file_id[:8] for group in now.view().file_groups("")]
    assert len(groups) == len(set(groups)) <= BUCKETS
