"""`skep index`: what each command prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.handles.by_path import open_table
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.write.local import LocalWriter

ROWS = pa.table({"id": ["a", "b"], "city": ["Rome", "Oslo"]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spec = TableSpec(name="t", schema=ROWS.schema, record_key=("id",), version=9)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(table).insert(ROWS)
    return tmp_path / "t"


def run(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else []


def test_an_index_is_built_shown_and_dropped(folder: Path) -> None:
    assert run("index", "show", folder) == []
    built = run("index", "build", folder, "--kind", "secondary_index", "--name", "by_city", "--column", "city")
    assert built == [
        {"name": "record_index", "kind": "record_index", "columns": "", "state": "made"},
        {"name": "by_city", "kind": "secondary_index", "columns": "city", "state": "made"},
    ]
    assert run("index", "show", folder) == [{**row, "state": "ready"} for row in built]
    assert run("index", "drop", folder, "--name", "record_index") == [{**row, "state": "dropped"} for row in built]
    assert run("index", "show", folder) == []


def test_an_index_over_an_expression(folder: Path) -> None:
    start = ("--expression", "substring", "--argument", "pos=1", "--argument", "len=2")
    made = {"name": "start", "kind": "column_stats", "columns": "city"}
    built = run("index", "build", folder, "--kind", "column_stats", "--name", "start", "--column", "city", *start)
    assert built == [{**made, "state": "made"}]
    assert run("index", "show", folder) == [{**made, "state": "ready"}]
    read = open_table(str(folder)).read(where="substring(city, 1, 2) = 'Zu'")
    assert read.explain().steps[-1].by == "by the expression index start"
    assert read.explain().steps[-1].slices == 0
    assert run("index", "drop", folder, "--name", "start") == [{**made, "state": "dropped"}]


def test_what_fails_is_an_exit_code(folder: Path) -> None:
    start = ("--kind", "column_stats", "--name", "start", "--column", "city")
    run("index", "build", folder, *start, "--expression", "substring", "--argument", "pos", code=2)
    run("index", "build", folder, *start, "--argument", "pos=1", code=2)
    run("index", "build", folder, *start, "--expression", "soundex", code=1)
    run("index", "build", folder, "--kind", "btree", code=2)
    run("index", "build", folder, "--kind", "secondary_index", code=2)
    run("index", "drop", folder, "--name", "by_city", code=2)


def test_the_methods_of_a_table(folder: Path) -> None:
    table = open_table(str(folder))
    index = table.build_index("secondary_index", columns="city")
    assert (index.name, index.columns) == ("city", ("city",))
    table.upsert(pa.table({"id": ["a", "c"], "city": ["Oslo", "Rome"]}))
    assert not table.validate_metadata(indexes=index.partition).differences
    assert table.read(where="city = 'Oslo'").to_arrow().sort_by("id")["id"].to_pylist() == ["a", "b"]
    assert table.drop_index("city") == ("city",)
    assert [each.name for each in table.indexes()] == ["record_index"]
