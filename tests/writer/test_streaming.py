"""Structured Streaming by `foreachBatch`: a batch that was committed is not written again after a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_writer import SparkWriter

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]


def test_a_stream_that_died_after_its_commit_goes_on_where_it_was(tmp_path: Path, spark: Any) -> None:
    """Inserts would show a row twice that is written twice."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="ticks", schema=schema, record_key=("id",)))
    arriving = tmp_path / "in"
    arriving.mkdir()
    calls: list[tuple[int, bool]] = []
    dies = {1}

    def write(frame: Any, number: int) -> None:
        result = SparkWriter(table, spark).insert(frame, batch_id=f"ticks-{number}")
        calls.append((number, result.repeated))
        if number in dies:
            dies.discard(number)
            raise RuntimeError("the driver has died, after the commit and before the stream knew")

    def run() -> None:
        stream = spark.readStream.schema("id bigint, v bigint").option("maxFilesPerTrigger", 1).json(str(arriving))
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        (arriving / f"{number}.json").write_text(json.dumps({"id": number, "v": number * 10}) + "\n")
    with pytest.raises(Exception, match="the driver has died"):
        run()
    run()
    assert calls == [(0, False), (1, False), (1, True), (2, False)]
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": number, "v": number * 10} for number in range(3)]
    assert len(table.reload().timeline.data().completed()) == 3


def stream_rows(folder: Path, files: range, each: int = 4) -> list[dict[str, int]]:
    """Files of rows in a folder, and all their rows."""
    folder.mkdir()
    rows = [{"id": file * each + at, "v": file} for file in files for at in range(each)]
    for file in files:
        lines = [json.dumps(row) for row in rows if row["v"] == file]
        (folder / f"{file:03}.json").write_text("\n".join(lines) + "\n")
    return rows


KILLS = [
    (r"create .*\.commit\.requested$", "after"),
    (r"create .*\d\.inflight$", "after"),
    (r"create .*\d\.rollback$", "before"),
    (r"create .*\d\.rollback$", "after"),
    (r"create .*\d\.commit$", "before"),
    (r"create .*\d\.commit$", "after"),
    (r"delete .*/\.heartbeat/", "after"),
    (r"delete_folder .*/\.temp/", "after"),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_stream_killed_within_its_commits_writes_every_row_once(tmp_path: Path) -> None:
    """Its process is killed at one change of the table's storage after the other, and started again each time."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    storage = LocalStorage(str(tmp_path / "table"))
    table = create_table(storage, TableSpec(name="ticks", schema=schema, record_key=("id",)))
    expected = stream_rows(tmp_path / "in", range(8))
    job = Path(__file__).with_name("streaming_job.py")
    reported: list[str] = []
    for pattern, when in (*KILLS, ("", "")):
        ran = subprocess.run(
            [sys.executable, str(job), str(tmp_path), pattern, when],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == (-signal.SIGKILL if pattern else 0), (pattern, ran.stdout, ran.stderr[-3000:])
        reported += [line for line in ran.stdout.splitlines() if line.startswith("BATCH")]
        seen = read(table.reload(), ReadRequest(columns=("id",))).to_arrow()["id"].to_pylist()
        assert len(seen) == len(set(seen)), f"rows twice after a kill {when} {pattern}"
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().sort_by("id").to_pylist()
    assert rows == expected
    assert len(table.reload().timeline.data().completed()) == 8
    assert not table.reload().timeline.pending().instants
    assert any(line.endswith("True") for line in reported), "no batch came again after its commit"


def test_two_streams_into_one_table(tmp_path: Path, spark: Any) -> None:
    """At the same time, under a lock: each counts its batches from 0, and every row is there once."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    storage = LocalStorage(str(tmp_path / "t"))
    table = create_table(storage, TableSpec(name="ticks", schema=schema, record_key=("id",)))
    options = Options(
        {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.num.retries.on.conflict.failures": 20,
        }
    )
    expected = stream_rows(tmp_path / "in0", range(3)) + stream_rows(tmp_path / "in1", range(3, 6))
    problems: list[BaseException] = []

    def run(number: int) -> None:
        def write(frame: Any, batch: int) -> None:
            SparkWriter(table.reload().with_context(options=options, lock=StorageLock(table.storage)), spark).insert(
                frame, batch_id=f"stream{number}-{batch}"
            )

        try:
            arriving = spark.readStream.schema("id bigint, v bigint").option("maxFilesPerTrigger", 1)
            query = arriving.json(str(tmp_path / f"in{number}")).writeStream.foreachBatch(write)
            query = query.option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
            query.trigger(availableNow=True).start().awaitTermination()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().sort_by("id").to_pylist()
    assert rows == expected
    assert len(table.reload().timeline.data().completed()) == 6
