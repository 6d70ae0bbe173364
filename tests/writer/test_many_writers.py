"""Spark jobs of a write that can't complete any more are cancelled; writers of one session get along."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_catalog.client import Metastore
from skep_catalog.lock import PARTITIONS_SUFFIX, HmsLock
from skep_format.errors import LeaseLostError
from skep_format.options import Options
from skep_table.commit.heartbeat import FOLDER
from skep_table.locks.storage import StorageLock
from skep_table.table import HudiTable
from skep_writer import SparkWriter

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
DDL = "id string, part string, ts bigint"
Make = Callable[..., HudiTable]


def endless_frame(spark: Any) -> Any:
    """Its job ends when it is cancelled, or the test by its time limit."""

    def endless(batches: Any) -> Any:
        for batch in batches:
            time.sleep(3600)
            yield batch

    return spark.createDataFrame([("a", "x", 1)], DDL).mapInArrow(endless, DDL)


@pytest.mark.parametrize("job", ["running", "not started yet"])
def test_a_lost_heartbeat_cancels_the_job(job: str, spark: Any, make_table: Make) -> None:
    table = make_table(SCHEMA)
    folder = Path(table.storage.root) / FOLDER

    def take_for_dead() -> None:
        """What another writer does that takes this one for dead."""
        while not (beats := [file for file in folder.glob("*") if file.name.isdigit()]):
            time.sleep(0.05)
        while job == "running" and not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.05)
        for _ in range(50):  # a renewal that is under way may write the file once more
            for file in beats:
                file.unlink(missing_ok=True)
            time.sleep(0.05)

    options = Options({"hoodie.client.heartbeat.interval_in_ms": 200, "hoodie.client.heartbeat.tolerable.misses": 50})
    threading.Thread(target=take_for_dead, daemon=True).start()
    with pytest.raises(LeaseLostError, match=r"taken for dead by another writer, last heartbeat at 20.* UTC"):
        SparkWriter(table.with_context(options=options), spark).bulk_insert(endless_frame(spark))
    assert not table.reload().timeline.pending().instants


@pytest.mark.metastore
def test_a_lost_partition_lock_cancels_the_job(
    spark: Any, make_table: Make, metastore: Metastore, database: str, snapshot: Callable[[HudiTable], Any]
) -> None:
    table = make_table(SCHEMA)
    lock = HmsLock(metastore, database, "t", heartbeat_seconds=0.2)
    outside = Metastore.connect(metastore.uri)

    def take_away() -> None:
        """What a metastore does to a lock whose heartbeats do not arrive, or somebody with `skep lock break`."""
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.05)
        for each in outside.locks(database, "t" + PARTITIONS_SUFFIX):
            outside.unlock(each.lock_id)

    options = Options({"skep.write.lock.partitions": "x"})
    thread = threading.Thread(target=take_away, daemon=True)
    thread.start()
    with pytest.raises(LeaseLostError, match=r"__partitions/x is lost: .* after 20.* UTC") as caught:
        SparkWriter(table.with_context(options=options, lock=lock), spark).bulk_insert(endless_frame(spark))
    assert caught.value.fields["since"]
    thread.join(30)
    assert outside.locks(database) == []
    outside.close()
    assert not table.reload().timeline.pending().instants
    assert snapshot(table) == {}


def test_the_job_group_of_the_caller_comes_back(spark: Any, make_table: Make) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "what I do")
    try:
        SparkWriter(make_table(SCHEMA), spark).insert(spark.createDataFrame([("a", "x", 1)], DDL))
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "what I do"
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)


def test_writers_of_one_session(spark: Any, make_table: Make, snapshot: Callable[[HudiTable], Any]) -> None:
    """Both update one key, and each inserts one of its own and one that the other inserts too."""
    table = make_table(SCHEMA)
    options = Options(
        {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.num.retries.on.conflict.failures": 10,
        }
    )
    SparkWriter(table, spark).insert(spark.createDataFrame([("shared", "x", 0)], DDL))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            writer = SparkWriter(table.with_context(options=options, lock=StorageLock(table.storage)), spark)
            for ts in (1, 2):
                rows = [("shared", "x", 10 * ts + number), (f"own-{number}", "y", ts), (f"new-{ts}", "z", number)]
                writer.upsert(spark.createDataFrame(rows, DDL))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = {key: row["ts"] for key, row in snapshot(table).items()}
    assert found == {"shared": 22, "own-1": 2, "own-2": 2, "new-1": 2, "new-2": 2}
