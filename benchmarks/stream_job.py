"""The PySpark job that `stream` measures: JSON from files or a topic of Kafka, upserted by Hudi's bundle."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql.functions import col, from_json  # noqa: E402

from benchmarks.peers.worker import HUDI, session  # noqa: E402
from benchmarks.stream_records import SCHEMA_OF_SPARK  # noqa: E402


def from_files(spark: SparkSession, job: dict[str, Any]) -> None:
    """One batch of the files that came since the last one, which the folder of checkpoints remembers."""
    seen = Path(job["checkpoint"]) / "seen.json"
    known = set(json.loads(seen.read_text())) if seen.exists() else set()
    files = sorted(str(path) for path in Path(job["files"]).iterdir() if str(path) not in known)
    frame = spark.read.schema(SCHEMA_OF_SPARK).json(files)
    options = {**job["options"], "hoodie.datasource.write.operation": "upsert"}
    frame.write.format("hudi").options(**options).mode("append").save(job["table"])
    seen.parent.mkdir(exist_ok=True)
    seen.write_text(json.dumps([*known, *files]))


def from_topic(spark: SparkSession, job: dict[str, Any]) -> None:
    """All that the topic has, by the structured streaming sink."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job["address"])
    messages = source.option("subscribe", job["topic"]).option("startingOffsets", "earliest").load()
    rows = messages.select(from_json(col("value").cast("string"), SCHEMA_OF_SPARK).alias("row")).select("row.*")
    stream = rows.writeStream.format("hudi").options(**job["options"]).outputMode("append")
    stream = stream.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True)
    stream.start(job["table"]).awaitTermination()


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = session(job["folder"], {**HUDI, "spark.jars": ",".join(job["jars"])})
    work = from_files if job["address"] is None else from_topic
    if "--rounds" not in sys.argv:
        work(spark, job)
    else:
        for _ in sys.stdin:
            start = time.perf_counter()
            work(spark, job)
            print("seconds", time.perf_counter() - start, flush=True)
    spark.stop()


main()
