"""What commits and reads of a table on S3 take, in requests by kind: counted on a server, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from counting_storage import CountingStorage, Requests

from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

PARTITIONS = 20
pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)


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
def place(request: pytest.FixtureRequest, table_version: int, s3_folder: Callable[[], Storage]) -> str:
    """The address of a table of 20 partitions with a base file each."""
    storage, kind = s3_folder(), request.param
    schema = rows().schema
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    LocalWriter(create_table(storage, spec)).bulk_insert(rows())
    return storage.root


@pytest.mark.parametrize("before", [0, 5])
def test_an_upsert_of_one_row_by_path(
    place: str, table_version: int, before: int, s3_options: dict[str, str], s3_requests: Requests
) -> None:
    """The commits `before` it, of which the last has the schema, are read at the same time, and eight at most: whether
    the files that they wrote are there."""
    for number in range(before):
        LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(8, ts=2).slice(number, 1))
    s3_requests.clear()
    result = LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(8, ts=2).slice(7))
    assert (result.updated, result.partitions) == (1, ("p7",))
    counts = s3_requests.counts()
    assert counts["HEAD"] == 0, s3_requests
    # Where the timeline has its own folder, `.hoodie` is listed by itself, and the timeline again at the completion.
    total, listings = (22, 7) if table_version == 6 else (24, 9)
    earlier = min(before, 7)
    assert counts.total() <= total + earlier, s3_requests
    most = {"GET": 6 + earlier, "LIST": listings, "PUT": 7, "POST": 2}
    assert all(counts[kind] <= number for kind, number in most.items()), s3_requests


def test_a_snapshot_of_base_files_and_logs(
    place: str, table_version: int, s3_options: dict[str, str], s3_requests: Requests
) -> None:
    """Of each file one request: all of them are small."""
    LocalWriter(HudiTable.open(place, s3_options)).upsert(rows(2 * PARTITIONS, ts=2))
    s3_requests.clear()
    found = read(HudiTable.open(place, s3_options), ReadRequest(columns=("id", "ts"))).to_arrow()
    assert sorted(found["ts"].to_pylist()) == [1] * (2 * PARTITIONS) + [2] * (2 * PARTITIONS)
    counts = s3_requests.counts()
    assert counts["HEAD"] == 0, s3_requests
    files = [key for kind, key in s3_requests.seen if kind == "GET" and "/.hoodie/" not in key]
    assert len(files) == len(set(files)), s3_requests
    assert counts["LIST"] <= (3 if table_version == 6 else 4) + PARTITIONS, s3_requests


@pytest.mark.parametrize("kind", list(TableType))
def test_beside_its_bytes_a_file_takes_its_marker(tmp_path: Path, kind: TableType) -> None:
    """No call before a file is read whose size is known, and no file of the timeline is read twice."""
    spec = TableSpec(
        name="t", schema=rows().schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind
    )
    LocalWriter(create_table(LocalStorage(str(tmp_path)), spec)).bulk_insert(rows())
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    table = HudiTable.open(storage)
    storage.calls.clear()
    # the inserted row gets a file group of its own, in a partition that has files
    table = table.with_options({"hoodie.parquet.small.file.limit": "0"})
    result = LocalWriter(table).upsert(rows(4 * PARTITIONS + 1, ts=2).slice(4 * PARTITIONS - 2))
    assert (result.updated, result.inserted, result.files) == (2, 1, 3)
    calls = storage.calls
    assert not calls.paths("exists", "status", "size"), calls
    markers = [path for path in calls.paths("create_exclusive") if ".marker." in path]
    assert sorted(markers) == sorted({*markers}), calls
    assert {path.partition(".marker.")[0].split("/", 3)[3] for path in markers} == {
        stat.path for stat in result.metadata.stats
    }
    written = calls.paths("open_write", "create_exclusive", "replace_atomic")
    assert [path for path in written if not path.startswith(".hoodie")] == calls.paths("open_write"), calls
    read = Counter(path for path in calls.paths("read") if "commit" in path)
    assert set(read.values()) == {1}, calls
    assert calls.paths("delete", suffix=".open") == [f".hoodie/.temp/{result.instant.requested_time}.open"], calls


def test_what_a_clean_deleted_is_read_once_by_time_travel(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=rows().schema, record_key=("id",), partition_by=("part",), ordering="ts")
    last = LocalWriter(create_table(LocalStorage(str(tmp_path)), spec)).bulk_insert(rows())
    for ts in range(2, 6):
        last = LocalWriter(HudiTable.open(tmp_path)).upsert(rows(2, ts=ts))
        clean(HudiTable.open(tmp_path, {"hoodie.cleaner.commits.retained": 1}))
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    table = HudiTable.open(storage)
    found = read(table, ReadRequest(columns=("ts",), as_of=last.instant.requested_time)).to_arrow()
    assert sorted(found["ts"].to_pylist()) == [1] * (4 * PARTITIONS - 2) + [5] * 2
    cleans = Counter(path for path in storage.calls.paths("read") if path.endswith(".clean"))
    assert set(cleans.values()) == {1}, storage.calls
