"""Ctrl-C and SIGTERM at each call of a write in turn: it is rolled back, which is reported, or it is complete."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.lock import held
from skep_table.locks.storage import StorageLock
from skep_table.query import ReadRequest, read
from skep_table.runtime.signals import exit_on_sigterm
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

Rows = Callable[..., pa.Table]
ENDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit}


class Signalled(LocalStorage):
    """The process gets a signal at its call `at` that changes something: before it, or after it."""

    def __init__(self, root: str, at: int, number: int, after: bool) -> None:
        super().__init__(root)
        self.at, self.number, self.after, self.calls = at, number, after, 0

    @contextmanager
    def _signal(self) -> Iterator[None]:
        self.calls += 1
        hit = self.calls == self.at
        if hit and not self.after:
            os.kill(os.getpid(), self.number)
        yield
        if hit and self.after:
            os.kill(os.getpid(), self.number)

    @contextmanager
    def open_write(self, path: str) -> Iterator[IO[bytes]]:
        with self._signal(), super().open_write(path) as file:
            yield file


def _signalling(name: str) -> Any:
    def method(self: Signalled, *args: Any, **named: Any) -> Any:
        with self._signal():
            return getattr(LocalStorage, name)(self, *args, **named)

    return method


for _name in ("sync", "create_exclusive", "replace_atomic", "rename", "delete", "delete_folder"):
    setattr(Signalled, _name, _signalling(_name))


@pytest.fixture
def handled() -> Iterator[None]:
    """As in a program that asked for it. Where a shell began the tests in the background, they ignore SIGINT."""
    before = {number: signal.getsignal(number) for number in ENDS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exit_on_sigterm()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def content(folder: Path) -> list[tuple[str, int]]:
    found = read(HudiTable.open(str(folder)), ReadRequest()).to_arrow().to_pylist()
    return sorted((row["id"], row["ts"]) for row in found)


def writer(storage: Storage | str, threads: int = 1, leased: bool = False) -> LocalWriter:
    table = HudiTable.open(storage)
    more = {"lock": StorageLock(LocalStorage(table.storage.root))} if leased else {}
    return LocalWriter(table.with_context(runner=ThreadRunner(threads), **more))


def seeded(folder: Path, rows: Rows, kind: TableType = TableType.COPY_ON_WRITE) -> Path:
    spec = TableSpec(
        name="t", schema=rows([]).schema, record_key=("id",), partition_by=("part",), ordering="ts", type=kind
    )
    create_table(LocalStorage(str(folder)), spec)
    writer(str(folder)).upsert(rows(["a", "b"]))
    return folder


QUICK = {(TableType.COPY_ON_WRITE, signal.SIGTERM, True), (TableType.MERGE_ON_READ, signal.SIGINT, False)}


def cases() -> list[Any]:
    return [
        pytest.param(kind, number, after, marks=[] if (kind, number, after) in QUICK else [pytest.mark.slow])
        for kind in TableType
        for number in ENDS
        for after in (False, True)
    ]


@pytest.mark.parametrize("table_version", [6, pytest.param(9, marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(("kind", "number", "after"), cases())
@pytest.mark.usefixtures("handled")
def test_at_any_call(
    kind: TableType, number: int, after: bool, tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    start, folder = seeded(tmp_path / "seeded", rows, kind), tmp_path / "run"
    before, at, outcomes = content(start), 1, set()
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        storage = Signalled(str(folder), at, number, after)
        caplog.clear()
        try:
            writer(storage, threads=at % 2 + 1, leased=at % 3 == 0).upsert(
                pa.concat_tables([rows(["a"], ts=2), rows(["n"], part="q")])
            )
        except ENDS[number]:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            exit_on_sigterm()
        else:
            assert storage.calls < at
            break
        timeline = HudiTable.open(str(folder)).timeline
        assert not timeline.pending().instants, at
        is_complete = len(timeline.data().completed()) == 2
        assert (content(folder) != before) == is_complete, at
        text = caplog.text
        if timeline.instants != HudiTable.open(str(start)).timeline.instants:
            assert ("is complete" if is_complete else "is rolled back") in text, at
            outcomes.add(is_complete)
        assert not list((folder / ".hoodie/.heartbeat").iterdir()), at
        with held(StorageLock(LocalStorage(str(folder))), 0.5):
            pass
        at += 1
    assert outcomes == {False, True}


# The process that opens the data file gets the signal, in the midst of a write: `NUMBER` is its number.
SIGNALLED = """
import contextlib, os, sys
from skep_format.storage import LocalStorage
opened = LocalStorage.open_write

@contextlib.contextmanager
def signalled(self, path):
    with opened(self, path) as file:
        os.kill(os.getpid(), NUMBER)
        yield file

LocalStorage.open_write = signalled
"""
COMMAND = """
from skep.cli.main import main
sys.argv = ["skep", "write", sys.argv[1], sys.argv[2]]
main()
"""
SCRIPT = """
import pyarrow.parquet, skep
{first}
skep.open_table(sys.argv[1], **{{"hoodie.write.lock.provider": "storage"}}).upsert(
    pyarrow.parquet.read_table(sys.argv[2])
)
"""


@pytest.mark.parametrize(
    ("code", "number", "status"),
    [
        pytest.param(COMMAND, signal.SIGINT, 130, id="command-interrupt"),
        pytest.param(COMMAND, signal.SIGTERM, 143, id="command-terminate"),
        pytest.param(SCRIPT.format(first=""), signal.SIGINT, -signal.SIGINT, id="script-interrupt"),
        pytest.param(SCRIPT.format(first="skep.exit_on_sigterm()"), signal.SIGTERM, 143, id="script-terminate"),
    ],
)
def test_a_process_that_is_ended_in_a_write_rolls_it_back_and_reports_it(
    code: str, number: int, status: int, tmp_path: Path, rows: Rows
) -> None:
    done, folder = ended(code, number, tmp_path, rows)
    assert done.returncode == status, done.stderr
    assert "is rolled back; the table reads as before it" in done.stderr
    assert ("Traceback" in done.stderr) == (status < 0)  # Python's own, of KeyboardInterrupt
    table = HudiTable.open(str(folder))
    assert not table.timeline.pending().instants
    assert content(folder) == [("a", 1), ("b", 1)]
    assert [file.name for file in folder.rglob("*.parquet") if ".hoodie" not in file.parts] == [
        Path(stat.path).name for stat in table.commit_metadata(table.timeline.data().completed().instants[0]).stats
    ]


def test_the_library_handles_no_signal_by_itself(tmp_path: Path, rows: Rows) -> None:
    """A program that did not ask for it ends at once, also with a leased lock in use; the next write rolls it back."""
    done, folder = ended(SCRIPT.format(first=""), signal.SIGTERM, tmp_path, rows)
    assert done.returncode == -signal.SIGTERM
    assert HudiTable.open(str(folder)).timeline.pending().instants
    writer(str(folder)).upsert(rows(["c"]))
    assert not HudiTable.open(str(folder)).timeline.pending().instants
    assert content(folder) == [("a", 1), ("b", 1), ("c", 1)]


def ended(code: str, number: int, tmp_path: Path, rows: Rows) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = seeded(tmp_path / "t", rows)
    pq.write_table(rows(["a", "n"], ts=2), tmp_path / "rows.parquet")
    script = SIGNALLED.replace("NUMBER", str(int(number))) + code
    command = [sys.executable, "-c", script, str(folder), str(tmp_path / "rows.parquet")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60), folder
