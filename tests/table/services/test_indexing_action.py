"""An index that is built while writers go on is what one made from the files at once would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from indexing_acts import ACTS, Act, assert_built, deletes, last, maintains, scheduled, upserts, wanted
from metadata_listings import assert_alike, frame, new_table, reopened, writer

from skep_format.table_config import TableType
from skep_format.timeline.instant import Action
from skep_format.timeline.write import delete_pending, transition_to_inflight
from skep_table.commit.heartbeat import Heartbeat
from skep_table.commit.parts.metadata_table import metadata_clock
from skep_table.metadata_write.compaction.compact import last_compaction
from skep_table.metadata_write.drop import DROPPED_INDEXES
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.metadata_write.own import building_partitions, open_own
from skep_table.services.automatic import after_commit
from skep_table.services.metadata.index_build import build_index, execute_pending_indexing
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable

pytestmark = [
    pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True),
]
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", request.param)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    writer(made).upsert(frame(("a", "p", 2), ("d", "p", 2)))
    return made


def test_without_other_writers(table: HudiTable) -> None:
    instant = scheduled(table)
    planned = reopened(table)
    assert set(building_partitions(planned.config)) == wanted(table)
    assert planned.config.metadata_partitions == ("files",)
    found = build_index(reopened(table), instant)
    assert found is not None
    assert set(found.partitions) == wanted(table)
    assert_built(table)
    upserts(table)
    deletes(table)
    assert_built(table)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_writers_between_plan_and_build(table: HudiTable, act: Act) -> None:
    scheduled(table)
    act(table)
    assert execute_pending_indexing(reopened(table))
    assert_built(table)
    upserts(table)
    assert_built(table)
    maintains(table)
    assert_built(table)


def test_a_write_that_the_index_was_built_of_is_rolled_back(table: HudiTable) -> None:
    """Its entries can't be taken out of the base files: the indexes are dropped, and rebuilt."""
    instant = scheduled(table)
    upserts(table)
    build_index(reopened(table), instant)
    roll_back_instant(reopened(table), last(table))
    assert_built(table)


def test_a_write_before_an_index_that_was_made_at_once_is_rolled_back(table: HudiTable) -> None:
    now = reopened(table)
    create_metadata_table(now, metadata_clock(now), wanted(now))
    assert_built(table)
    roll_back_instant(reopened(table), last(table))
    assert_built(table)


def test_a_plan_that_nobody_carries_out_does_not_keep_the_metadata_table_from_compaction(table: HudiTable) -> None:
    """What was logged to the index is dropped, and it is planned again: its base is built of all there is then."""
    instant = scheduled(table)
    for _ in range(3):
        maintains(table)
        own = open_own(reopened(table))
        compacted = last_compaction(own)
        assert compacted is not None
        (again,) = reopened(table).timeline.pending().of(Action.INDEXING)
        assert again.requested_time.is_after(instant.requested_time)
        assert set(building_partitions(reopened(table).config)) == wanted(table)
        assert DROPPED_INDEXES not in reopened(table).config.raw
        assert_alike(reopened(table))
        instant = again
    upserts(table)
    assert execute_pending_indexing(reopened(table))
    assert_built(table)
    maintains(table)
    assert_built(table)


def test_a_plan_that_is_carried_out_keeps_the_metadata_table_from_compaction(table: HudiTable) -> None:
    planned = scheduled(table)
    upserts(table)
    now = reopened(table)
    heartbeat = Heartbeat(now.context)
    heartbeat.announce(planned.requested_time)
    inflight = transition_to_inflight(now, planned)
    heartbeat.start()
    try:
        maintains(table)
    finally:
        heartbeat.stop()
    assert last_compaction(open_own(reopened(table))) is None
    assert reopened(table).timeline.pending().of(Action.INDEXING).instants == (inflight,)
    delete_pending(now, inflight, keep_requested=True)
    assert execute_pending_indexing(reopened(table))
    assert_built(table)


def test_planned_and_built_after_a_commit(table: HudiTable) -> None:
    options = {
        "hoodie.metadata.index.async": "true",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    writer(table, **options).upsert(frame(("a", "p", 3)))
    assert reopened(table).config.metadata_partitions == ("files",)
    done = [each for step in after_commit(reopened(table, **options)) for each in step.run()]
    assert [(each.service, each.state) for each in done] == [("index", "scheduled"), ("index", "completed")]
    assert_built(table)
