"""`skep compact`, `cluster`, `clean`, … killed after so many changes to the table: the same call again ends as ever."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import create_savepoint
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
PARTS = "abcd"
COMMAND = (sys.executable, "-c", "from skep.cli.main import main; main()")
SHORT = {"keep.max.commits": 3, "keep.min.commits": 2, "compact.inline.max.delta.commits": 1}
Rows = dict[str, int]


def frame(ts: int, *numbers: int) -> pa.Table:
    keys = [f"{part}{number}" for part in PARTS for number in numbers]
    return pa.table([keys, [key[0] for key in keys], [ts] * len(keys)], schema=SCHEMA)


def rows(folder: Path, as_of: str | None = None) -> Rows:
    found = read(HudiTable.open(str(folder)), ReadRequest(columns=("id", "ts"), as_of=as_of)).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key twice"
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Made:
    """A table of several small files a partition, with a savepoint, and writes after it."""

    folder: Path
    saved: str
    last: str
    before_last: Rows


def made(folder: Path, type: TableType) -> Made:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=type)
    writer = LocalWriter(create_table(LocalStorage(str(folder)), spec))
    for number in range(3):
        writer.bulk_insert(frame(0, number))
    saved = writer.upsert(frame(1, 0, 1)).instant.requested_time
    create_savepoint(HudiTable.open(str(folder)), saved)
    for ts in (2, 3):
        writer.upsert(frame(ts, 0, 2))
    before = rows(folder)
    last = writer.upsert(frame(4, 0, 1, 2, 3)).instant.requested_time
    return Made(folder, saved, last, before)


def commands(table: Made) -> dict[str, tuple[list[str], Rows]]:
    """What is given after the table's path, and the rows when it is over."""
    now = rows(table.folder)
    retain = "--option=hoodie.cleaner.commits.retained=1"
    short = [f"--option=hoodie.{key}={value}" for key, value in SHORT.items()]
    return {
        "compact": ([], now),
        "compact --logs": (["--option=hoodie.log.compaction.blocks.threshold=2"], now),
        "cluster": (["--sort-by=ts,id"], now),
        "clean": ([retain], now),
        "archive": ([retain, *short], now),
        "rollback": ([table.last], table.before_last),
        "restore": ([table.saved], rows(table.folder, as_of=table.saved)),
    }


def state(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def killed_after(changes: int, command: list[str], folder: Path) -> bool:
    """Runs a command and kills it once so many files have been added or deleted. False when it had ended by then."""
    before = state(folder)
    process = subprocess.Popen([*COMMAND, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if len(state(folder) ^ before) >= changes:
            process.kill()
            process.wait()
            return True
    return False


def answer(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *command], capture_output=True, text=True, check=False)


# The message, as an error, where the killed command had come to its end.
DONE = {"rollback": ("there is no write", "is not the newest write")}
HALF_WAY = ("rollback", "restore")  # they take writes back one by one, and file by file

CASES = [(TableType.COPY_ON_WRITE, name) for name in ("cluster", "clean", "rollback", "restore")] + [
    (TableType.MERGE_ON_READ, name) for name in ("compact", "compact --logs", "cluster", "archive", "rollback")
]


@pytest.mark.slow
@pytest.mark.parametrize(("type", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_killed_service_is_finished_by_the_next_call(type: TableType, name: str, tmp_path: Path) -> None:
    template = made(tmp_path / "template", type)
    before = rows(template.folder)
    more, after = commands(template)[name]
    folder = tmp_path / "t"
    word, *flags = name.split()
    command = [word, str(folder), *more, *flags]
    kills = 0
    for changes in (1, 3, 6, 12):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template.folder, folder)
        killed = killed_after(changes, command, folder)
        kills += killed
        if name not in HALF_WAY:
            assert rows(folder) == before
        if killed:
            again = answer(command)
            assert again.returncode == 0 or any(text in again.stderr for text in DONE.get(name, ())), again.stderr
        table = HudiTable.open(str(folder))
        assert rows(folder) == after, changes
        assert not table.timeline.pending(), changes
        assert fsck(table) == [], changes
        if name != "restore":
            assert rows(folder, as_of=template.saved) == rows(template.folder, as_of=template.saved)
        LocalWriter(table).upsert(frame(9, 5))
        assert rows(folder) == after | dict.fromkeys(frame(9, 5)["id"].to_pylist(), 9)
        temporary = [path for each in (".temp", ".heartbeat") for path in (folder / ".hoodie" / each).rglob("*")]
        # What a storage call was about to put into its place is nobody's.
        assert [str(path) for path in temporary if path.is_file() and path.suffix != ".tmp"] == [], changes
        if not killed:
            break
    assert kills, "it was never killed"
