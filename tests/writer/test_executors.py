"""Tasks on other machines: an executor Python that has no skep, tasks that die half-way."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_table.table import HudiTable
from skep_writer import SparkWriter

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
NEEDED = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "dateutil", "pytz", "six", "tzdata")


@pytest.fixture
def python_without_skep(tmp_path: Path) -> Path:
    """An interpreter that finds pyspark's needs and nothing else of this environment."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        source = source.parent if source.name == "__init__.py" else source
        (packages / source.name).symlink_to(source)
        if (libraries := source.with_name(f"{name}.libs")).exists():
            (packages / libraries.name).symlink_to(libraries)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    assert subprocess.run([script, "-c", "import skep_format"], capture_output=True, check=False).returncode != 0
    return script


JOB = """
import json, sys
import pyarrow as pa
from skep_catalog.class_archive import spark_environment
from skep_table.commit.create import TableSpec, create_table
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.query import ReadRequest
from skep_writer import SparkWriter, make_spark, to_spark

folder, master, conf = sys.argv[1:]
conf = {"spark.executor.memory": "1g", **json.loads(conf)}
spark = make_spark(spark_environment(), master=master, conf=conf)
spark.sparkContext.setLogLevel("OFF")
schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
table = create_table(
    LocalStorage(folder), TableSpec(name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts")
)
writer = SparkWriter(table, spark, Options({"skep.spark.collect.max.bytes": "0"}))  # as for large frames
rows = spark.range(200).selectExpr("concat('k', id) id", "concat('p', id % 5) part", "1L ts", "'1' v")
results = [writer.bulk_insert(rows)]
results.append(writer.upsert(rows.selectExpr("id", "part", "2L ts", "'2' v").where("id > 'k5'")))
results.append(writer.upsert(pa.table({"id": ["k0", "new"], "part": ["p0", "p9"], "ts": [3, 3], "v": ["3", "3"]})))
writer = SparkWriter(table, spark)
results.append(writer.delete(rows.where("id = 'k1'").select("id", "part")))
# A filter is put to the rows by tasks in Python.
found = to_spark(table.reload(), ReadRequest(where="v > '1'", columns=("id",)), spark).count()
print("RESULT", json.dumps([*([r.inserted, r.updated, r.deleted] for r in results), found]))
spark.stop()
"""


# One task for everything, and copies of it where it is slow.
ALONE = {"spark.default.parallelism": "1", "spark.sql.shuffle.partitions": "1", "spark.speculation": "true"}


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local-cluster[2,1,1024]", {}),
        pytest.param("local[2]", {}, marks=pytest.mark.slow),
        ("local[1]", ALONE),
    ],
)
def test_executors_without_skep_get_it(
    master: str, conf: dict[str, str], python_without_skep: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": str(python_without_skep), "PYSPARK_DRIVER_PYTHON": sys.executable}
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(JOB))
    command = [sys.executable, str(job), str(tmp_path / "table"), master, json.dumps(conf)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, ran.stderr[-4000:]
    bigger = sum(1 for at in range(200) if f"k{at}" > "k5")
    assert json.loads(lines[0].removeprefix("RESULT")) == [
        [200, 0, 0],
        [0, bigger, 0],
        [1, 1, 0],
        [0, 0, 1],
        bigger + 2,
    ]


READS = """
import json, sys
from skep_catalog.class_archive import spark_environment
from skep_table.query import ReadRequest
from skep_table.table import HudiTable
from skep_writer import make_spark

golden, master, helpers = sys.argv[1:]
sys.path.append(helpers)
import spark_answers

spark = make_spark(spark_environment(), master=master, conf={"spark.executor.memory": "1g"})
spark.sparkContext.setLogLevel("OFF")
differences = {}
for name in ("0.15.0/mor_upsert", "1.1.1/mor_event_time", "1.1.1/cow_cdc"):
    table = HudiTable.open(f"{golden}/{name}/table")
    times = [str(instant.requested_time) for instant in table.timeline.completed()]
    requests = [ReadRequest(), ReadRequest(query="read_optimized"), ReadRequest(as_of=times[0])]
    requests += [ReadRequest(query="incremental"), ReadRequest(query="incremental", until=times[0])]
    requests += [ReadRequest(query="cdc")] if table.config.cdc_enabled else []
    for request in requests:
        differences[f"{name} {request.query.value} {request.as_of} {request.until}"] = spark_answers.difference(
            table, request, spark
        )
print("RESULT", json.dumps(differences))
spark.stop()
"""


def test_executors_on_other_machines_answer_every_query(
    golden: Path, python_without_skep: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": str(python_without_skep), "PYSPARK_DRIVER_PYTHON": sys.executable}
    job = tmp_path / "job.py"
    job.write_text(READS)
    command = [sys.executable, str(job), str(golden), "local-cluster[2,1,1024]", str(Path(__file__).parent)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, ran.stderr[-4000:]
    differences = json.loads(lines[0].removeprefix("RESULT"))
    assert len(differences) == 16
    assert not {name: found for name, found in differences.items() if found}


def test_a_local_session_of_another_python_is_pointed_to_pyspark_python(tmp_path: Path) -> None:
    """Spark starts `python3` of the path where nothing names another one, whatever Python the driver runs."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PYSPARK_PYTHON": str(script), "PYSPARK_DRIVER_PYTHON": sys.executable}
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(JOB))
    command = [sys.executable, str(job), str(tmp_path / "table"), "local[2]", "{}"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert "has no pyarrow" in ran.stderr, ran.stderr[-4000:]
    assert f"hint: set PYSPARK_PYTHON={sys.executable} before the session starts" in ran.stderr
    assert "venv-pack" not in ran.stderr


class DyingStorage(LocalStorage):
    """The first base file of an instant is opened and then its process dies; a flag on disk records that it did."""

    def __init__(self, root: str, flag: str) -> None:
        super().__init__(root)
        self.flag = Path(flag)

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        if path.endswith(".parquet") and not self.flag.exists():
            self.flag.touch()
            target = self.local_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"half a file")
            os._exit(1)
        with super().open_write(path) as file:
            yield file


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_a_task_that_dies_half_way_is_retried_and_leaves_nothing(
    operation: str,
    spark: Any,
    make_table: Callable[..., HudiTable],
    snapshot: Callable[[HudiTable], dict[str, Any]],
    tmp_path: Path,
) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    table = make_table(SCHEMA)
    SparkWriter(table, spark).bulk_insert(
        spark.createDataFrame([("old", "p0", 1, "0")], "id string, part string, ts long, v string")
    )
    flag = tmp_path / "died"
    dying = HudiTable.open(DyingStorage(table.storage.root, str(flag)))
    rows = spark.range(50).selectExpr("concat('k', id) id", "concat('p', id % 5) part", "1L ts", "'1' v")
    result = getattr(SparkWriter(dying, spark), operation)(rows)
    assert flag.exists(), "no task died: the test shows nothing"
    assert result.inserted == 50
    assert sorted(snapshot(table)) == sorted(["old", *(f"k{at}" for at in range(50))])
    written = {stat.path for stat in result.metadata.stats}
    root = Path(table.storage.root)
    time = result.instant.requested_time
    assert {str(file.relative_to(root)) for file in root.rglob(f"*{time}.parquet")} == written
    assert not [file for file in (root / ".hoodie/.temp").rglob("*") if file.is_file()]
