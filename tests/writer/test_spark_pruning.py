"""What Spark opens for a read: files, columns and row groups, by the metrics of the plans that it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
import spark_answers
from spark_plans import metric, scans

from skep_format.table_config import TableType
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import to_spark

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("wide", pa.string())]
)
PARTITIONS, ROWS, CHANGED = 200, 1000, 3
"""The rows of the first three partitions are changed in log files."""
Make = Callable[..., HudiTable]


def rows(numbers: range, ts: int = 1, partitions: int = PARTITIONS) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{at}" for at in numbers],
            "part": [f"p{at % partitions}" for at in numbers],
            "ts": [ts] * len(numbers),
            "v": list(numbers),
            "wide": [f"{at:0100d}" for at in numbers],
        },
        SCHEMA,
    )


def plan_text(frame: Any) -> str:
    return frame._jdf.queryExecution().toString()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    """A base file in each partition, and log files in the first ones."""
    from skep_format.storage import LocalStorage
    from skep_table.commit.create import TableSpec, create_table

    storage = LocalStorage(str(tmp_path_factory.mktemp("many") / "table"))
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
    )
    writer = LocalWriter(create_table(storage, spec))
    writer.bulk_insert(rows(range(ROWS)))
    changed = rows(range(ROWS), 2).filter(pa.array([at % PARTITIONS < CHANGED for at in range(ROWS)]))
    writer.upsert(changed)
    return HudiTable.open(storage)


CONDITIONS = {
    "part = 'p7'": (7,),
    "part in ('p7', 'p8')": (7, 8),
    "part like 'p19%'": (19, *range(190, 200)),
    "part = 'p7' or part = 'p2'": (2, 7),
    "part is null": (),
    "part = 'p7' and v > 500": (7,),
}


@pytest.mark.parametrize("condition", [*CONDITIONS, "upper(part) = 'P7'"])
def test_a_filter_of_the_frame_reads_the_partitions_that_it_keeps(condition: str, many: HudiTable, spark: Any) -> None:
    kept = CONDITIONS.get(condition, (7,))
    frame = to_spark(many, ReadRequest(query="read_optimized"), spark).where(condition).select("id")  # type: ignore[arg-type]
    assert sorted(row.id for row in frame.collect()) == ids(kept, condition)
    assert metric(frame, "numFiles") == len(kept)


@pytest.mark.parametrize("condition", [*CONDITIONS, "upper(part) = 'P7'"])
def test_a_filter_of_a_snapshots_frame_reads_the_partitions_that_it_keeps(
    condition: str, many: HudiTable, spark: Any
) -> None:
    """The column comes from the files there, as in Hudi's snapshots."""
    kept = CONDITIONS.get(condition, (7,))
    frame = to_spark(many, ReadRequest(), spark).where(condition).select("id")
    assert sorted(row.id for row in frame.collect()) == ids(kept, condition)
    assert metric(frame, "numFiles") == len([number for number in kept if number >= CHANGED])


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_the_read_reads_the_partitions_that_it_keeps(condition: str, many: HudiTable, spark: Any) -> None:
    """Snapshots of merge-on-read tables take the column from the files: skep chooses the folders."""
    frame = to_spark(many, ReadRequest(where=condition, columns=("id",)), spark)
    assert sorted(row.id for row in frame.collect()) == ids(CONDITIONS[condition], condition)
    assert metric(frame, "numFiles") == len([number for number in CONDITIONS[condition] if number >= CHANGED])


def ids(partitions: Sequence[int], condition: str) -> list[str]:
    least = 501 if "v > 500" in condition else 0
    return sorted(f"k{at}" for at in range(least, ROWS) if at % PARTITIONS in partitions)


def test_the_plan_has_no_join_and_reads_the_columns_asked_for(many: HudiTable, spark: Any) -> None:
    frame = to_spark(many, ReadRequest(query="read_optimized"), spark)  # type: ignore[arg-type]
    total = frame.selectExpr("count(1) n", "sum(v) total")
    assert [tuple(row) for row in total.collect()] == [(ROWS, sum(range(ROWS)))]
    assert "Join" not in plan_text(total)
    (scan,) = scans(total)
    assert list(scan.requiredSchema().fieldNames()) == ["v"]
    by_part = frame.groupBy("part").count()
    assert sorted(row["count"] for row in by_part.collect()) == [ROWS // PARTITIONS] * PARTITIONS
    assert "Join" not in plan_text(by_part)
    (scan,) = scans(by_part)
    assert list(scan.requiredSchema().fieldNames()) == []


def test_a_join_on_the_partition_reads_the_partitions_of_the_other_side(many: HudiTable, spark: Any) -> None:
    """Spark's dynamic pruning works on true partition columns only."""
    wanted = spark.range(5, 9).selectExpr("id number", "concat('p', id) part").where("number = 5").hint("broadcast")
    frame = to_spark(many, ReadRequest(query="read_optimized"), spark).join(wanted, "part")  # type: ignore[arg-type]
    assert len(frame.collect()) == ROWS // PARTITIONS
    assert metric(frame, "numFiles") == 1


def test_a_filter_skips_row_groups(make_table: Make, spark: Any) -> None:
    table = make_table(SCHEMA)
    small = {"hoodie.parquet.block.size": "20000", "hoodie.parquet.page.size": "2000"}
    LocalWriter(table.with_options(small)).bulk_insert(rows(range(ROWS), partitions=1))
    table = table.reload()
    frame = to_spark(table, ReadRequest(), spark).where("v >= 990")
    assert "PushedFilters: [IsNotNull(v), GreaterThanOrEqual(v,990)]" in plan_text(frame)
    assert len(frame.collect()) == 10
    assert 10 <= metric(frame, "numOutputRows") < ROWS // 2
    result = read(table, ReadRequest(where="v >= 990"))
    expected = spark_answers.lines(result.to_batches())
    assert spark_answers.unlike(spark_answers.rows_of(frame, result.schema), expected) is None


def test_a_range_of_commits_reads_the_files_that_they_wrote(make_table: Make, spark: Any) -> None:
    table = make_table(SCHEMA)
    writer = LocalWriter(table)
    first = writer.bulk_insert(rows(range(20), partitions=20)).instant.requested_time
    writer.upsert(rows(range(3), 2, partitions=20))
    request = ReadRequest(query="incremental", since=str(first))  # type: ignore[arg-type]
    frame = to_spark(table.reload(), request, spark)
    assert sorted(row.id for row in frame.collect()) == ["k0", "k1", "k2"]
    assert metric(frame, "numFiles") == 3
    past = to_spark(table.reload(), ReadRequest(as_of=str(first)), spark).where("part = 'p1'")
    assert [row.ts for row in past.collect()] == [1]
    assert metric(past, "numFiles") == 1
