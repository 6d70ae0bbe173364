"""How each metastore and engine is started, by its name."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_asking import Engine, flink, hive_like, presto, rest_ready, trino
from engine_containers import ContainerLauncher
from engine_launch import Launcher, ProcessLauncher, Running, free_port, new_folder
from engine_services import SERVICES, ServiceMissing, java

from benchmarks.peers.bundle import PeerMissing, bundle
from skep_catalog.client import Metastore

SPARK_THRIFT = "spark-3.5"
METASTORES = ("metastore-2.3.10", "metastore-3.1.3", "metastore-4.0.1")
ENGINES = ("hive-2.3.10", SPARK_THRIFT, "presto-0.287", "trino-476", "hive-4.0.1")
SLOW = ("trino-476", "hive-4.0.1")
"""Left to ./dev test --all."""
FLINK = "flink-1.17.2"
"""Asked by its own tests: it has no meta columns, and its statements are jobs of seconds."""


def engine_param(name: str) -> Any:
    """A parameter of the fixture `engine`, with the marks by which it is chosen."""
    return pytest.param(name, marks=[pytest.mark.engine(name), *([pytest.mark.slow] if name in SLOW else [])])


def start_metastore(name: str, launcher: Launcher, processes: ProcessLauncher, warehouse: str) -> Running:
    def ready(port: int) -> None:
        with Metastore.connect(f"thrift://127.0.0.1:{port}", timeout=20, attempts=1) as client:
            client.databases()

    service = SERVICES[name]
    if not service.needs_database:
        return launcher.start(service, ready, {"WAREHOUSE": warehouse})
    contained = isinstance(launcher, ContainerLauncher)
    database = launcher.start_image("postgresql", _answers, {}) if contained else _postgresql(processes)
    try:
        given = {"WAREHOUSE": warehouse, "DATABASE_HOST": f"127.0.0.1:{database.port}"}
        running = launcher.start(service, ready, given)
    except BaseException:
        database.stop()
        raise
    return running.and_then(database.stop)


def _postgresql(processes: ProcessLauncher) -> Running:
    """An empty database `metastore` of a user `hive`. PostgreSQL does not run as root: then as its own user."""
    found = [Path(text) for text in (shutil.which("postgres"),) if text]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    if not found:
        raise ServiceMissing("no PostgreSQL on this machine (apt-get install postgresql); a metastore 4 needs it")
    programs = found[0].resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="skep-postgresql-"))
    other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    if other:
        shutil.chown(folder, "postgres", "postgres")
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "cwd": folder}
    subprocess.run([*other, programs / "initdb", "-A", "trust", "-U", "hive", "-D", folder / "data"], **quiet)

    def ready(port: int) -> None:
        create = [*other, programs / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "hive", "metastore"]
        subprocess.run(create, stderr=subprocess.DEVNULL, **quiet)

    command = [*other, programs / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder]
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    return processes.run("postgresql", [*map(str, command), *settings], port, ready, folder, {})


def _answers(port: int) -> None:
    """Whether a PostgreSQL takes sessions of `hive`, in the words of its protocol: its programs may not be here."""
    body = struct.pack("!i", 3 << 16) + b"user\0hive\0database\0metastore\0\0"
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(struct.pack("!i", 4 + len(body)) + body)
        assert connection.recv(1) == b"R"


def start_engine(
    name: str, launcher: Launcher, processes: ProcessLauncher, scratch: Path, metastore: str, warehouse: str
) -> tuple[Running, Engine]:
    kind = name.partition("-")[0]
    open_engine: Callable[[int], Engine] = {
        "hive": lambda port: hive_like(name, "hive", metastore, port),
        "spark": lambda port: hive_like(name, "spark", metastore, port),
        "presto": lambda port: presto(name, metastore, port),
        "trino": lambda port: trino(name, metastore, port),
        "flink": lambda port: flink(name, metastore, port),
    }[kind]

    def ready(port: int) -> None:
        if kind in ("presto", "trino"):
            rest_ready(port)
        open_engine(port).ready()

    if isinstance(launcher, ContainerLauncher) and kind == "spark":
        running = launcher.start_image(name, ready, {"METASTORE": metastore})
    elif kind == "spark":
        running = start_spark_thrift(processes, scratch, metastore, ready)
    else:
        running = launcher.start(SERVICES[name], ready, {"METASTORE": metastore, "WAREHOUSE": warehouse})
    return running, open_engine(running.port)


def start_spark_thrift(
    processes: ProcessLauncher, scratch: Path, metastore: str, ready: Callable[[int], object], *, hudi: str = "0.15.0"
) -> Running:
    """With the bundle of a release of Hudi."""
    try:
        jar = bundle(hudi)
    except PeerMissing as missing:
        raise ServiceMissing(str(missing)) from missing
    folder = new_folder(scratch, SPARK_THRIFT)
    port = free_port()
    script = Path(__file__).with_name("spark_thrift.py")
    command = [sys.executable, str(script), str(port), metastore, str(jar), str(folder)]
    environment = {"JAVA_HOME": str(java(17).parents[1]), "PYSPARK_PYTHON": sys.executable}
    return processes.run(SPARK_THRIFT, command, port, ready, folder, environment)
