"""Structured Streaming by `foreachBatch`: a batch that was committed is not written again after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest
from skep_table.query.read import read
from skep_table.storage import LocalStorage
from skep_writer import SparkWriter

pytestmark = pytest.mark.spark


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
            raise RuntimeError("the driver is gone, after the commit and before the stream knew")

    def run() -> None:
        stream = spark.readStream.schema("id bigint, v bigint").option("maxFilesPerTrigger", 1).json(str(arriving))
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    for number in range(3):
        (arriving / f"{number}.json").write_text(json.dumps({"id": number, "v": number * 10}) + "\n")
    with pytest.raises(Exception, match="the driver is gone"):
        run()
    run()
    assert calls == [(0, False), (1, False), (1, True), (2, False)]
    rows = read(table.reload(), ReadRequest(columns=("id", "v"))).to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": number, "v": number * 10} for number in range(3)]
    assert len(table.reload().timeline.data().completed()) == 3
