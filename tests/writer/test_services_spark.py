"""Compaction and clustering as Spark tasks, one a file group: retried tasks leave nothing, and answers stay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import StorageError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.context import TableContext
from skep_table.query import ReadRequest, read
from skep_table.services.clustering import cluster as cluster_service
from skep_table.services.clustering.cluster import cluster
from skep_table.services.compaction import compact as compact_service
from skep_table.services.compaction.compact import compact
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer.edge import SparkRunner
from skep_writer.services import service_runner

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}


def make(path: Path, type: TableType) -> HudiTable:
    """Three commits over three partitions: bases, then updates of some rows."""
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=type)
    table = create_table(LocalStorage(str(path)), spec)
    for commit in range(3):
        names = [f"{part}{row}" for part in "abc" for row in range(commit, 20)]
        frame = pa.table([names, [name[0] for name in names], [commit * 7 % 5] * len(names)], schema=SCHEMA)
        LocalWriter(table).upsert(frame)
    return table


def rows(table: HudiTable) -> list[dict[str, Any]]:
    found = read(table.reload(), ReadRequest(columns=("_hoodie_commit_time", "id", "ts"))).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def base_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def test_compaction_and_clustering_on_spark(spark: Any, tmp_path: Path) -> None:
    table = make(tmp_path / "t", TableType.MERGE_ON_READ)
    before = rows(table)
    setting = {"runner": SparkRunner(spark), "options": Options(SORTED)}
    (compacted,) = compact(table.with_context(**setting))
    assert compacted.slices == 3
    assert rows(table) == before
    (clustered,) = cluster(table.reload().with_context(**setting))
    assert clustered.replaced == 3
    assert rows(table) == before
    stages = {stat.path.split("_")[1].split("-")[1] for stat in clustered.metadata.stats}
    assert len(stages) == 1
    assert stages != {"0"}, "the tasks did not run on Spark"


def test_a_task_that_is_tried_again_leaves_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = str(tmp_path / "failed")

    def fails_once(batches: Iterator[pa.RecordBatch], params: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and not Path(failed).exists():
                Path(failed).touch()
                raise OSError("the machine is down")

    monkeypatch.setattr(plug_ins, "_strategy", lambda group, name: fails_once if name == "fails" else None)
    path = tmp_path / "t"
    table = make(path, TableType.COPY_ON_WRITE)
    before, there = rows(table), base_files(path)
    options = Options({"hoodie.clustering.execution.strategy.class": "fails", **SORTED})
    (done,) = cluster(table.with_context(runner=SparkRunner(spark), options=options))
    assert Path(failed).exists()
    assert rows(table) == before
    assert base_files(path) - there == {stat.path for stat in done.metadata.stats}


def dying(table: HudiTable, at: str) -> HudiTable:
    """The table through storage that refuses every call of the driver from the first change on whose path has `at`."""

    class Dying(LocalStorage):
        dead = False

        def __reduce__(self) -> Any:
            return LocalStorage, (self.root,)

    def method(name: str) -> Any:
        def call(self: Dying, path: str | list[str], *args: Any, **named: Any) -> Any:
            self.dead = self.dead or at in path
            if self.dead:
                raise StorageError(f"lost at {name} {path}")
            return getattr(LocalStorage, name)(self, path, *args, **named)

        return call

    for name in ("sync", "create_exclusive", "replace_atomic", "rename", "delete", "delete_folder"):
        setattr(Dying, name, method(name))
    return HudiTable(TableContext(Dying(table.storage.root)), table.config, table.timeline)


def expire(path: Path, table: HudiTable) -> None:
    """Makes all files so old that an executor without heartbeat, such as Hudi's, counts as dead."""
    long_ago = table.context.clock.now().timestamp() - 121
    for file in (path / ".hoodie").rglob("*"):
        os.utime(file, (long_ago, long_ago))


DYING = {
    "compact": (compact_service.schedule_compaction, compact_service.execute_compaction, ".commit"),
    "cluster": (cluster_service.schedule_clustering, cluster_service.execute_clustering, ".replacecommit"),
}


@pytest.mark.parametrize("service", ["compact", pytest.param("cluster", marks=pytest.mark.slow)])
def test_who_dies_on_spark_leaves_the_plan_to_the_next(service: str, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, TableType.MERGE_ON_READ)
    before, there = rows(table), base_files(path)
    schedule, execute, completed = DYING[service]
    setting = {"runner": SparkRunner(spark), "options": Options(SORTED)}
    instant = schedule(table.reload().with_context(**setting))
    assert instant is not None
    for at in (".inflight", f"{instant.requested_time}{completed}"):
        with pytest.raises(StorageError):
            execute(dying(table.reload(), at).with_context(**setting), instant)
        assert rows(table) == before
        expire(path, table)
    done = execute(table.reload().with_context(**setting), instant)
    assert done is not None
    assert rows(table) == before
    assert base_files(path) - there == {stat.path for stat in done.metadata.stats}
    assert not table.reload().timeline.pending()


def test_on_one_machine_threads_do_it(spark: Any) -> None:
    assert isinstance(service_runner(spark), ThreadRunner)
