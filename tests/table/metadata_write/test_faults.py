"""The process is killed at each change of storage of each action: no listing and no index ever lies, and the next
writer goes on.

A reader that trusts the metadata table, as Hudi's do, finds the rows that are in storage, after every kill. The quick
tests take some of the calls, the slow ones (--all) every one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import KilledAtChanges
from metadata_listings import KEPT, assert_alike, frame, new_table, reopened, rows
from sleepy_clock import SleepyClock

from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import SkepError, StorageError
from skep_format.runner import ThreadRunner
from skep_format.schema.change import AddColumn, RenameColumn
from skep_format.schema.types import LongType
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_write.drop import dropped_indexes
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.metadata_write.own import open_own
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean, execute_pending_cleans
from skep_table.services.cleaning.ttl import expire_partitions
from skep_table.services.clustering.cluster import execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import (
    execute_pending_compactions,
    execute_pending_log_compactions,
    schedule_compaction,
    schedule_log_compaction,
)
from skep_table.services.metadata.indexing import (
    build_index,
    drop_index,
    drop_metadata,
    index_named,
    rebuild_metadata_table,
)
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import create_savepoint, restore, roll_back_instant
from skep_table.table import HudiTable
from skep_table.upgrade import change_version
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
EVERY_CALL = (pytest.mark.slow, pytest.mark.timeout(3600))  # some hundred calls, each with a table of its own
NULLS = {"hoodie.write.set.null.for.missing.columns": "true"}
LOGS_MERGED = {
    "hoodie.metadata.log.compaction.enable": "true",
    "hoodie.metadata.log.compaction.blocks.threshold": "2",
}
Act = Callable[[HudiTable], Any]


@dataclass(frozen=True)
class Indexes:
    """What the metadata table has: by the options of every writer, and by definitions that a command has given it."""

    options: Mapping[str, str]
    defined: tuple[IndexDefinition, ...] = ()
    filters: tuple[str, ...] = ("id = 'a'", "id = 'd'", "ts > 1", "part = 'p' and ts < 7")
    seldom: int = 1


FILES = Indexes(KEPT)
INDEXED = Indexes(
    {
        **KEPT,
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.record.index.min.filegroup.count": "2",
    },
    seldom=3,
)
BY_VALUE = index_named("secondary_index", "by_ts", ["ts"])
LARGE = index_named("column_stats", "large", ["id"], {"expr": "upper"})
NAMED = Indexes(
    {**KEPT, "hoodie.metadata.record.index.min.filegroup.count": "2"},
    (
        BY_VALUE,
        LARGE,
        index_named("bloom_filters", "small", ["id"], {"expr": "lower"}),
        index_named("column_stats", "at", ["ts"], {"expr": "from_unixtime"}),
    ),
    (
        "ts = 7",
        "ts = 1",
        "upper(id) = 'A'",
        "upper(id) IN ('C1', 'E')",
        "lower(id) = 'd'",
        "from_unixtime(ts) > '1970-01-01 00:00:05'",
    ),
    seldom=3,
)


def nothing(_table: HudiTable) -> None:
    """The table is as the writes before left it."""


def upsert(table: HudiTable) -> None:
    LocalWriter(table.with_options(NULLS)).upsert(frame(("a", "p", 7), ("d", "p", 7), ("e", "new", 7)))


def deletes(table: HudiTable) -> None:
    LocalWriter(table).delete(frame(("a", "p", 9), ("b", "q", 9)))


def overwrites(table: HudiTable) -> None:
    LocalWriter(table).insert_overwrite(frame(("a", "p", 7), ("d", "p", 7)))


def drops_partitions(table: HudiTable) -> None:
    LocalWriter(table).delete_partitions(["q"])


def last(table: HudiTable) -> Any:
    found = table.timeline.data().completed().last()
    assert found is not None
    return found.requested_time


def rolls_back(table: HudiTable) -> None:
    roll_back_instant(table, last(table))


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


def merges_logs(table: HudiTable) -> None:
    maintain_metadata_table(table.with_options(LOGS_MERGED))


def expires(table: HudiTable) -> None:
    """All partitions were written to ten days ago."""
    clock = SleepyClock()
    clock.slept += 10 * 24 * 3600
    expire_partitions(table.with_options({"hoodie.partition.ttl.strategy.days.retain": "5"}).with_context(clock=clock))


def drops_all(table: HudiTable) -> None:
    drop_metadata(table)


def to_version_8(table: HudiTable) -> None:
    change_version(table, 8)


def plans_log_compaction(table: HudiTable) -> None:
    assert schedule_log_compaction(table.with_options({"hoodie.log.compaction.blocks.threshold": "2"}))


def adds_a_column(table: HudiTable) -> None:
    LocalWriter(table).alter([AddColumn("more", LongType())])


def renames(table: HudiTable) -> None:
    LocalWriter(table).alter([RenameColumn("more", "less")])


def builds(table: HudiTable) -> None:
    build_index(table, index_named("column_stats", "length", ["id"], {"expr": "length"}))


def drops(table: HudiTable) -> None:
    drop_index(table, LARGE.name)


def drops_with_others(table: HudiTable) -> None:
    drop_index(table, "record_index")


@dataclass(frozen=True)
class Subject:
    """What is killed: `act`, after `before`. `again`: what another process calls then.

    `in_steps`: it shows one commit less after the other. `only`: the indexes that it is about.
    """

    name: str
    kind: TableType
    act: Act
    before: Act = nothing
    again: Act = upsert
    writes: int = 3
    without: bool = False
    in_steps: bool = False
    only: tuple[Indexes, ...] = field(default=(FILES, INDEXED, NAMED))


SUBJECTS = (
    Subject("first-write", COW, upsert, writes=0, only=(FILES, INDEXED)),
    Subject("first-write-with-it", COW, upsert, writes=2, without=True, only=(FILES, INDEXED)),
    Subject("upsert-cow", COW, upsert),
    Subject("upsert-mor", MOR, upsert),
    Subject("delete-cow", COW, deletes, only=(INDEXED, NAMED)),
    Subject("delete-mor", MOR, deletes, only=(INDEXED, NAMED)),
    Subject("overwrite", COW, overwrites),
    Subject("drop-of-a-partition", MOR, drops_partitions, only=(INDEXED, NAMED)),
    Subject("compaction", MOR, execute_pending_compactions, schedule_compaction, execute_pending_compactions),
    Subject(
        "log-compaction",
        MOR,
        execute_pending_log_compactions,
        plans_log_compaction,
        execute_pending_log_compactions,
        only=(INDEXED, NAMED),
    ),
    Subject("clustering", MOR, execute_pending_clusterings, schedule_clustering, execute_pending_clusterings),
    Subject("clean", COW, cleans, again=execute_pending_cleans),
    Subject("rollback-cow", COW, rolls_back),
    Subject("rollback-mor", MOR, rolls_back),
    Subject("restore", MOR, restores, savepoint, in_steps=True),
    Subject("alter", MOR, renames, adds_a_column, only=(NAMED,)),
    Subject("metadata-services", COW, maintains, again=maintains),
    Subject("metadata-logs", MOR, merges_logs, again=merges_logs),
    Subject("savepoint", COW, savepoint),
    Subject("expiry", MOR, expires),
    Subject("change-of-version", MOR, to_version_8, again=to_version_8, only=(FILES, INDEXED)),
    Subject("drop-of-all", MOR, drops_all, only=(INDEXED,)),
    Subject("rebuild", MOR, rebuild_metadata_table, only=(NAMED,)),
    Subject("build", MOR, builds, only=(NAMED,)),
    Subject("drop", MOR, drops, only=(NAMED,)),
    Subject("drop-with-others", MOR, drops_with_others, only=(NAMED,)),
)
CASES = [
    pytest.param(
        version,
        indexes,
        subject,
        id=f"{version}-{name}-{subject.name}",
        marks=[pytest.mark.slow] * (indexes is not NAMED and version == (6, 9)[number % 2]),
    )
    for name, indexes in (("files", FILES), ("indexes", INDEXED), ("named", NAMED))
    for version in ((9,) if indexes is NAMED else (6, 9))
    for number, subject in enumerate(SUBJECTS)
    if indexes in subject.only
]
"""Each action in one version; --all has it in both."""


def prepared(folder: Path, subject: Subject, indexes: Indexes = FILES) -> None:
    table, defined = new_table(folder, subject.kind), {each.name: each for each in indexes.defined}
    for number in range(subject.writes):
        given = HudiTable.open(table.storage) if subject.without else reopened(table, **indexes.options)
        LocalWriter(given).upsert(frame(("a", "p", number), ("b", "q", number), (f"c{number}", "p", number)))
        if not number and defined:
            create_metadata_table(reopened(table, **indexes.options), SYSTEM_CLOCK, defined, defined)
    subject.before(reopened(table))
    assert set(defined) <= set(table.reload().config.metadata_partitions)


def run(
    folder: Path, subject: Subject, at: int, *, after: bool, options: Mapping[str, object] = KEPT
) -> KilledAtChanges:
    storage = KilledAtChanges(str(folder), at, after=after)
    with suppress(SkepError):
        table = HudiTable.open(storage, options).with_context(runner=ThreadRunner(1))
        subject.act(table)
    return storage


def assert_no_lie(table: HudiTable, filters: tuple[str, ...] = FILES.filters) -> None:
    """By the metadata table, whatever skep thinks of it, and by storage there are the same rows."""
    trusted = MetadataTable.open(table)
    if trusted is not None and len(table.timeline.data().completed()):
        table._metadata_table = trusted
        assert rows(table, metadata=True) == rows(table, metadata=False)
        for condition in filters:
            found, expected = (
                read(table, ReadRequest(where=condition, metadata=metadata)).to_arrow().sort_by("id")
                for metadata in (True, False)
            )
            assert found.equals(expected), condition


def partitions(folder: Path) -> set[str]:
    return set(HudiTable.open(str(folder)).config.metadata_partitions)


@pytest.mark.parametrize(
    ("step", "after"),
    [
        pytest.param(13, False, id="some-before"),
        pytest.param(13, True, id="some-after", marks=pytest.mark.slow),
        pytest.param(1, False, id="every", marks=EVERY_CALL),  # after a call is before the next
    ],
)
@pytest.mark.parametrize(("table_version", "indexes", "subject"), CASES, indirect=["table_version"])
def test_killed_at_a_call(indexes: Indexes, subject: Subject, step: int, after: bool, tmp_path: Path) -> None:
    step *= indexes.seldom if step > 1 else 1
    first, work = tmp_path / "first", tmp_path / "work"
    prepared(first, subject, indexes)
    before = rows(HudiTable.open(str(first)), metadata=False) if subject.writes else []
    shutil.copytree(first, work)
    whole = run(work, subject, 1 << 30, after=False, options=indexes.options)
    done = rows(HudiTable.open(str(work)), metadata=False)
    upsert(HudiTable.open(str(work), indexes.options))
    kept = (partitions(first), partitions(work)) if subject.writes and not subject.without else (partitions(work),)
    calls = len(whole.calls)
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        storage = run(work, subject, at, after=after, options=indexes.options)
        if not storage.hit:  # the number of calls depends on times of modification, too
            break
        where = f"killed {'after' if after else 'before'} call {at} of {calls}: {storage.calls[at - 1]}"
        now = HudiTable.open(str(work))
        found = rows(now, metadata=True) if len(now.timeline.data().completed()) else []
        assert subject.in_steps or found in (before, done), where
        assert_no_lie(HudiTable.open(str(work)), indexes.filters)
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        late = HudiTable.open(str(work), indexes.options).with_context(clock=clock)
        subject.again(late)
        LocalWriter(late.reload().with_options(NULLS)).upsert(frame(("z", "p", 9)))
        assert_alike(now)
        assert_no_lie(HudiTable.open(str(work)), indexes.filters)
        differences = check_metadata_table(HudiTable.open(str(work))).differences
        assert not differences, (where, differences)
        assert partitions(work) in kept, where
        assert not dropped_indexes(HudiTable.open(str(work)).config), where


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_a_savepoint_that_was_not_finished_hides_no_rows(tmp_path: Path) -> None:
    """It has the time of its commit, and stays for as long as nobody makes another one."""
    folder = tmp_path / "t"
    subject = Subject("savepoint-of-the-last", COW, lambda table: create_savepoint(table))
    prepared(folder, subject, INDEXED)
    expected = rows(HudiTable.open(str(folder)), metadata=False)
    assert run(folder, subject, 2, after=False).hit
    table = HudiTable.open(str(folder))
    assert table.timeline.pending().of(Action.SAVEPOINT)
    assert rows(table, metadata=True) == expected
    assert check_metadata_table(table).differences == ()
    maintains(table)
    assert open_own(table).timeline.completed().of(Action.COMMIT), "its metadata table is not compacted any more"
    assert_alike(table)


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


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
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
