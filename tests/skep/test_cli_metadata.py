"""`skep metadata`: what each command prints, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table


@pytest.fixture(params=["0.15.0", "1.1.1"])
def folder(request: pytest.FixtureRequest, golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / request.param / "cow_record_index" / "table", tmp_path / "table")
    return tmp_path / "table"


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code in (0, 1) else []


def test_it_is_shown_and_counted(folder: Path) -> None:
    shown = {row["partition"]: row for row in run("metadata", "show", folder)}
    assert {"files", "record_index"} <= shown.keys()
    assert {row["state"] for row in shown.values()} == {"ready"}
    counted = {row["partition"]: row for row in run("metadata", "stats", folder)}
    assert counted.keys() == shown.keys()
    assert counted["record_index"]["records"] == len(run("read", folder))
    listed = {row["path"]: row["files"] for row in run("metadata", "stats", folder, "--partitions")}
    assert listed.keys() == {row["partition"] for row in run("files", folder)}
    assert all(listed.values())


def test_how_current_it_is_goes_to_stderr(folder: Path) -> None:
    result = CliRunner().invoke(app, ["metadata", "show", str(folder)])
    assert result.exit_code == 0
    assert "has all completed writes" in result.stderr
    assert "last compaction never" in result.stderr
    assert "last compaction" not in result.stdout


def test_a_sound_one_is_validated(folder: Path) -> None:
    assert run("metadata", "validate", folder) == []
    assert run("metadata", "validate", folder, "--index", "files") == []
    assert run("fsck", folder, "--metadata") == []
    run("metadata", "validate", folder, "--index", "nothing", code=2)


def test_differences_are_an_exit_code(folder: Path) -> None:
    lost = next(path for path in folder.glob("*/*.parquet"))
    lost.unlink()
    found = run("metadata", "validate", folder, "--index", "files", code=1)
    assert {(row["problem"], row["partition"], row["path"]) for row in found} >= {
        ("surplus", "files", lost.parent.name)
    }
    assert lost.name in {row["subject"] for row in found}
    both = run("fsck", folder, "--metadata", code=1)
    assert any(row["path"].endswith(lost.name) and "metadata table" in row["detail"] for row in both)
    assert not any("metadata table" in row["detail"] for row in json.loads(fsck_alone(folder)))


def fsck_alone(folder: Path) -> str:
    return CliRunner().invoke(app, ["fsck", str(folder), "-o", "json"]).stdout


def test_it_is_made_again_and_dropped(folder: Path) -> None:
    dropped = run("metadata", "drop", folder, "--index", "record_index")
    assert dropped == [{"partition": "record_index", "state": "dropped"}]
    run("metadata", "drop", folder, "--index", "files", code=2)
    made = run("metadata", "rebuild", folder)
    assert {"partition": "files", "state": "made"} in made
    assert run("metadata", "validate", folder) == []
    assert {"partition": "files", "state": "dropped"} in run("metadata", "drop", folder)
    assert not (folder / ".hoodie" / "metadata").exists()
    for command in ("show", "stats", "validate", "drop"):
        run("metadata", command, folder, code=2)
    assert run("fsck", folder, "--metadata") == []


def test_as_methods_of_a_table(folder: Path) -> None:
    table = open_table(str(folder))
    assert {each.name for each in table.show_metadata().partitions} >= {"files", "record_index"}
    assert table.validate_metadata(indexes="files").differences == ()
    assert table.metadata_statistics().partitions
    assert table.drop_metadata(index="record_index") == ("record_index",)
    assert "files" in table.rebuild_metadata().kept
    assert "files" in table.drop_metadata()
