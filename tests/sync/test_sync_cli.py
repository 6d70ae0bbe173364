"""`skep sync`, `skep lock show` and `skep metastore` as commands: what is printed, and the exit codes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ended_process import outcome
from typer.testing import CliRunner, Result

from skep.cli import lock as lock_commands
from skep.cli import metastore as metastore_commands
from skep.cli.scope import App
from skep.cli.sync import commands as sync_commands
from skep.metastore.syncing import TableSyncs, open_queue
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_format.errors import SyncError
from skep_format.options import UnknownOptionWarning
from skep_format.storage import LocalStorage
from skep_sync.sync import sync_table
from skep_sync.targets import Clients, targets_of
from skep_table.lock import held
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.metastore


def run(*arguments: str) -> Result:
    app = App()
    app.add(metastore_commands, "metastore")
    app.add(sync_commands, "sync")
    app.add(lock_commands, "lock")
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def place(golden: Path, metastore: Metastore, database: str) -> list[str]:
    return [str(golden / "0.15.0" / "cow_upsert" / "table"), "-m", metastore.uri, "-d", database]


def test_plan_apply_check_status(place: list[str], database: str, metastore: Metastore) -> None:
    planned = run("sync", "plan", *place, "--exit-code")
    assert planned.exit_code == 3
    assert f"create table {database}.cow_upsert" in planned.stdout
    assert run("sync", "plan", *place).exit_code == 0
    assert run("sync", "apply", *place, "-o", "csv").exit_code == 2
    assert metastore.tables(database) == []
    assert run("sync", "check", *place).exit_code == 1

    applied = run("sync", "apply", *place, "--output", "json")
    assert applied.exit_code == 0, applied.output
    assert json.loads(applied.stdout)["applied"] == {"tables created": 1, "partitions added": 3, "tables altered": 1}
    assert run("sync", "plan", *place, "--exit-code").exit_code == 0
    assert "in sync" in run("sync", "check", *place).stdout

    status = run("sync", "status", f"{database}.cow_upsert", "-m", metastore.uri, "-o", "json")
    (row,) = json.loads(status.stdout)
    assert (row["entry"], row["commits"]) == (f"{database}.cow_upsert", 0)


def test_repair_and_restore(golden: Path, tmp_path: Path, database: str, metastore: Metastore) -> None:
    shutil.copytree(golden / "0.15.0" / "cow_upsert" / "table", tmp_path / "table")
    place = [str(tmp_path / "table"), "-m", metastore.uri, "-d", database]
    assert run("sync", "apply", *place).exit_code == 0
    names = metastore.partition_names(database, "cow_upsert")
    metastore.drop_partitions(database, "cow_upsert", names[:1])
    entry = metastore.table(database, "cow_upsert")
    fewer = replace(entry, storage=replace(entry.storage, columns=entry.storage.columns[:-1]))
    metastore.alter_table(database, "cow_upsert", fewer)
    assert run("sync", "restore", *place).exit_code == 2, "there is no copy yet"
    repaired = run("sync", "repair", *place, "-o", "json")
    assert json.loads(repaired.stdout)["applied"] == {"partitions added": 1, "tables altered": 1}
    assert metastore.partition_names(database, "cow_upsert") == names
    (kept,) = json.loads(run("sync", "restore", *place, "--list", "-o", "json").stdout)
    (restored,) = json.loads(run("sync", "restore", *place, "--to", kept["id"], "-o", "json").stdout)
    assert restored["entry"] == f"{database}.cow_upsert"
    assert metastore.table(database, "cow_upsert").storage.columns == fewer.storage.columns


def test_a_database_that_is_not_there_is_an_error(metastore: Metastore) -> None:
    for words in (("apply", "--all"), ("status", "--all")):
        done = run("sync", *words, "-m", metastore.uri, "-d", "nowhere")
        assert (done.exit_code, "nowhere" in done.stderr) == (1, True)


def test_errors_name_what_is_wrong(place: list[str], database: str, metastore: Metastore) -> None:
    nothing = run("sync", "plan", f"{database}.none", "-m", metastore.uri)
    assert nothing.exit_code == 1
    assert f"table {database}.none" in nothing.stderr
    wrong = run("sync", "plan", *place, "--set", "hoodie.datasource.hive_sync.batch_num=none")
    assert wrong.exit_code == 2
    assert "hoodie.datasource.hive_sync.batch_num" in wrong.stderr
    assert run("sync", "apply", *place, "--set", "hoodie.datasource.hive_sync.batch_num=0").exit_code == 2
    assert run("sync", "plan", *place, "--set", "nonsense").exit_code == 2
    with pytest.warns(UnknownOptionWarning, match=r"hive_sync\.table"):
        run("sync", "plan", *place, "--set", "hoodie.datasource.hive_sync.tabel=x")


def test_the_metastore_by_the_option_of_hudis_tool(place: list[str], metastore: Metastore, database: str) -> None:
    path, _, uri, *where = place
    done = run("sync", "apply", path, *where, "--set", f"hoodie.datasource.hive_sync.metastore.uris={uri}")
    assert (done.exit_code, metastore.tables(database)) == (0, ["cow_upsert"])


class TestMany:
    """Commands over all tables of a database, and over several targets."""

    @pytest.fixture
    def tables(self, write: Callable[..., HudiTable], metastore: Metastore, database: str) -> None:
        for name in ("a", "b"):
            sync_table(write(name, 1), metastore, database)

    @pytest.fixture
    def words(self, metastore: Metastore, database: str, tmp_path: Path) -> list[str]:
        return ["-m", metastore.uri, "-d", database, "-w", str(tmp_path)]

    @pytest.mark.usefixtures("tables")
    def test_all_tables_are_synced_and_what_changed_is_reported(
        self, write: Callable[..., HudiTable], words: list[str], database: str, tmp_path: Path
    ) -> None:
        write("b", 2, day="2026-01-02")
        done = run("sync", "apply", "--all", *words, "-o", "jsonl")
        assert done.exit_code == 0, done.output
        (report,) = map(json.loads, done.stdout.splitlines())
        assert (report["table"], report["applied"]["partitions added"]) == (f"{database}.b", 1)
        rows = json.loads(run("sync", "status", "--all", *words, "-o", "json").stdout)
        assert [(row["entry"], row["commits"]) for row in rows] == [(f"{database}.a", 0), (f"{database}.b", 0)]
        reports = json.loads(run("sync", "apply", "--all", "--full", *words, "-o", "json").stdout)
        assert reports == []
        (tmp_path / "tables" / "a" / ".hoodie" / "hoodie.properties").unlink()
        some = run("sync", "status", "--all", *words, "-o", "json")
        assert (some.exit_code, f"error: {database}.a:" in some.stderr) == (1, True)
        assert [row["entry"] for row in json.loads(some.stdout)] == [f"{database}.b"]

    @pytest.mark.usefixtures("tables")
    def test_pending_syncs_what_is_behind_and_leaves_the_others_alone(
        self, write: Callable[..., HudiTable], words: list[str], metastore: Metastore, database: str
    ) -> None:
        write("b", 2)
        options = ("--set", "hoodie.datasource.hive_sync.table_properties=mine=1")
        assert run("sync", "apply", "--pending", *words, *options).exit_code == 0
        assert "mine" not in metastore.table(database, "a").parameters
        assert metastore.table(database, "b").parameters["mine"] == "1"

    def test_pending_knows_of_tables_that_no_metastore_knows(
        self, write: Callable[..., HudiTable], words: list[str], metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        queue = open_queue({}, str(tmp_path))
        assert queue is not None
        queue.add("main", write("new", 1).storage.root, "new", "1", f"{database}.new")
        (row,) = json.loads(run("sync", "status", "--pending", *words, "-o", "json").stdout)
        assert (row["target"], row["table"], row["commits"]) == ("main", f"{database}.new", 1)
        assert run("sync", "apply", "--pending", *words).exit_code == 0
        assert metastore.tables(database) == ["new"]
        assert queue.pending() == []

    def test_what_a_later_sync_made_up_for_is_pending_no_more(
        self, write: Callable[..., HudiTable], words: list[str], metastore: Metastore, database: str, tmp_path: Path
    ) -> None:
        table, queue = write("t", 1), open_queue({}, str(tmp_path))
        assert queue is not None

        def fails() -> None:
            assert queue is not None
            pending = queue.add("main", table.storage.root, "t", "1", f"{database}.t")
            queue.note(queue.failed(pending, SyncError("the metastore was down")))

        def pending() -> list[Any]:
            rows: list[Any] = json.loads(run("sync", "status", "--pending", *words, "-o", "json").stdout)
            return rows

        syncs = TableSyncs(targets_of({}, metastore.uri), Clients(metastore), lambda: queue)
        by_commit = partial(syncs.outcomes, table.storage.root, f"{database}.t")
        by_hand = partial(run, "sync", "apply", f"{database}.t", *words)
        by_all = partial(run, "sync", "apply", "--all", *words)
        for sync in (by_commit, by_hand, by_all):
            fails()
            assert [row["error"] for row in pending()] == ["the metastore was down"]
            sync()
            assert pending() == []
        down = TableSyncs(targets_of({}), Clients(Metastore.connect("thrift://127.0.0.1:1", attempts=1)), lambda: queue)
        fails()
        (outcome,) = down.outcomes(table.storage.root, f"{database}.t")
        assert outcome.error is not None
        assert len(pending()) == 1, "one that failed settles nothing"

    def test_each_target_is_synced_and_a_failure_is_reported(
        self, write: Callable[..., HudiTable], words: list[str], metastore: Metastore, database: str
    ) -> None:
        path = write("t", 1).storage.root
        options = [
            *("--set", "skep.sync.targets=plain,down"),
            *("--set", f"skep.sync.target.plain.uris={metastore.uri}"),
            *("--set", "skep.sync.target.plain.table=plain_t"),
            *("--set", "skep.sync.target.plain.kind=manifest"),
            *("--set", "skep.sync.target.down.uris=thrift://127.0.0.1:1"),
        ]
        done = run("sync", "apply", path, *words, *options)
        assert done.exit_code == 1
        assert "(target down)" in done.stderr
        assert metastore.tables(database) == ["plain_t", "t"]
        again = json.loads(run("sync", "apply", path, *words, *options, "-o", "json").stdout)
        assert [(one["target"], one["in_sync"]) for one in again] == [("main", True), ("plain", True)]
        status = run("sync", "status", "--all", *words, *options, "-o", "json")
        assert (status.exit_code, "(target down)" in status.stderr) == (1, True)
        assert [row["entry"] for row in json.loads(status.stdout)] == [f"{database}.t", f"{database}.plain_t"]
        one = run("sync", "plan", path, *words, *options, "--target", "plain", "--exit-code")
        assert (one.exit_code, f"{database}.plain_t" in one.stdout) == (0, True)
        assert run("sync", "check", path, *words, *options, "--target", "plain").exit_code == 0
        unknown = run("sync", "plan", path, *words, *options, "--target", "none")
        assert (unknown.exit_code, "main, plain, down" in unknown.stderr) == (2, True)

    @pytest.mark.parametrize("words", [["apply"], ["apply", "t", "--all"], ["status", "--all", "--pending"], ["watch"]])
    def test_one_of_table_all_and_pending(self, words: list[str]) -> None:
        assert run("sync", *words, "-m", "thrift://127.0.0.1:1").exit_code == 2

    @pytest.mark.parametrize(
        ("words", "option"),
        [
            (["apply", "--all", "--table", "t"], "--table names the entry of one table"),
            (["apply", "--pending", "--table", "t"], "--table names the entry of one table"),
            (["status", "--all", "--table", "t"], "--table names the entry of one table"),
            (["apply", "--pending", "--full"], "--full goes with a TABLE or --all"),
        ],
    )
    def test_options_of_one_table_are_refused_for_many(self, words: list[str], option: str) -> None:
        refused = run("sync", *words, "-m", "thrift://127.0.0.1:1")
        assert (refused.exit_code, option in refused.stderr) == (2, True)


def test_lock_show_shows_holder_and_waiter(metastore: Metastore, database: str) -> None:
    with held(HmsLock(metastore, database, "t", purpose="20260101000000000"), 5) as lock_id:
        waiting = metastore.lock(database, "t", agent_info="other", user="someone", host="there")
        shown = run("lock", "show", f"{database}.t", "-m", metastore.uri, "-o", "json")
        metastore.unlock(waiting.lock_id)
    holder, waiter = json.loads(shown.stdout)
    assert (str(holder["lock_id"]), holder["state"], holder["purpose"]) == (lock_id, "acquired", "20260101000000000")
    assert (waiter["state"], waiter["blocked_by"], waiter["agent"]) == ("waiting", int(lock_id), "other")


def test_metastore_in_the_foreground_ends_on_a_signal(tmp_path: Path) -> None:
    program = "from skep.cli import metastore, scope; app = scope.App(); app.add(metastore, 'metastore'); app()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--warehouse", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    uri = process.stdout.readline().strip()
    assert Metastore.connect(uri).databases() == ["default"]
    process.send_signal(signal.SIGTERM)
    _, errors = outcome(process)
    assert process.returncode == 0
    assert "stopped" in errors


def test_what_rows_need_is_not_loaded(write: Callable[..., HudiTable], metastore: Metastore, database: str) -> None:
    """Arrow, and pandas with it, take longer to load than a sync works."""
    write("t", 1)
    table = write("t", 2, day="2026-01-02")
    words = ["skep", "sync", "apply", table.storage.root, "--metastore", metastore.uri, "--database", database]
    code = f"""
import sys
from skep.cli.main import main
sys.argv = {words}
try:
    main()
except SystemExit:
    print(sorted({{"pyarrow", "pandas", "pydantic"}} & sys.modules.keys()))
"""

    def loaded() -> tuple[str, str]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        printed, modules = done.stdout.splitlines()
        return printed, modules

    printed, modules = loaded()
    assert "2 partitions added" in printed
    assert modules == "[]"
    LocalWriter(table.reload()).delete_partitions(["2026-01-02"])
    printed, modules = loaded()
    assert "1 partitions dropped" in printed
    assert modules == "[]"


def test_a_check_opens_no_data_file_where_no_engine_is_asked(place: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("sync", "apply", *place).exit_code == 0
    opened: list[str] = []
    real = LocalStorage.open_input

    def watched(self: LocalStorage, path: str) -> Any:
        opened.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalStorage, "open_input", watched)
    assert "in sync" in run("sync", "check", *place).stdout
    assert not [path for path in opened if path.endswith(".parquet")]
