"""Logs that grow: blocks behind those of other commits, and what a crash in the middle of one leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from faulty_storage import CHANGES, FaultyStorage, KilledAtChanges

from skep_format.errors import CommitConflictError, InputError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.logfile import read_blocks
from skep_format.logfile.reader import ends_whole
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.output.attempt import Attempt, attempt_scope
from skep_table.write.result import WriteResult

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
APPENDS: dict[str, Any] = {"skep.write.log.append": True, "hoodie.compact.inline": False}


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def opened(storage: Storage | str, **more: Any) -> HudiTable:
    options = Options({**APPENDS, **{f"hoodie.{key.replace('__', '.')}": value for key, value in more.items()}})
    return HudiTable.open(storage).with_context(options=options, runner=ThreadRunner(1))


def upsert(storage: Storage | str, ts: int, *, key: str = "a", **more: Any) -> WriteResult:
    return LocalWriter(opened(storage, **more)).upsert(rows((key, "p", ts, ts), ("b", "q", ts, ts)))


def made(
    folder: Path,
    *,
    version: int = 6,
    metadata: bool = False,
    properties: dict[str, str] | None = None,
    index: str = "SIMPLE",
) -> Path:
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        record_key=("id",),
        partition_by=("part",),
        ordering="ts",
        type=TableType.MERGE_ON_READ,
        version=version,
        properties=properties or {},
    )
    create_table(LocalStorage(str(folder)), spec)
    upsert(str(folder), 1, metadata__enable=metadata, index__type=index)
    upsert(str(folder), 2, metadata__enable=metadata, index__type=index)
    return folder


def found(folder: Path, **how: Any) -> dict[str, int]:
    listed = read(HudiTable.open(str(folder)), ReadRequest(**how)).to_arrow().to_pylist()
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row["ts"] for row in listed}


def logs(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("[pq]/.*.log.*"))


def stat_of(result: WriteResult) -> Any:
    return next(stat for stat in result.metadata.stats if stat.partition_path == "p")


@pytest.mark.parametrize("metadata", [False, True])
def test_blocks_of_many_commits_share_a_file(tmp_path: Path, metadata: bool) -> None:
    folder = made(tmp_path / "t", metadata=metadata)
    before, size = logs(folder), (folder / logs(folder)[0]).stat().st_size
    third = upsert(str(folder), 3, metadata__enable=metadata)
    stat = stat_of(third)
    assert logs(folder) == before
    grown = (folder / stat.path).stat().st_size
    assert (stat.log_version, stat.log_offset, stat.file_size_in_bytes, stat.total_write_bytes) == (
        *(1, size, grown),
        grown - size,
    )
    assert len(stat.log_files) == 1
    upsert(str(folder), 4, metadata__enable=metadata)
    assert logs(folder) == before
    assert found(folder) == {"a": 4, "b": 4}
    assert found(folder, as_of=third.instant.requested_time) == {"a": 3, "b": 3}
    assert found(folder, query="incremental", since=third.instant.requested_time) == {"a": 4, "b": 4}
    assert found(folder, query="read_optimized") == {"a": 1, "b": 1}
    assert fsck(opened(str(folder)), deep=True) == []
    done = upsert(str(folder), 5, key="c", metadata__enable=metadata)
    assert found(folder) == {"a": 4, "b": 5, "c": 5}
    assert done.errors == 0
    compact(opened(str(folder), metadata__enable=metadata))
    upsert(str(folder), 6, metadata__enable=metadata)
    assert found(folder) == {"a": 6, "b": 6, "c": 5}
    assert fsck(opened(str(folder)), deep=True) == []


def test_a_file_that_is_full_is_followed_by_another(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    size = (folder / logs(folder)[0]).stat().st_size
    for ts in range(3, 7):
        upsert(str(folder), ts, logfile__max__size=2 * size)
    assert len(logs(folder)) == 2 * 3  # of each partition two commits a file: 2 and 3, 4 and 5, 6
    assert found(folder) == {"a": 6, "b": 6}
    assert stat_of(upsert(str(folder), 7, logfile__max__size=2 * size)).log_version == 3


def _shared(folder: Path) -> bool:
    before = logs(folder)
    upsert(str(folder), 3)
    return logs(folder) == before


def test_where_a_log_may_not_grow_a_new_one_begins(tmp_path: Path) -> None:
    assert _shared(made(tmp_path / "yes"))
    assert not _shared(made(tmp_path / "newer", version=9))
    assert not _shared(made(tmp_path / "changes", properties={"hoodie.table.cdc.enabled": "true"}))
    folder = made(tmp_path / "statistics", metadata=True)
    before = logs(folder)
    upsert(str(folder), 3, metadata__enable=True, metadata__index__column__stats__enable=True)
    assert logs(folder) != before
    folder = made(tmp_path / "off")
    before = logs(folder)
    off = Options({"hoodie.compact.inline": False})
    LocalWriter(HudiTable.open(str(folder)).with_context(options=off)).upsert(rows(("a", "p", 3, 3)))
    assert logs(folder) != before


def test_the_files_of_a_delta_commit_are_known_by_their_names(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    table = HudiTable.open(str(folder))
    naming, time = table.format.logs, table.timeline.instants[-1].requested_time
    token = naming.write_token(4, 2, time)
    name = naming.new_file("f", InstantTime("20260101000000000"), time, 0, token)
    assert naming.is_own(name, time)
    other = InstantTime(f"{time[:-9]}{(int(time[-9:]) + 1) % 10**9:09}")
    assert not naming.is_own(name, other)


# -- crashes -----------------------------------------------------------------------------------------------------------


def _last_block(path: Path) -> bytes:
    with pa.OSFile(str(path)) as file:
        last = list(read_blocks(file, str(path)))[-1]
    return path.read_bytes()[last.offset :]


@pytest.mark.parametrize("metadata", [False, True])
def test_a_crash_in_the_middle_of_a_block_leaves_what_was_there(tmp_path: Path, metadata: bool) -> None:
    """Each part of the frame of a block: magic, length, version, type, headers, content, the length behind it."""
    source = made(tmp_path / "t", metadata=metadata)
    upsert(str(source), 3, metadata__enable=metadata)
    block = _last_block(source / logs(source)[0])
    ends = (1, 5, 6, 13, 14, 22, len(block) // 2, len(block) - 8, len(block) - 1)
    for cut in (5, len(block) - 8) if metadata else ends:
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(source, folder)
        log = folder / logs(folder)[0]
        size = log.stat().st_size
        with log.open("ab") as file:
            file.write(block[:cut])
        assert found(folder) == {"a": 3, "b": 3}
        assert not ends_whole(LocalStorage(str(folder)), logs(folder)[0], size + cut)
        upsert(str(folder), 4, metadata__enable=metadata)
        assert found(folder) == {"a": 4, "b": 4}
        assert len(logs(folder)) == 3  # the cut file stays as it is
        upsert(str(folder), 5, metadata__enable=metadata)
        assert len(logs(folder)) == 3
        compact(opened(str(folder), metadata__enable=metadata))
        assert found(folder) == {"a": 5, "b": 5}


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
def test_a_rollback_takes_its_own_blocks_back(tmp_path: Path, index: str) -> None:
    folder = tmp_path / "t"
    made(folder, metadata=True, index=index)
    how = {"index__type": index, "metadata__enable": True}
    third = upsert(str(folder), 3, **how)
    shared = logs(folder)
    assert stat_of(third).log_offset > 0
    roll_back_instant(opened(str(folder), **how), third.instant.requested_time)
    assert found(folder) == {"a": 2, "b": 2}
    assert len(logs(folder)) == 2 * len(shared)  # a command block each
    upsert(str(folder), 4, **how)
    assert len(logs(folder)) == 2 * len(shared)
    assert found(folder) == {"a": 4, "b": 4}
    assert fsck(opened(str(folder), **how), deep=True) == []


def _each_fault(source: Path, tmp_path: Path, storage: Callable[[str, int], FaultyStorage], **how: Any) -> set[str]:
    """What the table reads as after a fault at each call of a write, and after the next write."""
    seen, at = set[str](), 0
    while True:
        at += 1
        folder = tmp_path / "faulty"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        faulty = storage(str(folder), at)
        with suppress(SkepError):
            upsert(faulty, 4, **how)
        if not faulty.hit:
            return seen
        state = found(folder)
        assert state in ({"a": 3, "b": 3}, {"a": 4, "b": 4}), faulty.calls[-1]
        seen.add(str(state["a"]))
        upsert(str(folder), 5, key="c", **how)
        assert found(folder) == {"a": state["a"], "b": 5, "c": 5}, faulty.calls[at - 1]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_kill_at_each_change_leaves_the_table_as_before_or_after(tmp_path: Path, after: bool) -> None:
    source = made(tmp_path / "t")
    upsert(str(source), 3, metadata__enable=False)
    seen = _each_fault(
        source, tmp_path, lambda root, at: KilledAtChanges(root, at, after=after), metadata__enable=False
    )
    assert seen == {"3", "4"}


def test_a_call_that_fails_is_undone_without_a_loss_of_other_commits(tmp_path: Path) -> None:
    source = made(tmp_path / "t")
    upsert(str(source), 3, metadata__enable=False)
    assert "3" in _each_fault(source, tmp_path, FailsAtChanges, metadata__enable=False)


def test_a_write_that_is_refused_after_it_wrote_takes_its_blocks_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "t")

    def refuse(*_given: Any) -> None:
        raise InputError("not these rows")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "complete", refuse)
        with pytest.raises(InputError, match="not these rows"):
            upsert(str(folder), 3)
    assert found(folder) == {"a": 2, "b": 2}
    assert len(logs(folder)) == 4  # a command block each
    table = HudiTable.open(str(folder))
    assert [each.action for each in table.timeline.instants][-1] is Action.ROLLBACK
    assert not table.timeline.pending().instants
    upsert(str(folder), 4)
    assert found(folder) == {"a": 4, "b": 4}


def test_writers_that_meet_in_a_file_lose_nothing_of_what_was_there(tmp_path: Path) -> None:
    """Two of them, though the settings name a single writer: their bytes alternate, and neither commits."""

    class Disturbed(LocalStorage):
        @contextmanager
        def open_append(self, path: str) -> Iterator[IO[bytes]]:
            with super().open_append(path) as file, super().open_append(path) as other:
                yield file
                other.write(b"#HUDI#\0\0")
                other.flush()

    folder = made(tmp_path / "t")
    before = logs(folder)
    with pytest.raises(CommitConflictError, match="another writer wrote to it at the same time"):
        upsert(Disturbed(str(folder)), 3, write__num__retries__on__conflict__failures=0)
    assert found(folder) == {"a": 2, "b": 2}
    upsert(str(folder), 4)
    assert len(logs(folder)) > len(before)
    assert found(folder) == {"a": 4, "b": 4}


def test_a_task_that_may_be_repeated_begins_a_file(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    with attempt_scope(Attempt(7, 3, 1)):
        upsert(str(folder), 3)
    assert len(logs(folder)) == 4
    assert found(folder) == {"a": 3, "b": 3}


class FailsAtChanges(FaultyStorage):
    """Fails once, at its nth call that changes something."""

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        return super()._call(name, path, do) if name in {*CHANGES, "close"} else do()
