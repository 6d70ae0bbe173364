"""Consistent hashing: buckets are split and merged by clusterings, and rows are found where the new ring has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ringed_tables import MERGES, SPLITS, ring_writer, upsert

from skep_format.errors import CommitConflictError, TableMismatchError, UnsupportedError
from skep_format.hashing_metadata import FIRST, FOLDER, HashingMetadata, HashNode, metadata_path
from skep_format.instant_time import InstantTime
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteOperation
from skep_table.keys.hash_rings import ring_of
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import (
    cluster,
    execute_clustering,
    execute_pending_clusterings,
    pending_clusterings,
    schedule_clustering,
)
from skep_table.services.clustering.plan import plan_clustering
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, restore, roll_back_instant
from skep_table.upgrade.change import change_version

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

KEYS = [f"p/{number}" for number in range(40)]


@pytest.fixture
def ringed(tmp_path: Path, mor_maker: Any) -> Any:
    """A table with two buckets, and forty rows."""
    upsert(mor_maker, 1, *KEYS)
    return mor_maker


def resized(maker: Any, **options: Any) -> Any:
    (done,) = cluster(maker.table.with_context(**maker.setting(**options)))
    return done


def ring(maker: Any, partition: str = "p") -> HashingMetadata:
    found = ring_of(maker.table, partition)
    assert found is not None
    return found


def ends(maker: Any) -> list[int]:
    return [node.value for node in ring(maker).nodes]


def live(maker: Any) -> set[str]:
    return {slice_.file_id for slice_ in maker.table.view().slices("p")}


def marker(maker: Any, time: str) -> Path:
    """In version 6 it lies where Hudi 0.15 puts it, which could not resize the partition otherwise."""
    folder: Path = maker.folder if maker.table.config.version == 6 else maker.folder / FOLDER
    return folder / "p" / f"{time}.commit"


def files(maker: Any) -> set[str]:
    return {
        file.name for file in (maker.folder / FOLDER).rglob("*") if file.is_file() and not file.name.endswith("crc")
    }


def test_large_buckets_are_split_in_the_middle_of_their_ranges(ringed: Any) -> None:
    before, groups = ringed.rows(), live(ringed)
    done = resized(ringed, **SPLITS)
    assert (done.replaced, done.slices) == (2, 4)
    assert ringed.rows() == before
    assert ends(ringed) == [536870911, 1073741824, 1610612735, 2147483647]
    assert (ring(ringed).seq_no, ring(ringed).num_buckets) == (1, 2)
    assert live(ringed) == {node.file_id for node in ring(ringed).nodes}
    assert not live(ringed) & groups
    time = done.instant.requested_time
    assert files(ringed) >= {f"{FIRST}.hashing_meta", f"{time}.hashing_meta"}
    assert marker(ringed, time).exists()
    upsert(ringed, 2, *KEYS[::2], "p/new")
    assert ringed.rows() == before | dict.fromkeys(KEYS[::2], 2) | {"p/new": 2}
    assert live(ringed) == {node.file_id for node in ring(ringed).nodes}


def test_small_neighbours_are_merged(ringed: Any) -> None:
    resized(ringed, **SPLITS)
    before = ringed.rows()
    done = resized(ringed, **MERGES)
    assert (done.replaced, done.slices) == (4, 1)
    assert ends(ringed) == [2147483647]
    assert ringed.rows() == before
    assert ring(ringed).seq_no == 2
    upsert(ringed, 3, *KEYS)
    assert ringed.rows() == dict.fromkeys(KEYS, 3)


def test_a_plan_is_what_hudi_reads(ringed: Any) -> None:
    plan = plan_clustering(ringed.table.with_context(**ringed.setting(**SPLITS)))
    assert plan is not None
    assert plan.clustering_plan is not None
    assert plan.clustering_plan.strategy is not None
    assert plan.clustering_plan.strategy.strategy_class_name == (
        "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    )
    assert plan.operation_type == WriteOperation.CLUSTER.value
    for group in plan.clustering_plan.input_groups:
        extra = dict(group.extra_metadata or {})
        nodes = json.loads(extra.pop("clustering.group.child.node"))
        assert extra == {"clustering.group.partition": "p", "clustering.group.sequence.no": "0"}
        assert [sorted(node) for node in nodes] == [["fileIdPrefix", "tag", "value"]] * 2
        assert {node["tag"] for node in nodes} == {"REPLACE"}
        assert group.num_output_file_groups == 2


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({}, 2),
        ({"parquet__max__file__size": 100}, 2),
        ({**SPLITS, "bucket__index__max__num__buckets": 3}, 3),
        ({**SPLITS, "bucket__index__split__threshold": 1e9}, 2),
        (MERGES, 1),
        ({**MERGES, "bucket__index__merge__threshold": 0}, 2),
    ],
    ids=["neither", "no room", "room for one", "not large enough", "merged", "not small enough"],
)
def test_the_number_of_buckets_is_kept_within_bounds(ringed: Any, options: dict[str, Any], buckets: int) -> None:
    cluster(ringed.table.with_context(**ringed.setting(**options)))
    assert len(ends(ringed)) == buckets
    assert ringed.rows() == dict.fromkeys(KEYS, 1)


def test_buckets_that_are_neither_split_nor_merged_are_put_in_order_on_request(ringed: Any) -> None:
    options = {"clustering__plan__strategy__sort__columns": "id"}
    assert resized(ringed, **options).slices == 2
    assert ringed.rows() == dict.fromkeys(KEYS, 1)
    assert (len(ends(ringed)), ring(ringed).seq_no) == (2, 1)
    assert cluster(ringed.table.with_context(**ringed.setting(**options))) == []


def test_strategies_of_other_tables_are_refused_by_name(ringed: Any, tmp_path: Path) -> None:
    hudis = "org.apache.hudi.client.clustering.{}.strategy.Spark{}"
    own = {
        "clustering__plan__strategy__class": hudis.format("plan", "ConsistentBucketClusteringPlanStrategy"),
        "clustering__execution__strategy__class": hudis.format("run", "ConsistentBucketClusteringExecutionStrategy"),
    }
    for key in own:
        other = {key: "SizeBasedClusteringPlanStrategy"}
        with pytest.raises(UnsupportedError, match=key.replace("__", r"\.")):
            schedule_clustering(ringed.table.with_context(**ringed.setting(**SPLITS, **other)))
    assert resized(ringed, **SPLITS, **own).slices == 4
    plain = type(ringed)(tmp_path / "plain", ringed.clock).create(TableType.MERGE_ON_READ)
    plain.upsert(1, "p/1")
    with pytest.raises(UnsupportedError, match="not those of consistent hashing"):
        schedule_clustering(plain.table.with_context(**plain.setting(**own)))


def test_nothing_is_planned_beside_a_pending_write(ringed: Any) -> None:
    last = ringed.path_of(ringed.table.timeline.data().completed().last())
    content = last.read_bytes()
    last.unlink()
    assert plan_clustering(ringed.table.with_context(**ringed.setting(**SPLITS))) is None
    last.write_bytes(content)
    assert plan_clustering(ringed.table.with_context(**ringed.setting(**SPLITS))) is not None


def scheduled(maker: Any, **options: Any) -> Instant:
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**SPLITS, **options)))
    assert instant is not None
    return instant


@pytest.mark.parametrize("strategy", ["RejectUpdateStrategy", "AllowUpdateStrategy", None])
def test_groups_of_a_pending_resize_are_not_written_to(ringed: Any, strategy: str | None) -> None:
    instant = scheduled(ringed)
    how = {} if strategy is None else {"clustering__updates__strategy": strategy}
    with pytest.raises(CommitConflictError, match=f"pending clustering {instant.requested_time}"):
        upsert(ringed, 2, "p/1", **how)
    assert ringed.rows() == dict.fromkeys(KEYS, 1)
    upsert(ringed, 2, "q/1")
    assert plan_clustering(ringed.table.with_context(**ringed.setting(**SPLITS))) is not None  # of q alone
    execute_pending_clusterings(ringed.table.with_context(**ringed.setting()))
    upsert(ringed, 3, "p/1")
    assert ringed.rows() == dict.fromkeys(KEYS, 1) | {"p/1": 3, "q/1": 2}


def test_a_pending_resize_can_be_rolled_back(ringed: Any) -> None:
    roll_back_instant(ringed.table.with_context(**ringed.setting()), scheduled(ringed).requested_time)
    upsert(ringed, 2, "p/1")
    assert (len(ends(ringed)), ringed.rows()) == (2, dict.fromkeys(KEYS, 1) | {"p/1": 2})


def test_a_completed_resize_is_rolled_back_with_its_ring(ringed: Any) -> None:
    done = resized(ringed, **SPLITS)
    roll_back_instant(ringed.table.with_context(**ringed.setting()), done.instant.requested_time)
    assert files(ringed) == {f"{FIRST}.hashing_meta"}
    assert not marker(ringed, done.instant.requested_time).exists()
    upsert(ringed, 2, "p/1")
    assert ringed.rows() == dict.fromkeys(KEYS, 1) | {"p/1": 2}


def test_a_restore_brings_the_ring_back(ringed: Any) -> None:
    create_savepoint(ringed.table.with_context(**ringed.setting()))
    (time,) = ringed.table.savepoints()
    resized(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS, "p/new")
    resized(ringed, **MERGES)
    restore(ringed.table.with_context(**ringed.setting()), time)
    assert (len(ends(ringed)), ringed.rows()) == (2, dict.fromkeys(KEYS, 1))
    assert files(ringed) == {f"{FIRST}.hashing_meta"}
    upsert(ringed, 2, *KEYS, "p/new")
    assert ringed.rows() == dict.fromkeys([*KEYS, "p/new"], 2)


def test_rings_and_markers_move_with_the_version(ringed: Any, table_version: int) -> None:
    time = resized(ringed, **SPLITS).instant.requested_time
    if table_version == 6:
        compact(ringed.table.with_context(**ringed.setting()))
    other = 9 if table_version == 6 else 6
    change_version(ringed.table.with_context(**ringed.setting()), other)
    upsert(ringed, 2, *KEYS, "p/new")
    assert ringed.rows() == dict.fromkeys([*KEYS, "p/new"], 2)
    assert marker(ringed, time).exists()
    assert not (ringed.folder / FOLDER / "p" / f"{time}.commit").exists() or other == 9
    assert resized(ringed, **MERGES).slices == 1
    assert ringed.rows() == dict.fromkeys([*KEYS, "p/new"], 2)


def test_a_ring_that_was_changed_since_the_plan_is_a_conflict(ringed: Any) -> None:
    instant = scheduled(ringed)
    path = ringed.folder / metadata_path("p", FIRST)
    path.write_bytes(path.read_bytes().replace(b'"seqNo" : 0', b'"seqNo" : 7'))
    with pytest.raises(CommitConflictError, match="hash ring of partition p was changed"):
        execute_clustering(ringed.table.with_context(**ringed.setting()), instant)
    assert pending_clusterings(ringed.table) == []
    assert ringed.rows() == dict.fromkeys(KEYS, 1)


def test_rows_in_a_group_that_their_hashes_do_not_lead_to_are_an_error(ringed: Any) -> None:
    path = ringed.folder / metadata_path("p", FIRST)
    first, second = ring(ringed).nodes
    swapped = (HashNode(first.value, second.prefix), HashNode(second.value, first.prefix))
    path.write_bytes(HashingMetadata("p", FIRST, 2, swapped).encode())
    instant = scheduled(ringed)
    with pytest.raises(TableMismatchError, match="their hashes do not lead to"):
        execute_clustering(ringed.table.with_context(**ringed.setting()), instant)
    assert ringed.rows() == dict.fromkeys(KEYS, 1)


def test_the_next_writer_marks_a_resize_that_completed(ringed: Any) -> None:
    time = resized(ringed, **SPLITS).instant.requested_time
    marker(ringed, time).unlink()
    assert len(ends(ringed)) == 4
    upsert(ringed, 2, "p/1")
    assert marker(ringed, time).exists()


def test_a_ring_that_hudi_left_of_a_resize_that_was_rolled_back_does_not_count(ringed: Any) -> None:
    """It has groups of before, and none of its own."""
    done = resized(ringed, **SPLITS)
    time = done.instant.requested_time
    later = InstantTime("29990101000000000")
    left = ring(ringed).resized(later, ring(ringed).split(ring(ringed).nodes[0]))
    (ringed.folder / left.path).write_bytes(left.encode())
    assert ring(ringed).instant == time


def test_an_archived_resize_without_marker_counts_by_its_groups(ringed: Any) -> None:
    """Files and instant times of a resize are all that is left of it."""
    before = ring(ringed)
    time = InstantTime("20200101000000000")
    moved = before.resized(time, (HashNode(before.nodes[0].value, "other"), before.nodes[1]))
    (ringed.folder / moved.path).write_bytes(moved.encode())
    assert ring(ringed) == before
    first = metadata_path("p", FIRST)
    (ringed.folder / first).write_bytes(moved.encode())
    archived = before.resized(time, ())
    (ringed.folder / archived.path).write_bytes(archived.encode())
    assert ring(ringed) == archived


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_a_resize_that_fails_at_any_call_is_carried_out_by_the_next(
    ringed: Any, each_fault: Callable[..., Iterator[Any]], dies: bool
) -> None:
    instant = scheduled(ringed)
    before = ringed.rows()
    for copy, table, storage in each_fault(ringed, dies=dies):
        try:
            execute_clustering(table.with_context(**copy.setting()), instant)
        except OSError:
            assert copy.rows() == before
            execute_pending_clusterings(copy.table.with_context(**copy.setting()))
        where = storage.calls[-1] if storage.hit else "no fault"
        assert copy.rows() == before, where
        assert len(ends(copy)) == 4, where
        assert len(copy.table.timeline.completed().of(Action.REPLACE_COMMIT)) == 1
        upsert(copy, 2, *KEYS[:9], "p/new")
        assert copy.rows() == before | dict.fromkeys(KEYS[:9], 2) | {"p/new": 2}, where
        assert marker(copy, instant.requested_time).exists()


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_rollback_of_a_resize_that_fails_at_any_call_is_finished(
    ringed: Any, each_fault: Callable[..., Iterator[Any]], dies: bool
) -> None:
    time = resized(ringed, **SPLITS).instant.requested_time
    before = ringed.rows()
    for copy, table, storage in each_fault(ringed, dies=dies):
        try:
            roll_back_instant(table.with_context(**copy.setting()), time)
        except OSError:
            assert copy.rows() == before
        upsert(copy, 2, *KEYS[:9], "p/new")
        where = storage.calls[-1] if storage.hit else "no fault"
        assert copy.rows() == before | dict.fromkeys(KEYS[:9], 2) | {"p/new": 2}, where
        assert live(copy) <= {node.file_id for node in ring(copy).nodes}, where


def test_a_replaced_ring_survives_cleans_archives_and_restores(mor_maker: Any) -> None:
    keys = [f"a/{at}" for at in range(8)]
    upsert(mor_maker, 1, *keys, "b/1")
    ring_writer(mor_maker).insert_overwrite(mor_maker.frame(2, *keys[:4]))
    kept = ring_writer(mor_maker).delete_partitions(["b"]).instant.requested_time
    create_savepoint(mor_maker.table, kept)
    expected = dict.fromkeys(keys[:4], 2)
    assert mor_maker.rows() == expected
    ring_writer(mor_maker).insert_overwrite_table(mor_maker.frame(3, "b/2"))
    upsert(mor_maker, 3, "a/1")
    assert mor_maker.rows() == {"b/2": 3, "a/1": 3}
    restore(mor_maker.table, kept)
    assert mor_maker.rows() == expected
    assert {ring_of(mor_maker.table, path).seq_no for path in "ab"} == {1}
    delete_savepoint(mor_maker.table, kept)
    for ts in range(4, 10):
        upsert(mor_maker, ts, "a/1", "a/7", "b/1")
        compact(mor_maker.table)
        clean(mor_maker.table.with_context(**mor_maker.setting(cleaner__commits__retained="1")))
        kept_few = {"cleaner__commits__retained": "1", "keep__min__commits": "2", "keep__max__commits": "3"}
        archive(mor_maker.table.with_context(**mor_maker.setting(**kept_few)))
    assert not mor_maker.table.timeline.contains(kept)
    upsert(mor_maker, 10, *keys, "b/1")
    assert mor_maker.rows() == {**dict.fromkeys(keys, 10), "b/1": 10}
    assert {ring_of(mor_maker.table, path).seq_no for path in "ab"} == {1}
