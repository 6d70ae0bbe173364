"""Commands of table services: what they print and refuse; --plan changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from skep.cli.main import app
from skep.lake import Lake
from skep_format.instant_time import InstantTime
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.write import transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.heartbeat import Heartbeat
from skep_table.query import read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

LAST = "20261121020658630"
AUTOMATIC = ("hoodie.clean.automatic", "hoodie.archive.automatic", "hoodie.compact.inline")
BUSY = {
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.max.delta.commits": "2",
}
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


@pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
def test_tables_of_later_versions_are_maintained(golden: Path, tmp_path: Path, release: str) -> None:
    table = tmp_path / "t"
    shutil.copytree(golden / release / "cow_clean" / "table", table)
    before = read(HudiTable.open(str(table))).to_arrow()
    for command in ("savepoint", "clean", "archive"):
        run(command, table)
    after = HudiTable.open(str(table))
    assert [each.action for each in after.timeline.of(Action.SAVEPOINT)] == [Action.SAVEPOINT]
    assert read(after).to_arrow().equals(before)


# -- services that rewrite files


SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])


def made(folder: Path, type: TableType, commits: int = 5) -> Path:
    """A table with so many commits of two partitions; on merge-on-read all but the first go to logs."""
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=type)
    writer = LocalWriter(create_table(LocalStorage(str(folder)), spec))
    for ts in range(commits):
        writer.upsert(pa.table([["a", "b"], ["p", "q"], [ts, ts]], schema=SCHEMA))
    return folder


def data(folder: Path) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SCHEMA.names} for row in rows(folder)]


def test_compact_plans_schedules_and_executes(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", TableType.MERGE_ON_READ)
    before, there = data(folder), files(folder)
    planned = run("compact", folder, "--plan")
    assert files(folder) == there
    assert [(row["partition"], row["log_files"] > 0) for row in planned] == [("p", True), ("q", True)]
    two = ("--option", "hoodie.log.compaction.blocks.threshold=2")
    assert [row["log_files"] for row in run("compact", folder, "--logs", "--plan", *two)] == [4, 4]
    assert run("compact", folder, "--logs") == []
    assert [row["service"] for row in run("compact", folder, "--logs", *two)] == ["log-compact"]
    assert data(folder) == before
    (scheduled,) = run("compact", folder, "--schedule")
    assert (scheduled["service"], scheduled["state"]) == ("compact", "scheduled")
    run("compact", folder, "--execute", "--instant", "20200101000000000", code=2)
    (done,) = run("compact", folder, "--execute", "--instant", scheduled["instant"])
    assert (done["instant"], done["what"]) == (scheduled["instant"], "2 file slices compacted")
    assert run("compact", folder) == []
    assert data(folder) == before
    assert [row["ts"] for row in run("read", folder, "--query", "read_optimized")] == [4, 4]
    run("compact", folder, "--plan", "--schedule", code=2)
    run("compact", folder, "--instant", "1", code=2)


def test_cluster_plans_schedules_and_executes(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    writer = LocalWriter(create_table(LocalStorage(str(folder)), spec))
    for number in range(3):
        writer.bulk_insert(pa.table([[f"a{number}", f"b{number}"], ["p", "q"], [9 - number, number]], schema=SCHEMA))
    before, there = data(folder), files(folder)
    planned = run("cluster", folder, "--sort-by", "ts", "--plan")
    assert files(folder) == there
    assert sorted(row["partition"] for row in planned) == ["p"] * 3 + ["q"] * 3
    assert len(run("cluster", folder, "--partitions", "p", "--plan")) == 3
    (scheduled,) = run("cluster", folder, "--sort-by", "ts,id", "--curve", "hilbert", "--schedule")
    (done,) = run("cluster", folder, "--execute")
    assert (done["instant"], done["what"]) == (scheduled["instant"], "6 file groups rewritten as 2")
    assert sorted(data(folder), key=repr) == sorted(before, key=repr)
    assert run("cluster", folder, "--sort-by", "ts,id", "--curve", "hilbert") == []
    run("cluster", folder, "--sort-by", "nope", code=2)


def test_expire_and_maintain(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", TableType.MERGE_ON_READ, 6)
    assert run("expire", folder, "--days", 1, "--plan") == []
    assert run("expire", folder, "--days", 1) == []
    run("expire", folder, code=2)
    keep = ("--option", "hoodie.keep.max.commits=3", "--option", "hoodie.keep.min.commits=2")
    there = files(folder)
    due = run("maintain", folder, "--plan", *keep, *RETAIN_ONE)
    assert {row["state"] for row in due} == {"planned"}
    assert (due[0]["service"], due[0]["what"]) == ("compact", "2 file slices")
    assert files(folder) == there
    done = run("maintain", folder, *keep, *RETAIN_ONE)
    assert done[0]["service"] == "compact"
    run("maintain", folder, *keep, *RETAIN_ONE)
    assert run("maintain", folder, *keep, *RETAIN_ONE) == []
    assert [row["ts"] for row in rows(folder)] == [5, 5]


def test_a_table_or_all_of_them(tmp_path: Path) -> None:
    for command in ("compact", "cluster", "clean", "archive", "expire", "maintain"):
        run(command, code=2)
        run(command, tmp_path, "--all", code=2)


def test_what_others_are_at_work_on_is_put_off(tmp_path: Path) -> None:
    """A write is under way, whose log files a compaction could miss: all the same what else is due is done."""
    folder = made(tmp_path / "t", TableType.MERGE_ON_READ, 6)
    table = HudiTable.open(str(folder))
    before = data(folder)
    heart = Heartbeat(table.context)
    heart.announce("20991231235959000")
    transition_to_inflight(table, Instant(InstantTime("20991231235959000"), Action.DELTA_COMMIT, State.REQUESTED))
    try:
        keep = ("--option", "hoodie.keep.max.commits=3", "--option", "hoodie.keep.min.commits=2")
        option = "hoodie.compact.inline.max.delta.commits=2"
        done = run("maintain", folder, *keep, *RETAIN_ONE, "--option", option)
        assert [(row["service"], row["state"]) for row in done][:1] == [("compact", "put off")]
        assert ("archive", "completed") in [(row["service"], row["state"]) for row in done]
        assert "is under way" in done[0]["what"]
        run("compact", folder, code=1)
    finally:
        heart.stop()
    assert data(folder) == before


@pytest.mark.metastore
def test_tables_of_a_metastore_by_name_and_all_of_them(
    lake: Lake, orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locked by the metastore and synced, also where the table is named by its path."""
    monkeypatch.setenv("SKEP__METASTORE", lake.metastore.uri)
    monkeypatch.setenv("SKEP__WAREHOUSE", lake.warehouse)
    tables = [lake.create_table(name, orders(1), key="id", ordering="ts", partition_by="day") for name in ("a", "b")]
    for table in tables:
        for number in range(3):
            table.bulk_insert(orders(number, note=f"{number}"))
    name = tables[0].name
    database = name.partition(".")[0]
    (done,) = run("cluster", name, "--sort-by", "id")
    assert (done["table"], done["what"]) == (name, "3 file groups rewritten as 1")
    assert run("cluster", "--all", "--database", database, "--sort-by", "id")[0]["table"] == tables[1].name
    for table in tables:
        entry = lake.metastore.table(*table.name.split("."))
        assert entry.parameters["last_commit_time_sync"] == table.history()[-1].instant
        assert table.history()[-1].operation == "cluster"
    run("rollback", tables[0].path, table.history()[-1].instant, code=2)
    run("rollback", tables[1].path, tables[1].history()[-1].instant)
    entry = lake.metastore.table(*tables[1].name.split("."))
    assert entry.parameters["last_commit_time_sync"] == tables[1].history()[-1].instant
    assert lake.metastore.locks(database, None) == []
    shutil.rmtree(tables[0].path)
    tables[1].bulk_insert(orders(1, note="more"))
    result = CliRunner().invoke(app, ["cluster", "--all", "--database", database, "--sort-by", "id", "-o", "json"])
    assert result.exit_code == 1
    assert f"error: {name}: " in result.stderr
    assert [row["table"] for row in json.loads(result.stdout)] == [tables[1].name], "one that is broken stops no other"


@pytest.mark.metastore
def test_maintain_all_does_what_it_can_of_a_mixed_lake(
    lake: Lake, orders: Any, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEP__METASTORE", lake.metastore.uri)
    monkeypatch.setenv("SKEP__WAREHOUSE", lake.warehouse)
    monkeypatch.setenv("SKEP__OPTIONS", json.dumps(BUSY))
    command = ("maintain", "--all", "--database", lake.database)
    assert run(*command) == [], "a database without tables"
    made = {}
    for name, kind in (("cow", "cow"), ("mor", "mor"), ("gone", "cow"), ("odd", "cow")):
        made[name] = lake.create_table(name, orders(1), key="id", ordering="ts", partition_by="day", type=kind)
        for number in range(5):
            made[name].upsert(orders(1, ts=number), **dict.fromkeys(AUTOMATIC, "false"))
    for release, name in (("1.0.2", "eight"), ("1.1.1", "nine")):
        shutil.copytree(golden / release / "cow_upsert" / "table", tmp_path / "lake" / name)
        lake.register(str(tmp_path / "lake" / name), name)
    shutil.rmtree(made["gone"].path)
    Path(made["odd"].path, ".hoodie", "hoodie.properties").write_bytes(b"\x00")
    Path(made["odd"].path, ".hoodie", "hoodie.properties.backup").unlink(missing_ok=True)
    result = CliRunner().invoke(app, [*command, "-o", "json"])
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2, result.stderr
    assert {line.split(": ")[1].partition(".")[2] for line in errors} == {"gone", "odd"}
    done = {(row["table"].partition(".")[2], row["service"]) for row in json.loads(result.stdout)}
    every = ((name, each) for name in ("cow", "mor", "eight", "nine") for each in ("clean", "archive"))
    assert done == {*every, ("mor", "compact")}
    for name in ("cow", "mor"):
        assert made[name].read().to_arrow().column("ts").to_pylist() == [4]
