"""`./dev bench NAME`: skep, JVM Hudi and others side by side in one run."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from rich.console import Console

from benchmarks import (
    growth,
    index,
    lock,
    look_up,
    object_store,
    read,
    server,
    services,
    spark_reads,
    sql,
    stream,
    sync,
    upsert,
    write,
)
from benchmarks.peers.bundle import WRITERS

BENCHMARKS = {
    "upsert": upsert.measure,
    "write": write.measure,
    "read": read.measure,
    "read-spark": spark_reads.measure,
    "sql": sql.measure,
    "stream": stream.measure,
    "sync": sync.measure,
    "server": server.measure,
    "services": services.measure,
    "lock": lock.measure,
    "look-up": look_up.measure,
    "index": index.measure,
    "object-store": object_store.measure,
    "growth": growth.measure,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--scale", type=float, default=1.0, help="rows as a share of the full size; 0.01 is a try")
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each, after one to warm up")
    parser.add_argument("--only", default="", metavar="NAMES", help="contenders, by comma, as the result names them")
    parser.add_argument("--table-version", type=int, choices=WRITERS, default=6, help="of `write`'s tables")
    parser.add_argument(
        "--lives", nargs="+", choices=write.LIVES, default=list(write.LIVES), help="of `write`'s tables"
    )
    parsed = parser.parse_args(arguments)
    if parsed.table_version != 6 and parsed.benchmark != "write":
        parser.error("--table-version is of the benchmark `write`")
    console = Console(stderr=True)
    only = frozenset(name.strip() for name in parsed.only.split(",") if name.strip())
    writing = partial(write.measure, table_version=parsed.table_version, lives=parsed.lives)
    measure = writing if parsed.benchmark == "write" else BENCHMARKS[parsed.benchmark]
    report = measure(scale=parsed.scale, runs=parsed.runs, only=only, progress=console.log)
    report.show(Console())
    console.print(f"written to {report.save()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
