"""Writes beside a resize of consistent hashing: rows go to the old groups and to the new ones, and are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ringed_tables import MERGES, RINGS, SPLITS, ring_writer, upsert

from skep_format.errors import CommitConflictError, StorageError
from skep_format.names import LogFileName
from skep_format.table_config import TableType
from skep_format.timeline.instant import Action, Instant
from skep_table.keys.hash_rings import ring_of
from skep_table.query import QueryType, ReadRequest, read
from skep_table.services.clustering.cluster import (
    execute_clustering,
    execute_pending_clusterings,
    pending_clusterings,
    schedule_clustering,
)
from skep_table.services.fsck.check import fsck
from skep_table.services.metadata_check import check_metadata_table
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

TWICE = {
    "clustering__updates__strategy": (
        "org.apache.hudi.client.clustering.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    )
}
KEYS = [f"p/{number}" for number in range(30)]
ONCE = dict.fromkeys(KEYS, 1)


@pytest.fixture
def ringed(mor_maker: Any) -> Any:
    upsert(mor_maker, 1, *KEYS)
    return mor_maker


def scheduled(maker: Any, **options: Any) -> Instant:
    instant = schedule_clustering(maker.table.with_context(**maker.setting(**options)))
    assert instant is not None
    return instant


def execute(maker: Any) -> None:
    assert len(execute_pending_clusterings(maker.table.with_context(**maker.setting()))) == 1


def copies(maker: Any, instant: Instant) -> list[Path]:
    """The log files over slices that the resize is to write."""
    names = ((file, LogFileName.parse(file.name)) for file in (maker.folder / "p").iterdir())
    return [file for file, name in names if name is not None and name.instant_time == instant.requested_time]


def changed(maker: Any, since: str) -> dict[str, int]:
    """The rows of an incremental read, none of them twice."""
    found = read(maker.table, ReadRequest(query=QueryType.INCREMENTAL, since=since)).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key twice"
    return {f"{row['part']}/{row['id']}": row["ts"] for row in found}


@pytest.mark.parametrize("options", [SPLITS, MERGES], ids=["split", "merge"])
def test_rows_written_beside_a_resize_are_read_once_before_and_after_it(ringed: Any, options: dict[str, Any]) -> None:
    instant = scheduled(ringed, **options)
    first = upsert(ringed, 2, *KEYS[:20], "p/new", **TWICE)
    upsert(ringed, 3, *KEYS[:10], **TWICE)
    ring_writer(ringed, **TWICE).delete(pa.table({"id": ["5", "25"], "part": ["p", "p"]}))
    expected = ONCE | dict.fromkeys(KEYS[:20], 2) | {"p/new": 2} | dict.fromkeys(KEYS[:10], 3)
    del expected["p/5"], expected["p/25"]
    assert ringed.rows() == expected
    later = {key: ts for key, ts in expected.items() if ts == 3}
    assert changed(ringed, ringed.time_of(first)) == later
    assert len(copies(ringed, instant)) >= 3
    execute(ringed)
    assert ringed.rows() == expected
    assert changed(ringed, ringed.time_of(first)) == later
    ring = ring_of(ringed.table, "p")
    assert ring is not None
    assert len(ring.nodes) == (4 if options is SPLITS else 1)
    upsert(ringed, 4, *KEYS)
    assert ringed.rows() == dict.fromkeys([*KEYS, "p/new"], 4) | {"p/new": 2}


def test_a_resize_that_is_rolled_back_takes_the_copies_along(ringed: Any) -> None:
    instant = scheduled(ringed, **SPLITS)
    first = upsert(ringed, 2, *KEYS[:20], **TWICE)
    upsert(ringed, 3, *KEYS[:10], **TWICE)
    assert copies(ringed, instant)
    roll_back_instant(ringed.table.with_context(**ringed.setting()), instant.requested_time)
    assert not copies(ringed, instant)
    expected = ONCE | dict.fromkeys(KEYS[:20], 2) | dict.fromkeys(KEYS[:10], 3)
    assert ringed.rows() == expected
    assert changed(ringed, ringed.time_of(first)) == dict.fromkeys(KEYS[:10], 3)
    upsert(ringed, 4, *KEYS[:5])
    assert ringed.rows() == expected | dict.fromkeys(KEYS[:5], 4)


def test_copies_of_writes_at_one_time_have_names_of_their_own(ringed: Any) -> None:
    """Whatever the version: those of one would be replaced by those of the other before the conflict is seen."""
    instant = scheduled(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS, **TWICE)
    first = {file.name.rpartition("_")[2] for file in copies(ringed, instant)}
    upsert(ringed, 3, *KEYS, **TWICE)
    second = {file.name.rpartition("_")[2] for file in copies(ringed, instant)} - first
    assert len({token.split("-")[1] for token in first | second}) == 2


def test_a_write_that_is_rolled_back_leaves_both_groups_as_they_were(ringed: Any) -> None:
    scheduled(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS[:20], **TWICE)
    time = upsert(ringed, 3, *KEYS, **TWICE)
    roll_back_instant(ringed.table.with_context(**ringed.setting()), time)
    expected = ONCE | dict.fromkeys(KEYS[:20], 2)
    assert ringed.rows() == expected
    execute(ringed)
    assert ringed.rows() == expected


def test_a_write_of_the_old_groups_alone_ends_the_plan(ringed: Any) -> None:
    """As of a client that has not seen the plan."""
    instant = scheduled(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS[:20], **TWICE)
    path = ringed.path_of(instant)
    plan = path.read_bytes()
    path.unlink()
    upsert(ringed, 3, *KEYS[:10])
    path.write_bytes(plan)
    with pytest.raises(CommitConflictError, match="was written to or replaced since"):
        execute_clustering(ringed.table.with_context(**ringed.setting()), instant)
    assert pending_clusterings(ringed.table) == []
    assert not copies(ringed, instant)
    assert ringed.rows() == ONCE | dict.fromkeys(KEYS[:20], 2) | dict.fromkeys(KEYS[:10], 3)


def test_in_a_table_with_change_data_they_are_refused(tmp_path: Path, mor_maker: Any) -> None:
    """As changes the copies would be there twice."""
    maker = type(mor_maker)(tmp_path / "captured", mor_maker.clock).create(
        TableType.MERGE_ON_READ, **{"hoodie.table.cdc.enabled": "true"}
    )
    upsert(maker, 1, *KEYS)
    scheduled(maker, **SPLITS)
    with pytest.raises(CommitConflictError, match="pending clustering"):
        upsert(maker, 2, *KEYS, **TWICE)


def test_rows_for_files_of_another_clustering_are_not_doubled(mor_maker: Any) -> None:
    for number in range(2):
        LocalWriter(mor_maker.table.with_context(**mor_maker.setting())).bulk_insert(mor_maker.frame(1, f"p/{number}"))
    scheduled(mor_maker)
    with pytest.raises(CommitConflictError, match="pending clustering"):
        LocalWriter(mor_maker.table.with_context(**mor_maker.setting(**TWICE))).upsert(mor_maker.frame(2, "p/0"))


def test_files_and_commits_agree_after_a_resize(ringed: Any) -> None:
    scheduled(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS, **TWICE)
    execute(ringed)
    assert not fsck(ringed.table)


@pytest.mark.parametrize("back", [False, True], ids=["executed", "rolled back"])
def test_the_metadata_table_has_the_copies_as_long_as_they_are_there(mor_maker: Any, back: bool) -> None:
    kept = {"metadata__enable": True, "metadata__record__index__enable": True}
    upsert(mor_maker, 1, *KEYS, **kept)
    instant = scheduled(mor_maker, **SPLITS, **kept)
    upsert(mor_maker, 2, *KEYS[:9], "p/new", **TWICE, **kept)
    setting = mor_maker.setting(**kept)
    if back:
        roll_back_instant(mor_maker.table.with_context(**setting), instant.requested_time)
    else:
        assert execute_clustering(mor_maker.table.with_context(**setting), instant) is not None
    found = check_metadata_table(mor_maker.table)
    assert (found.differences, found.skipped) == ((), ())
    assert mor_maker.rows() == ONCE | dict.fromkeys(KEYS[:9], 2) | {"p/new": 2}


def test_a_log_file_of_a_live_group_that_is_lost_is_an_error(ringed: Any) -> None:
    upsert(ringed, 2, *KEYS)
    (stat, *_) = ringed.table.commit_metadata(ringed.table.timeline.data().completed().last()).stats
    (ringed.folder / stat.path).unlink()
    with pytest.raises(StorageError, match="is missing"):
        ringed.rows()


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_a_write_beside_a_resize_that_fails_at_any_call_leaves_before_or_after(
    ringed: Any, each_fault: Callable[..., Iterator[Any]], dies: bool
) -> None:
    scheduled(ringed, **SPLITS)
    after = ONCE | dict.fromkeys(KEYS[:9], 2) | {"p/new": 2}
    for copy, table, storage in each_fault(ringed, dies=dies):
        where = storage.calls
        try:
            LocalWriter(table.with_context(**copy.setting(**RINGS, **TWICE))).upsert(copy.frame(2, *KEYS[:9], "p/new"))
        except OSError:
            assert copy.rows() in (ONCE, after), where[-1]
        found = copy.rows()
        upsert(copy, 3, "p/1", **TWICE)
        execute(copy)
        assert copy.rows() == found | {"p/1": 3}, where[-1] if storage.hit else "no fault"


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_resize_with_copies_that_fails_at_any_call_is_carried_out_by_the_next(
    ringed: Any, each_fault: Callable[..., Iterator[Any]], dies: bool
) -> None:
    instant = scheduled(ringed, **SPLITS)
    upsert(ringed, 2, *KEYS[:9], "p/new", **TWICE)
    expected = ringed.rows()
    for copy, table, storage in each_fault(ringed, dies=dies):
        try:
            execute_clustering(table.with_context(**copy.setting()), instant)
        except OSError:
            assert copy.rows() == expected
            execute_pending_clusterings(copy.table.with_context(**copy.setting()))
        assert copy.rows() == expected, storage.calls[-1] if storage.hit else "no fault"
        assert len(copy.table.timeline.completed().of(Action.REPLACE_COMMIT)) == 1
