"""Tables with a bucket index, written by Spark and by threads in turn: a key goes to the same file group by both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.keys.hash_rings import ring_of
from skep_table.query import ReadRequest, read
from skep_table.services.clustering.cluster import execute_clustering, schedule_clustering
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter
from skep_writer.edge import SparkRunner

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

INDEX = Options({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"})
COUNT = 24
KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "string": (pa.string(), lambda at: ("", "é", "a,b:c", "x y", "\U0001f41d")[at % 5] + str(at)),
    "int": (pa.int32(), lambda at: at - 12),
    "long": (pa.int64(), lambda at: (at - 12) * 10**15),
    "double": (pa.float64(), lambda at: at / 3),
    "float": (pa.float32(), lambda at: at / 4),
    "boolean": (pa.bool_(), lambda at: at % 2 == 0),
    "date": (pa.date32(), lambda at: date(1960 + at, 2, 1 + at)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda at: datetime(1969 + at, 3, 1, at, 30, 0, at * 1001, tzinfo=timezone.utc),
    ),
    "decimal": (pa.decimal128(12, 3), lambda at: Decimal(at - 12) / 8),
    "binary": (pa.binary(), lambda at: bytes([at, 255 - at])),
}


def rows_of(schema: pa.Schema, keys: dict[str, list[Any]], ts: int, some: range) -> pa.Table:
    columns = {name: [values[at] for at in some] for name, values in keys.items()}
    return pa.table({**columns, "part": [f"p{at % 2}" for at in some], "ts": [ts] * len(some)}, schema)


def groups(table: HudiTable) -> tuple[dict[str, int], frozenset[str]]:
    """The `ts` of each key, and the file groups; a key twice, or a bucket with two groups, is a failure."""
    found: dict[str, int] = {}
    for row in read(table.reload(), ReadRequest()).to_arrow().select(list(META)).to_pylist():
        key = row["_hoodie_record_key"] + "@" + row["part"]
        assert key not in found, "a key twice"
        found[key] = row["ts"]
    buckets: dict[tuple[str, str], str] = {}
    for partition in table.reload().view().partitions():
        for slice_ in table.reload().view().slices(partition):
            number = slice_.file_id[:8]
            assert (partition, number) not in buckets, "a bucket with two file groups"
            buckets[partition, number] = slice_.file_id
    return found, frozenset(buckets.values())


META = ("_hoodie_record_key", "part", "ts")


@pytest.mark.parametrize("kind", list(TableType), ids=["cow", "mor"])
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("string", "long", "date", "timestamp", "decimal", "boolean"), id="composite"),
        *(
            pytest.param((name,), id=name, marks=[] if name == "timestamp" else [pytest.mark.slow])
            for name in KEYS
            if name not in ("boolean", "binary")
        ),
    ],
)
def test_rounds_of_both_engines(
    names: tuple[str, ...], kind: TableType, spark: Any, make_table: Callable[..., HudiTable]
) -> None:
    schema = pa.schema([*((f"k_{name}", KEYS[name][0]) for name in names), ("part", pa.string()), ("ts", pa.int64())])
    keys = {f"k_{name}": [KEYS[name][1](at) for at in range(COUNT)] for name in names}
    table = make_table(schema, record_key=tuple(keys), type=kind)
    setting = {"options": INDEX}

    def by_spark(rows: pa.Table) -> None:
        frame = spark.createDataFrame(rows.to_pandas(date_as_object=True), _ddl(names)).repartition(3)
        SparkWriter(table.with_context(options=INDEX), spark).upsert(frame)

    def by_threads(rows: pa.Table) -> None:
        LocalWriter(table.reload().with_context(**setting)).upsert(rows)

    expected: dict[int, int] = {}
    known: frozenset[str] = frozenset()
    rounds = [(by_spark, range(COUNT)), (by_threads, range(0, COUNT, 2)), (by_spark, range(0, COUNT, 3))]
    for ts, (write, some) in enumerate(rounds, 1):
        write(rows_of(schema, keys, ts, some))
        expected.update(dict.fromkeys(some, ts))
        found, now = groups(table)
        assert sorted(found.values()) == sorted(expected.values())
        assert not known or now == known, "a key went to another group"
        known = now
    if kind is TableType.MERGE_ON_READ:
        compact(table.reload().with_context(**setting))
    stored = read(table.reload(), ReadRequest(columns=(*keys, "part", "ts"))).to_arrow().to_pylist()
    wanted = rows_of(schema, keys, 0, range(COUNT)).to_pylist()
    for at, row in enumerate(wanted):
        row["ts"] = expected[at]
    order = lambda row: str(sorted(row.items()))  # noqa: E731
    assert sorted(stored, key=order) == sorted(wanted, key=order)


def _ddl(names: tuple[str, ...]) -> str:
    spelled = {"decimal": "decimal(12,3)"}
    return ", ".join(f"k_{name} {spelled.get(name, name)}" for name in names) + ", part string, ts bigint"


RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}
SPLITS = {"hoodie.parquet.max.file.size": "100", "hoodie.bucket.index.max.num.buckets": "4"}
TWICE = {"hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy"}
ON_TASKS = {"skep.spark.collect.max.bytes": "0"}


@pytest.mark.parametrize("table_version", [6], indirect=True)
def test_rounds_of_both_engines_by_hash_rings(spark: Any, make_table: Callable[..., HudiTable]) -> None:
    """With a split between them, beside which Spark writes twice, and which runs on Spark."""
    schema = pa.schema([("k", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
    table = make_table(schema, record_key=("k",), type=TableType.MERGE_ON_READ)
    keys = {"k": [f"key-{at}" for at in range(COUNT)]}
    expected: dict[int, int] = {}

    def by_spark(ts: int, some: range) -> None:
        rows = rows_of(schema, keys, ts, some)
        frame = spark.createDataFrame(rows.to_pandas(), "k string, part string, ts bigint").repartition(3)
        SparkWriter(table.with_context(options=Options({**RINGS, **TWICE, **ON_TASKS})), spark).upsert(frame)
        expected.update(dict.fromkeys(some, ts))

    by_spark(1, range(COUNT))
    LocalWriter(table.reload()).upsert(rows_of(schema, keys, 2, range(0, COUNT, 2)))
    expected.update(dict.fromkeys(range(0, COUNT, 2), 2))
    planned = schedule_clustering(table.reload().with_context(options=Options(SPLITS)))
    assert planned is not None
    by_spark(3, range(0, COUNT, 3))
    found = read(table.reload(), ReadRequest()).to_arrow()
    assert sorted(found["ts"].to_pylist()) == sorted(expected.values())
    assert execute_clustering(table.reload().with_context(runner=SparkRunner(spark)), planned) is not None
    by_spark(4, range(0, COUNT, 5))
    found = read(table.reload(), ReadRequest()).to_arrow()
    assert dict(zip(found["k"].to_pylist(), found["ts"].to_pylist(), strict=True)) == {
        f"key-{at}": ts for at, ts in expected.items()
    }
    for part in ("p0", "p1"):
        ring = ring_of(table.reload(), part)
        assert ring is not None
        assert len(ring.nodes) == 4
        assert {each.file_id for each in table.reload().view().slices(part)} <= {node.file_id for node in ring.nodes}
