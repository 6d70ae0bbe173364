"""The process behind `ours.Ours`: one warm Spark session, and skep's writer in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from benchmarks import data  # noqa: E402
from benchmarks.peers.spelling import spell  # noqa: E402
from benchmarks.peers.worker import answer, planned, serve, session  # noqa: E402
from skep_format.options import Options  # noqa: E402
from skep_format.storage import LocalStorage  # noqa: E402
from skep_format.table_config import TableType  # noqa: E402
from skep_table.commit.create import TableSpec, create_table  # noqa: E402
from skep_table.query import ReadRequest, read  # noqa: E402
from skep_table.services.compaction.compact import execute_pending_compactions, schedule_compaction  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402
from skep_writer.reading.scan import to_spark  # noqa: E402
from skep_writer.services import service_runner  # noqa: E402
from skep_writer.writing.writer import SparkWriter  # noqa: E402

Json = dict[str, Any]


class OurWriter:
    """The requests, as `peers.worker.Peer` has them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def write(
        self,
        *,
        path: str,
        source: str,
        operation: str,
        type: str = "COPY_ON_WRITE",
        version: int = 6,
        options: Json | None = None,
    ) -> Json:
        if Path(path, ".hoodie").exists():
            table = HudiTable.open(path)
        else:
            spec = TableSpec(
                name="measured",
                schema=data.SCHEMA,
                record_key=("id",),
                ordering="ts",
                partition_by=("part",),
                type=TableType(type),
                version=version,
            )
            table = create_table(LocalStorage(path), spec)
        frame = self._spark.read.parquet(source)
        result = getattr(SparkWriter(table.with_context(options=Options(options or {})), self._spark), operation)(frame)
        return {"files": result.files}

    def schedule_compaction(self, *, path: str) -> Json:
        return {"planned": schedule_compaction(HudiTable.open(path).with_context(**self._setting())) is not None}

    def compact(self, *, path: str) -> Json:
        return {"done": len(execute_pending_compactions(HudiTable.open(path).with_context(**self._setting())))}

    def _setting(self) -> dict[str, Any]:
        return {"runner": service_runner(self._spark)}

    def sums(self, *, path: str) -> Json:
        """What `upsert.SUMS` asks the peers for."""
        found = read(HudiTable.open(path), ReadRequest(columns=data.SUMMED)).to_arrow()
        return {"rows": [spell(data.sums(found))]}

    def aggregate(self, *, path: str, options: Json, expressions: list[str], where: str | None = None) -> Json:
        """As the peers': each request opens the table. `files` were opened by Spark's own reader."""
        frame = self._frame(path, options)
        found = (frame.where(where) if where else frame).selectExpr(*expressions)
        return answer(found) | {"files": files_opened(found)}

    def plan(self, *, path: str, options: Json) -> Json:
        return planned(self._frame(path, options))

    def _frame(self, path: str, options: Json) -> DataFrame:
        return to_spark(HudiTable.open(path), ReadRequest.of(Options(options)), self._spark)

    def rewrite(self, *, path: str, target: str) -> Json:
        """The floor of an upsert that touches every file: each is read and written again, two at a time."""
        files = list(Path(path).rglob("*.parquet"))
        Path(target).mkdir(parents=True)

        def one(file: Path) -> None:
            rows = pq.read_table(file, use_threads=False, partitioning=None)
            pq.write_table(rows, Path(target, file.name), compression="snappy")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, files))
        return {"files": len(files)}

    def write_parquet(self, *, path: str, source: str, by: str, sort: Sequence[str] = ()) -> Json:
        """Spark's own partitioned write of the same rows."""
        frame = self._spark.read.parquet(source)
        (frame.sort(*sort) if sort else frame).write.partitionBy(by).parquet(path)
        return {}


def files_opened(frame: DataFrame) -> int:
    """What the file scans of a plan that ran have counted."""
    plan = frame._jdf.queryExecution().executedPlan()
    pending, total = [plan], 0
    while pending:
        node = pending.pop()
        kind = node.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            pending.append(node.executedPlan())
        elif kind.endswith("QueryStageExec"):
            pending.append(node.plan())
        elif kind == "FileSourceScanExec":
            total += node.metrics().apply("numFiles").value()
        pending += [node.children().apply(at) for at in range(node.children().size())]
    return total


def main() -> None:
    pa.set_cpu_count(2)
    folder = sys.argv[1]
    serve(lambda: OurWriter(session(folder, {})))


if __name__ == "__main__":
    main()
