"""A table on the command line: by its path or by its name, distinguished by one rule for all commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import typer
from counting_storage import Calls
from typer.testing import CliRunner

import skep
from skep.base.names import is_path
from skep.cli.main import app
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.write.local import LocalWriter

Orders = Callable[..., pa.Table]
# What a command needs besides its table.
MORE: dict[str, tuple[str, ...]] = {
    "write": ("rows.csv",),
    "delete": ("--where", "id = 1"),
    "alter rename": ("name", "label"),
    "alter drop": ("name",),
    "alter type": ("name", "bigint"),
    "alter add": ("label", "int"),
    "alter move": ("name", "--after", "id"),
    "alter comment": ("name", "text"),
    "alter nullable": ("name",),
    "alter settings": ("--set", "hoodie.table.name=t"),
    "alter table-type": ("MOR",),
    "commits compare": ("other",),
    "commits export": ("exported",),
    "commits partitions": ("20260101000000000",),
    "compaction show": ("20260101000000000",),
    "compaction unschedule": ("20260101000000000",),
    "compaction validate": ("20260101000000000",),
    "repair deduplicate": ("p",),
    "repair rename-partition": ("p", "q"),
    "repair overwrite-hoodie-props": ("new.properties",),
    "rollback": ("20260101000000000",),
    "savepoint": ("20260101000000000",),
    "restore": ("20260101000000000",),
    "downgrade": ("--to", "6"),
    "index build": ("--kind", "record_index"),
    "index drop": ("--name", "record_index"),
}
# They need no table to be there: a lock may be asked for before, a watcher waits for one, and a bootstrap makes it.
OF_ANY_NAME = {"lock show", "lock wait", "lock break", "sync watch", "bootstrap"}


def commands_of_tables(group: Any = None, prefix: str = "") -> Iterator[str]:
    """All commands that take a table."""
    group = group or typer.main.get_command(app)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if hasattr(command, "commands"):
            yield from commands_of_tables(command, f"{prefix}{name} ")
        elif any(each.name in ("table", "tables") and each.param_type_name == "argument" for each in command.params):
            yield prefix + name


COMMANDS = sorted(commands_of_tables())


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("id\n1\n")
    (tmp_path / "new.properties").write_text("hoodie.table.name=t\n")
    (tmp_path / "plain").mkdir()


def make(path: str) -> None:
    rows = pa.table({"id": [1, 2]})
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    skep.write(rows).options(**options).save(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", False),
        ("shop.orders", False),
        ("`shop`.`orders`", False),
        ("plain", False),  # a folder is there, and no table in it
        ("lying", True),
        ("./orders", True),
        ("/lake/orders", True),
        ("lake/orders", True),
        ("s3://lake/orders", True),
        ("file:orders", True),
        (".", True),
        ("..", True),
        ("my-orders", True),
        ("2026", True),
        ("a.b.c", True),
    ],
)
def test_what_is_a_path_and_what_a_name(text: str, path: bool) -> None:
    make("lying")
    assert is_path(text) == path


def test_the_commands_are_those() -> None:
    assert {"show", "read", "schema", "timeline", "files", "properties", "write", "fsck", "lock show"} <= set(COMMANDS)


@pytest.mark.metastore
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"sync watch", "drop", "bootstrap"}))
def test_every_command_takes_a_path(command: str, metastore: Metastore) -> None:
    result = run(*command.split(), "./nowhere", *MORE.get(command, ()), *other(command, metastore))
    assert result.exit_code == 1, result.output
    assert "no Hudi table at" in result.stderr
    assert "nowhere" in result.stderr


@pytest.mark.metastore
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - OF_ANY_NAME))
def test_every_command_takes_a_name(command: str, metastore: Metastore, database: str) -> None:
    result = run(*command.split(), f"{database}.nowhere", *MORE.get(command, ()), *other(command, metastore))
    assert result.exit_code == 1, result.output
    assert f"{database}.nowhere" in result.stderr


def other(command: str, metastore: Metastore) -> tuple[str, ...]:
    """The metastore, for commands that would start one else, and what a break of a lock names."""
    return ("--metastore", metastore.uri, *(("--lock-id", "1") if command == "lock break" else ()))


@pytest.mark.metastore
@pytest.mark.parametrize("command", ["show", "read", "schema", "timeline", "files", "properties"])
def test_looks_at_a_table_by_name_path_and_folder(
    command: str, lake: Lake, metastore: Metastore, database: str, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("orders", orders(), key="id")
    table.upsert(orders(1))
    path = Path(table.path.removeprefix("file:"))
    by_name = run(command, f"{database}.orders", "-m", metastore.uri, "-o", "json")
    assert by_name.exit_code == 0, by_name.stderr
    rows = json.loads(by_name.stdout)
    monkeypatch.chdir(path.parent)
    for target in (path, "./orders", "orders"):
        by_path = run(command, target, "-o", "json")
        assert by_path.exit_code == 0, by_path.stderr
        if command == "show":
            facts = {row["fact"]: row["value"] for row in json.loads(by_path.stdout)}
            assert "rows" not in facts
            assert "registered as" not in facts
        else:
            assert json.loads(by_path.stdout) == rows
    if command == "show":
        registered = run(command, path, "-m", metastore.uri, "-o", "json")
        assert json.loads(registered.stdout) == rows
        assert {"fact": "registered as", "value": "orders"} in rows


@pytest.mark.parametrize("commits", [1, 8])
def test_show_looks_at_no_more_than_it_shows(
    commits: int, tmp_path: Path, orders: Orders, storage_calls: Calls
) -> None:
    """Whatever the number of files and commits: no partition, no data file, and no more than the newest commits."""
    spec = TableSpec(name="t", schema=orders().schema, record_key=("id",), partition_by=("day",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    done = [LocalWriter(table.reload()).upsert(orders(number)).instant.requested_time for number in range(commits)]
    storage_calls.clear()
    shown = run("show", tmp_path / "t", "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    facts = [row["fact"] for row in json.loads(shown.stdout) if row["fact"].startswith("commit ")]
    assert facts == [f"commit {time}" for time in done[-5:]]
    assert storage_calls.partition_listings() == []
    assert [path for path in storage_calls.paths() if path.endswith(".parquet")] == []
    assert len({path for path in storage_calls.paths("read") if path.endswith("commit")}) == min(commits, 5)


@pytest.mark.metastore
def test_the_name_of_a_view_reads_what_the_view_shows(
    lake: Lake, metastore: Metastore, database: str, orders: Orders
) -> None:
    table = lake.create_table("m", orders(), key="id", ordering="ts", partition_by="day", type="mor")
    table.bulk_insert(orders(1))
    table.upsert(orders(1, ts=9))

    def times(*arguments: str) -> list[int]:
        result = run("read", *arguments, "--columns", "ts", "-m", metastore.uri, "-o", "json")
        assert result.exit_code == 0, result.stderr
        return [row["ts"] for row in json.loads(result.stdout)]

    assert times(f"{database}.m_ro") == times(f"{database}.m", "--query", "read_optimized") == [1]
    assert (
        times(f"{database}.m") == times(f"{database}.m_rt") == times(f"{database}.m_ro", "--query", "snapshot") == [9]
    )
    assert times(f"{database}.m_ro", "--since", "000") == times(f"{database}.m", "--since", "000")


@pytest.mark.metastore
def test_a_new_table_is_taken_out_again_when_its_first_rows_are_refused(
    metastore: Metastore, database: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id,v\n1,2\n,3\n")
    found = run("write", f"{database}.orders", "rows.csv", "--key", "id", "-m", metastore.uri, "--warehouse", tmp_path)
    assert found.exit_code == 2, found.output
    assert metastore.find_table(database, "orders") is None
    assert not list(tmp_path.rglob("hoodie.properties"))
