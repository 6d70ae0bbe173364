"""A process that answers one line by Sail: by skep's own client, or as an argument `pyspark` by pyspark-client."""

from __future__ import annotations

import sys
from pathlib import Path

QUERY = "select 1 + 1 as n"
KEPT: list[object] = []


def by_pyspark() -> object:
    """The server is kept: without one pyspark-client's end of the process tries again for more than ten minutes."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    KEPT.append(server)
    host, port = server.listening_address
    return SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate().sql(QUERY).toArrow()


def by_own_client() -> object:
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from benchmarks.engine_choice.sail_client import Sail

    return Sail({"spark.sql.session.timeZone": "UTC"}).rows(QUERY)


if __name__ == "__main__":
    print(by_pyspark() if sys.argv[1:] == ["pyspark"] else by_own_client())
