"""A ZooKeeper server on loopback, from the jars within pyspark's."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ZOO = """\
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=100
maxClientCnxns=200
admin.enableServer=false
"""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a server whose sessions may be as short as a fifth of a second."""
    pytest.importorskip("kazoo")
    from skep_catalog.java import find_java
    from skep_catalog.spark import find_spark

    folder = tmp_path_factory.mktemp("zookeeper")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "zoo.cfg").write_text(ZOO.format(folder=folder / "data", port=port))
    spark = find_spark()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(find_java(spark.version).executable),
                *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", f"{spark.jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(folder / "zoo.cfg")),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(port, server, folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"ZooKeeper does not come up: {log.read_text()}")
