"""The process is killed at each storage call of each action: no listing ever lies, and the next writer goes on.

A reader that trusts the metadata table, as Hudi's do, finds the rows that are in storage, after every kill. The quick
tests take some of the calls, the slow ones (--all) every one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import FaultyStorage
from metadata_listings import KEPT, assert_alike, frame, new_table, reopened, rows
from sleepy_clock import SleepyClock

from skep_table.errors import SkepError, StorageError
from skep_table.metadata_table import MetadataTable
from skep_table.query import ReadRequest, read
from skep_table.runner import ThreadRunner
from skep_table.services.clean import clean, execute_pending_cleans
from skep_table.services.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.metadata_services import maintain_metadata_table
from skep_table.services.restore import restore
from skep_table.services.rollback import roll_back_instant
from skep_table.services.savepoint import create_savepoint
from skep_table.storage import LocalStorage
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
INDEXED = {
    **KEPT,
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}
EVERY_CALL = (pytest.mark.slow, pytest.mark.timeout(3600))  # some hundred calls, each with a table of its own
Act = Callable[[HudiTable], Any]


def nothing(_table: HudiTable) -> None:
    """The table is as the writes before left it."""


def upsert(table: HudiTable) -> None:
    LocalWriter(table).upsert(frame(("a", "p", 7), ("d", "p", 7), ("e", "new", 7)))


def last(table: HudiTable) -> Any:
    found = table.timeline.data().completed().last()
    assert found is not None
    return found.requested_time


def cleans(table: HudiTable) -> None:
    clean(table.with_options({"hoodie.cleaner.commits.retained": "1"}))


def savepoint(table: HudiTable) -> None:
    create_savepoint(table, table.timeline.data().completed().instants[0].requested_time)


def restores(table: HudiTable) -> None:
    if table.timeline.of(*[i.action for i in table.timeline if i.action.value == "savepoint"]).instants:
        (kept,) = table.savepoints()
        restore(table, kept)


def maintains(table: HudiTable) -> None:
    maintain_metadata_table(table.with_options({"hoodie.metadata.compact.max.delta.commits": "1"}))


@dataclass(frozen=True)
class Subject:
    """What is killed: `act`, after `before`. `again`: what another process calls then.

    `in_steps`: it shows one commit less after the other.
    """

    name: str
    kind: TableType
    act: Act
    before: Act = nothing
    again: Act = upsert
    writes: int = 3
    without: bool = False
    in_steps: bool = False


SUBJECTS = (
    Subject("first-write", COW, upsert, writes=0),
    Subject("first-write-with-it", COW, upsert, writes=2, without=True),
    Subject("upsert-cow", COW, upsert),
    Subject("upsert-mor", MOR, upsert),
    Subject("compaction", MOR, execute_pending_compactions, schedule_compaction, execute_pending_compactions),
    Subject("clean", COW, cleans, again=execute_pending_cleans),
    Subject("rollback-cow", COW, lambda table: roll_back_instant(table, last(table))),
    Subject("rollback-mor", MOR, lambda table: roll_back_instant(table, last(table))),
    Subject("restore", MOR, restores, savepoint, in_steps=True),
    Subject("metadata-services", COW, maintains, again=maintains),
)


def prepared(folder: Path, subject: Subject, options: Mapping[str, object] = KEPT) -> None:
    table = new_table(folder, subject.kind)
    for number in range(subject.writes):
        given = HudiTable.open(table.storage) if subject.without else reopened(table, **options)
        LocalWriter(given).upsert(frame(("a", "p", number), ("b", "q", number), (f"c{number}", "p", number)))
    subject.before(reopened(table))


def run(folder: Path, subject: Subject, at: int, *, after: bool, options: Mapping[str, object] = KEPT) -> FaultyStorage:
    storage = FaultyStorage(str(folder), at, dies=True, after=after)
    with suppress(SkepError):
        table = HudiTable.open(storage, options).with_context(runner=ThreadRunner(1))
        subject.act(table)
    return storage


def assert_no_lie(table: HudiTable) -> None:
    """By the metadata table, whatever skep thinks of it, and by storage there are the same rows."""
    trusted = MetadataTable.open(table)
    if trusted is not None and len(table.timeline.data().completed()):
        table._metadata_table = trusted
        assert rows(table, metadata=True) == rows(table, metadata=False)
        for condition in ("id = 'a'", "id = 'd'", "ts > 1", "part = 'p' and ts < 7"):
            found, expected = (
                read(table, ReadRequest(where=condition, metadata=metadata)).to_arrow().sort_by("id")
                for metadata in (True, False)
            )
            assert found.equals(expected), condition


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=EVERY_CALL)], ids=["some", "every"])
@pytest.mark.parametrize("options", [KEPT, INDEXED], ids=["files", "indexes"])
def test_killed_at_a_call(
    options: Mapping[str, object], subject: Subject, after: bool, step: int, tmp_path: Path
) -> None:
    step *= 1 if options is KEPT or step == 1 else 3
    first, work = tmp_path / "first", tmp_path / "work"
    prepared(first, subject, options)
    before = rows(HudiTable.open(str(first)), metadata=False) if subject.writes else []
    shutil.copytree(first, work)
    whole = run(work, subject, 1 << 30, after=False, options=options)
    done = rows(HudiTable.open(str(work)), metadata=False)
    calls = len(whole.calls)
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        storage = run(work, subject, at, after=after, options=options)
        if not storage.hit:  # the number of calls depends on times of modification, too
            break
        where = f"killed {'after' if after else 'before'} call {at} of {calls}: {storage.calls[at - 1]}"
        now = HudiTable.open(str(work))
        found = rows(now, metadata=True) if len(now.timeline.data().completed()) else []
        assert subject.in_steps or found in (before, done), where
        assert_no_lie(HudiTable.open(str(work)))
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        late = HudiTable.open(str(work), options).with_context(clock=clock)
        subject.again(late)
        LocalWriter(late.reload()).upsert(frame(("z", "p", 9)))
        assert_alike(now)
        assert_no_lie(HudiTable.open(str(work)))
        differences = check_metadata_table(HudiTable.open(str(work))).differences
        assert not differences, (where, differences)


class FullDisk(LocalStorage):
    """From the call `at` on that makes a file, there is no room."""

    def __init__(self, root: str, at: int) -> None:
        super().__init__(root)
        self.at, self.calls = at, 0

    def create_exclusive(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.calls += 1
        if self.calls >= self.at:
            raise StorageError(f"no room for {path}", call="create_exclusive", path=path)
        super().create_exclusive(path, data, durable=durable)


def test_a_full_disk_leaves_no_entries_of_a_write(tmp_path: Path) -> None:
    first, work = tmp_path / "first", tmp_path / "work"
    prepared(first, Subject("full", COW, upsert))
    before = rows(HudiTable.open(str(first)), metadata=False)
    for at in range(1, 40):
        shutil.copytree(first, work)
        storage = FullDisk(str(work), at)
        with suppress(SkepError):
            upsert(HudiTable.open(storage, KEPT).with_context(runner=ThreadRunner(1)))
        now = HudiTable.open(str(work))
        assert_no_lie(now)
        if storage.calls < at:
            break
        assert rows(now, metadata=True) == before
        upsert(reopened(now))
        assert_alike(now)
        shutil.rmtree(work)
    assert 10 < storage.calls < 40
