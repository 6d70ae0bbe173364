"""Changes of a table as a stream of Spark: batches by commits, restarts, CDC, where a stream begins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import InputError, OptionError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer import SparkWriter, stream_changes

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
Each = Callable[[Any, int], None]


class Job:
    """A table and what a stream of its changes has found."""

    def __init__(self, spark: Any, folder: Path, version: int = 6, kind: TableType = TableType.COPY_ON_WRITE) -> None:
        self.spark, self.folder = spark, folder
        storage = LocalStorage(str(folder / "t"))
        spec = TableSpec(
            name="t",
            schema=SCHEMA,
            record_key=("id",),
            version=version,
            type=kind,
            properties={"hoodie.table.cdc.enabled": "true"},
        )
        self.table = create_table(storage, spec)
        self.found: list[tuple[int, list[tuple[int, int]]]] = []

    def put(self, *ids: int, v: int) -> str:
        done = LocalWriter(self.table.reload()).upsert(pa.table([ids, [v] * len(ids)], SCHEMA))
        return str(done.instant.completion_time or done.instant.requested_time)

    def collect(self, frame: Any, number: int) -> None:
        self.found.append((number, sorted((row.id, row.v) for row in frame.select("id", "v").collect())))

    def run(self, each: Each | None = None, **options: Any) -> list[tuple[int, list[tuple[int, int]]]]:
        """What the batches of one run have."""
        before = len(self.found)
        rows = stream_changes(self.spark, self.table.reload(), Options(options))
        assert rows.isStreaming
        query = rows.writeStream.foreachBatch(each or self.collect)
        query = query.option("checkpointLocation", str(self.folder / "c")).trigger(availableNow=True)
        query.start().awaitTermination()
        return self.found[before:]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        (6, TableType.COPY_ON_WRITE),
        (9, TableType.MERGE_ON_READ),
        pytest.param(6, TableType.MERGE_ON_READ, marks=pytest.mark.slow),
        pytest.param(9, TableType.COPY_ON_WRITE, marks=pytest.mark.slow),
    ],
)
def test_batches_are_of_commits_and_go_on_where_they_were(
    spark: Any, tmp_path: Path, version: int, kind: TableType
) -> None:
    job = Job(spark, tmp_path, version, kind)
    for at in range(3):
        job.put(at, 9, v=at)
    assert job.run(**{"skep.stream.max.commits": 2}) == [(0, [(0, 0), (1, 1), (9, 1)]), (1, [(2, 2), (9, 2)])]
    assert job.run() == []
    job.put(4, v=4)
    job.put(5, v=5)
    assert job.run() == [(2, [(4, 4), (5, 5)])]


def test_a_batch_that_is_repeated_has_the_same_rows_and_is_written_once(spark: Any, tmp_path: Path) -> None:
    """It dies after the commit of a batch and before Spark notes it, and the table goes on meanwhile."""
    job = Job(spark, tmp_path)
    target = create_table(LocalStorage(str(tmp_path / "target")), TableSpec(name="target", schema=SCHEMA))
    dies, repeated = {1}, []

    def write(frame: Any, number: int) -> None:
        job.collect(frame, number)
        done = SparkWriter(target.reload(), spark).insert(frame.select("id", "v"), batch_id=f"changes-{number}")
        repeated.append((number, done.repeated))
        if number in dies:
            dies.discard(number)
            raise RuntimeError("the driver has died")

    for at in range(3):
        job.put(at, v=at)
    one = {"skep.stream.max.commits": 1}
    with pytest.raises(Exception, match="the driver has died"):
        job.run(write, **one)
    job.put(1, v=10)
    job.put(7, v=7)
    job.run(write)
    assert repeated == [(0, False), (1, False), (1, True), (2, False)]
    assert job.found[1] == job.found[2] == (1, [(1, 1)])
    rows = read(target.reload(), ReadRequest(columns=("id", "v"))).to_arrow().sort_by("v").to_pylist()
    assert [(row["id"], row["v"]) for row in rows] == [(0, 0), (1, 1), (2, 2), (7, 7), (1, 10)]


def test_a_stream_begins_where_it_is_set_to(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    start = "hoodie.datasource.streaming.startOffset"
    job.put(1, v=1)
    second = job.put(2, v=2)
    job.put(3, v=3)
    assert job.run(**{start: second}) == [(0, [(3, 3)])]
    shutil.rmtree(tmp_path / "c")
    assert job.run(**{start: "latest"}) == [(0, [])]
    job.put(4, v=4)
    assert job.run(**{start: "latest"}) == [(1, [(4, 4)])]
    with pytest.raises(InputError, match="'soon' is no time"):
        job.run(**{start: "soon"})
    with pytest.raises(OptionError, match=r"a stream has no hoodie\.datasource\.read\.begin\.instanttime"):
        job.run(**{"hoodie.datasource.read.begin.instanttime": second})
    with pytest.raises(InputError, match=r"skep\.stream\.max\.commits"):
        job.run(**{"skep.stream.max.commits": 0})


def test_changes_as_such_are_streamed(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.put(1, 2, v=1)
    job.put(2, v=2)
    LocalWriter(job.table.reload()).delete(pa.table({"id": [1]}))
    operations: list[str] = []

    def each(frame: Any, _number: int) -> None:
        operations.extend(row.op for row in frame.orderBy("ts_ms", "op").collect())

    job.run(each, **{"hoodie.datasource.query.incremental.format": "cdc"})
    assert operations == ["i", "i", "u", "d"]


def test_a_query_over_a_stream(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.put(1, 2, v=1)
    job.put(3, v=5)
    rows = stream_changes(spark, HudiTable.open(job.table.storage.root), Options())
    totals = rows.groupBy("v").count().writeStream.outputMode("complete").format("memory").queryName("totals")
    totals.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(tuple, spark.table("totals").collect())) == [(1, 2), (5, 1)]
    spark.catalog.dropTempView("totals")


KILLED = """
import os, signal, sys
from skep_catalog.class_archive import spark_environment
from skep_format.options import Options
from skep_table.table import HudiTable
from skep_writer import SparkWriter, stream_changes
from skep_writer.session import make_spark

folder, dying, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
conf = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "1"}
spark = make_spark(spark_environment(), master="local[2]", conf=conf)
spark.sparkContext.setLogLevel("OFF")
target = HudiTable.open(f"{folder}/target")

def write(frame, number):
    if number == dying and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    SparkWriter(target.reload(), spark).insert(frame.select("id", "v"), batch_id=f"changes-{number}")
    if number == dying:
        os.kill(os.getpid(), signal.SIGKILL)

rows = stream_changes(spark, HudiTable.open(f"{folder}/t"), Options({"skep.stream.max.commits": "1"}))
query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/c")
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_whose_process_is_killed_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    create_table(LocalStorage(str(tmp_path / "target")), TableSpec(name="target", schema=SCHEMA))
    for at in range(4):
        job.put(at, v=at)
    for dying, when in ((1, "before"), (1, "after"), (2, "after"), (-1, "")):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(dying), when],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            timeout=200,
            check=False,
        )
        assert ran.returncode == (0 if dying < 0 else -signal.SIGKILL), ran.stderr[-3000:]
    target = HudiTable.open(tmp_path / "target")
    rows = read(target, ReadRequest(columns=("id", "v"))).to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": at, "v": at} for at in range(4)]
    assert len(target.timeline.data().completed()) == 4
