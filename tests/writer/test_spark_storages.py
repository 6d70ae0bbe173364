"""Spark's tasks write tables that lie on S3 and on HDFS, named as a job names them, and Spark reads them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark import __version__

import skep
from benchmarks.object_store import AWS_SDK, HADOOP_AWS
from benchmarks.peers.bundle import fetched
from skep_format.storage import Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.spark

DDL = "id string, part string, ts long, v string"
HOODIE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
}


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.peer("hdfs"))])
def place(request: pytest.FixtureRequest) -> tuple[Storage, dict[str, str]]:
    """An empty folder, and the options that reach it."""
    make: Callable[[], Storage] = request.getfixturevalue(f"{request.param}_folder")
    return make(), dict(request.getfixturevalue("s3_options")) if request.param == "s3" else {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the session's file systems don't reach s3a")  # it has no S3A: skep's tasks read
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_job_writes_where_executors_write(kind: str, spark: Any, place: tuple[Storage, dict[str, str]]) -> None:
    storage, reach = place
    options = {**HOODIE, **reach, "hoodie.datasource.write.table.type": kind}

    def write(operation: str, *rows: tuple[str, str, int, str]) -> None:
        frame = spark.createDataFrame(rows, DDL)
        given = {**options, "hoodie.datasource.write.operation": operation}
        skep.write(frame).options(**given).mode("append").save(storage.root)

    write("bulk_insert", ("a", "x", 1, "a1"), ("b", "x", 1, "b1"), ("c", "y", 1, "c1"))
    write("upsert", ("a", "x", 2, "a2"), ("d", "z", 1, "d1"))
    write("delete", ("c", "y", 2, ""))
    found = skep.load(storage.root, **reach).to_spark()
    assert {row.id: row.v for row in found.collect()} == {"a": "a2", "b": "b1", "d": "d1"}
    folders = {file.path.partition("/")[0] for file in storage.list_prefix("", recursive=True)}
    assert folders == {".hoodie", "x", "y", "z"}
    assert storage.list_prefix(".hoodie/.temp", recursive=True) == []
    has_logs = any(".log." in file.name for file in storage.list_prefix("x"))
    assert has_logs == (kind == "MERGE_ON_READ")


READER = """
import json, sys, warnings
import skep
from skep_catalog.class_archive import spark_environment
from skep_writer import make_spark
from skep_writer.reading.relation import ReadWarning

path, reach, jars = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
warnings.simplefilter("error", ReadWarning)
conf = {"spark.jars": jars, **{f"spark.hadoop.{key}": value for key, value in reach.items()}}
spark = make_spark(spark_environment(), master="local[2]", conf=conf)
frame = skep.load(path, spark=spark, **reach).to_spark().where("part = 'x'").select("id", "v")
plan = frame._jdf.queryExecution().executedPlan().toString()
print("RESULT", json.dumps([{row.id: row.v for row in frame.collect()}, plan]))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.engine("spark")
@pytest.mark.skipif(not __version__.startswith("3.5."), reason="the S3A of pyspark 3.5's Hadoop")
@pytest.mark.parametrize("kind", TableType)
def test_a_session_with_s3a_reads_base_files_itself(
    kind: TableType, s3_folder: Callable[[], Storage], s3_options: dict[str, str]
) -> None:
    storage = s3_folder()
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
    spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    LocalWriter(create_table(storage, spec)).bulk_insert(
        rows(("a", "x", 1, "a1"), ("b", "x", 1, "b1"), ("c", "y", 1, "c1"))
    )
    LocalWriter(HudiTable.open(storage)).upsert(rows(("c", "y", 2, "c2")))
    jars = ",".join(str(fetched(*jar)) for jar in (HADOOP_AWS, AWS_SDK))
    ran = subprocess.run(
        [sys.executable, "-c", READER, storage.root, json.dumps(s3_options), jars],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    result = next((line for line in ran.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert result is not None, ran.stderr[-3000:]
    found, plan = json.loads(result.removeprefix("RESULT "))
    assert found == {"a": "a1", "b": "b1"}
    assert "FileScan parquet" in plan
    if kind is TableType.COPY_ON_WRITE:  # snapshots of merge-on-read tables take partition columns from the files
        assert "PartitionFilters: [isnotnull(part" in plan


def rows(*values: tuple[str, str, int, str]) -> pa.Table:
    """Rows of id, partition, ordering value and text."""
    return pa.table(dict(zip(("id", "part", "ts", "v"), map(list, zip(*values, strict=True)), strict=True)))
