"""The images of docker/: a metastore and a HiveServer2 in containers over a lake of skep, and skep's own image."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_asking import Engine
from engine_containers import ContainerLauncher, attached, build, run_in
from engine_images import tag
from engine_launch import GUARD, ProcessLauncher, Running
from engine_services import ServiceMissing
from engine_starting import start_engine, start_metastore
from engine_tables import PLAIN, plain

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_format.errors import LockTimeoutError
from skep_format.storage import open_storage
from skep_table.commit.create import TableSpec, create_table
from skep_table.locks.zookeeper import ZooKeeperLock
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

# Left to --all: building the images takes longer than all other starts together, and what runs in them is started by
# the same settings as processes (test_queries, test_metastores); test_images checks templates and start scripts.
pytestmark = [pytest.mark.engine("containers"), pytest.mark.slow]


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contained")


@pytest.fixture(scope="module")
def containers(processes: ProcessLauncher, scratch: Path, lake_folder: Path) -> ContainerLauncher:
    try:
        build("metastore-2.3.10", "hive-2.3.10", "skep")
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    return ContainerLauncher(processes, scratch, [lake_folder])


@pytest.fixture(scope="module")
def contained_metastore(
    containers: ContainerLauncher, processes: ProcessLauncher, lake_folder: Path
) -> Iterator[Running]:
    running = start_metastore("metastore-2.3.10", containers, processes, f"file://{lake_folder}")
    yield running
    running.stop()


def place(i: int) -> str:
    return ("north", "ü-冷")[i % 2]  # a folder's name that needs a UTF-8 locale


@pytest.fixture(scope="module")
def table(contained_metastore: Running, lake_folder: Path) -> Iterator[Table]:
    with Metastore.connect(contained_metastore.uri, timeout=30, attempts=2) as client:
        lake = Lake(client, str(lake_folder / "lake"), database="contained")
        table = lake.create_table("t", PLAIN, key="id", ordering="ts", partition_by="part", type="mor")
        table.insert(plain(range(6), 1, place))
        table.upsert(plain(range(3), 2, place))
        yield table


@pytest.fixture(scope="module")
def hive(
    containers: ContainerLauncher,
    processes: ProcessLauncher,
    scratch: Path,
    contained_metastore: Running,
    lake_folder: Path,
) -> Iterator[Engine]:
    uri = contained_metastore.uri
    running, engine = start_engine("hive-2.3.10", containers, processes, scratch, uri, f"file://{lake_folder}")
    yield engine
    engine.close()
    running.stop()


def test_hive_in_a_container_reads_both_views(hive: Engine, table: Table) -> None:
    for view, query in (("t_ro", "read_optimized"), ("t_rt", "snapshot")):
        read = table.read(query=query, columns=["id", "amount"]).to_arrow()
        expected = sorted(zip(read["id"].to_pylist(), read["amount"].to_pylist(), strict=True))
        found = hive.ask(f"select id, amount from contained.{view}").rows
        assert sorted(found) == expected
    assert hive.ask("select count(*) from contained.t_rt where ts = 2").rows == [(3,)]


def test_skeps_image_reads_syncs_and_checks(table: Table, contained_metastore: Running, lake_folder: Path) -> None:
    image = tag("skep")
    read = run_in(image, "read", table.path, "--columns", "id,ts", "--output", "jsonl", folders=[lake_folder])
    rows = sorted((row["id"], row["ts"]) for row in map(json.loads, read.stdout.splitlines()))
    assert rows == [(f"id-{i:03}", 2 if i < 3 else 1) for i in range(6)], read.stderr
    to = ("--metastore", contained_metastore.uri)
    synced = run_in(image, "sync", "apply", table.path, "--table", "other", *to, folders=[lake_folder])
    assert synced.returncode == 0, synced.stderr
    checked = run_in(image, "sync", "check", "contained.other", *to, folders=[lake_folder])
    assert (checked.returncode, checked.stdout.strip()) == (0, "contained.other: in sync"), checked.stderr
    seen = run_in(image, "doctor", "--warehouse", str(lake_folder), *to, folders=[lake_folder])
    assert seen.returncode == 0, seen.stdout  # without Spark, which it needs for nothing


def test_a_container_ends_with_its_starter(containers: ContainerLauncher) -> None:
    def docker(*words: str) -> str:
        return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout

    deaf = docker("run", "-d", "--rm", "--entrypoint=sleep", tag("java"), "600").strip()
    command = [sys.executable, str(GUARD), *attached(deaf)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        assert deaf in docker("ps", "-q", "--no-trunc")
        assert guard.stdin is not None
        guard.stdin.close()  # as the system does for a starter that was killed
    deadline = time.monotonic() + 60
    while deaf in docker("ps", "-q", "--no-trunc"):
        assert time.monotonic() < deadline, "the container lives on"
        time.sleep(0.1)


def test_the_zookeeper_in_a_container_has_locks(containers: ContainerLauncher) -> None:
    def look(port: int) -> None:
        lock = ZooKeeperLock(f"127.0.0.1:{port}", "/locks/first", connect_seconds=2)
        lock.acquire(5)
        lock.release()

    running = containers.start_image("zookeeper", look, {})
    one, other = (ZooKeeperLock(f"127.0.0.1:{running.port}", "/locks/t") for _ in range(2))
    one.acquire(10)
    with pytest.raises(LockTimeoutError):
        other.acquire(0.5)
    one.release()
    other.acquire(10)
    other.release()
    running.stop()


def test_the_s3_server_in_a_container_keeps_a_table(containers: ContainerLauncher) -> None:
    boto3 = pytest.importorskip("boto3")
    keys = {"access.key": "key", "secret.key": "secret", "endpoint.region": "us-east-1", "path.style.access": "true"}

    def client(port: int) -> Any:
        given = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **given)

    running = containers.start_image("s3", lambda port: client(port).list_buckets(), {})
    client(running.port).create_bucket(Bucket="lake")
    options = {f"fs.s3a.{key}": value for key, value in keys.items()}
    options["fs.s3a.endpoint"] = f"http://127.0.0.1:{running.port}"
    spec = TableSpec(name="t", schema=PLAIN, record_key=("id",), ordering="ts", partition_by=("part",))
    create_table(open_storage("s3a://lake/t", options), spec)
    LocalWriter(HudiTable.open("s3a://lake/t", options)).upsert(plain(range(4), 1))
    assert read(HudiTable.open("s3a://lake/t", options), ReadRequest()).count() == 4
    running.stop()
