"""Tables of other versions by commands, methods and the options of a write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table
from skep_format.errors import InputError
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.upgrade import change

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
AUTO = {"hoodie.write.auto.upgrade": "true"}


def frame(ts: int, *ids: str) -> pa.Table:
    return pa.table([ids, [ts] * len(ids)], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), ordering="ts", version=6)
    create_table(LocalStorage(str(path)), spec)
    open_table(path).upsert(frame(1, "a", "b"))
    return path


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 and result.stdout.strip() else []


def version(folder: Path) -> int:
    return HudiTable.open(str(folder)).config.version


def test_the_commands_plan_and_change(folder: Path) -> None:
    planned = run("upgrade", folder, "--plan")
    assert {(row["before"], row["after"]) for row in planned} == {(6, 9)}
    assert version(folder) == 6
    assert [row["step"] for row in run("upgrade", folder, "--to", 8)] == ["completed"]
    assert version(folder) == 8
    run("upgrade", folder)
    assert version(folder) == 9
    assert run("upgrade", folder) == []
    assert "lost" in {row["step"] for row in run("downgrade", folder, "--to", 6, "--plan")}
    run("downgrade", folder, "--to", 6)
    assert version(folder) == 6
    run("downgrade", folder, "--to", 9, code=2)


def test_the_files_of_an_interrupted_change_are_deleted(folder: Path) -> None:
    left = folder / ".hoodie/timeline/20260101000000000.commit.requested"
    left.parent.mkdir()
    left.touch()
    left.with_name("timeline.moved").touch()
    (planned,) = run("upgrade", folder, "--to", 6, "--plan")
    assert planned["step"] == "delete"
    assert left.exists()
    run("upgrade", folder, "--to", 6)
    assert not left.exists()
    assert version(folder) == 6


@pytest.mark.parametrize("refused", [False, True])
def test_a_write_that_upgrades_to_the_newest_makes_its_metadata_table(folder: Path, refused: bool) -> None:
    """As Hudi 1.1 does by default, whose first write also upgrades."""
    given = {**AUTO, "hoodie.write.table.version": "newest", **({"hoodie.metadata.enable": "false"} if refused else {})}
    table = open_table(folder, **given)
    table.upsert(frame(2, "b", "c"))
    config = HudiTable.open(str(folder)).config
    assert (config.version, config.metadata_partitions) == (9, () if refused else ("column_stats", "files"))
    table.upsert(frame(3, "d"))
    assert table.read().count() == 4


def test_an_upgrade_to_the_newest_that_ends_early_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**AUTO, "hoodie.write.table.version": "newest"}
    with monkeypatch.context() as patched:
        patched.setattr(change, "change_version", lambda *_: pytest.fail("ends here"))
        with pytest.raises(pytest.fail.Exception):
            open_table(folder, **given).upsert(frame(2, "b"))
    assert version(folder) == 6
    open_table(folder).upsert(frame(3, "b", "c"))
    open_table(folder, **given).upsert(frame(4, "c"))
    config = HudiTable.open(str(folder)).config
    assert (config.version, config.metadata_partitions) == (9, ("column_stats", "files"))
    assert open_table(folder).read().count() == 3


def test_a_handle_goes_on_in_the_new_version(folder: Path) -> None:
    table = open_table(folder)
    assert table.upgrade().after == 9
    table.upsert(frame(2, "b", "c"))
    table.downgrade(6)
    table.upsert(frame(3, "d"))
    assert sorted(table.read(columns="id").to_arrow()["id"].to_pylist()) == ["a", "b", "c", "d"]
    with pytest.raises(InputError, match="upgrade brings it there"):
        table.downgrade(9)


def test_a_write_upgrades_only_where_both_options_demand_it(folder: Path) -> None:
    open_table(folder).upsert(frame(2, "c"), **{"hoodie.write.table.version": 9})
    assert version(folder) == 6
    open_table(folder).upsert(frame(3, "c"), **AUTO)
    assert version(folder) == 6
    open_table(folder).upsert(frame(4, "d"), **AUTO, **{"hoodie.write.table.version": 9})
    assert version(folder) == 9
    open_table(folder).upsert(frame(5, "e"), **AUTO, **{"hoodie.write.table.version": 8})
    assert version(folder) == 9
    assert open_table(folder).read().to_arrow().num_rows == 5
