"""Lakes, writes by path and commands with AWS Glue, on moto's server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep.flows.streams import _of_flags
from skep.metastore.syncing import open_queue
from skep_catalog.glue.client import GlueCatalog
from skep_format.errors import UnsupportedError
from skep_stream.flags import Flags

ADDRESS = "glue://us-east-1"
TOOL = {"hoodie.meta.sync.client.tool.class": "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"}
ENABLE = {"hoodie.datasource.meta.sync.enable": "true"}
STORAGE = {"hoodie.write.lock.provider": "storage"}
Orders = Callable[..., pa.Table]


@pytest.fixture
def database(glue_database: str) -> str:
    """A name for a database that a sync makes."""
    return glue_database


def test_a_write_by_path_syncs_after_its_commit(
    glue: GlueCatalog, database: str, glue_options: dict[str, str], orders: Orders, tmp_path: Path
) -> None:
    options = {
        **glue_options,
        **TOOL,
        **ENABLE,
        "hoodie.aws.glue.region": "us-east-1",
        "hoodie.datasource.meta.sync.glue.database_name": database,
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    skep.write(orders(1)).format("hudi").options(**options).mode("append").save(str(tmp_path / "orders"))
    assert glue.partition_names(database, "orders") == ["day=2026-01-01"]


def test_a_failed_sync_is_a_warning_and_is_kept(
    glue: GlueCatalog, database: str, glue_options: dict[str, str], orders: Orders, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    down = {"hoodie.aws.glue.endpoint": "http://127.0.0.1:1", "skep.metastore.attempts": "1"}
    options = {**glue_options, **STORAGE, "skep.sync.targets": "aws", "skep.sync.target.aws.uris": ADDRESS}
    options |= {f"skep.sync.target.aws.{key}": value for key, value in down.items()}
    lake = skep.connect(ADDRESS, folder, options=options)
    with pytest.warns(skep.SyncWarning, match="target aws is not up to date"):
        lake.create_table(f"{database}.orders", orders(1), key="id", partition_by="day")
    queue = open_queue(lake.options, folder)
    assert queue is not None
    (left,) = queue.pending()
    assert left.target == "aws"
    assert left.failure is not None
    assert left.failure.unreachable
    assert glue.tables(database) == ["orders"]
    lake.close()


def test_a_lake_in_glue_alone(
    glue: GlueCatalog, database: str, glue_options: dict[str, str], orders: Orders, tmp_path: Path
) -> None:
    folder = str(tmp_path / "lake")
    with skep.connect(ADDRESS, folder, options={**glue_options, **STORAGE}) as lake:
        table = lake.create_table(f"{database}.orders", orders(1), key="id", partition_by="day")
        table.upsert(orders(1, 2))
        assert glue.partition_names(database, "orders") == ["day=2026-01-01"]
        assert lake.sql(f"SELECT count(*) AS n FROM {database}.orders", engine="sail").to_arrow()["n"].to_pylist() == [
            2
        ]
        assert f"{database}.orders" in list(lake)
        with pytest.raises(UnsupportedError, match="no rename of tables"):
            lake.rename_table(f"{database}.orders", f"{database}.others")
        assert lake.table(f"{database}.orders").read().count() == 2
        lake.drop_table(f"{database}.orders")
        assert glue.tables(database) == []


def test_a_write_in_glue_alone_needs_another_lock(
    glue: GlueCatalog, database: str, glue_options: dict[str, str], orders: Orders, tmp_path: Path
) -> None:
    with skep.connect(ADDRESS, str(tmp_path / "lake"), options=glue_options) as lake:
        with pytest.raises(UnsupportedError, match=r"AWS Glue \(glue://us-east-1\) has no locks") as refused:
            lake.create_table(f"{database}.orders", orders(1), key="id", partition_by="day")
        assert refused.value.fields["option"] == "hoodie.write.lock.provider"
    assert database not in glue.databases()
    assert not (tmp_path / "lake").exists() or not list((tmp_path / "lake").rglob(".hoodie"))


def test_commands(
    glue: GlueCatalog,
    database: str,
    glue_options: dict[str, str],
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tmp_path / "skep.toml"
    lines = [f'{key} = "{value}"' for key, value in glue_options.items()]
    settings.write_text("\n".join([f'metastore = "{ADDRESS}"', "[options]", *lines]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, list(arguments))
        return done.exit_code, done.output

    table = tmp_path / "cow_upsert"
    shutil.copytree(golden / "0.15.0" / "cow_upsert" / "table", table)
    place = [str(table), "-d", database]
    code, shown = run("sync", "plan", *place, "--exit-code")
    assert (code, f"create table {database}.cow_upsert" in shown) == (3, True)
    assert run("sync", "apply", *place)[0] == 0
    assert glue.tables(database) == ["cow_upsert"]
    assert run("sync", "check", *place)[0] == 0
    names = glue.partition_names(database, "cow_upsert")
    glue.drop_partitions(database, "cow_upsert", names[:1])
    assert run("sync", "check", f"{database}.cow_upsert")[0] == 1
    assert run("sync", "repair", f"{database}.cow_upsert")[0] == 0
    assert glue.partition_names(database, "cow_upsert") == names
    code, shown = run("sync", "status", "--all", "--database", database)
    assert (code, f"{database}.cow_upsert" in shown) == (0, True)
    code, shown = run("lock", "show")
    assert code != 0
    assert "AWS Glue (glue://us-east-1) has no locks" in shown


def test_a_streams_flag_names_the_tool() -> None:
    """With --enable-sync its commits are then synced as those of other writes."""
    given = {"target_base_path": "t", "target_table": "orders", "table_type": "COPY_ON_WRITE", "enable_sync": True}
    (tool,) = TOOL
    assert tool not in _of_flags(Flags.of(given), {})
    assert _of_flags(Flags.of({**given, "sync_tool_classes": TOOL[tool]}), {})[tool] == TOOL[tool]
    with pytest.raises(
        UnsupportedError, match=r"--sync-tool-classes a\.DataHubSyncTool: only .*AwsGlueCatalogSyncTool"
    ):
        _of_flags(Flags.of({**given, "sync_tool_classes": "a.DataHubSyncTool"}), {})
