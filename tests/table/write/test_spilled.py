"""Writes whose rows do not fit into memory: the table is the same as when they do, and nothing is left on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.errors import InexactValueError, KeyFieldError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

MEMORY = "skep.write.memory.max.bytes"
SPILL = "hoodie.memory.spillable.map.path"
ROWS = 10_000
UPSERTED = 4_000


def rows(start: int, stop: int, generation: int, partitions: int = 7) -> pa.Table:
    numbers = np.random.default_rng(generation).permutation(np.arange(start, stop))
    return pa.table(
        {
            "id": pa.array([f"k{number:07d}" for number in numbers]),
            "ts": pa.array(numbers % 5 + generation),
            "part": pa.array([f"p{number % partitions}" for number in numbers]),
            "v": pa.array([f"value {generation} of {number}" for number in numbers]),
        }
    )


def streamed(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1_000))


def made(folder: Path, kind: TableType = TableType.COPY_ON_WRITE, **more: Any) -> HudiTable:
    named: dict[str, Any] = {"record_key": ("id",), "ordering": "ts", "partition_by": ("part",), **more}
    return create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=rows(0, 1, 0).schema, type=kind, **named))


def writer(table: HudiTable, memory: int, **options: Any) -> LocalWriter:
    spill = str(Path(table.storage.root).parent / "spill")
    return LocalWriter(table.with_context(options=Options({MEMORY: str(memory), SPILL: spill, **options})))


def content(table: HudiTable) -> list[dict[str, Any]]:
    found = read(table.reload(), ReadRequest(columns=("id", "ts", "part", "v"))).to_arrow()
    return found.sort_by([("id", "ascending"), ("v", "ascending")]).to_pylist()


SMALL = {"hoodie.parquet.max.file.size": "60000", "hoodie.parquet.small.file.limit": "40000"}
LIVES: dict[str, dict[str, str]] = {
    "bloom": SMALL,
    "global": {
        "hoodie.index.type": "GLOBAL_BLOOM",
        "hoodie.bloom.index.update.partition.path": "true",
        **SMALL,
    },
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
}


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize("index", list(LIVES))
def test_a_table_is_the_same_whether_its_writes_fit_into_memory(tmp_path: Path, kind: TableType, index: str) -> None:
    found = []
    for memory in (40_000, 1 << 30):
        table = made(tmp_path / str(memory), kind)
        using = writer(table, memory, **LIVES[index])
        first = using.upsert(streamed(pa.concat_tables([rows(0, UPSERTED, 1), rows(0, 500, 3), rows(0, 500, 2)])))
        assert first.inserted == UPSERTED
        # other partitions for some of the keys: a global index moves them
        moved, more = rows(UPSERTED // 2, UPSERTED - 400, 4), rows(UPSERTED, UPSERTED + 500, 4, partitions=5)
        using.upsert(streamed(pa.concat_tables([moved, more])))
        using.delete(streamed(rows(100, 1_000, 9).select(["id", "part"])))
        using.insert(streamed(rows(2 * UPSERTED, 2 * UPSERTED + 1_500, 5)))
        found.append(content(table))
    assert found[0] == found[1]
    assert len(found[0]) == UPSERTED + 500 - 900 + 1_500
    assert not list((tmp_path / "spill").glob("*"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"},
        {"hoodie.bulkinsert.sort.mode": "PARTITION_PATH_REPARTITION"},
        {"hoodie.combine.before.insert": "true"},
        {"hoodie.combine.before.insert": "true", "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"},
    ],
)
@pytest.mark.parametrize("partitions", [1, 7, 400])
def test_a_bulk_insert_beyond_memory(tmp_path: Path, options: dict[str, str], partitions: int) -> None:
    table = made(tmp_path / "t")
    given = rows(0, ROWS, 1, partitions)
    result = writer(table, 100_000, **options).bulk_insert(streamed(given))
    assert (result.inserted, result.files) == (ROWS, partitions)
    assert content(table) == given.sort_by("id").select(["id", "ts", "part", "v"]).to_pylist()
    if "hoodie.bulkinsert.sort.mode" in options and "GLOBAL" in options["hoodie.bulkinsert.sort.mode"]:
        for file in Path(table.storage.root).rglob("*.parquet"):
            keys = pq.read_table(file, columns=["id"], partitioning=None)["id"].to_pylist()
            assert keys == sorted(keys)


def test_rows_as_they_come_keep_their_order(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    given = rows(0, ROWS, 1, partitions=2)
    writer(table, 100_000).bulk_insert(streamed(given))
    for partition in ("p0", "p1"):
        (file,) = (Path(table.storage.root) / partition).glob("*.parquet")
        expected = given.filter(pa.compute.equal(given["part"], partition))["id"]
        found = pq.read_table(file, partitioning=None)
        assert found["id"].to_pylist() == expected.to_pylist()
        assert len(set(found["_hoodie_commit_seqno"].to_pylist())) == len(found)


def test_keys_that_are_made_while_rows_are_written_are_unique(tmp_path: Path) -> None:
    table = made(tmp_path / "t", record_key=(), ordering=None)
    for operation in ("bulk_insert", "insert"):
        getattr(writer(table, 100_000), operation)(streamed(rows(0, ROWS, 1)))
    keys = read(table.reload(), ReadRequest(columns=("_hoodie_record_key",))).to_arrow()["_hoodie_record_key"]
    assert len(set(keys.to_pylist())) == 2 * ROWS


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_an_error_far_into_a_stream_leaves_nothing(tmp_path: Path, operation: str) -> None:
    table = made(tmp_path / "t")
    good = rows(0, ROWS, 1)
    bad = good.slice(0, 10).set_column(0, "id", pa.array([None] * 10, pa.string()))
    with pytest.raises(KeyFieldError, match="id"):
        getattr(writer(table, 100_000), operation)(streamed(pa.concat_tables([good, bad])))
    assert content(table) == []
    assert not list(Path(table.storage.root).rglob("*.parquet"))
    assert not list((tmp_path / "spill").glob("*"))


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_a_reader_is_read_once_though_the_write_starts_again(tmp_path: Path, operation: str) -> None:
    """A value far into the stream does not fit the column, which gets a wider type: all rows are needed again."""
    table = made(tmp_path / "t")
    narrow = rows(0, 10, 1).set_column(1, "ts2", pa.array(range(10), pa.int64()))
    spec = TableSpec(name="t", schema=narrow.schema, record_key=("id",), partition_by=("part",))
    table = create_table(LocalStorage(str(tmp_path / "u")), spec)
    many = rows(0, ROWS, 1)
    values = np.arange(ROWS, dtype=np.float64)
    values[-1] = 0.5
    given = many.set_column(1, "ts2", pa.array(values))
    options = {"skep.write.lossy.casts": "true"}

    def once() -> Iterator[pa.RecordBatch]:
        yield from given.to_batches(max_chunksize=1_000)

    try:
        getattr(writer(table, 100_000, **options), operation)(once())
    except InexactValueError:
        pytest.fail("the column has a wider type")
    found = read(table.reload(), ReadRequest(columns=("ts2",))).to_arrow()["ts2"]
    assert sorted(found.to_pylist()) == sorted(values.tolist())
