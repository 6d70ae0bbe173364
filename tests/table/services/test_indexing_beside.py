"""What happens while an index is built: writes, services, other executors, and kills at each storage call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import CHANGES, FaultyStorage
from indexing_acts import ACTS, Interrupting, assert_built, assert_whole, scheduled, upserts, wanted
from metadata_listings import KEPT, assert_alike, frame, new_table, reopened, writer
from sleepy_clock import SleepyClock

from skep_format.errors import CommitConflictError, MetadataTableError, SkepError
from skep_format.runner import ThreadRunner
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.write import create_requested, delete_pending
from skep_table.commit.heartbeat import heartbeat_path
from skep_table.metadata_table.partitions import BLOOM_FILTERS, FILES, RECORD_INDEX
from skep_table.metadata_write.compaction.compact import last_compaction
from skep_table.metadata_write.drop import dropped_indexes
from skep_table.metadata_write.own import building_partitions, open_own
from skep_table.services.metadata.index_build import build_index, execute_pending_indexing, schedule_index
from skep_table.services.metadata.indexing import drop_metadata
from skep_table.services.metadata.upkeep import maintain_metadata_table
from skep_table.services.service import INDEXING, Mode
from skep_table.table import HudiTable

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
Act = Callable[[HudiTable], Any]
MADE_AT_ONCE = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.async": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", request.param)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    writer(made).upsert(frame(("a", "p", 2), ("d", "p", 2)))
    return made


def interrupted(table: HudiTable, act: Act) -> HudiTable:
    return HudiTable.open(Interrupting(table.storage.root, act), KEPT)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_acts_after_the_reading(table: HudiTable, act: Act) -> None:
    instant = scheduled(table)
    assert build_index(interrupted(table, act), instant) is not None
    assert_built(table)
    upserts(table)
    assert_built(table)


def test_a_second_executor_waits_for_its_turn(table: HudiTable) -> None:
    instant = scheduled(table)
    refused = []

    def builds_too(other: HudiTable) -> None:
        with pytest.raises(CommitConflictError, match="another executor"):
            build_index(reopened(other), instant)
        refused.append(other)

    assert build_index(interrupted(table, builds_too), instant) is not None
    assert refused
    assert_built(table)
    assert build_index(reopened(table), instant) is None


def test_dropped_while_it_is_built(table: HudiTable) -> None:
    instant = scheduled(table)
    given_up = build_index(interrupted(table, lambda other: drop_metadata(other, sorted(wanted(table)))), instant)
    assert given_up is None
    now = reopened(table)
    assert now.config.metadata_partitions == ("files",)
    assert building_partitions(now.config) == ()
    assert not now.timeline.pending()
    assert not any((Path(table.storage.root) / ".hoodie/metadata" / name).exists() for name in wanted(table))
    assert_alike(now)


class ActsAt(FaultyStorage):
    """Another process acts before the nth call that is made without the lock."""

    def __init__(self, root: str, at: int, act: Act) -> None:
        super().__init__(root, 1 << 30)
        self._act, self._number, self._left, self.locked = act, at, at, True

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        if not self.locked:
            self._left -= 1
            if self._left == 0:
                self._act(HudiTable.open(self.root))
        return do()

    @property
    def acted(self) -> bool:
        return self._left <= 0


class NotedLock:
    """Notes in the storage whether the lock is held."""

    def __init__(self, lock: Any, storage: ActsAt) -> None:
        self._lock, self._storage, self.leased = lock, storage, lock.leased

    def acquire(self, timeout_seconds: float) -> str:
        found: str = self._lock.acquire(timeout_seconds)
        self._storage.locked = True
        return found

    def release(self) -> None:
        self._storage.locked = False
        self._lock.release()

    def ensure_held(self) -> None:
        self._lock.ensure_held()


def drops_indexes(table: HudiTable) -> None:
    there = {*table.config.metadata_partitions, *building_partitions(table.config)}
    drop_metadata(table, sorted(wanted(table) & there))


def drops_all(table: HudiTable) -> None:
    drop_metadata(table)


def drops_and_makes_again(table: HudiTable) -> None:
    """While the executor is active, nothing of what it builds is made; another writer does it after."""
    drops_indexes(table)
    schedule_index(reopened(table), wanted(table))
    writer(table, **MADE_AT_ONCE).upsert(frame(("a", "p", 3)))


@pytest.mark.parametrize("act", [drops_indexes, drops_all, drops_and_makes_again], ids=lambda act: act.__name__)
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_dropped_at_any_call(table: HudiTable, act: Act, step: int, tmp_path: Path) -> None:
    instant, first, work = scheduled(table), Path(table.storage.root), tmp_path / "work"
    at = 1
    while True:
        shutil.copytree(first, work)
        storage = ActsAt(str(work), at, act)
        opened = HudiTable.open(storage, KEPT)
        build_index(opened.with_context(lock=NotedLock(opened.context.lock, storage)), instant)
        if not storage.acted:
            break
        now = HudiTable.open(str(work), KEPT)
        execute_pending_indexing(now)  # what was dropped before an executor claimed it
        assert not now.reload().timeline.pending(), at
        assert building_partitions(now.reload().config) == (), at
        found = set(now.reload().config.metadata_partitions)
        assert found <= {FILES} or act is drops_and_makes_again, at
        writer(now, **MADE_AT_ONCE).upsert(frame(("a", "p", 4)))
        assert_whole(now, {FILES, *wanted(now)}, str(at))
        shutil.rmtree(work)
        at += step
    assert at > 1


def test_one_of_two_indexes_is_dropped_while_the_other_is_built(table: HudiTable) -> None:
    first = schedule_index(reopened(table), [BLOOM_FILTERS])
    upserts(table)
    second = schedule_index(reopened(table), [RECORD_INDEX])
    assert first is not None
    assert second is not None
    drop_metadata(reopened(table), [BLOOM_FILTERS])
    upserts(table)
    assert build_index(reopened(table), first) is None
    assert build_index(reopened(table), second) is not None
    assert_whole(table, {"files", RECORD_INDEX})


def test_the_plan_that_is_named_is_carried_out(table: HudiTable) -> None:
    first = schedule_index(reopened(table), [BLOOM_FILTERS])
    second = schedule_index(reopened(table), [RECORD_INDEX])
    assert second is not None
    (done,) = INDEXING(reopened(table), Mode.of(execute=second.requested_time))
    assert (done.state, done.what) == ("completed", "record_index built")
    assert reopened(table).timeline.pending().of(Action.INDEXING).instants == (first,)
    assert_whole(table, {"files", RECORD_INDEX})


def test_a_key_comes_into_a_second_file_group(table: HudiTable) -> None:
    """The record index has one place for it: the build fails, and nothing is left of it."""
    instant = scheduled(table)

    def moves(other: HudiTable) -> None:
        writer(other).insert(frame(("b", "p", 9)))

    with pytest.raises(MetadataTableError, match="'b' lies in two file groups"):
        build_index(interrupted(table, moves), instant)
    assert not reopened(table).timeline.pending()
    assert_whole(table, {"files"})


def test_a_writer_of_hudi_that_began_before_is_waited_for(table: HudiTable) -> None:
    began = Instant(
        reopened(table).timeline.instants[-1].requested_time.plus_milliseconds(1), Action.COMMIT, State.REQUESTED
    )
    create_requested(table, began)
    table.storage.create_exclusive(heartbeat_path(began.requested_time), b"")
    instant = scheduled(table)
    with pytest.raises(CommitConflictError, match="do not end"):
        build_index(reopened(table, **{"hoodie.metadata.index.check.timeout.seconds": "1"}), instant)
    (left,) = reopened(table).timeline.pending().of(Action.INDEXING)
    assert left.state is State.REQUESTED
    table.storage.delete(heartbeat_path(began.requested_time))
    delete_pending(table, began)
    assert build_index(reopened(table), instant) is not None
    assert_built(table)


def run(folder: Path, at: int, *, after: bool) -> FaultyStorage:
    storage = FaultyStorage(str(folder), at, dies=True, after=after)
    with suppress(SkepError):
        table = HudiTable.open(storage, KEPT).with_context(runner=ThreadRunner(1))
        instant = schedule_index(table, wanted(table))
        if instant is not None:
            build_index(table.reload(), instant)
    return storage


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_at_a_call(table: HudiTable, after: bool, step: int, tmp_path: Path) -> None:
    first, work = Path(table.storage.root), tmp_path / "work"
    shutil.copytree(first, work)
    calls = len(run(work, 1 << 30, after=False).calls)
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        storage = run(work, at, after=after)
        where = f"killed {'after' if after else 'before'} call {at} of {calls}: {storage.calls[at - 1]}"
        now = HudiTable.open(str(work))
        assert_whole(now, set(now.config.metadata_partitions), where)
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        late = HudiTable.open(str(work), KEPT).with_context(clock=clock)
        upserts(late)
        execute_pending_indexing(late)
        assert not late.reload().timeline.pending(), where
        assert building_partitions(late.reload().config) == (), where
        missing = wanted(late) - set(late.reload().config.metadata_partitions)
        if missing:
            again = schedule_index(late.reload(), missing)
            assert again is not None, where
            assert build_index(late.reload(), again) is not None, where
        assert_built(late)


class KilledAtChanges(FaultyStorage):
    """Dies at its nth call that changes something."""

    def _call(self, name: str, path: str, do: Callable[[], Any]) -> Any:
        if name not in {*CHANGES, "close"} and not self.hit:
            return do()
        return super()._call(name, path, do)


def compacts_metadata_table(folder: Path, at: int) -> KilledAtChanges:
    storage = KilledAtChanges(str(folder), at, dies=True)
    with suppress(SkepError):
        table = HudiTable.open(storage, {**KEPT, "hoodie.metadata.compact.max.delta.commits": "1"})
        maintain_metadata_table(table.with_context(runner=ThreadRunner(1)))
    return storage


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_while_a_plan_makes_way_for_a_compaction(table: HudiTable, step: int, tmp_path: Path) -> None:
    """The plan is there as before or after, or the next writer makes its indexes."""
    scheduled(table)
    upserts(table)
    first, work = Path(table.storage.root), tmp_path / "work"
    shutil.copytree(first, work)
    calls = len(compacts_metadata_table(work, 1 << 30).calls)
    assert last_compaction(open_own(HudiTable.open(str(work)))) is not None
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        where = f"killed at change {at} of {calls}: {compacts_metadata_table(work, at).calls[-1]}"
        now = HudiTable.open(str(work), KEPT)
        assert_alike(now)
        upserts(now)
        execute_pending_indexing(now)
        assert_built(now)
        assert not dropped_indexes(now.reload().config), where
