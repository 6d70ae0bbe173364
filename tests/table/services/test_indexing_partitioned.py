"""A partitioned record index is built beside writers as other indexes are, those that bring new partitions included."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from faulty_storage import FaultyStorage
from indexing_acts import ACTS, Act, Interrupting, assert_whole, maintains, rolls_back, upserts
from metadata_listings import frame, new_table, reopened, writer
from sleepy_clock import SleepyClock

from skep_format.errors import MetadataTableError, SkepError
from skep_format.runner import ThreadRunner
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant
from skep_table.metadata_table.partitions import BLOOM_FILTERS, FILES, RECORD_INDEX
from skep_table.metadata_write.definitions import is_partitioned_record_index
from skep_table.metadata_write.own import building_partitions
from skep_table.services.automatic import after_commit
from skep_table.services.metadata.index_build import build_index, execute_pending_indexing, schedule_index
from skep_table.services.metadata.indexing import build_index as build_index_at_once
from skep_table.services.metadata.indexing import index_named
from skep_table.table import HudiTable

pytestmark = pytest.mark.parametrize("table_version", [9], indirect=True)
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
PARTITIONED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.level.index.min.filegroup.count": "2",
}
ASYNC = {"hoodie.metadata.index.async": "true"}
PLANNED = {RECORD_INDEX, BLOOM_FILTERS}


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", request.param)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    writer(made).upsert(frame(("a", "p", 2), ("d", "p", 2)))
    return made


def scheduled(table: HudiTable) -> Instant:
    instant = schedule_index(reopened(table, **PARTITIONED), PLANNED)
    assert instant is not None
    assert is_partitioned_record_index(reopened(table))
    return instant


def assert_built(table: HudiTable, where: str = "") -> None:
    assert_whole(table, {FILES, *PLANNED}, where)
    now = reopened(table)
    assert is_partitioned_record_index(now)
    assert building_partitions(now.config) == ()
    assert not now.timeline.pending().of(Action.INDEXING)


QUICK = (upserts, rolls_back, maintains)
acts = pytest.mark.parametrize(
    "act", [pytest.param(act, marks=[] if act in QUICK else pytest.mark.slow, id=act.__name__) for act in ACTS]
)


@acts
def test_writers_between_plan_and_build(table: HudiTable, act: Act) -> None:
    scheduled(table)
    act(table)
    assert execute_pending_indexing(reopened(table))
    assert_built(table)
    upserts(table)
    maintains(table)
    assert_built(table)


@acts
def test_acts_after_the_reading(table: HudiTable, act: Act) -> None:
    instant = scheduled(table)
    storage = Interrupting(table.storage.root, act)
    assert build_index(HudiTable.open(storage, PARTITIONED), instant) is not None
    assert_built(table)
    upserts(table)
    assert_built(table)


def test_a_key_in_two_partitions_is_there_twice(table: HudiTable) -> None:
    instant = scheduled(table)
    writer(table).insert(frame(("a", "q", 9)))
    assert build_index(reopened(table), instant) is not None
    assert_built(table)


def test_planned_and_built_after_a_commit(table: HudiTable) -> None:
    options = {
        **PARTITIONED,
        "hoodie.metadata.index.async": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
    }
    writer(table, **options).upsert(frame(("a", "p", 3)))
    assert reopened(table).config.metadata_partitions == (FILES,)
    done = [each for step in after_commit(reopened(table, **options)) for each in step.run()]
    assert [(each.service, each.state) for each in done] == [("index", "scheduled"), ("index", "completed")]
    assert_built(table)


def test_built_at_once_by_its_name(table: HudiTable) -> None:
    build_index_at_once(reopened(table, **PARTITIONED), index_named(RECORD_INDEX))
    assert is_partitioned_record_index(reopened(table))
    assert_whole(table, {FILES, RECORD_INDEX})
    upserts(table)
    assert_whole(table, {FILES, RECORD_INDEX})


def test_a_partition_path_with_a_dot_is_refused(table: HudiTable) -> None:
    writer(table).insert(frame(("x", "v1.5", 1)))
    with pytest.raises(MetadataTableError, match=r"v1\.5"):
        schedule_index(reopened(table, **PARTITIONED), PLANNED)
    assert not reopened(table).timeline.pending()
    assert_whole(table, {FILES})


def run(folder: Path, at: int) -> FaultyStorage:
    storage = FaultyStorage(str(folder), at, dies=True)
    with suppress(SkepError):
        table = HudiTable.open(storage, PARTITIONED).with_context(runner=ThreadRunner(1))
        instant = schedule_index(table, PLANNED)
        if instant is not None:
            build_index(table.reload(), instant)
    return storage


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_at_a_call(table: HudiTable, step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    first, work = Path(table.storage.root), tmp_path / "work"
    shutil.copytree(first, work)
    calls = len(run(work, 1 << 30).calls)
    for at in range(1 if step == 1 else 1 + calls % step, calls + 1, step):
        shutil.rmtree(work)
        shutil.copytree(first, work)
        where = f"killed before call {at} of {calls}: {run(work, at).calls[-1]}"
        clock = SleepyClock()
        clock.slept += 3600  # the heartbeat has expired
        late = HudiTable.open(str(work), PARTITIONED | {"hoodie.metadata.index.async": "true"}).with_context(
            clock=clock
        )
        upserts(late)
        execute_pending_indexing(late)
        missing = PLANNED - set(late.reload().config.metadata_partitions)
        if missing:
            again = schedule_index(late.reload(), missing)
            assert again is not None, where
            assert build_index(late.reload(), again) is not None, where
        assert_built(late, where)
