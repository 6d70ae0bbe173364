"""A Kafka broker as a process of its own, on loopback, and Spark's source of topics: their jars by coordinates."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.bundle import DEPENDENCY_PLUGIN, PeerMissing, fetched, java

RELEASE = "3.9.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>skep.tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{RELEASE}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


@cache
def class_path() -> str:
    """PeerMissing when Java or Maven is not there, or Maven can't get the jars."""
    java()
    with TemporaryDirectory(prefix="kafka-") as folder:
        pom, listed = Path(folder, "pom.xml"), Path(folder, "classpath")
        pom.write_text(_POM)
        goal = f"{DEPENDENCY_PLUGIN}:build-classpath"
        command = ["mvn", "-q", "-B", "-f", str(pom), goal, f"-Dmdep.outputFile={listed}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        except FileNotFoundError:
            raise PeerMissing("no Maven on this machine; Kafka is fetched with mvn (apt-get install maven)") from None
        if done.returncode:
            raise PeerMissing(f"Maven did not bring Kafka: {(done.stdout + done.stderr).strip()[-300:]}")
        return listed.read_text().strip()


def spark_source() -> list[Path]:
    """The jars of Spark's source `kafka`. PeerMissing when Maven can't get them."""
    spark = "3.5.7"  # fits all of 3.5
    parts = [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.12", spark),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.12", spark),
        ("org.apache.kafka", "kafka-clients", "3.4.1"),
        ("org.apache.commons", "commons-pool2", "2.11.1"),
    ]
    return [fetched(*each) for each in parts]


class Broker:
    """One node that is broker and controller; its port and its data outlive its process."""

    def __init__(self, folder: Path) -> None:
        port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        self._folder, self._settings = folder, folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""
        )
        self._run = [str(java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path()]
        tool = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._settings)]
        subprocess.run([*self._run, *tool], check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        """Returns when it responds."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*self._run, "kafka.Kafka", str(self._settings)], stdout=log, stderr=log)
        _wait(self.address, self._process, self._folder / "log")

    def kill(self) -> None:
        """As kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker that is up."""
    made = Broker(folder)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """As `running`; yields its address."""
    with running(folder) as made:
        yield made.address


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    from confluent_kafka.admin import AdminClient

    end = time.monotonic() + 120
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=5)
        except Exception:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"Kafka did not come up:\n{log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
