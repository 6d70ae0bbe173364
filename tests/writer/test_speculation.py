"""Two attempts of one task at the same time: Spark's speculation, which needs two hosts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from skep_catalog.java import find_java

pytestmark = pytest.mark.spark


SPECULATING = """
import json, os, sys, time
from contextlib import contextmanager
from skep_catalog.class_archive import spark_environment
from skep_table.commit.create import TableSpec, create_table
from skep_format.storage import LocalStorage
from skep_table.table import HudiTable
from skep_writer import SparkWriter, make_spark
import pyarrow as pa

folder, flags, master = sys.argv[1:]

class SlowOnce(LocalStorage):
    # The task that begins the first file of all is slow; the copy of the task that Spark then starts is not.
    @contextmanager
    def open_write(self, path):
        with super().open_write(path) as file:
            if path.endswith(".parquet"):
                token = path.split("_")[1]
                open(os.path.join(flags, token), "w").close()
                try:
                    os.mkdir(os.path.join(flags, "slow"))
                    for second in range(60):
                        if sum(name.startswith(token.split("-")[0] + "-") for name in os.listdir(flags)) > 1:
                            break
                        time.sleep(1)
                    time.sleep(3)
                except FileExistsError:
                    pass
            yield file

spark = make_spark(spark_environment(), master=master, conf={
    "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1", "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms", "spark.speculation.efficiency.enabled": "false"})
spark.sparkContext.setLogLevel("OFF")
schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
spec = TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts")
create_table(LocalStorage(folder), spec)
rows = spark.range(200).selectExpr("concat('k', id) id", "concat('p', id % 2) part", "1L ts", "'1' v")
result = SparkWriter(HudiTable.open(SlowOnce(folder)), spark).upsert(rows)
time.sleep(5)  # what an attempt does that outlives the commit shows by then
print("RESULT", json.dumps([result.inserted, [stat.path for stat in result.metadata.stats]]))
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone cluster with two workers on two loopback addresses: to Spark they are two hosts."""
    java = find_java(pyspark.__version__)
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "JAVA_HOME": str(java.home), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "128m"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    host, port = address.split(":")
    commands = [["master.Master", "--host", host, "--port", port, "--webui-port", "0"]]
    for worker in ("127.0.0.2", "127.0.0.3"):
        folder = str(tmp_path / worker)
        options = ["--host", worker, "--webui-port", "0", "--cores", "1", "--memory", "600m", "--work-dir", folder]
        commands.append(["worker.Worker", *options, f"spark://{address}"])
    started = []
    try:
        for at, (name, *rest) in enumerate(commands):
            with (tmp_path / f"{at}.log").open("w") as log:
                command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *rest]
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        yield f"spark://{address}"
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


@pytest.mark.slow
def test_speculated_tasks_leave_one_file_each(cluster: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(SPECULATING)
    flags, table = tmp_path / "flags", tmp_path / "table"
    flags.mkdir()
    command = [sys.executable, str(job), str(table), str(flags), cluster]
    ran = subprocess.run(
        command,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, ran.stderr[-4000:]
    inserted, paths = json.loads(lines[0].removeprefix("RESULT"))
    tasks = [token.name.split("-")[0] for token in flags.glob("*-*")]
    assert len(tasks) > len(set(tasks)), "nothing ran twice: the test shows nothing"
    assert inserted == 200
    markers = [file for file in (table / ".hoodie/.temp").rglob("*") if file.is_file()]
    assert not markers
    assert sorted(str(file.relative_to(table)) for file in table.rglob("*.parquet")) == sorted(paths)
    assert not list(table.rglob("*.tmp*"))
