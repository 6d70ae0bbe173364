"""Settings of a session: no time zone, no legacy setting of Parquet and no switch of the planner changes an answer."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import spark_answers

from skep_format.table_config import TableType
from skep_table.query import QueryType, ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import to_spark
from skep_writer.settings import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

ON_OFF = ("true", "false")
REBASE = ("EXCEPTION", "CORRECTED", "LEGACY")
# The first value is Spark's own; pyspark 3.5 and 4 know all of these, and guides for users advise to set each of them.
SETTINGS = {
    "spark.sql.session.timeZone": ("America/New_York", "Asia/Kathmandu", "UTC"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.ansi.enabled": ON_OFF,
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    "spark.sql.parquet.int96RebaseModeInRead": REBASE,
    "spark.sql.parquet.datetimeRebaseModeInRead": REBASE,
    "spark.sql.parquet.int96TimestampConversion": ("false", "true"),
    "spark.sql.parquet.int96AsTimestamp": ON_OFF,
    "spark.sql.parquet.inferTimestampNTZ.enabled": ON_OFF,
    "spark.sql.parquet.binaryAsString": ("false", "true"),
    "spark.sql.parquet.mergeSchema": ("false", "true"),
    "spark.sql.parquet.fieldId.read.enabled": ("false", "true"),
    "spark.sql.parquet.filterPushdown": ON_OFF,
    "spark.sql.parquet.aggregatePushdown": ("false", "true"),
    "spark.sql.parquet.recordLevelFilter.enabled": ("false", "true"),
    "spark.sql.parquet.enableVectorizedReader": ON_OFF,
    "spark.sql.parquet.enableNestedColumnVectorizedReader": ON_OFF,
    "spark.sql.parquet.columnarReaderBatchSize": ("4096", "3"),
    "spark.sql.optimizer.nestedSchemaPruning.enabled": ON_OFF,
    "spark.sql.sources.useV1SourceList": ("avro,csv,json,kafka,orc,parquet,text", ""),
    "spark.sql.sources.partitionColumnTypeInference.enabled": ON_OFF,
    "spark.sql.sources.bucketing.enabled": ON_OFF,
    "spark.sql.files.ignoreMissingFiles": ("false", "true"),
    "spark.sql.files.ignoreCorruptFiles": ("false", "true"),
    "spark.sql.files.maxPartitionBytes": ("128MB", "4KB"),
    "spark.sql.files.openCostInBytes": ("4MB", "0"),
    "spark.sql.adaptive.enabled": ON_OFF,
    "spark.sql.autoBroadcastJoinThreshold": ("10MB", "-1"),
    "spark.sql.codegen.wholeStage": ON_OFF,
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("10000", "2"),
    "spark.sql.execution.arrow.pyspark.enabled": ("false", "true"),
}
MATRIX = list(spark_answers.combinations_of(SETTINGS))

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.date32()),
        ("ts", pa.int64()),
        ("Day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(38, 10)),
        ("small", pa.decimal128(7, 2)),
        ("bytes", pa.binary()),
        ("whole", pa.int32()),
        ("ratio", pa.float32()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("inner", pa.struct([("when", pa.timestamp("us", "UTC")), ("Tags", pa.list_(pa.string()))])),
        ("prices", pa.map_(pa.string(), pa.decimal128(12, 3))),
    ]
)
DAYS = (dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1899, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 3, 29))


def rows(ts: int, numbers: range) -> pa.Table:
    """Rows with what a careless reader changes: old dates, the hour a clock skips, NaN, bytes that are no text."""

    def row(at: int) -> dict[str, Any]:
        day = DAYS[at % len(DAYS)]
        moment = dt.datetime(day.year, day.month, day.day, 2, 30, 0, at, tzinfo=dt.timezone.utc)
        values = {
            "Day": day,
            "at": moment,
            "local": moment.replace(tzinfo=None),
            "price": Decimal(10**27 + at).scaleb(-10) * (-1) ** at,
            "small": Decimal(at).scaleb(-2),
            "bytes": bytes([at, 0, 255]),
            "whole": -at,
            "ratio": float("nan") if at == 3 else at / 3,
            "share": float("-inf") if at == 4 else at / 7,
            "flag": at % 2 == 0,
            "inner": {"when": moment, "Tags": [f"t{at}", ""]},
            "prices": [("a", Decimal(at).scaleb(-3)), ("", None)],
        }
        empty = at % 6 == 5
        partition = DAYS[2 + at % 2] if at % 7 else None
        return {"id": f"k{at}", "part": partition, "ts": ts} | ({} if empty else values)

    return pa.Table.from_pylist([row(at) for at in numbers], SCHEMA)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, golden: Path) -> dict[str, HudiTable]:
    from skep_format.storage import LocalStorage
    from skep_table.commit.create import TableSpec, create_table

    found = {name: HudiTable.open(golden / name / "table") for name in ("0.15.0/cow_types_edge", "1.1.1/mor_upsert")}
    for kind in TableType:
        storage = LocalStorage(str(tmp_path_factory.mktemp(kind.value) / "table"))
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            partition_by=("part",),
            ordering="ts",
            type=kind,
            hive_style=True,
        )
        writer = LocalWriter(create_table(storage, spec))
        writer.bulk_insert(rows(1, range(40)))
        writer.upsert(rows(2, range(20, 30)))
        found[kind.value] = HudiTable.open(storage)
    return found


SNAPSHOT = ReadRequest()
# Each row of the matrix asks for one of these of each table.
REQUESTS = {
    "COPY_ON_WRITE": (SNAPSHOT, ReadRequest(where="part = DATE '1899-12-31' AND whole < -3", columns=("Day", "id"))),
    "MERGE_ON_READ": (SNAPSHOT, *(ReadRequest(query=QueryType(name)) for name in ("read_optimized", "incremental"))),
    "0.15.0/cow_types_edge": (SNAPSHOT,),
    "1.1.1/mor_upsert": (SNAPSHOT,),
}


@pytest.mark.parametrize("row", range(len(MATRIX)))
def test_settings_change_no_answer(row: int, tables: dict[str, HudiTable], spark: Any) -> None:
    with session_settings(spark, MATRIX[row]):
        differences = {
            name: spark_answers.difference(tables[name], requests[row % len(requests)], spark)
            for name, requests in REQUESTS.items()
        }
        for kind in TableType:
            result = read(tables[kind.value], ReadRequest(where="whole < -3"))
            frame = to_spark(tables[kind.value], SNAPSHOT, spark).where("whole < -3")
            found = spark_answers.rows_of(frame, result.schema)
            differences[f"filter of {kind.value}"] = spark_answers.unlike(
                found, spark_answers.lines(result.to_batches())
            )
    assert not {name: found for name, found in differences.items() if found}


def test_settings_that_change_after_the_frame_was_made_change_no_answer(
    tables: dict[str, HudiTable], spark: Any
) -> None:
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        result = read(tables[kind], ReadRequest())
        expected = spark_answers.lines(result.to_batches())
        frame = to_spark(tables[kind], ReadRequest(), spark)
        for settings in MATRIX:
            with session_settings(spark, settings):
                found = spark_answers.rows_of(frame.select("*"), result.schema)  # planned again
                assert not spark_answers.unlike(found, expected), settings
