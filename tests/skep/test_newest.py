"""The newest table version with what Hudi makes of a new table by default: a metadata table with statistics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_storage import KilledAtChanges
from sleepy_clock import SleepyClock
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep.flows.pipelines import PipelineSpec
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_format.errors import InputError, SkepError, TableMismatchError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.table_config import MergeMode
from skep_format.timeline.instant import Action
from skep_table.query import ReadRequest, read
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from tests.tables_at import create_at

Orders = Callable[..., pa.Table]
KEY = "hoodie.write.table.version"
OFF = {"hoodie.metadata.enable": "false"}
STATS = "hoodie.metadata.index.column.stats.enable"
PARTITION_STATS = "hoodie.metadata.index.partition.stats.enable"
WHOLE = ("files", "column_stats", "partition_stats")


def facts(table: Any) -> tuple[int, set[str]]:
    hudi = HudiTable.open(str(getattr(table, "path", table)))
    return hudi.config.version, set(hudi.config.metadata_partitions)


@pytest.fixture
def newest_lake(metastore: Metastore, database: str, tmp_path: Path) -> Lake:
    return Lake(metastore, str(tmp_path / "lake"), database=database, options=Options({KEY: "newest"}))


@pytest.mark.metastore
def test_an_argument_chooses_it_and_the_kind_of_table_decides_the_rest(lake: Lake, orders: Orders) -> None:
    rows = orders(1, 2)
    made = lake.create_table("t", rows, key="id", ordering="ts", partition_by="day", table_version="newest")
    assert facts(made) == (9, set())
    lake.table("t").upsert(rows)  # by a handle that knows nothing of it
    assert facts(made) == (9, set(WHOLE))
    plain = lake.create_table("u", rows, key="id", type="mor", table_version="newest")
    plain.upsert(rows)
    plain.upsert(orders(2, 3, note="second"))
    assert facts(plain) == (9, {"files", "column_stats"})
    assert plain.validate_metadata().differences == ()
    assert plain.read().count() == 3
    assert {made.hudi.config.merge_mode, plain.hudi.config.merge_mode} == {
        MergeMode.EVENT_TIME_ORDERING,
        MergeMode.COMMIT_TIME_ORDERING,
    }


@pytest.mark.metastore
def test_one_option_is_for_a_whole_lake_and_what_is_stated_of_a_table_wins(newest_lake: Lake, orders: Orders) -> None:
    lake, rows = newest_lake, orders(1)
    described: dict[str, Any] = {"key": "id", "partition_by": "day"}
    cases: dict[str, tuple[dict[str, Any], int, set[str]]] = {
        "a": ({}, 9, set(WHOLE)),
        "b": ({"table_version": 6}, 6, set()),
        "c": ({"properties": {KEY: "8"}}, 8, set()),
        "d": ({"properties": OFF}, 9, set()),
        "e": ({"properties": {STATS: "false"}}, 9, {"files"}),
        "f": ({"properties": {PARTITION_STATS: "false"}}, 9, {"files", "column_stats"}),
    }
    for name, (stated, version, partitions) in cases.items():
        lake.create_table(name, rows, **described, **stated)
        lake.table(name).upsert(rows)
        assert facts(lake.table(name)) == (version, partitions), name
    for name, (version, partitions) in {"9": (9, set()), "newest": (9, {"files", "column_stats"})}.items():
        lake.sql(f"create table s{name} (id int) using hudi tblproperties (primaryKey = 'id', '{KEY}' = '{name}')")
        lake.sql(f"insert into s{name} values (1)")
        assert facts(lake.table(f"s{name}")) == (version, partitions), name
    lake.sql("create table q using hudi tblproperties (primaryKey = 'id') as select 1 id")
    assert facts(lake.table("q")) == (9, {"files", "column_stats"})
    lake.sql(f"set {KEY} = 6")
    lake.sql("create table r using hudi tblproperties (primaryKey = 'id') as select 1 id")
    assert facts(lake.table("r")) == (6, set())


@pytest.mark.metastore
def test_a_lake_without_metadata_tables_has_none_and_a_write_with_false_makes_none(
    metastore: Metastore, database: str, tmp_path: Path, orders: Orders
) -> None:
    off = Lake(metastore, str(tmp_path / "lake"), database=database, options=Options({KEY: "newest", **OFF}))
    off.create_table("t", orders(1), key="id").upsert(orders(1))
    assert facts(off.table("t")) == (9, set())
    on = Lake(metastore, str(tmp_path / "lake"), database=database)
    made = on.create_table("u", orders(1), key="id", table_version="newest")
    made.upsert(orders(1), **OFF)
    made.upsert(orders(2))
    assert facts(made) == (9, set())


@pytest.mark.metastore
def test_a_table_that_is_there_is_compared_by_its_version(lake: Lake, orders: Orders) -> None:
    lake.create_table("t", orders(1), key="id")
    with pytest.raises(TableMismatchError, match="has version 6, not 9"):
        lake.create_table("t", orders(1), key="id", table_version="newest", if_not_exists=True)
    lake.create_table("u", orders(1), key="id", table_version=9)
    assert lake.create_table("u", orders(1), key="id", table_version="newest", if_not_exists=True).path
    for wrong in ("latest", 9.5):
        with pytest.raises(InputError, match="newest"):
            lake.create_table("v", orders(1), key="id", table_version=wrong)  # type: ignore[arg-type]
    assert "v" not in lake


def test_a_write_to_a_path_a_command_and_a_pipeline_choose_it(tmp_path: Path, orders: Orders) -> None:
    rows, options = orders(1), {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    writer = skep.write(rows).options(**options, **{KEY: "newest"})
    writer.mode("append").save(str(tmp_path / "a"))
    assert facts(tmp_path / "a") == (9, {"files", "column_stats"})
    writer.mode("overwrite").save(str(tmp_path / "a"))
    assert facts(tmp_path / "a") == (9, {"files", "column_stats"})
    pq.write_table(rows, tmp_path / "rows.parquet")
    write = ["write", str(tmp_path / "b"), str(tmp_path / "rows.parquet"), "--key", "id", "--partition-by", "day"]
    result = CliRunner().invoke(app, [*write, "--table-version", "newest"])
    assert result.exit_code == 0, result.output
    assert facts(tmp_path / "b") == (9, set(WHOLE))
    settings = {"source": str(tmp_path / "b"), "target": str(tmp_path / "c"), "key": "id", "table_version": "newest"}
    spec = PipelineSpec.of_settings("c", settings)
    list(skep.pipeline(spec.source, spec.target, key=spec.key, table_version=spec.table_version).run())
    assert facts(tmp_path / "c") == (9, {"files", "column_stats"})


@pytest.mark.metastore
def test_a_bootstrap_chooses_it(lake: Lake, tmp_path: Path, orders: Orders) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(orders(1, 2), tmp_path / "source/0.parquet")
    lake.bootstrap("t", str(tmp_path / "source"), key="id", table_version="newest")
    table = lake.table("t")
    assert facts(table) == (9, {"files", "column_stats"})
    assert table.read().count() == 2


@pytest.mark.metastore
def test_its_metadata_table_is_complete_with_each_commit_and_read(newest_lake: Lake, orders: Orders) -> None:
    """Of one write: the data table's commit and the metadata table's, which lists its files with their statistics."""
    table = newest_lake.create_table("t", orders(1), key="id", ordering="ts", partition_by="day")
    for day in ("2026-01-01", "2026-01-02"):
        table.insert(orders(*range(20), day=day, ts=int(day[-1])))
    hudi = HudiTable.open(table.path)
    metadata = HudiTable.open(f"{table.path}/.hoodie/metadata")
    written = {each.requested_time for each in hudi.timeline.completed().of(Action.COMMIT)}
    assert written <= {each.requested_time for each in metadata.timeline.completed().instants}
    plan = table.read(where="ts = 2").explain()
    assert any("statistics" in step.by for step in plan.steps)
    assert table.read(where="ts = 2").count() == 20


def test_a_first_write_that_is_killed_leaves_none_or_a_whole_one(tmp_path: Path, orders: Orders) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", KEY: "newest"}
    rows = orders(1, 2)
    table = create_at(str(tmp_path / "first"), rows.schema, options, key="id", partition_by="day")
    work, at, calls = tmp_path / "work", 1, 1
    while at <= calls:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(table.path, work)
        storage = KilledAtChanges(str(work), at)
        with suppress(SkepError):
            LocalWriter(HudiTable.open(storage).with_context(runner=ThreadRunner(1))).upsert(rows)
        found = HudiTable.open(str(work))
        assert read(found, ReadRequest()).to_arrow().num_rows in (0, 2)
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        LocalWriter(found.with_context(clock=clock)).upsert(orders(2, 3))
        assert facts(work) == (9, set(WHOLE)), storage.calls[-1]
        assert check_metadata_table(HudiTable.open(str(work))).differences == (), storage.calls[-1]
        calls, at = max(calls, len(storage.calls), 60 if at == 1 else 0), at + 7
