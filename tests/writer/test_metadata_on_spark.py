"""A metadata table that is made by Spark's tasks holds what one made by threads does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.clock import SYSTEM_CLOCK
from skep_format.runner import Runner, ThreadRunner
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX, member_of
from skep_table.metadata_write.making import reading
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_writer.edge import SparkRunner

pytestmark = pytest.mark.spark
OF_FILES_AND_KEYS = (COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX)
DEFINED = {
    "secondary_index_v": IndexDefinition("secondary_index_v", "secondary_index", "identity", ("v",)),
    "expr_index_day": IndexDefinition(
        "expr_index_day", "column_stats", "from_unixtime", ("ts",), {"expr": "from_unixtime", "format": "yyyy-MM-dd"}
    ),
}


class Counting:
    """A runner that counts jobs and tasks."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.jobs: list[int] = []

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Sequence[Any]:
        listed = list(tasks)
        self.jobs.append(len(listed))
        return self.runner.map(function, listed)


def make(path: Path, version: int) -> HudiTable:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("part", pa.string())])
    keys = {"record_key": ("id",), "ordering": "ts", "partition_by": ("part",)}
    spec = TableSpec(name="t", schema=schema, type=TableType.MERGE_ON_READ, version=version, **keys)
    table = create_table(LocalStorage(str(path)), spec)
    for commit in range(2):
        ids = [f"{part}{row}" for part in "abc" for row in range(commit, 5)]
        rows = {
            "id": ids, "ts": [commit * 100_000] * len(ids), "v": [f"v{commit}"] * len(ids), "part": [i[0] for i in ids]
        }  # fmt: skip
        LocalWriter(table, hooks=()).upsert(pa.table(rows, schema))
    return table.reload()


def records(table: HudiTable) -> dict[str, dict[str, Any]]:
    """The records of all partitions by key, of a secondary index the keys by value."""
    metadata = MetadataTable.open(table)
    assert metadata is not None
    found: dict[str, dict[str, Any]] = {}
    for name in table.config.metadata_partitions:
        if name in DEFINED and DEFINED[name].index_type == "secondary_index":
            of_values = {value: metadata.record_keys_of(name, pa.array([value]), 100) for value in ("v0", "v1")}
            found[name] = {value: sorted(keys.to_pylist()) for value, keys in of_values.items() if keys is not None}
            assert all(found[name].values())
            continue
        member = member_of(name, DEFINED[name].index_type if name in DEFINED else None)
        assert member is not None
        keys, values = latest(metadata._lookup(name, None, member), member)
        found[name] = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("version", [6, 9])
def test_made_on_spark_is_what_threads_make(
    spark: Any, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_TASKS", 2)  # several jobs for each index
    make(tmp_path / "a", version)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    runners = {"a": ThreadRunner(), "b": Counting(SparkRunner(spark))}
    defined = DEFINED if version == 9 else {}
    made = {}
    for name, runner in runners.items():
        table = HudiTable.open(LocalStorage(str(tmp_path / name))).with_context(runner=runner)
        made[name] = create_metadata_table(table, SYSTEM_CLOCK, (*OF_FILES_AND_KEYS, *defined), defined)
        assert not check_metadata_table(made[name]).differences
    assert records(made["a"]) == records(made["b"])
    assert set(made["a"].config.metadata_partitions) >= {*OF_FILES_AND_KEYS, *defined}
    assert len(runners["b"].jobs) >= 4
    assert max(runners["b"].jobs) == 2
