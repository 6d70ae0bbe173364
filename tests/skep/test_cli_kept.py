"""Commands while the embedded metastore is down: those that only read its entries start no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep_catalog.embedded import running

pytestmark = [pytest.mark.metastore, pytest.mark.engine("metastore")]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two tables, one of them merge-on-read; its metastore was stopped."""
    folder = tmp_path_factory.mktemp("kept") / "lake"
    with skep.connect(warehouse=str(folder)) as lake:
        rows = pa.table({"id": [1, 2], "note": ["a", "b"]})
        for name, type in (("shop.orders", "cow"), ("shop.moved", "mor")):
            lake.create_table(name, rows, key="id", type=type).upsert(rows)
    return folder


def run(warehouse: Path, *arguments: str) -> Any:
    found = CliRunner().invoke(app, [*arguments, "-w", str(warehouse)])
    assert found.exit_code == 0, (found.output, found.exception)
    return found


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


READS: list[tuple[str, ...]] = [
    ("ls", "-o", "jsonl"),
    ("ls", "shop", "-o", "jsonl"),
    ("show", "shop.orders", "-o", "jsonl"),
    ("show", "shop.moved", "-o", "jsonl"),
    ("read", "shop.orders", "-o", "jsonl"),
    ("read", "shop.moved_ro", "-o", "jsonl"),
    ("schema", "shop.orders", "-o", "jsonl"),
    ("sql", "select count(*) as n from shop.orders", "-o", "jsonl"),
    ("sql", "(select id from shop.moved_rt); show tables in shop; describe shop.orders", "-o", "jsonl"),
    ("sql", "with t as (select id from shop.orders) select * from t order by id", "-o", "jsonl"),
    ("sql", "show databases; describe database shop", "-o", "jsonl"),
]


@pytest.fixture(scope="module")
def state(warehouse: Path) -> Path:
    """Of the server that ran last: the next one writes another."""
    return warehouse / ".metastore" / "server.json"


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_command_that_reads_starts_no_server(words: tuple[str, ...], warehouse: Path, state: Path) -> None:
    before = state.stat()
    assert lines(run(warehouse, *words).stdout)
    assert state.stat() == before
    assert (warehouse / ".metastore" / "entries").exists()


def test_an_unknown_name_is_refused_with_the_nearest_one(warehouse: Path, state: Path) -> None:
    before = state.stat()
    found = CliRunner().invoke(app, ["read", "shop.order", "-w", str(warehouse)])
    assert found.exit_code == 1
    assert "orders" in found.stderr
    assert state.stat() == before


def test_two_processes_read_at_the_same_time(warehouse: Path, state: Path) -> None:
    before = state.stat()
    code = "import sys; from skep.cli.main import main; sys.argv[0] = 'skep'; main()"
    command = [sys.executable, "-c", code, "ls", "-o", "jsonl", "-w", str(warehouse)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [[row["table"] for row in lines(each.communicate()[0])] for each in both]
    assert answers == [["shop.moved", "shop.orders"]] * 2
    assert state.stat() == before


def test_a_command_that_writes_starts_it_and_what_it_wrote_is_read_without(warehouse: Path, state: Path) -> None:
    before = state.stat()
    run(warehouse, "sql", "select id from shop.orders; create table shop.later (id bigint) using hudi")
    after = state.stat()
    assert after != before
    assert running(warehouse / ".metastore") is None
    tables = [row["table"] for row in lines(run(warehouse, "ls", "-o", "jsonl").stdout)]
    assert tables == ["shop.later", "shop.moved", "shop.orders"]
    assert state.stat() == after


def test_a_server_that_was_only_read_leaves_the_same(warehouse: Path, state: Path) -> None:
    before, entries = state.stat(), warehouse / ".metastore" / "entries"
    contents = entries.read_bytes().split(b"\n", 3)[3]
    entries.unlink()
    run(warehouse, "ls")
    assert state.stat() != before
    assert entries.read_bytes().split(b"\n", 3)[3] == contents
