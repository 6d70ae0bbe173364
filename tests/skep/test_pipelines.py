"""Pipelines from table to table: a chain of three, kills in the middle, late rows, cleaned sources, commands."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import skep
from skep.cli.main import app
from skep.lake import Lake
from skep_format.errors import ChangesCleanedError, InputError, OptionError
from skep_stream.checkpoints import entries
from skep_stream.sources.hudi import SkippedChangesWarning
from skep_table.table import HudiTable
from tests.tables_at import create_at

CLEAN = "SELECT id, ts, lower(trim(city)) AS city, amount FROM <SRC> WHERE amount IS NOT NULL"
TOTALS = (
    "SELECT city, count(*) AS orders, sum(amount) AS amount, max(ts) AS ts FROM <ALL>"
    " WHERE city IN (SELECT city FROM <SRC>) GROUP BY city"
)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("city", pa.string()), ("amount", pa.int64())])


def rows(path: str) -> list[dict[str, Any]]:
    found = skep.load(path).to_arrow()
    kept = found.drop_columns([name for name in found.schema.names if name.startswith("_hoodie_")])
    return sorted(kept.to_pylist(), key=str)


class Chain:
    """raw → clean → totals, below one folder."""

    def __init__(self, folder: Path, version: int = 6, kind: str = "cow") -> None:
        self.raw, self.clean, self.totals = (str(folder / name) for name in ("raw", "clean", "totals"))
        self.made = {"type": kind, "table_version": version}
        self.table = create_at(self.raw, SCHEMA, {}, key="id", ordering="ts", **self.made)

    def put(self, *given: tuple[int, int, str, int | None], **options: Any) -> None:
        columns = list(zip(*given, strict=True))
        self.table.upsert(
            pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA), **options
        )

    def cleaning(self, **more: Any) -> skep.Pipeline:
        return skep.pipeline(self.raw, self.clean, CLEAN, **{"key": "id", "ordering": "ts", **self.made, **more})

    def totalling(self, **more: Any) -> skep.Pipeline:
        return skep.pipeline(self.clean, self.totals, TOTALS, **{"key": "city", **self.made, **more})

    def run(self) -> list[int]:
        return [sum(done.rows for done in each.run()) for each in (self.cleaning(), self.totalling())]


@pytest.mark.parametrize(("version", "kind"), [(6, "cow"), (9, "mor"), pytest.param(6, "mor", marks=pytest.mark.slow)])
def test_a_chain_of_three_tables_follows_its_source(tmp_path: Path, version: int, kind: str) -> None:
    chain = Chain(tmp_path, version, kind)
    chain.put((1, 10, " Delft", 5), (2, 10, "leiden", 7), (3, 10, "Delft ", 4), (9, 1, "gouda", None))
    assert chain.run() == [3, 2]
    assert chain.run() == [0, 0]
    chain.put((4, 20, "delft", 1))
    chain.put((3, 5, "delft", 2))  # older than what is there
    chain.put((5, 1, "gouda", 9), (2, 30, "leiden", 8))  # late
    assert chain.cleaning().status()["waiting_commits"] == 3
    assert chain.run()[1] == 3
    assert rows(chain.totals) == [
        {"city": "delft", "orders": 3, "amount": 10, "ts": 20},
        {"city": "gouda", "orders": 1, "amount": 9, "ts": 1},
        {"city": "leiden", "orders": 1, "amount": 8, "ts": 30},
    ]
    assert chain.cleaning().status()["waiting_commits"] == 0
    assert len(HudiTable.open(chain.totals).timeline.data()) == 2


def test_rounds_of_some_commits_end_where_all_do(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    for at in range(5):
        chain.put((at, 1, "delft", at))
    start = str(HudiTable.open(chain.raw).timeline.instants[0].requested_time)
    done = list(chain.cleaning(max_commits=2, start=start).run())
    assert [each.rows for each in done] == [2, 2]
    assert [each["id"] for each in rows(chain.clean)] == [1, 2, 3, 4]


def test_functions_take_the_place_of_a_query(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.put((1, 1, "delft", 1))

    def in_capitals(found: pa.Table) -> pa.Table:
        return found.set_column(2, "city", pc.utf8_upper(found["city"]))

    skep.pipeline(chain.raw, chain.clean, in_capitals, key="id").run_once()
    skep.pipeline(chain.raw, str(tmp_path / "copy"), key="id").run_once()
    assert [rows(path)[0]["city"] for path in (chain.clean, str(tmp_path / "copy"))] == ["DELFT", "delft"]


def test_two_sources_of_one_target_have_a_position_each(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = Chain(tmp_path), Chain(tmp_path / "other")
    one.put((1, 1, "delft", 1))
    other.put((2, 1, "gouda", 1))
    both = [each.cleaning() for each in (one, other)]
    both[1].spec = skep.pipeline(other.raw, one.clean, CLEAN, key="id").spec
    assert [each.run_once().rows for each in both] == [1, 1]
    one.put((3, 1, "delft", 1))
    assert [sum(done.rows for done in each.run()) for each in both] == [1, 0]
    other.put((4, 1, "gouda", 1))
    assert [sum(done.rows for done in each.run()) for each in both] == [0, 1]
    assert [each["id"] for each in rows(one.clean)] == [1, 2, 3, 4]
    newest = [str(each.table.hudi.timeline.instants[-1].requested_time) for each in (one, other)]
    assert entries(HudiTable.open(one.clean)) == dict(zip((one.raw, other.raw), newest, strict=True))


KILLED = """
import os, re, signal, sys
from skep_format.storage import LocalStorage

_, folder, target, pattern, when = sys.argv

def dying(name):
    plain = getattr(LocalStorage, name)
    def call(self, path, *args, **named):
        dies = self.root == target and re.search(pattern, path)
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, path, *args, **named)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
    return call

for name in ("create_exclusive", "replace_atomic", "rename"):
    setattr(LocalStorage, name, dying(name))
from skep.cli.main import main
os.chdir(folder)
sys.argv = ["skep", "pipeline", "run"]
main()
"""


def settings(chain: Chain, folder: Path) -> None:
    (folder / "skep.toml").write_text(
        f"""
        [pipeline.totals]
        source = "{chain.clean}"
        target = "{chain.totals}"
        sql = "{TOTALS}"
        key = "city"

        [pipeline.cleaning]
        source = "{chain.raw}"
        target = "{chain.clean}"
        sql = "{CLEAN}"
        key = ["id"]
        ordering = "ts"
        max_commits = 10

        [options]
        hoodie.client.heartbeat.interval_in_ms = 1000
        """
    )


@pytest.mark.parametrize("target", ["clean", "totals"])
@pytest.mark.parametrize(
    ("pattern", "when"),
    [
        (r"\d\.inflight$", "after"),
        (r"\d\.commit$", "after"),
        pytest.param(r"\d\.commit$", "before", marks=pytest.mark.slow),
        pytest.param(r"\.skep_batches", "after", marks=pytest.mark.slow),
    ],
)
def test_a_chain_that_was_killed_is_run_again(
    tmp_path: Path, target: str, pattern: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(tmp_path)
    settings(chain, tmp_path)
    chain.put((1, 10, "delft", 5), (2, 10, "leiden", 7))
    assert chain.run() == [2, 2]
    chain.put((1, 11, "delft", 6), (3, 10, "gouda", 1))
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(tmp_path / target), pattern, when],
        capture_output=True,
        timeout=60,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    monkeypatch.chdir(tmp_path)
    again = CliRunner().invoke(app, ["pipeline", "run", "--output", "jsonl"])
    assert again.exit_code == 0, again.stderr
    assert rows(chain.clean) == [
        {"id": 1, "ts": 11, "city": "delft", "amount": 6},
        {"id": 2, "ts": 10, "city": "leiden", "amount": 7},
        {"id": 3, "ts": 10, "city": "gouda", "amount": 1},
    ]
    assert [(each["city"], each["amount"]) for each in rows(chain.totals)] == [
        ("delft", 6),
        ("gouda", 1),
        ("leiden", 7),
    ]
    for path in (chain.clean, chain.totals):
        table = HudiTable.open(path)
        assert len(table.timeline.data().completed()) == 2
        assert not table.timeline.pending().instants


def test_of_two_runs_at_the_same_time_one_commits_a_round(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.put((1, 1, "delft", 1))
    chain.cleaning().run_once()
    chain.put((2, 1, "delft", 1))
    inside, both = threading.Event(), []

    def slow(found: pa.Table) -> pa.Table:
        inside.wait(10)
        return found

    def run() -> None:
        both.append(skep.pipeline(chain.raw, chain.clean, slow, key="id", ordering="ts").run_once())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    inside.set()
    for each in threads:
        each.join()
    assert sorted(each.result is None for each in both) == [False, True]
    assert len(HudiTable.open(chain.clean).timeline.data()) == 2


def test_a_write_that_is_pending_is_not_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In version 6 it has an earlier time than what completes meanwhile."""
    caplog.set_level(logging.CRITICAL, "skep")
    chain = Chain(tmp_path)
    chain.put((1, 1, "delft", 1))
    chain.cleaning().run_once()
    timeline = Path(chain.raw) / ".hoodie"
    chain.put((2, 1, "delft", 1))
    slow = HudiTable.open(chain.raw).timeline.instants[-1].requested_time
    completed = timeline / f"{slow}.commit"
    chain.put((3, 1, "delft", 1))
    content = completed.read_bytes()
    completed.unlink()  # the slow one is not yet complete
    assert chain.cleaning().run_once().result is None
    assert chain.cleaning().status()["held_by"] == str(slow)
    completed.write_bytes(content)
    assert [each.rows for each in chain.cleaning().run()] == [2]
    assert [each["id"] for each in rows(chain.clean)] == [1, 2, 3]


def cleaned(chain: Chain) -> None:
    """Commits behind the first of which files are cleaned, and with more of them archived."""
    for at in range(2, 8):
        chain.put((1, at, "delft", at), (at, at, "leiden", at))
    chain.table.clean(**{"hoodie.cleaner.commits.retained": 1})


@pytest.mark.parametrize("version", [6, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("archived", [False, True])
def test_a_source_that_was_cleaned_fails_or_goes_on_by_choice(tmp_path: Path, archived: bool, version: int) -> None:
    chain = Chain(tmp_path, version)
    chain.put((1, 1, "delft", 1))
    chain.cleaning().run_once()
    cleaned(chain)
    if archived:
        chain.table.archive(
            **{"hoodie.cleaner.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
        )
    before = rows(chain.clean)
    with pytest.raises(ChangesCleanedError) as raised:
        chain.cleaning(max_commits=2).run_once()
    assert "full reads the table as it is now" in str(raised.value.hint)
    assert rows(chain.clean) == before
    copy = str(tmp_path / "copied")
    shutil.copytree(chain.clean, copy)
    done = chain.cleaning(max_commits=2, cleaned="full").run_once()
    assert done.rows >= 7
    expected = [{"id": 1, "ts": 7, "city": "delft", "amount": 7}]
    expected += [{"id": at, "ts": at, "city": "leiden", "amount": at} for at in range(2, 8)]
    assert rows(chain.clean) == expected
    chain.clean = copy
    with pytest.warns(SkippedChangesWarning, match="were cleaned and are not read"):
        list(chain.cleaning(max_commits=2, cleaned="earliest").run())
    found = rows(copy)
    assert found[0] == expected[0]
    assert found[-1] == expected[-1]
    assert len(found) < len(expected)


def test_what_can_not_work_is_refused(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.put((1, 1, "delft", 1))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"max_commits": 0}, "max_commits must be 1 at least"),
        ({"cleaned": "never"}, "'never' is none of fail, full, earliest"),
    ]
    for more, message in refused:
        with pytest.raises(OptionError, match=message):
            chain.cleaning(**more)
    with pytest.raises(OptionError, match="names the changed rows <SRC>"):
        skep.pipeline(chain.raw, chain.clean, "SELECT 1 AS id")
    with pytest.raises(InputError, match="there is no table"):
        skep.pipeline(chain.raw, chain.clean, CLEAN).run_once()
    with pytest.raises(InputError):
        skep.pipeline(chain.raw, chain.clean, "SELECT nothing FROM <SRC>", key="id").run_once()
    assert not (tmp_path / "clean" / ".hoodie").exists()


def test_settings_that_can_not_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def error(text: str, *names: str) -> str:
        (tmp_path / "skep.toml").write_text(text)
        return CliRunner().invoke(app, ["pipeline", "run", *names]).stderr

    assert "no settings have a pipeline" in error("")
    assert "no settings have a pipeline x; there are: y" in error("[pipeline.y]\nsource='./a'\ntarget='./b'", "x")
    assert "[pipeline.y] needs target" in error("[pipeline.y]\nsource='./a'")
    assert "from can't be used" in error("[pipeline.y]\nsource='./a'\nfrom='./b'")
    assert "pipeline.y.max_commits is no number" in error("[pipeline.y]\nsource='./a'\ntarget='./b'\nmax_commits='x'")
    same = "source='./a'\ntarget='./b'\n"
    assert "have the same source and target" in error(f"[pipeline.y]\n{same}[pipeline.z]\n{same}")
    circle = "[pipeline.y]\nsource='./a'\ntarget='./b'\n[pipeline.z]\nsource='./b'\ntarget='./a'"
    assert "feed each other in a circle" in error(circle)


def test_a_pipeline_that_fails_does_not_keep_the_others_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(tmp_path)
    settings(chain, tmp_path)
    text = (tmp_path / "skep.toml").read_text()
    (tmp_path / "skep.toml").write_text(f"[pipeline.bad]\nsource = './nowhere'\ntarget = './else'\n{text}")
    chain.put((1, 10, "delft", 5))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["pipeline", "run", "--output", "jsonl"])
    assert done.exit_code == 1
    assert "error: bad: " in done.stderr
    assert [line.count('"rows": 1') for line in done.stdout.splitlines()] == [1, 1]
    shown = CliRunner().invoke(app, ["pipeline", "status", "cleaning", "--output", "jsonl"])
    assert '"waiting_commits": 0' in shown.stdout


@pytest.mark.metastore
def test_tables_of_a_lake_are_locked_and_synced(lake: Lake) -> None:
    raw = lake.create_table("raw", SCHEMA, key="id", ordering="ts")
    raw.upsert(pa.table([[1], [1], ["delft "], [3]], SCHEMA))
    pipeline = lake.pipeline("raw", "clean", CLEAN, key="id", ordering="ts")
    done = pipeline.run_once()
    assert done.result is not None
    assert lake.table("clean").read(columns=["city"]).to_arrow()["city"].to_pylist() == ["delft"]
    entry = lake.metastore.table(lake.database, "clean")
    assert entry.parameters["last_commit_time_sync"] == done.result.instant.requested_time
    assert pipeline.run_once().result is None
    assert list(pipeline.status()["next"]) == list(str(raw.hudi.timeline.instants[-1].requested_time))


def test_a_chain_that_runs_on_ends_well_when_it_is_terminated(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    settings(chain, tmp_path)
    chain.put((1, 10, "delft", 5))
    code = "import sys; from skep.cli.main import main; sys.argv = ['skep', *sys.argv[1:]]; main()"
    words = [sys.executable, "-c", code, "pipeline", "run", "--every", "0.2", "--output", "jsonl"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for at in (1, 2):
            assert [json.loads(process.stdout.readline())["pipeline"] for _ in range(2)] == ["cleaning", "totals"]
            if at == 1:
                chain.put((2, 11, "gouda", 6))
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert [each["city"] for each in rows(chain.totals)] == ["delft", "gouda"]
    assert not HudiTable.open(chain.totals).timeline.pending().instants


def test_a_round_without_rows_moves_the_position(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.put((1, 1, "delft", None))
    done = chain.cleaning().run_once()
    assert (done.rows, done.result is None) == (0, False)
    assert chain.cleaning().run_once().result is None
    chain.table.delete(pa.table({"id": [1]}))  # not carried over: changes are rows
    assert [each.rows for each in chain.cleaning().run()] == [0]
    assert chain.cleaning().status()["waiting_commits"] == 0
