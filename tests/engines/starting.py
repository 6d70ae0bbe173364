"""How each metastore and engine is started, by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from engine_asking import Engine, hive_like, presto, rest_ready, trino
from engine_launch import Launcher, ProcessLauncher, Running, free_port, new_folder
from engine_services import SERVICES, java

from benchmarks.peers.bundle import PeerMissing, bundle
from skep_catalog.client import Metastore

SPARK_THRIFT = "spark-3.5"
METASTORES = ("metastore-2.3.10", "metastore-3.1.3", "metastore-4.0.1")
ENGINES = ("hive-2.3.10", SPARK_THRIFT, "presto-0.287", "trino-476", "hive-4.0.1")
SLOW = ("trino-476", "hive-4.0.1")
"""Left to ./dev test --all."""


def start_metastore(name: str, launcher: Launcher, warehouse: str) -> Running:
    def ready(port: int) -> None:
        with Metastore.connect(f"thrift://127.0.0.1:{port}", timeout_seconds=20, attempts=1) as client:
            client.databases()

    return launcher.start(SERVICES[name], ready, {"WAREHOUSE": warehouse})


def start_engine(
    name: str, launcher: Launcher, processes: ProcessLauncher, scratch: Path, metastore: str, warehouse: str
) -> tuple[Running, Engine]:
    kind = name.partition("-")[0]
    open_engine: Callable[[int], Engine] = {
        "hive": lambda port: hive_like(name, "hive", port),
        "spark": lambda port: hive_like(name, "spark", port),
        "presto": lambda port: presto(name, port),
        "trino": lambda port: trino(name, port),
    }[kind]

    def ready(port: int) -> None:
        if kind in ("presto", "trino"):
            rest_ready(port)
        open_engine(port).ready()

    if kind == "spark":
        running = _spark_thrift(processes, scratch, metastore, ready)
    else:
        running = launcher.start(SERVICES[name], ready, {"METASTORE": metastore, "WAREHOUSE": warehouse})
    return running, open_engine(running.port)


def _spark_thrift(processes: ProcessLauncher, scratch: Path, metastore: str, ready: Callable[[int], object]) -> Running:
    try:
        jar = bundle("0.15.0")
    except PeerMissing as missing:
        from engine_services import ServiceMissing

        raise ServiceMissing(str(missing)) from missing
    folder = new_folder(scratch, SPARK_THRIFT)
    port = free_port()
    script = Path(__file__).with_name("spark_thrift.py")
    command = [sys.executable, str(script), str(port), metastore, str(jar), str(folder)]
    environment = {"JAVA_HOME": str(java(17).parents[1]), "PYSPARK_PYTHON": sys.executable}
    return processes.run(SPARK_THRIFT, command, port, ready, folder, environment)
