"""What commits and reads of a table on S3 take, in requests by kind: counted on a server, not timed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from counting_storage import Requests

from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.write.local import LocalWriter

PARTITIONS = 50


def rows(count: int = 4 * PARTITIONS, ts: int = 1) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "id": [f"k{n:04}" for n in numbers],
            "part": [f"p{n % PARTITIONS}" for n in numbers],
            "ts": [ts] * count,
            "v": ["x"] * count,
        }
    )


@pytest.fixture(params=list(TableType))
def place(request: pytest.FixtureRequest, s3_folder: Callable[[], Storage]) -> str:
    """The address of a table of 50 partitions with a base file each."""
    storage, kind = s3_folder(), request.param
    schema = rows().schema
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    LocalWriter(create_table(storage, spec)).bulk_insert(rows())
    return storage.root


@pytest.mark.parametrize("before", [0, 5])
def test_an_upsert_of_one_row_by_path(
    place: str, before: int, s3_options: dict[str, str], s3_requests: Requests
) -> None:
    """Whatever the number of commits `before` it: of these only the last one is read, for its schema."""
    for number in range(before):
        LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(8, ts=2).slice(number, 1))
    s3_requests.clear()
    result = LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(8, ts=2).slice(7))
    assert (result.updated, result.partitions) == (1, ("p7",))
    counts = s3_requests.counts()
    assert counts["HEAD"] == 0, s3_requests
    assert counts.total() <= 22, s3_requests
    assert all(counts[kind] <= most for kind, most in {"GET": 6, "LIST": 7, "PUT": 7, "POST": 2}.items()), s3_requests


def test_a_snapshot_of_base_files_and_logs(place: str, s3_options: dict[str, str], s3_requests: Requests) -> None:
    """Of each file one request: all of them are small."""
    LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(2 * PARTITIONS, ts=2))
    s3_requests.clear()
    found = read(HudiTable.open(place, s3_options), ReadRequest(columns=("id", "ts"))).to_arrow()
    assert sorted(found["ts"].to_pylist()) == [1] * (2 * PARTITIONS) + [2] * (2 * PARTITIONS)
    counts = s3_requests.counts()
    assert counts["HEAD"] == 0, s3_requests
    files = [key for kind, key in s3_requests.seen if kind == "GET" and "/.hoodie/" not in key]
    assert len(files) == len(set(files)), s3_requests
    assert counts["LIST"] <= 3 + PARTITIONS, s3_requests
