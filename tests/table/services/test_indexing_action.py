"""An index that is built while writers go on is what one made from the files at once would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from indexing_acts import ACTS, Act, assert_built, deletes, last, maintains, scheduled, upserts, wanted
from metadata_listings import frame, new_table, reopened, writer

from skep_table.commit.metadata_table import metadata_clock
from skep_table.metadata_write import add_partitions, building_partitions
from skep_table.services.automatic import after_commit
from skep_table.services.index_build import build_index
from skep_table.services.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.table_config import TableType

pytestmark = pytest.mark.parametrize("table_version", [6, pytest.param(8, marks=pytest.mark.slow), 9], indirect=True)
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


def test_a_write_before_an_index_that_was_made_at_once_is_rolled_back(table: HudiTable) -> None:
    now = reopened(table)
    add_partitions(now, wanted(now), metadata_clock(now))
    assert_built(table)
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
