"""`skep lock`: waiting for a lock, breaking one, and whether a metastore's locks work at all."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skep.cli import lock as lock_commands
from skep.cli.scope import App
from skep_catalog.client import Metastore
from skep_catalog.entities import LockInfo
from skep_catalog.lock import HmsLock
from skep_catalog.lock_care import break_lock, examine_locks
from skep_format.errors import LeaseLostError
from skep_table.lock import held

pytestmark = pytest.mark.metastore


def run(*arguments: str) -> Result:
    app = App()
    app.add(lock_commands, "lock")
    return CliRunner().invoke(app, ["lock", *arguments])


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "skep" / "audit.jsonl"


DEAD = """
import os, sys
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock

lock = HmsLock(Metastore.connect(sys.argv[1]), sys.argv[2], "t", purpose="a job that died")
lock.acquire(10)
os._exit(9)
"""


def dead_lock(metastore: Metastore, database: str) -> int:
    subprocess.run([sys.executable, "-c", DEAD, metastore.uri, database], check=False)
    (lock,) = metastore.locks(database, "t")
    return lock.lock_id


def test_a_lock_whose_owner_may_live_is_not_broken(metastore: Metastore, database: str, audit: Path) -> None:
    lock = HmsLock(metastore, database, "t", purpose="the nightly job")
    with held(lock, 5) as lock_id:
        refused = run("break", "--lock-id", lock_id, "-m", metastore.uri)
        assert refused.exit_code == 1
        assert "the nightly job" in refused.stderr
        assert "--force" in refused.stderr
        lock.ensure_held()
        assert not audit.exists()
        broken = run("break", "--lock-id", lock_id, "--force", "-m", metastore.uri, "-o", "json")
        assert broken.exit_code == 0, broken.output
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
    (line,) = map(json.loads, audit.read_text().splitlines())
    assert (line["what"], str(line["lock_id"]), line["forced"]) == ("lock.broken", lock_id, True)
    assert line["purpose"] == "the nightly job"
    assert metastore.locks(database, "t") == []


def test_the_lock_of_a_dead_process_is_broken_without_force(metastore: Metastore, database: str, audit: Path) -> None:
    lock_id = dead_lock(metastore, database)
    (shown,) = json.loads(run("show", f"{database}.t", "-m", metastore.uri, "-o", "json").stdout)
    assert (shown["lock_id"], shown["alive"], shown["purpose"]) == (lock_id, False, "a job that died")
    assert run("break", "--lock-id", str(lock_id), "-m", metastore.uri).exit_code == 0
    assert json.loads(audit.read_text())["forced"] is False
    broken_lock = run("break", "--lock-id", str(lock_id), "-m", metastore.uri)
    assert broken_lock.exit_code == 1
    assert f"knows no lock {lock_id}" in broken_lock.stderr


def test_wait_reports_for_whom_and_ends_when_the_lock_is_free(metastore: Metastore, database: str) -> None:
    lock = HmsLock(metastore, database, "t", purpose="the nightly job")
    lock.acquire(5)
    threading.Timer(0.5, lock.release).start()
    waited = run("wait", f"{database}.t", "-m", metastore.uri)
    assert waited.exit_code == 0
    assert "the nightly job" in waited.stderr
    assert metastore.locks(database, "t") == []


def test_wait_gives_up(metastore: Metastore, database: str) -> None:
    with held(HmsLock(metastore, database, "t"), 5):
        waited = run("wait", f"{database}.t", "--timeout", "0.3", "-m", metastore.uri)
    assert waited.exit_code == 1
    assert "was not granted" in waited.stderr


@pytest.mark.parametrize("words", [("wait", "--timeout", "1"), ("show",)])
def test_a_table_that_nobody_knows(metastore: Metastore, database: str, words: tuple[str, ...]) -> None:
    answer = run(words[0], f"{database}.mistyped", *words[1:], "-m", metastore.uri)
    assert answer.exit_code == 1
    assert f"{database}.mistyped" in answer.stderr
    with held(HmsLock(metastore, database, "mistyped"), 5):
        assert f"{database}.mistyped" in run("show", f"{database}.mistyped", "-m", metastore.uri).output


class TestDoctor:
    def test_a_metastore_that_is_well(self, metastore: Metastore) -> None:
        answer = run("doctor", "-m", metastore.uri, "-o", "json")
        assert answer.exit_code == 0, answer.output
        found = {row["what"]: row["state"] for row in json.loads(answer.stdout)}
        assert found == dict.fromkeys(("metastore", "lock tables", "clock", "holders", "house-keeper"), "ok")

    def test_a_lock_that_a_dead_process_left(self, metastore: Metastore, database: str) -> None:
        lock_id = dead_lock(metastore, database)
        answer = run("doctor", "-m", metastore.uri, "-o", "json")
        assert answer.exit_code == 1
        (found,) = [row for row in json.loads(answer.stdout) if row["what"] == "holders"]
        assert "whose process has ended" in found["found"]
        assert found["hint"] == f"skep lock break --lock-id {lock_id}"
        assert run("break", "--lock-id", str(lock_id), "-m", metastore.uri).exit_code == 0

    def test_a_clock_that_goes_wrong(self, metastore: Metastore) -> None:
        @dataclass
        class Fast:
            def now(self) -> Any:
                from datetime import datetime, timedelta, timezone

                return datetime.now(timezone.utc) + timedelta(seconds=90)

            def monotonic(self) -> float:
                return time.monotonic()

            def sleep(self, seconds: float) -> None:
                time.sleep(seconds)

        (clock,) = [each for each in examine_locks(metastore, Fast()) if each.what == "clock"]
        assert not clock.well
        assert "90" in clock.found or "89" in clock.found
        assert "behind" in clock.found

    def test_locks_that_outlived_their_time_out(
        self, metastore: Metastore, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As with a metastore whose house-keeper is off."""
        real = Metastore.locks

        def aged(self: Metastore, *names: str) -> list[LockInfo]:
            ages = {database: 3_600_000}
            return [
                replace(lock, last_heartbeat_ms=lock.last_heartbeat_ms - ages.get(lock.database, 0))
                for lock in real(self, *names)
            ]

        with held(HmsLock(metastore, database, "t"), 5) as lock_id:
            monkeypatch.setattr(Metastore, "locks", aged)
            (keeper,) = [each for each in examine_locks(metastore) if each.what == "house-keeper"]
            assert not keeper.well
            assert "locks of dead writers stay" in (keeper.hint or "")
            break_lock(metastore, int(lock_id))  # silent for an hour: needs no force

    @pytest.mark.engine("metastore")
    def test_without_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SKEP__OPTIONS", '{"skep.metastore.attempts": "1"}')
        answer = run("doctor", "-m", "thrift://127.0.0.1:1", "-o", "json")
        assert answer.exit_code == 1
        assert [row["state"] for row in json.loads(answer.stdout)] == ["bad", "bad"]
