"""`skep alter`, on a table that is named by its path."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table


@pytest.fixture
def path(tmp_path: Path) -> str:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])
    create_table(LocalStorage(str(tmp_path / "t")), TableSpec(name="t", schema=from_arrow(schema), record_key=("id",)))
    open_table(str(tmp_path / "t")).insert(pa.table({"id": [1], "name": ["a"], "n": pa.array([5], pa.int32())}))
    return str(tmp_path / "t")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["alter", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_columns_are_changed(path: str) -> None:
    run("rename", path, "name", "label")
    run("type", path, "n", "decimal(12, 2)")
    run("add", path, "s", "struct<a: int>", "--after", "id", "--comment", "two")
    run("add", path, "s.b", "int", "--first")
    run("move", path, "label", "--after", "n")
    run("comment", path, "n", "how many")
    run("drop", path, "label")
    (row,) = json.loads(run("add", path, "label", "date", "-o", "json"))
    assert row["columns"] == "id, s, n, label"
    table = open_table(path)
    assert [str(row) for row in table.read(columns=["n", "label"]).to_arrow().to_pylist()] == [
        "{'n': Decimal('5.00'), 'label': None}"
    ]
    assert table.schema["n"].doc == "how many"


def test_refusals_are_errors_of_usage(path: str) -> None:
    for arguments in (
        ("rename", path, "id", "key"),
        ("add", path, "x", "int", "--first", "--after", "id"),
        ("move", path, "n"),
        ("type", path, "name", "int"),
        ("type", path, "name", "no such type"),
    ):
        result = CliRunner().invoke(app, ["alter", *arguments])
        assert result.exit_code != 0, arguments
    assert len(open_table(path).history()) == 1
