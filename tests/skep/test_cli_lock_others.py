"""`skep lock` where the lock is not in the metastore: by the table's path, and by the provider that options name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from skep.cli import lock as lock_commands
from skep.cli.progress import listening
from skep.cli.scope import App
from skep_format.errors import LeaseLostError, LockTimeoutError
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.events import Events
from skep_table.lock import held
from skep_table.locks.filesystem import FileSystemLock
from skep_table.locks.storage import StorageLock
from skep_table.locks.zookeeper import ZooKeeperLock


def run(*arguments: str) -> Result:
    app = App()
    app.add(lock_commands, "lock")
    return CliRunner().invoke(app, ["lock", *arguments])


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    spec = TableSpec(name="t", schema=pa.schema([("id", pa.string())]), record_key=("id",))
    return create_table(LocalStorage(str(tmp_path / "t")), spec).storage  # type: ignore[return-value]


def shown(*arguments: str) -> list[dict[str, object]]:
    answer = run("show", *arguments, "-o", "json")
    assert answer.exit_code == 0, answer.output
    return (
        [json.loads(line) for line in answer.stdout.splitlines()]
        if answer.stdout[:1] == "{"
        else json.loads(answer.stdout or "[]")
    )


@pytest.mark.parametrize("kind", [StorageLock, FileSystemLock])
def test_locks_in_the_tables_own_folder(
    kind: type[StorageLock] | type[FileSystemLock], storage: LocalStorage, tmp_path: Path
) -> None:
    assert shown(storage.root) == []
    lock = kind(storage, purpose="the nightly job")
    with held(lock, 5) as lock_id:
        (row,) = shown(storage.root)
        assert (row["lock_id"], row["purpose"], row["alive"]) == (lock_id, "the nightly job", True)
        refused = run("break", storage.root, "--lock-id", lock_id)
        assert refused.exit_code == 1
        assert "the nightly job" in refused.stderr
        assert run("break", storage.root, "--lock-id", "another").exit_code == 1
        lock.ensure_held()
        assert run("break", storage.root, "--lock-id", lock_id, "--force").exit_code == 0
        with pytest.raises(LeaseLostError):
            lock.ensure_held()
        (line,) = map(json.loads, (tmp_path / "state/skep/audit.jsonl").read_text().splitlines())
        assert (line["what"], line["lock_id"], line["forced"]) == ("lock.broken", lock_id, True)
    assert shown(storage.root) == []


def test_the_lock_of_a_dead_process_needs_no_force(storage: LocalStorage) -> None:
    script = (
        "import os, sys; from skep_format.storage import LocalStorage; from skep_table.locks.storage import StorageLock"
        "; lock = StorageLock(LocalStorage(sys.argv[1])); lock.acquire(5); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, storage.root], check=False)
    (row,) = shown(storage.root)
    assert row["alive"] is False
    assert run("break", storage.root, "--lock-id", str(row["lock_id"])).exit_code == 0


def test_wait_ends_when_it_is_free(storage: LocalStorage) -> None:
    assert run("wait", storage.root, "--timeout", "5").exit_code == 0
    with held(StorageLock(storage, purpose="the nightly job"), 5):
        late = run("wait", storage.root, "--timeout", "0.2")
    assert late.exit_code == 1
    assert "the nightly job" in late.stderr


def test_a_provider_that_options_name(storage: LocalStorage, zookeeper: str) -> None:
    options = {"provider": "zookeeper", "zookeeper.url": zookeeper, "zookeeper.base_path": "/cli"}
    flags = [part for key, value in options.items() for part in ("--option", f"hoodie.write.lock.{key}={value}")]
    assert shown(storage.root, *flags) == []
    lock = ZooKeeperLock(zookeeper, "/cli/t", session_seconds=2, purpose="the nightly job")
    with held(lock, 5) as lock_id:
        (row,) = shown(storage.root, *flags)
        assert (row["lock_id"], row["state"], row["purpose"]) == (lock_id, "acquired", "the nightly job")
        assert run("break", storage.root, *flags, "--lock-id", lock_id, "--force").exit_code == 0
        with pytest.raises(LeaseLostError):
            lock.ensure_held()


def test_a_terminal_shows_for_whom_a_writer_waits(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with held(StorageLock(storage, purpose="the nightly job"), 5), listening("write") as listener:
        waiting = StorageLock(storage, events=Events(listener))
        with pytest.raises(LockTimeoutError):
            waiting.acquire(0.5)
    shown = capsys.readouterr().err
    assert "waiting for the lock of" in shown
    assert "the nightly job" in shown
