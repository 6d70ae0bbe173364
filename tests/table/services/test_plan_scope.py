"""Plans of compaction and clustering list what changed since the last one, and lose no candidate by that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage

from skep_format.errors import SkepError
from skep_format.instant_time import InstantTime
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant, State
from skep_table.commit.create import TableSpec, create_table
from skep_table.services.clustering import plan as cluster_plan
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.clustering.plan import plan_clustering
from skep_table.services.compaction import plan as compact_plan
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_pending_compactions,
    schedule_compaction,
    schedule_log_compaction,
)
from skep_table.services.compaction.plan import every_slice, plan_compaction, plan_log_compaction
from skep_table.services.plan_scope import COVERAGE, Coverage
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, pytest.param(9, marks=pytest.mark.slow)], indirect=True)

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
SMALL = {"hoodie.parquet.small.file.limit": 0}
SORTED = {**SMALL, "hoodie.clustering.plan.strategy.sort.columns": "ts", "hoodie.log.compaction.blocks.threshold": 2}
PARTITIONS = [f"p{number:02d}" for number in range(12)]


def rows(partitions: list[str], ts: int, key: str = "k") -> pa.Table:
    return pa.table({"id": [key] * len(partitions), "part": partitions, "ts": [ts] * len(partitions)}, schema=SCHEMA)


def make(folder: Path, kind: TableType, options: dict[str, Any]) -> tuple[HudiTable, CountingStorage]:
    storage = CountingStorage(LocalStorage(str(folder)))
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=kind)
    table = create_table(storage, spec, options)
    LocalWriter(table).insert(rows(PARTITIONS, 0))
    return table, storage


@pytest.fixture
def mor(tmp_path: Path) -> tuple[HudiTable, CountingStorage]:
    table, storage = make(tmp_path / "mor", TableType.MERGE_ON_READ, SMALL)
    LocalWriter(table).upsert(rows(PARTITIONS, 1))
    return table, storage


def listed(storage: CountingStorage, plan: Callable[[HudiTable], Any], table: HudiTable) -> tuple[set[str], Any]:
    """The folders that planning lists, and the plan."""
    fresh = table.reload()
    storage.calls.clear()
    found = plan(fresh)
    return set(storage.calls.partition_listings()), found


def compacted(plan: Any) -> set[str]:
    return {operation.partition_path for operation in plan.operations} if plan else set()


def clustered(plan: Any) -> set[str]:
    groups = plan.clustering_plan.input_groups if plan else ()
    return {slice_.partition_path for group in groups for slice_ in group.slices}


def test_a_compaction_lists_the_partitions_touched_since_the_last(mor: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = mor
    assert len(compact(table)) == 1
    assert listed(storage, plan_compaction, table) == (set(), None)
    LocalWriter(table).upsert(rows(["p03"], 2))
    LocalWriter(table).upsert(rows(["p03", "p07"], 3))
    folders, plan = listed(storage, plan_compaction, table)
    assert (folders, compacted(plan)) == ({"p03", "p07"}, {"p03", "p07"})


def test_a_pending_plan_covers_what_it_has_planned(mor: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = mor
    assert schedule_compaction(table) is not None
    LocalWriter(table).upsert(rows(["p03"], 2))
    assert listed(storage, plan_compaction, table)[0] == {"p03"}


def test_candidates_that_a_limit_left_out_are_found_again(mor: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = mor
    assert schedule_compaction(table, lambda found: every_slice(found)[:4]) is not None
    assert len(execute_pending_compactions(table)) == 1
    folders, plan = listed(storage, plan_compaction, table)
    assert folders == compacted(plan)
    assert len(folders) == 8


def test_what_another_plan_had_claimed_is_found_when_that_is_taken_back(
    mor: tuple[HudiTable, CountingStorage],
) -> None:
    table, storage = mor
    first = schedule_compaction(table, lambda found: every_slice(found)[:4])
    assert first is not None
    assert schedule_compaction(table.reload()) is not None
    roll_back_of_plan(table, first.requested_time)
    folders, plan = listed(storage, plan_compaction, table)
    assert len(compacted(plan)) == 4
    assert compacted(plan) == folders


def roll_back_of_plan(table: HudiTable, time: str) -> None:
    """As Hudi's command line unschedules a compaction: its requested file is deleted."""
    table.storage.delete(table.layout.path(Instant(InstantTime(time), Action.COMPACTION, State.REQUESTED)))


def test_plans_of_others_cover_nothing(mor: tuple[HudiTable, CountingStorage], monkeypatch: pytest.MonkeyPatch) -> None:
    table, storage = mor
    monkeypatch.setattr(compact_plan, "coverage_of", lambda *_: {})
    assert len(compact(table)) == 1
    folders, plan = listed(storage, plan_compaction, table)
    assert plan is None
    assert {folder.partition("/")[0] for folder in folders} >= {"", *PARTITIONS}


def test_coverage_that_can_not_be_read_is_none() -> None:
    assert Coverage.of(None) is Coverage.of({}) is Coverage.of({COVERAGE: "?"}) is Coverage.of({COVERAGE: "[]"}) is None


@pytest.fixture
def cow(tmp_path: Path) -> tuple[HudiTable, CountingStorage]:
    table, storage = make(tmp_path / "cow", TableType.COPY_ON_WRITE, SORTED)
    LocalWriter(table).insert(rows(PARTITIONS, 1, "l"))
    return table, storage


def test_a_clustering_lists_the_partitions_touched_since_the_last(cow: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = cow
    assert len(cluster(table)) == 1
    assert listed(storage, plan_clustering, table) == (set(), None)
    LocalWriter(table).insert(rows(["p03"], 2, "m"))
    LocalWriter(table).insert(rows(["p03", "p07"], 3, "n"))
    folders, plan = listed(storage, plan_clustering, table)
    assert (folders, clustered(plan)) == ({"p03", "p07"}, {"p03", "p07"})


def test_groups_that_a_limit_left_out_are_found_again(cow: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = cow
    few = table.with_options({"hoodie.clustering.plan.strategy.max.num.groups": 5})
    assert len(cluster(few)) == 1
    folders, plan = listed(storage, plan_clustering, few)
    assert len(folders) == 7
    assert clustered(plan) < folders


def test_other_options_look_at_every_partition(cow: tuple[HudiTable, CountingStorage]) -> None:
    table, storage = cow
    assert len(cluster(table)) == 1
    other = table.with_options({"hoodie.clustering.plan.strategy.sort.columns": "id"})
    assert clustered(listed(storage, plan_clustering, other)[1]) == set(PARTITIONS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", list(TableType))
def test_no_candidate_is_lost(kind: TableType, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any history a plan finds what it finds when it lists the whole table."""
    chance = random.Random(seed)
    table, _ = make(tmp_path / "t", kind, SORTED)
    is_mor = kind is TableType.MERGE_ON_READ

    def write() -> None:
        some = chance.sample(PARTITIONS, chance.randint(1, 3))
        getattr(LocalWriter(table), chance.choice(("upsert", "insert")))(
            rows(some, chance.randint(1, 9), f"k{chance.randint(0, 3)}")
        )

    def take_back() -> None:
        last = table.reload().timeline.data().completed().last()
        assert last is not None
        roll_back_instant(table, last.requested_time)

    def schedule() -> None:
        most = chance.randint(1, 4)
        schedule_compaction(table, lambda found: every_slice(found)[:most])

    few = table.with_options({"hoodie.clustering.plan.strategy.max.num.groups": chance.randint(1, 3)})
    steps = [
        write,
        write,
        write,
        take_back,
        lambda: schedule_clustering(few),
        lambda: execute_pending_clusterings(table),
    ]
    if is_mor:
        steps += [schedule, lambda: execute_pending_compactions(table), lambda: compact(table)]
        steps += [lambda: schedule_log_compaction(table), lambda: compact_logs(table)]
    for _ in range(14):
        try:
            chance.choice(steps)()
        except SkepError:
            continue  # a step that the table refuses now
        for module, plan, names in (
            (compact_plan, plan_compaction, compacted),
            (compact_plan, plan_log_compaction, compacted),
            (cluster_plan, plan_clustering, clustered),
        ):
            if module is not cluster_plan and not is_mor:
                continue
            now = plan(table.reload())
            with monkeypatch.context() as whole:
                whole.setattr(module, "uncovered_partitions", lambda _, view, *__: view.partitions())
                assert names(now) == names(plan(table.reload()))
