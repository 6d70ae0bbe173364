"""Buckets with JVM Hudi: both write by one hash ring, and each goes on behind the splits of the other; or by rules for
the number of buckets of a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peer_shared import Shape, Shared, agree, peers

from benchmarks.peers.jvm import Jvm
from skep_format.hashing_metadata import HashingMetadata
from skep_format.options import Options
from skep_format.table_config import TableType
from skep_table.keys.hash_rings import ring_of
from skep_table.services.clustering.cluster import (
    cluster,
    execute_pending_clusterings,
    pending_clusterings,
    schedule_clustering,
)
from skep_table.write.local import LocalWriter

Start = Callable[[str], Jvm]
SHAPE = Shape("rings", partitions=("north", "x/y"), url_encode=True, type=TableType.MERGE_ON_READ)
RINGS = {
    "index__type": "BUCKET",
    "index__bucket__engine": "CONSISTENT_HASHING",
    "bucket__index__num__buckets": "2",
    "bucket__index__hash__field": "id",
}
STRATEGY = "org.apache.hudi.client.clustering.{}.strategy.SparkConsistentBucketClustering{}Strategy"
SPLITS = {
    "parquet__max__file__size": "100",
    "bucket__index__max__num__buckets": "4",
    "clustering__plan__strategy__class": STRATEGY.format("plan", "Plan"),
    "clustering__execution__strategy__class": STRATEGY.format("run", "Execution"),
}
AT_ONCE = {"clustering__inline__max__commits": "1", "clustering__async__max__commits": "1"}
INLINE = {"clustering__inline": "true", **AT_ONCE}
SCHEDULED = {"clustering__schedule__inline": "true", **AT_ONCE}
TWICE = {
    "clustering__updates__strategy": (
        "org.apache.hudi.client.clustering.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    )
}
MERGES = {**SPLITS, "parquet__max__file__size": "125829120", "bucket__index__min__num__buckets": "1"}


def options(**more: str) -> Options:
    return Options({f"hoodie.{key.replace('__', '.')}": text for key, text in {**RINGS, **more}.items()})


def rings(shared: Shared) -> dict[str, HashingMetadata]:
    """By partition, each of whose live groups is in it."""
    found = {}
    view = shared.open().view()
    for path in view.partitions():
        ring = ring_of(shared.open(), path)
        assert ring is not None
        assert {slice_.file_id for slice_ in view.slices(path)} <= {node.file_id for node in ring.nodes}
        found[path] = ring
    return found


def sizes(shared: Shared) -> set[tuple[int, int]]:
    """How many ranges partitions have, after how many resizes. A range without rows is not merged."""
    return {(len(ring.nodes), ring.seq_no) for ring in rings(shared).values()}


def ours(shared: Shared, rows: list[Any], operation: str = "upsert", **more: str) -> None:
    shared.ours(operation, rows, writer=LocalWriter(shared.open().with_context(options=options(**more))))


def theirs(shared: Shared, hudi: Jvm, rows: list[Any], **more: str) -> None:
    shared.theirs(hudi, "upsert", rows, **{**RINGS, **more})


@peers(sampled=(("0.15.0", 6), ("1.2.0", 9)))
def test_both_write_by_one_ring_which_each_splits_and_merges(release: str, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), Shared.make(tmp_path / "shared", SHAPE)
    ours(shared, shared.source.new(20))
    theirs(shared, hudi, shared.source.mixed(10, 40))
    assert sizes(shared) == {(2, 0)}
    assert len(cluster(shared.open().with_context(options=options(**SPLITS)))) == 1
    assert sizes(shared) == {(4, 1)}
    ours(shared, shared.source.mixed(10, 4))
    theirs(shared, hudi, shared.source.mixed(10, 4), **MERGES, **INLINE)
    assert all(count < 4 and resizes == 2 for count, resizes in sizes(shared))
    ours(shared, shared.source.mixed(10, 4))
    agree(shared, hudi)
    theirs(shared, hudi, shared.source.mixed(6, 2), **SPLITS, **SCHEDULED)
    assert len(execute_pending_clusterings(shared.open().with_context(options=options()))) == 1
    assert {resizes for _, resizes in sizes(shared)} == {3}
    ours(shared, shared.source.forget(shared.source.again(3)), "delete")
    theirs(shared, hudi, shared.source.mixed(10, 4))
    agree(shared, hudi)


def forgotten(shared: Shared, rows: list[Any]) -> None:
    shared.source.forget(rows)
    for row in rows:
        del shared.rows[row["id"]]


@peers(sampled=(("0.15.0", 6), ("1.2.0", 9)))
def test_hudi_goes_on_by_the_ring_that_an_overwrite_leaves(release: str, jvm: Start, tmp_path: Path) -> None:
    """And behind a dropped partition. Else it appends to groups that are replaced, and nobody sees the rows."""
    hudi, shared = jvm(release), Shared.make(tmp_path / "shared", SHAPE)
    ours(shared, shared.source.new(20))
    theirs(shared, hudi, shared.source.mixed(10, 10))
    north = [row for row in shared.rows.values() if row["part"] == "north"]
    forgotten(shared, north[4:])
    ours(shared, north[:4], "insert_overwrite")
    agree(shared, hudi)
    theirs(shared, hudi, shared.source.mixed(20, 8))
    agree(shared, hudi)
    forgotten(shared, [row for row in shared.rows.values() if row["part"] != "north"])
    LocalWriter(shared.open().with_context(options=options())).delete_partitions(["x%2Fy"])
    theirs(shared, hudi, shared.source.mixed(20, 4))
    ours(shared, shared.source.mixed(10, 4))
    agree(shared, hudi)
    assert {ring.seq_no for ring in rings(shared).values()} == {1}


@peers(sampled=())
def test_both_write_twice_beside_a_resize(release: str, jvm: Start, tmp_path: Path) -> None:
    """Each puts its rows into the old and the new groups of plans that the other has made."""
    hudi, shared = jvm(release), Shared.make(tmp_path / "shared", SHAPE)
    ours(shared, shared.source.new(40))
    assert schedule_clustering(shared.open().with_context(options=options(**SPLITS))) is not None
    ours(shared, shared.source.mixed(10, 4), **TWICE)
    theirs(shared, hudi, shared.source.mixed(10, 4), **SPLITS, **TWICE)
    ours(shared, shared.source.mixed(10, 4), **TWICE)
    agree(shared, hudi)
    assert sizes(shared) == {(2, 0)}
    assert len(execute_pending_clusterings(shared.open().with_context(options=options()))) == 1
    agree(shared, hudi)
    theirs(shared, hudi, shared.source.mixed(6, 2), **MERGES, **SCHEDULED)
    ours(shared, shared.source.mixed(10, 4), **TWICE)
    theirs(shared, hudi, shared.source.mixed(10, 4), **MERGES, **TWICE, **INLINE)
    assert not pending_clusterings(shared.open())
    assert all(resizes > 1 for _, resizes in sizes(shared))  # Hudi plans and carries out another one behind it
    ours(shared, shared.source.mixed(10, 4))
    agree(shared, hudi)


@peers(sampled=(("1.2.0", 9),))
def test_both_count_buckets_by_partition(release: str, jvm: Start, tmp_path: Path) -> None:
    if release not in ("1.1.1", "1.2.0"):
        pytest.skip("before 1.1 all partitions have the same number of buckets")
    hudi, shared = jvm(release), Shared.make(tmp_path / "shared", replace(SHAPE, type=TableType.COPY_ON_WRITE))
    rules = {
        "index__type": "BUCKET",
        "bucket__index__num__buckets": "2",
        "bucket__index__hash__field": "id",
        "bucket__index__partition__expressions": r"x%\d,1;nor.h$,3",
    }
    shared.theirs(hudi, "upsert", shared.source.new(1), **rules)  # tasks that parse the rules at once may fail in Hudi
    shared.theirs(hudi, "upsert", shared.source.new(30), **rules)
    named = Options({f"hoodie.{key.replace('__', '.')}": text for key, text in rules.items()})
    shared.ours("upsert", shared.source.mixed(20, 10), writer=LocalWriter(shared.open().with_context(options=named)))
    shared.theirs(hudi, "upsert", shared.source.mixed(20, 10), **rules)
    view = shared.open().view()
    assert {path: len(view.slices(path)) for path in view.partitions()} == {"north": 3, "x%2Fy": 1}
    agree(shared, hudi)
