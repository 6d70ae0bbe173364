"""HDFS on loopback (a name node and a data node in one process) and empty folders in it, for any test."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skep_format.storage import Storage, open_storage

JARS = (("junit", "junit", "4.13.2"), ("org.mockito", "mockito-core", "2.28.2"))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a name node: Hadoop's own test cluster, of the release that pyspark brings the client of."""
    pytest.importorskip("hdfs_native")
    from benchmarks.peers.bundle import PeerMissing, fetched
    from skep_catalog.java import find_java
    from skep_catalog.spark import find_spark

    spark = find_spark()
    (client,) = Path(spark.jars).glob("hadoop-client-api-*.jar")
    release = client.stem.removeprefix("hadoop-client-api-")
    try:
        jars = [fetched(*each) for each in (("org.apache.hadoop", "hadoop-client-minicluster", release), *JARS)]
    except PeerMissing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                *(str(find_java(spark.version).executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                f"-Dhdfs.minidfs.basedir={folder}",
                *(
                    "-cp",
                    ":".join([*map(str, jars), f"{spark.jars}/*"]),
                    "org.apache.hadoop.test.MiniDFSClusterManager",
                ),
                *("-format", "-nnport", "0", "-writeDetails", str(details)),
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        yield f"127.0.0.1:{_port(server, details, folder / 'log')}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def hdfs_folder(hdfs: str) -> Callable[[], Storage]:
    """Makes storage below a folder that is not there yet."""
    return lambda: open_storage(f"hdfs://{hdfs}/f{uuid.uuid4().hex}/lake/table/")


def _port(server: subprocess.Popen[bytes], details: Path, log: Path) -> int:
    """The name node's, once it and its data node are up."""
    import json

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        if details.exists() and (text := details.read_text()):
            return int(json.loads(text)["namenode_port"])
        time.sleep(0.1)
    pytest.fail(f"HDFS does not come up: {log.read_text()[-3000:]}")
