"""The command line as a shell sees it: stdout, stderr, exit codes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

import skep
from skep.cli.main import COMMANDS, app
from skep.cli.scope import App
from skep.cli.sync.scope import EntryScope, SyncScope
from skep.lake import Lake

Orders = Callable[..., pa.Table]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("SKEP__PROFILE", "")  # --profile sets it: put back afterwards

    def call(*words: str, stdin: str | None = None) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, list(words), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return call


@pytest.fixture
def connected(run: Run, lake: Lake, tmp_path: Path) -> Run:
    """The same, with a project file that names the suite's metastore and the test's database."""
    settings = f'metastore = "{lake.metastore.uri}"\nwarehouse = "{lake.warehouse}"\ndatabase = "{lake.database}"\n'
    (tmp_path / "skep.toml").write_text(settings)
    return run


def test_sync_commands_show_the_same_options() -> None:
    commands = typer.main.get_command(app).get_command(None, "sync").commands  # type: ignore[attr-defined, arg-type]
    shared = {name: field for scope in (SyncScope, EntryScope) for name, field in scope.__dataclass_fields__.items()}
    seen: dict[str, object] = {}
    for command in commands.values():
        found = {param.name: param for param in command.params}
        absent = {"name"} if command.name == "watch" else set()
        assert shared.keys() - found.keys() == absent, command.name
        for name in shared.keys() & found.keys():
            param = found[name]
            described = (param.opts, param.help, param.metavar, param.default, param.required, param.multiple)
            assert seen.setdefault(name, described) == described, (command.name, name)
    assert len(commands) == 7
    assert seen.keys() == {"metastore", "warehouse", "database", "settings", "target", "name"}


def test_version_names_what_counts(run: Run) -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "skep",
        "python",
        "pysail",
        "pyspark",
        "pyarrow",
        "pandas",
        "table",
        "table",
    ]
    assert out.splitlines()[-2:] == ["table versions 6, 8, 9", "table versions, only read 0, 1, 2, 3, 4, 5"]


def test_each_command_is_where_the_table_lists() -> None:
    for modules in COMMANDS.values():
        for module, names in modules.items():
            own = App()
            own.add(import_module(f"skep.cli.{module}"), *names)
            assert tuple(typer.main.get_group(own).commands) == names


def test_a_command_brings_no_other_along() -> None:
    code = "import sys; from skep.cli.main import app; app(['config', '--help'], standalone_mode=False); "
    shown = "print(*(name for name in sys.modules if name.startswith('skep.cli.')))"
    done = subprocess.run([sys.executable, "-c", code + shown], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("skep.cli.") for name in done.stdout.splitlines()[-1].split()}
    assert "around" in loaded
    assert not loaded & {"sync", "serve", "table", "stream", "sql", "lock"}


def test_the_help_has_a_sentence_for_each_command(run: Run) -> None:
    _, out, _ = run("--help")
    for section, modules in COMMANDS.items():
        listed = re.search(rf"^{section}:\n((?:  .*\n)+)", out, re.MULTILINE)
        assert listed is not None, out
        sentences = re.findall(r"^  (\S+) +([A-Z](?:.*\n   )*.*\.)$", listed[1], re.MULTILINE)
        assert [name for name, _ in sentences] == [name for names in modules.values() for name in names]


def test_a_query_that_reads_no_table_needs_no_metastore(tmp_path: Path) -> None:
    """Its start would take longer than the query."""
    query = ["sql", "select 1 + 1 as n", "-o", "jsonl", "-w", "lake"]
    code = f"import sys; from skep.cli.main import app; app({query}, standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    rows, names = done.stdout.splitlines()
    assert json.loads(rows) == {"n": 2}
    assert not (tmp_path / "lake").exists()
    needless = {"pandas", "pyspark", "fastavro", "httpx", "skep_sync.apply", "skep_sync.planning.plan"}
    assert not needless & {*names.split()}


def test_a_mistyped_command_is_guessed(run: Run) -> None:
    code, _, err = run("synk")
    assert code == 2
    assert "Did you mean 'sync'?" in err


def test_no_command_prints_help(run: Run) -> None:
    _, out, err = run()
    assert "doctor" in out + err


def test_wrong_usage_is_exit_code_2(run: Run) -> None:
    assert run("nix")[0] == 2
    assert run("sql")[0] == 2
    assert run("read", "--output", "xml", "somewhere")[0] == 2


def test_an_error_of_skep_is_one_block_on_stderr(run: Run, tmp_path: Path) -> None:
    code, out, err = run("schema", str(tmp_path / "nothing"))
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert str(tmp_path / "nothing") in err
    assert "Traceback" not in err


@pytest.mark.metastore
def test_ls_and_show(connected: Run, lake: Lake, orders: Orders) -> None:
    lake.create_table("orders", orders(), key="id", ordering="ts", partition_by="day").upsert(orders(1, 2))
    code, out, _ = connected("ls", lake.database, "--output", "jsonl")
    assert code == 0
    assert json.loads(out)["table"] == f"{lake.database}.orders"
    code, out, _ = connected("show", "orders", "--count", "--output", "csv")
    facts = dict(csv.reader(out.splitlines()))
    assert facts["rows"] == "2"
    assert facts["record key"] == "id"
    assert facts["partitioned by"] == "day"
    (commit,) = lake.table("orders").history()
    written = sum(file.stat().st_size for file in Path(lake.warehouse).rglob("*.parquet"))
    assert (commit.rows, commit.bytes, commit.files) == (2, written, 1)
    assert f"{commit.time:%Y%m%d%H%M%S}" == commit.instant[:14]
    assert commit.time.utcoffset() == timedelta(0)
    counts = f"upsert: 2 inserted, 0 updated, 0 deleted; 2 rows and {written} bytes in 1 files"
    assert facts[f"commit {commit.instant}"] == f"{commit.time:%Y-%m-%d %H:%M:%S} UTC, {counts}"


@pytest.mark.metastore
def test_drop(connected: Run, lake: Lake, orders: Orders) -> None:
    """The entry alone, or with its files; what is not there, and files without a question, are refused."""
    for name in ("orders", "lines"):
        lake.create_table(name, orders(), key="id", type="mor").upsert(orders(1))
    code, _, err = connected("drop", "order")
    assert code == 1
    assert "did you mean orders?" in err
    code, _, err = connected("drop", "lines", "--purge")
    assert (code, "--yes" in err) == (2, True)
    assert len(connected("ls", lake.database, "-o", "jsonl")[1].splitlines()) == 2
    kept, purged = (Path(lake.table(name).path.removeprefix("file:")) for name in ("orders", "lines"))
    assert connected("drop", "orders")[0] == 0
    assert connected("drop", "lines", "--purge", "--yes")[0] == 0
    assert lake.metastore.tables(lake.database) == []
    assert (kept / ".hoodie").exists()
    assert not purged.exists() or not [*purged.iterdir()]
    code, _, err = connected("drop", str(kept))
    assert code != 0


@pytest.mark.metastore
def test_the_output_may_be_chosen_for_any_command(connected: Run, lake: Lake, orders: Orders) -> None:
    lake.create_table("orders", orders(), key="id")
    assert json.loads(connected("--output", "json", "ls", lake.database)[1])[0]["table"].endswith(".orders")
    assert connected("--output", "json", "ls", lake.database, "--output", "csv")[1].startswith('"table"')


@pytest.mark.metastore
def test_sync_apply_pending_makes_up_for_what_was_missed(connected: Run, lake: Lake, orders: Orders) -> None:
    for name in ("behind", "current"):
        lake.create_table(name, orders(), key="id").upsert(orders(1))
    skep.open_table(lake.table("behind").path).upsert(orders(2))  # knows no metastore
    assert "behind" in connected("sync", "apply", "--pending", "--database", lake.database)[1]
    assert not lake.table("behind").sync().changed
    assert connected("sync", "apply", "--pending", "--database", lake.database)[:2] == (0, "")
    lake.drop_table("behind", purge=False)
    shutil.rmtree(lake.table("current").path.removeprefix("file:"))
    code, _, err = connected("sync", "apply", "--pending", "--database", lake.database)
    assert code == 1
    assert f"{lake.database}.current" in err
    assert connected("sync", "apply")[0] == 2
    assert connected("sync", "apply", "current", "--pending")[0] == 2


@pytest.mark.metastore
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_write_takes_files(connected: Run, lake: Lake, orders: Orders, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"rows.{kind}"
    rows = orders(1, 2)
    if kind == "parquet":
        parquet.write_table(rows, file)
    elif kind == "csv":
        rows.to_pandas().to_csv(file, index=False)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    words = ("write", "orders", str(file), "--key", "id", "--ordering", "ts", "--output", "jsonl")
    code, out, _ = connected(*words)
    assert code == 0
    assert json.loads(out)["inserted"] == 2
    assert json.loads(connected(*words)[1])["updated"] == 2
    code, out, _ = connected("write", "orders", str(file), "--operation", "delete", "--output", "jsonl")
    assert json.loads(out)["deleted"] == 2


@pytest.mark.metastore
def test_write_refuses_what_it_cannot_read(connected: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.xls").write_text("x")
    (tmp_path / "rows.parquet").write_text("x")
    for name in ("rows.xls", "rows.parquet", "nix.csv"):
        code, _, err = connected("write", "orders", str(tmp_path / name), "--key", "id")
        assert code == 2
        assert name in err


@pytest.mark.metastore
@pytest.mark.spark
def test_sql_prints_rows(connected: Run, lake: Lake, orders: Orders, spark: object) -> None:
    lake.create_table("orders", orders(), key="id").upsert(orders(1, 2))
    code, out, _ = connected("sql", "select id from orders order by id", "--output", "jsonl")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"id": 1}, {"id": 2}]
    assert json.loads(connected("sql", "-", "-o", "jsonl", stdin="select max(id) m from orders")[1]) == {"m": 2}


def test_config_shows_origins(run: Run, tmp_path: Path) -> None:
    (tmp_path / "skep.toml").write_text('database = "d"\n[profiles.prod]\ndatabase = "p"\n')
    rows = [json.loads(line) for line in run("config", "--origin", "-o", "jsonl")[1].splitlines()]
    assert {"key": "database", "value": "d", "origin": str(tmp_path / "skep.toml")} in rows
    rows = [json.loads(line) for line in run("--profile", "prod", "config", "-o", "jsonl")[1].splitlines()]
    assert {"key": "database", "value": "p"} in rows
    code, _, err = run("--profile", "nix", "config")
    assert code == 2
    assert "no file has a profile nix; there are: prod" in err


def test_doctor_shows_what_is_there(run: Run) -> None:
    code, out, _ = run("doctor", "--output", "jsonl")
    found = {row["what"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert found["java"]["state"] == "ok"
    assert "jars" in found["pyspark"]["found"]
    assert found["sail"]["state"] == "ok"
    assert found["metastore"]["found"].startswith("embedded")


def test_doctor_shows_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP__METASTORE", "thrift://127.0.0.1:1")
    code, out, _ = run("doctor", "--output", "jsonl")
    found = {row["what"]: row for row in map(json.loads, out.splitlines())}
    assert code == 1
    assert found["metastore"]["state"] == "missing"
    assert "127.0.0.1:1" in found["metastore"]["found"]


def test_the_console_script_prints_no_traceback(tmp_path: Path) -> None:
    """As installed: colours off where stdout is no terminal, errors and exit code as documented."""
    skep = Path(sys.executable).with_name("skep")
    environment = {**os.environ, "SKEP__WAREHOUS": "typo"}
    answer = subprocess.run(
        [skep, "config"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "unknown setting warehous\n  hint: did you mean warehouse?" in answer.stderr
    assert "Traceback" not in answer.stderr
