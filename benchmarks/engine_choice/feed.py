"""A process that hands rows of Arrow to one engine in one way, and asks for sums by groups: how long each takes.

Arguments: `duckdb` or the way into Sail; how many rows; how many runs. Prints a line of JSON with the seconds of each.
The rows are of `benchmarks.data`, in batches as a read of a table yields them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from benchmarks import data  # noqa: E402

QUERY = (
    "select part, count(*) as n, sum(quantity) as q, max(ts) as ts, sum(amount) as amount,"
    " count(distinct customer) as c from rows_given group by part order by part"
)
BATCH = 65_536
REGISTRY = "engine_choice_rows"  # a module by which a data source finds rows of this process


def by_duckdb(rows: pa.Table) -> Callable[[], pa.Table]:
    import duckdb

    def run() -> pa.Table:
        with duckdb.connect() as connection:
            connection.register("rows_given", pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(BATCH)))
            return connection.sql(QUERY).to_arrow_table()

    return run


def by_relation(rows: pa.Table) -> Callable[[], pa.Table]:
    """As messages: all rows are copied into one, and by the server into its own."""
    from benchmarks.engine_choice.sail_client import Sail

    sail = Sail()

    def run() -> pa.Table:
        sail.register("rows_given", rows)
        return sail.raw(QUERY)

    return run


def by_file(rows: pa.Table, kind: str) -> Callable[[], pa.Table]:
    """By way of a file that is written for it."""
    import pyarrow.parquet as pq

    from benchmarks.engine_choice.sail_client import Sail

    sail = Sail()

    def run() -> pa.Table:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"rows.{kind}")
            if kind == "arrow":
                with pa.ipc.new_file(file, rows.schema) as writer:
                    writer.write_table(rows, BATCH)
            else:
                pq.write_table(rows, file, compression="lz4")
            return sail.raw(QUERY.replace("rows_given", f"{kind}.`{file}`"))

    return run


def by_source(rows: pa.Table) -> Callable[[], pa.Table]:
    """By a data source in Python, which Sail calls on threads of this process."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    registry = types.ModuleType(REGISTRY)
    registry.ROWS = rows  # type: ignore[attr-defined]
    sys.modules[REGISTRY] = registry

    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> list[Any]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            import engine_choice_rows

            yield from engine_choice_rows.ROWS.to_batches(65_536)[partition.value :: 2]

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "given"

        def schema(self) -> pa.Schema:
            import engine_choice_rows

            return engine_choice_rows.ROWS.schema

        def reader(self, schema: object) -> Reader:  # noqa: ARG002 - Spark's signature
            return Reader()

    server = SparkConnectServer()
    server.start(background=True)
    host, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
    spark.dataSource.register(Source)
    spark._kept = server

    def run() -> pa.Table:
        spark.read.format("given").load().createOrReplaceTempView("rows_given")
        return spark.sql(QUERY).toArrow()

    return run


WAYS: dict[str, Callable[[pa.Table], Callable[[], pa.Table]]] = {
    "duckdb": by_duckdb,
    "relation": by_relation,
    "source": by_source,
    "arrow": lambda rows: by_file(rows, "arrow"),
    "parquet": lambda rows: by_file(rows, "parquet"),
}


def main() -> None:
    way, count, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run = WAYS[way](data.rows(np.arange(count)))
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - begin)
    sums = [str(found[name][0]) for name in ("n", "q", "amount", "c")]
    print(json.dumps({"seconds": seconds[1:], "sums": sums}))


if __name__ == "__main__":
    main()
