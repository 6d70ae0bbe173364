"""SIGTERM in the midst of a job of Spark: the job is canceled, and the write rolled back, within the usual grace."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from skep_table.table import HudiTable

SCRIPT = """
import os, pathlib, signal, sys, threading, time
import skep
from skep_catalog.class_archive import spark_environment
from skep_writer import make_spark

spark = make_spark(spark_environment(), master="local[2]")
skep.exit_on_sigterm()
started = pathlib.Path(sys.argv[1] + ".started")

def slow(batches, started=str(started)):
    pathlib.Path(started).touch()
    time.sleep(120)
    yield from batches

def terminate():
    while not started.exists():
        time.sleep(0.05)
    print(time.monotonic(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

rows = spark.range(40).repartition(2).mapInPandas(slow, "id long").selectExpr("cast(id as string) id", "1 ts")
threading.Thread(target=terminate, daemon=True).start()
skep.write(rows).options(**{
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "bulk_insert",
}).mode("append").save(sys.argv[1])
"""
GRACE_SECONDS = 30


@pytest.mark.spark
@pytest.mark.slow
def test_a_long_job_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=False, timeout=300
    )
    ended = time.monotonic()
    assert done.returncode == 143, done.stderr
    assert ended - float(done.stdout.split()[-1]) < GRACE_SECONDS
    assert "is rolled back; the table reads as before it" in done.stderr
    timeline = HudiTable.open(str(folder)).timeline
    assert not timeline.pending().instants
    assert not timeline.data().instants
