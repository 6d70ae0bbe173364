"""Spark's tasks write tables that lie on S3 and on HDFS, named as a job names them, and Spark reads them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import skep
from skep_table.storage import Storage

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
