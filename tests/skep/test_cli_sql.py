"""`skep sql`: statements from arguments, files and pipes, the engine that answers them, and the shell on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from skep.cli.main import app
from skep.cli.sql.shell import is_complete
from skep.lake import Lake
from skep.query.result import SqlResult
from skep.query.rows import EMBEDDED_BYTES
from skep.query.sail import SailResult
from skep.query.spark import SparkHolder
from skep_format.distribution import install_command
from skep_format.errors import CorruptFileError, EnvironmentMissingError, InputError

pytestmark = pytest.mark.metastore
Orders = Callable[..., pa.Table]


@pytest.fixture
def project(lake: Lake, orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings name the test's database, with a table of two rows; pyspark is not to be imported."""
    lake.create_table("orders", orders(), key="id").upsert(orders(1, 2))
    settings = f'metastore = "{lake.metastore.uri}"\nwarehouse = "{lake.warehouse}"\ndatabase = "{lake.database}"\n'
    (tmp_path / "skep.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("SKEP__PROFILE", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["sql", *words], input=stdin)


def ids(text: str) -> list[dict[str, int]]:
    return [json.loads(line) for line in text.splitlines()]


def test_statements_of_a_file_and_of_a_pipe(project: Path) -> None:
    script = "-- first; a comment\nselect ';' as s, max(id) m\nfrom orders;\n\nselect min(id) m from orders /* ; */;\n"
    (project / "a.sql").write_text(script)
    expected = [{"s": ";", "m": 2}, {"m": 1}]
    assert ids(run("-f", "a.sql", "-o", "jsonl").stdout) == expected
    assert ids(run("-o", "jsonl", stdin=script).stdout) == expected
    assert ids(run("-", "-o", "jsonl", stdin=script).stdout) == expected
    assert ids(run(script.partition("\n")[2], "-o", "jsonl").stdout) == expected


def test_a_script_keeps_its_session(project: Path) -> None:
    script = "create temporary view v as select id + 1 as k from orders; select max(k) m from v; set a.b = c; set a.b"
    assert ids(run(script, "-o", "jsonl").stdout) == [
        {"m": 3},
        {"key": "a.b", "value": "c"},
        {"key": "a.b", "value": "c"},
    ]


@pytest.mark.parametrize(
    ("script", "place", "code"),
    [
        ("select 1 as a;\n\n  select x from nix;\nselect 3 as a", "line 3, column 17: ", 1),
        ("select 1 as a;\n  selec 2;", "line 2, column 3: ", 2),
        ("select 1 as a;\n select nope from orders", "line 2, column 2: ", 2),
    ],
)
def test_a_script_ends_at_its_first_error(project: Path, script: str, place: str, code: int) -> None:
    (project / "a.sql").write_text(script)
    found = run("-f", "a.sql", "-o", "jsonl")
    assert ids(found.stdout) == [{"a": 1}]
    assert f"error: a.sql: {place}" in found.stderr
    assert found.exit_code == code


def test_nothing_runs_of_a_script_whose_quote_has_no_end(project: Path) -> None:
    (project / "a.sql").write_text("select 1 as a; select 'x")
    found = run("-f", "a.sql")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "a.sql" in found.stderr


def test_the_engine_is_named(project: Path) -> None:
    assert ids(run("--engine", "sail", "-o", "jsonl", "select sum(id) s from orders").stdout) == [{"s": 3}]
    refused = run("--engine", "sail", "select id > note h from orders")
    assert refused.exit_code == 1
    assert "id > note" in refused.stderr
    assert "no engine nix" in run("--engine", "nix", "select 1").stderr
    assert run("select 1", "-f", "a.sql").exit_code == 2


def test_formats(project: Path) -> None:
    assert run("-o", "csv", "select id, note from orders where id = 1").stdout == '"id","note"\n"1","first"\n'
    assert json.loads(run("-o", "json", "select id from orders where id = 1").stdout) == [{"id": 1}]
    assert run("select id k from orders where id = 1").stdout.split() == ["k", "1"]


def test_who_answers_is_printed_on_request(project: Path) -> None:
    quiet, asked = (run(*words, "select id from orders where id = 1; use default") for words in ((), ("-v",)))
    assert (quiet.stdout, quiet.stderr) == (asked.stdout, "")
    assert re.fullmatch(r"1 row in [\d.]+ s, engine: sail\ndone in [\d.]+ s\n", asked.stderr)


def test_meta_columns_are_for_who_asks(project: Path) -> None:
    """In tables for people; formats for programs have what the query answers."""
    star = "select a.*, b.* from orders a join orders b on a.id = b.id where a.id = 1"
    assert run(star).stdout.splitlines()[0].split() == ["id", "note", "ts", "day"] * 2
    assert run("select _hoodie_record_key k, * from orders").stdout.startswith("k  _hoodie_commit_time")
    assert run("select _hoodie_record_key from orders where id = 1").stdout.split() == ["_hoodie_record_key", "1"]
    assert len(json.loads(run("-o", "json", "select * from orders where id = 1").stdout)[0]) == 9
    lines = "-- row 1\n  id: 1\nnote: first\n  ts: 1\n day: 2026-01-01\n"
    assert run("-o", "vertical", "select * from orders where id = 1").stdout == lines
    read = CliRunner().invoke(app, ["read", "orders", "--where", "id = 1"]).stdout
    assert read.splitlines()[0].split() == ["id", "note", "ts", "day"]
    read = CliRunner().invoke(app, ["read", "orders", "--columns", "_hoodie_record_key,id"]).stdout
    assert read.splitlines()[0].split() == ["_hoodie_record_key", "id"]


def test_a_trace_is_for_who_debugs(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    for words in ([], ["--debug"]):
        caplog.clear()
        result = CliRunner().invoke(app, [*words, "sql", "select nope from orders"])
        assert (result.exit_code, result.stderr.startswith("error: ")) == (2, True)
        traces = [record for record in caplog.records if record.exc_info and record.name == "skep"]
        assert bool(traces) is bool(words)


# What a query needs nothing of: a session, frames, writers and services, other statements, progress bars.
NEEDLESS = (
    *("pyspark", "py4j", "pandas", "polars", "fastavro", "prompt_toolkit", "httpx"),
    *(
        "skep.handles.writing",
        "skep.services.automatic",
        "skep_sql.effects",
        "skep_sql.procedures",
        "skep_sync.apply",
        "skep_sync.callbacks",
        "skep_sync.planning.planner",
    ),
    *("skep_table.commit.transaction", "skep_table.metadata_write", "skep_table.services", "skep_table.write.flow"),
)


def test_a_query_that_sail_answers_starts_no_jvm_and_imports_no_writers(project: Path) -> None:
    """Imports are most of the time of a short query."""
    code = (
        "import sys; from skep.cli.main import app; app(['sql', 'select count(*) n from orders where id > 0', '-o',"
        " 'jsonl'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, names = done.stdout.splitlines()
    assert rows == '{"n": 2}'
    loaded = names.split()
    assert not [name for name in loaded if any(name == one or name.startswith(one + ".") for one in NEEDLESS)]
    assert len(loaded) < 1_000, "a slow start: too many modules"


def test_a_list_of_tables_needs_the_metastore_alone(project: Path) -> None:
    """No reader, no writer and no frames: imports were most of its time."""
    code = (
        "import sys; from skep.cli.main import app; app(['ls', '-o', 'jsonl'], standalone_mode=False);"
        " print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *rows, names = done.stdout.splitlines()
    assert any(json.loads(row)["table"].endswith(".orders") for row in rows)
    needless = {"pandas", "pyspark", "sqlglot", "fastavro", "skep.lake", "pyarrow.parquet", "ssl"}
    needless |= {"skep_table.query", "skep_table.table", "skep_sync.planning.planner"}
    assert not needless & {*names.split()}
    assert len(names.split()) < 600, "a slow start: too many modules"


def test_arrow_that_was_loaded_without_pandas_makes_frames() -> None:
    """Also from values that only pandas knows."""
    code = """
import sys
from skep.cli.quick import arrow_alone
arrow_alone()
assert "pandas" not in sys.modules
from skep_writer.session import _pyspark
_pyspark()
import pandas, pyarrow
found = pyarrow.array(pandas.Series([pandas.Timestamp(0), pandas.NaT]))
print(pyarrow.table({"at": found}).to_pandas()["at"].isna().tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[False, True]\n"


# -- results


class NoSpark(SparkHolder):
    """As where pyspark is not installed."""

    @property
    def session(self) -> object:  # type: ignore[override]
        """EnvironmentMissingError."""
        raise EnvironmentMissingError("pyspark is not installed", hint=install_command("local"))


@pytest.fixture
def bare(lake: Lake, orders: Orders) -> Lake:
    """A lake without Spark, with a table of two rows."""
    lake._spark = NoSpark()
    lake.create_table("orders", orders(), key="id").upsert(orders(1, 2))
    return lake


def asked(lake: Lake, query: str, engine: str = "auto") -> SqlResult:
    result = lake.sql(query, engine=engine)
    assert isinstance(result, SqlResult)
    return result


def test_an_answer_comes_in_every_form_without_spark(bare: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(bare, "select id, note from orders order by id")
    assert (answer.engine, answer.columns, repr(answer)) == ("sail", ["id", "note"], "SqlResult(id, note)")
    assert answer.to_arrow().to_pydict() == {"id": [1, 2], "note": ["first", "first"]}
    assert answer.to_reader().read_all() == answer.to_arrow() == pa.table(answer)
    assert answer.to_polars()["id"].to_list() == [1, 2]
    assert answer.to_pandas()["id"].tolist() == [1, 2]
    answer.show(1)
    assert "first" in capsys.readouterr().out
    assert "orders: 1 of 1 file slices are read" in answer.explain()
    assert "== Sail ==" in answer.explain()
    with pytest.raises(EnvironmentMissingError, match="needs Spark"):
        answer.to_spark()


def test_an_error_names_the_reason_why_spark_is_needed(bare: Lake) -> None:
    with pytest.raises(EnvironmentMissingError, match=r"needs Spark \(id > note.*\), and pyspark is not installed"):
        asked(bare, "select id > note h from orders")
    with pytest.raises(EnvironmentMissingError, match="out of range"):
        asked(bare, "select id + 9223372036854775807 as h from orders").to_arrow()
    with pytest.raises(EnvironmentMissingError, match="out of range"):
        asked(bare, "select id + 9223372036854775807 as h from orders").to_reader()
    with pytest.raises(InputError, match="there is no column nots"):
        asked(bare, "select nots from orders")


def test_much_that_is_read_is_left_to_spark(bare: Lake) -> None:
    whole, narrow = (asked(bare, f"select {what} from orders") for what in ("*", "id"))
    assert isinstance(whole, SailResult)
    assert isinstance(narrow, SailResult)
    assert 0 < narrow._plan.bytes_read() < whole._plan.bytes_read()
    bare.options = bare.options.with_values({EMBEDDED_BYTES.key: narrow._plan.bytes_read()})
    assert asked(bare, "select max(id) m from orders").engine == "sail"
    with pytest.raises(EnvironmentMissingError, match=r"needs Spark.*bytes"):
        asked(bare, "select * from orders").to_arrow()
    assert asked(bare, "select * from orders", "sail").to_arrow().num_rows == 2


def test_settings_that_change_what_queries_mean_are_sparks(bare: Lake) -> None:
    bare._spark.conf["spark.sql.caseSensitive"] = "true"
    with pytest.raises(EnvironmentMissingError, match=r"needs Spark \(spark.sql.caseSensitive is set\)"):
        asked(bare, "select id from orders")


def test_rows_stream(bare: Lake) -> None:
    many = pa.table({"id": pa.array(range(300_000), pa.int64()), "note": ["x"] * 300_000})
    bare.create_table("many", many, key="id").bulk_insert(many)
    reader = asked(bare, "select id from many where note = 'x'").to_reader()
    first = reader.read_next_batch()
    assert 0 < first.num_rows < 300_000
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 300_000


def test_an_answer_whose_files_are_damaged_is_an_error(bare: Lake, tmp_path: Path) -> None:
    answer = asked(bare, "select id from orders")
    files = [*tmp_path.rglob("*.parquet")]
    assert files
    for file in files:
        file.write_bytes(b"nothing")
    with pytest.raises(CorruptFileError, match="parquet"):
        answer.to_arrow()


# -- the shell


@pytest.mark.parametrize(
    ("text", "is_run"),
    [
        ("select 1;", True),
        ("select 1", False),
        ("select ';", False),
        ("select ';'", False),
        ("select 1; -- x", True),
        ("select 1; /* x", False),
        ("select 1; select", False),
        ("select `a;", False),
        ("select 1 \\G", True),
        ("select 1 as G", False),
        ("select '\\G", False),
        ("", True),
        ("quit", True),
    ],
)
def test_enter_runs_what_is_complete(text: str, is_run: bool) -> None:
    assert is_complete(text) is is_run


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from skep.cli.main import main; main()", "sql"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", "PROMPT_TOOLKIT_NO_CPR": "1"},
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def type(self, text: str) -> None:
        """Types keys; what was shown before is forgotten."""
        self._seen = ""
        os.write(self._ours, text.encode())

    def until(self, pattern: str, seconds: float = 60) -> None:
        """Waits until this is shown."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self._plain()):
            left = end - time.monotonic()
            assert left > 0, f"{pattern} is not in {self._plain()}"
            if select.select([self._ours], [], [], left)[0]:
                self._seen += os.read(self._ours, 65536).decode(errors="replace")

    def _plain(self) -> str:
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", self._seen)

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    shell = Terminal(project)
    yield shell
    shell.close()


def test_a_shell_on_a_terminal(lake: Lake, terminal: Terminal, project: Path) -> None:
    big = pa.table({"id": pa.array(range(1_000_000), pa.int64())})
    lake.create_table("big", big, key="id").bulk_insert(big)
    terminal.until(r"db_\w+>")
    terminal.type("create temporary view v as\r")
    terminal.type("select id * 7 as k from orders;\r")
    terminal.until(r"done in \d")
    terminal.type("select max(k) most from v;\r")
    terminal.until(r"most\s+14\s+1 row in \d")
    terminal.type("select id, day from orders where id = 1 \\G\r")
    terminal.until(r"-- row 1\s+id: 1\s+day: 2026-01-01\s+1 row in [\d.]+ s, engine: sail")
    terminal.type(f"select id, '{'a' * 70}' as wide from orders where id = 1;\r")
    terminal.until(r"1  a{59}…\s+1 row in")
    terminal.type("select nope from orders;\r")
    terminal.until("error: .*there is no column nope")
    # Tab completes what there is one of.
    terminal.type("select count(*) counted from ord\t")
    terminal.until("from orders")
    terminal.type(";\r")
    terminal.until(r"counted\s+2\s+1 row in")
    # A query that would take for ever is cancelled, and the shell goes on.
    terminal.type("select sum(a.id - b.id) s from big a cross join big b;\r")
    time.sleep(3)
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.until("cancelled")
    terminal.type("select 6 * 7 as answer;\r")
    terminal.until(r"answer\s+42\s[\s\S]*db_\w+>")
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0
    history = (project / "state" / "skep" / "sql_history").read_text()
    assert "select max(k) most from v;" in history
    assert (project / "state" / "skep" / "sql_history").stat().st_mode & 0o077 == 0
