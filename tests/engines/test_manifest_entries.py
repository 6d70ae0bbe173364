"""Values of all kinds through entries over lists of base files, and `skep sync check` of such an entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_asking import Engine
from engine_starting import engine_param
from engine_tables import PLAIN, Made, plain
from engine_values import difference, rows_answered, rows_of
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_sync.manifest import FOLDER
from skep_sync.sync import sync_table

Tables = Callable[[str, str], Made]
pytestmark = pytest.mark.parametrize("engine", [engine_param("presto-0.287")], indirect=True)
LISTED = "listed"
KINDS = ("types", "nested", "odd_partitions", "two_levels", "added_columns", "widened_columns")


@pytest.fixture
def lake(engine: Engine, tmp_path: Path) -> Iterator[Lake]:
    options = {
        "skep.sync.targets": "plain",
        "skep.sync.target.plain.uris": engine.metastore,
        "skep.sync.target.plain.database": LISTED,
        "skep.sync.target.plain.kind": "manifest",
    }
    with skep.connect(engine.metastore, warehouse=str(tmp_path / "lake"), options=options) as lake:
        yield lake
        for database in (LISTED, "unlisted"):
            for name in lake.metastore.tables(database):
                lake.metastore.drop_table(database, name)


def agree(engine: Engine, table: Table) -> None:
    expected = table.read(query="read_optimized").to_arrow()
    answer = engine.ask(f"select * from hive.{LISTED}.{engine.quote(table.name.rpartition('.')[2])}")
    rows = rows_answered(answer.names, answer.rows, expected.schema)
    assert not (found := difference(rows, rows_of(expected))), found


@pytest.mark.parametrize("name", KINDS)
def test_values_and_partitions_of_all_kinds(engine: Engine, tables: Tables, name: str) -> None:
    table = tables(name, "mor").table
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        sync_table(table.hudi, client, LISTED, options={"skep.sync.kind": "manifest"})
    agree(engine, table)


def test_a_check_asks_the_engine_for_such_an_entry(engine: Engine, lake: Lake) -> None:
    table = lake.create_table("unlisted.checked", PLAIN, key="id", ordering="ts", partition_by="part", type="mor")
    table.insert(plain(range(4), 1))
    table.upsert(plain(range(2), 2))  # in log files, which such an entry does not show

    def check() -> list[dict[str, str]]:
        options = {key: value for key, value in lake.options.items() if key.startswith("skep.sync.target")}
        words = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
        asked = ["--target", "plain", "--engine", f"{engine.kind}=127.0.0.1:{engine.port}/hive"]
        command = ["sync", "check", table.path, "--metastore", engine.metastore, "--output", "json"]
        done = CliRunner().invoke(app, [*command, *words, *asked])
        found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        assert done.exit_code == (1 if found else 0)
        return found

    assert check() == []
    (files,) = Path(table.path, FOLDER, "north").iterdir()
    files.write_text("")
    assert {finding["aspect"] for finding in check()} >= {"rows"}
