"""A process that answers one line by Sail: by the client that is an argument, or by one of Spark Connect's messages."""

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


def by_flight() -> object:
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from benchmarks.engine_choice.sail_flight import SailFlight

    return SailFlight().rows(QUERY)


CLIENTS = {"pyspark": by_pyspark, "flight": by_flight}

if __name__ == "__main__":
    print(CLIENTS[sys.argv[1]]() if sys.argv[1:] else by_own_client())
