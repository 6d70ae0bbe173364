"""A slice whose log files are far larger than what a worker may hold of them, read through Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.measure import Peak, memory_of
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, WIDTH, COMMITS = 60_000, 1_000, 18
HELD_BYTES = 32 << 20
"""Of logs of 1 GB, which the default of 1 GiB would hold whole."""
OTHER_BYTES = 512 << 20
"""A Python worker with Arrow, and one log block of 60 MB while it is decoded and merged."""

JOB = """
import json, sys
from skep_catalog.class_archive import spark_environment
from skep_table.query import ReadRequest
from skep_table.table import HudiTable
from skep_writer import make_spark, to_spark

folder, held = sys.argv[1:]
conf = {"spark.driver.memory": "1g"}
spark = make_spark(spark_environment(), master="local[2]", conf=conf)
spark.sparkContext.setLogLevel("OFF")
table = HudiTable.open(folder, {"hoodie.memory.merge.max.size": held})
row = to_spark(table, ReadRequest(), spark).selectExpr("count(1)", "sum(length(v))", "min(ts)", "max(ts)").first()
print("RESULT", json.dumps(list(row)))
spark.stop()
"""


def rows(commit: int) -> pa.Table:
    """Rows that do not compress; a commit after the first has every row of the one before in a later version."""
    text = np.random.default_rng(commit).integers(33, 126, (ROWS, WIDTH), np.uint8)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS)).cast(pa.string()),
            "ts": np.full(ROWS, commit),
            "v": pa.array(text.view(f"S{WIDTH}").ravel()).cast(pa.string()),
        }
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_worker_holds_no_more_of_a_log_than_it_may(tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=rows(0).schema, record_key=("id",), ordering="ts", type=TableType.MERGE_ON_READ)
    folder = tmp_path / "t"
    one_file = Options({"hoodie.parquet.max.file.size": str(4 << 30), "hoodie.compact.inline": "false"})
    writer = LocalWriter(create_table(LocalStorage(str(folder)), spec).with_context(options=one_file))
    writer.bulk_insert(rows(0))
    for commit in range(1, COMMITS + 1):
        writer.upsert(rows(commit))
    (slice_,) = HudiTable.open(str(folder)).view().slices("")
    assert sum(log.size_bytes for log in slice_.log_files) > 10 * HELD_BYTES
    small, answer = read(tmp_path, folder, HELD_BYTES)
    large, same = read(tmp_path, folder, 1 << 30)
    assert answer == same == [ROWS, ROWS * WIDTH, COMMITS, COMMITS]
    assert small < HELD_BYTES + OTHER_BYTES < large, (
        f"{small >> 20} MiB, and {large >> 20} MiB where all of the log may be held"
    )


def read(scratch: Path, folder: Path, held: int) -> tuple[int, list[int]]:
    """The most memory of any Python process, and the answer."""
    job = scratch / "job.py"
    job.write_text(JOB)
    command = [sys.executable, str(job), str(folder), str(held)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        peak: Peak
        with memory_of(ran.pid) as peak:
            out, err = ran.communicate(timeout=500)
    lines = [line for line in out.splitlines() if line.startswith("RESULT")]
    assert lines, err[-4000:]
    return peak.python, json.loads(lines[0].removeprefix("RESULT"))
