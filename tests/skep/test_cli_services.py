"""`skep clean`, `archive`, `rollback`, `savepoint`, `restore`: what they print and refuse; --plan changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skep.cli.main import app

LAST = "20261121020658630"
RETAIN_ONE = ("--option", "hoodie.cleaner.commits.retained=1")


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / "0.15.0" / "cow_clean" / "table", tmp_path / "table")
    return tmp_path / "table"


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else []


def rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(run("read", folder), key=repr)


def files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def test_clean_plans_schedules_and_executes(folder: Path) -> None:
    before, there = rows(folder), files(folder)
    planned = run("clean", folder, "--plan", *RETAIN_ONE)
    assert files(folder) == there
    assert {row["state"] for row in planned} == {"planned"}
    scheduled = run("clean", folder, "--schedule", *RETAIN_ONE)
    assert [row["file"] for row in scheduled] == [row["file"] for row in planned]
    done = run("clean", folder, "--execute")
    assert sorted(row["file"] for row in done) == sorted(row["file"] for row in planned)
    assert not any((folder / row["partition"] / row["file"]).exists() for row in done)
    assert run("clean", folder, *RETAIN_ONE) == []
    assert rows(folder) == before
    run("clean", folder, "--plan", "--execute", code=2)


def test_archive(folder: Path) -> None:
    options = ("--option", "hoodie.keep.max.commits=4", "--option", "hoodie.keep.min.commits=2", *RETAIN_ONE)
    before, there = rows(folder), files(folder)
    planned = run("archive", folder, "--plan", *options)
    assert files(folder) == there
    assert planned
    archived = run("archive", folder, *options)
    assert [row["requested_time"] for row in archived] == [row["requested_time"] for row in planned]
    assert rows(folder) == before
    run("archive", folder, "--option", "hoodie.cleaner.commits.retained=30", code=2)


def test_savepoint_rollback_and_restore(folder: Path) -> None:
    there = files(folder)
    assert run("savepoint", folder, "--plan")
    assert run("rollback", folder, LAST, "--plan")
    assert files(folder) == there
    earlier = "20261121020657673"
    expected = sorted(run("read", folder, "--as-of", earlier), key=repr)
    assert {row["savepoint"] for row in run("savepoint", folder, earlier, "--comments", "kept")} == {earlier}
    assert [row["requested_time"] for row in run("restore", folder, earlier, "--plan")] == [LAST]
    assert {row["rolled_back"] for row in run("restore", folder, earlier)} == {LAST}
    assert rows(folder) == expected
    run("rollback", folder, earlier, code=2)
    run("savepoint", folder, "--delete", code=2)
    run("savepoint", folder, earlier, "--delete")
    run("restore", folder, earlier, code=2)


def test_rollback(folder: Path) -> None:
    (*_, before) = sorted(path.name for path in (folder / ".hoodie").glob("*.commit"))[:-1]
    expected = sorted(run("read", folder, "--as-of", before.removesuffix(".commit")), key=repr)
    done = run("rollback", folder, LAST)
    assert {(row["rolled_back"], row["what"]) for row in done} == {(LAST, "deleted")}
    assert rows(folder) == expected


def test_tables_of_later_versions_are_refused(golden: Path) -> None:
    table = golden / "1.1.1" / "cow_clean" / "table"
    before = files(table)
    for command in (("clean",), ("archive",), ("savepoint",)):
        run(*command, table, code=1)
    assert files(table) == before
