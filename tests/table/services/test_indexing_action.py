"""An index that is built while writers go on is what one made from the files at once would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from metadata_listings import assert_alike, frame, new_table, reopened, writer

from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_write import building_partitions
from skep_table.services.automatic import after_commit
from skep_table.services.clean import clean
from skep_table.services.cluster import cluster
from skep_table.services.compact import execute_pending_compactions, schedule_compaction
from skep_table.services.index_build import build_index
from skep_table.services.index_plan import schedule_index
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.metadata_services import maintain_metadata_table
from skep_table.services.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.timeline.instant import Action, Instant

pytestmark = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
Act = Callable[[HudiTable], Any]


@pytest.fixture(params=[COW, MOR], ids=lambda kind: kind.value.lower())
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    made = new_table(tmp_path / "t", request.param)
    writer(made).insert(frame(("a", "p", 1), ("b", "q", 1), ("c", "q", 2)))
    writer(made).upsert(frame(("a", "p", 2), ("d", "p", 2)))
    return made


def wanted(table: HudiTable) -> set[str]:
    """All indexes that can be built beside writers."""
    found = {COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX}
    return found | {PARTITION_STATS} if table.format.metadata.has_partition_stats else found


def scheduled(table: HudiTable) -> Instant:
    instant = schedule_index(reopened(table), wanted(table))
    assert instant is not None
    return instant


def assert_built(table: HudiTable) -> None:
    """The settings name all indexes, and each of them states what the files hold."""
    now = reopened(table)
    assert set(now.config.metadata_partitions) == {"files", *wanted(table)}
    assert building_partitions(now.config) == ()
    assert not now.timeline.pending().of(Action.INDEXING)
    assert_alike(now)
    assert check_metadata_table(now).differences == ()


def last(table: HudiTable) -> Any:
    found = reopened(table).timeline.data().completed().last()
    assert found is not None
    return found.requested_time


def upserts(table: HudiTable) -> None:
    writer(table).upsert(frame(("a", "p", 5), ("e", "p", 5), ("f", "new", 5)))


def deletes(table: HudiTable) -> None:
    writer(table).delete(frame(("b", "q", 9)))


def overwrites(table: HudiTable) -> None:
    writer(table).insert_overwrite(frame(("g", "q", 6)))


def rolls_back(table: HudiTable) -> None:
    upserts(table)
    roll_back_instant(reopened(table), last(table))


def rolls_back_an_earlier_one(table: HudiTable) -> None:
    roll_back_instant(reopened(table), last(table))


def cleans(table: HudiTable) -> None:
    upserts(table)
    upserts(table)
    clean(reopened(table, **{"hoodie.cleaner.commits.retained": "1"}))


def compacts(table: HudiTable) -> None:
    upserts(table)
    if table.config.is_mor:
        schedule_compaction(reopened(table))
        upserts(table)
        execute_pending_compactions(reopened(table))


def clusters(table: HudiTable) -> None:
    upserts(table)
    cluster(reopened(table))


def maintains(table: HudiTable) -> None:
    for _ in range(3):
        upserts(table)
    maintain_metadata_table(reopened(table, **{"hoodie.metadata.compact.max.delta.commits": "1"}))


ACTS = (
    upserts,
    deletes,
    overwrites,
    rolls_back,
    rolls_back_an_earlier_one,
    cleans,
    compacts,
    clusters,
    maintains,
)


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
    instant = scheduled(table)
    act(table)
    assert build_index(reopened(table), instant) is not None
    assert_built(table)
    upserts(table)
    assert_built(table)
    maintains(table)
    assert_built(table)


def test_a_write_that_the_index_was_built_of_is_rolled_back(table: HudiTable) -> None:
    """Its entries can't be taken out of the base files: the indexes are dropped, and made again."""
    instant = scheduled(table)
    upserts(table)
    build_index(reopened(table), instant)
    roll_back_instant(reopened(table), last(table))
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
