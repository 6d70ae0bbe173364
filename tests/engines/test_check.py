"""`skep sync check --engine`: engines are queried themselves, and their wrong answers are reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_asking import Engine
from engine_tables import PLAIN, Made, plain
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore

Tables = Callable[[str, str], Made]


@pytest.fixture
def table(engine: Engine, tmp_path: Path) -> Iterator[Table]:
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(tmp_path / "lake"), database="checked")
        table = lake.create_table("t", PLAIN, key="id", ordering="ts", partition_by="part", type="mor")
        table.insert(plain(range(6), 1, lambda i: ("north", "south")[i % 2]))
        table.upsert(plain(range(2), 2, lambda i: ("north", "south")[i % 2]))
        yield table
        lake.drop_table("t", purge=True)


def check(table: Table, engine: Engine, *more: str) -> tuple[int, list[dict[str, object]]]:
    command = ["sync", "check", table.name, "--metastore", engine.metastore, "--output", "json"]
    done = CliRunner().invoke(app, [*command, "--engine", f"{engine.kind}=127.0.0.1:{engine.port}", *more])
    return done.exit_code, json.loads(done.stdout)["findings"]


def test_an_engine_that_reads_the_table_right(engine: Engine, table: Table) -> None:
    code, findings = check(table, engine)
    if engine.computes_snapshots:
        assert (code, findings) == (0, [])
    else:  # the snapshot views are answered without what the log files hold, or with an error
        assert code == 1
        assert {str(finding["entry"]) for finding in findings} == {"checked.t", "checked.t_rt"}
        assert {finding["aspect"] for finding in findings} == {"engine" if engine.merges else "rows"}


def test_a_partition_that_an_engine_does_not_see(engine: Engine, table: Table) -> None:
    with Metastore.connect(engine.metastore) as client:
        client.drop_partitions("checked", "t_ro", ["part=south"])
    code, findings = check(table, engine)
    assert code == 1
    missing = [found["what"] for found in findings if found["aspect"] == "partitions"]
    assert missing == ["missing: 1 partition (part=south)"]
    wrong = [found for found in findings if found["aspect"] == "rows" and found["entry"] == "checked.t_ro"]
    if engine.kind == "spark":  # it lists the table's folders, whatever the metastore lists
        assert not wrong
        return
    (rows,) = wrong
    assert rows["engines"] == [f"{engine.kind} at 127.0.0.1:{engine.port}"]
    assert str(rows["what"]).startswith("answers no rows in south; there are 3 rows up to 2")


def test_an_engine_that_does_not_answer(engine: Engine, table: Table) -> None:
    code, findings = check(table, engine, "--engine", "presto=127.0.0.1:1")
    assert code == 1
    silent = [finding for finding in findings if finding["engines"] == ["presto at 127.0.0.1:1"]]
    assert {finding["aspect"] for finding in silent} == {"engine"}
    assert len(silent) == 3
