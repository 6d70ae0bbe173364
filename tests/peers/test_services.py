"""Table services both ways: JVM Hudi carries out our plans and we its; each reads, cleans and archives on after the
other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from peer_shared import MERGE_ON_READ, SHAPES, Shape, Shared, agree, peer_marks

from benchmarks.peers.bundle import RELEASES
from benchmarks.peers.jvm import Jvm
from skep_format.options import Options
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteOperation
from skep_table.services.cleaning.archive import archive
from skep_table.services.cleaning.clean import clean, execute_pending_cleans, schedule_clean
from skep_table.services.clustering.cluster import cluster, execute_pending_clusterings, schedule_clustering
from skep_table.services.compaction.compact import compact, compact_logs
from skep_table.services.compaction.plan import chooser
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint, roll_back_instant

COW, MOR = SHAPES[0], MERGE_ON_READ[0]
SAMPLED = (("0.15.0", MOR), ("1.2.0", COW))
hudi_releases = pytest.mark.parametrize(
    "release", [pytest.param(release, marks=peer_marks(release, sampled=True)) for release in RELEASES]
)
with_both_types = pytest.mark.parametrize(
    ("release", "shape"),
    [
        pytest.param(release, shape, marks=peer_marks(release, sampled=(release, shape) in SAMPLED))
        for release in RELEASES
        for shape in (COW, MOR)
    ],
    ids=str,
)
Start = Callable[[str], Jvm]

SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "ts,id"}
ONE_COMMIT = {"hoodie.cleaner.commits.retained": 1}
SHORT = {"hoodie.keep.max.commits": 4, "hoodie.keep.min.commits": 3, **ONE_COMMIT}


def setting(**options: Any) -> dict[str, Any]:
    return {"options": Options(options)}


def filled(path: Path, shape: Shape) -> Shared:
    """Several small files a partition; updates and deletes, on merge-on-read in logs."""
    shared = Shared.make(path, shape)
    shared.ours("bulk_insert", shared.source.new(15))
    shared.ours("bulk_insert", shared.source.new(15))
    shared.ours("upsert", shared.source.again(6))
    shared.ours("delete", shared.source.forget(shared.source.again(3)))
    return shared


def call(hudi: Jvm, procedure: str, shared: Shared, **arguments: str) -> list[dict[str, Any]]:
    """A procedure of Hudi's on the table at a path."""
    extra = "".join(f", {key} => '{value}'" for key, value in arguments.items())
    settings = {"hoodie.metadata.enable": "false", **newer(hudi)}
    return hudi.sql(f"call {procedure}(path => '{shared.path}'{extra})", settings).rows


def archived_as_hudi_sees(hudi: Jvm, shared: Shared) -> set[str]:
    """The procedure wants a table by name, and making that would write the table's settings again: it gets a copy."""
    copy = shared.path.with_name(f"{shared.path.name}_archived")
    shutil.copytree(shared.path, copy)
    name = f"archived_{abs(hash(str(copy)))}"
    hudi.sql(f"create table {name} using hudi location '{copy}'")
    ever = "start_ts => '20000101000000', end_ts => '21000101000000', limit => 1000"
    rows = hudi.sql(f"call show_archived_commits(table => '{name}', {ever})", newer(hudi)).rows
    return {str(value) for row in rows for value in row.values()}


def newer(hudi: Jvm) -> dict[str, str]:
    if hudi.release == "0.15.0":
        return {}
    return {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}


def clusterings(shared: Shared, *, pending: bool = False) -> int:
    table = shared.open()
    if pending:
        return len(table.timeline.pending().of(Action.REPLACE_COMMIT))
    done = table.timeline.completed().of(Action.REPLACE_COMMIT)
    return sum(table.commit_metadata(instant).operation_type is WriteOperation.CLUSTER for instant in done)


@with_both_types
def test_hudi_carries_out_our_clustering(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    before = len(files(shared))
    assert schedule_clustering(shared.open().with_context(**setting(**SORTED))) is not None
    agree(shared, hudi)
    call(hudi, "run_clustering", shared, op="execute")
    assert clusterings(shared) == 1
    agree(shared, hudi)
    assert len(files(shared)) < before
    shared.ours("upsert", shared.source.mixed(6, 2))
    shared.theirs(hudi, "upsert", shared.source.mixed(6, 2))
    agree(shared, hudi)


@with_both_types
def test_we_carry_out_hudis_clustering(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    call(hudi, "run_clustering", shared, op="schedule", order="ts,id")
    assert clusterings(shared, pending=True) == 1
    assert len(execute_pending_clusterings(shared.open().with_context(**setting()))) == 1
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(6, 2))
    agree(shared, hudi)


@with_both_types
def test_hudi_writes_cleans_and_archives_after_all_our_services(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    """Its cleaner reads our cleans and its archiver every kind of instant of ours; then it goes on with its own."""
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    assert cluster(shared.open().with_context(**setting(**SORTED)))
    last = shared.open().timeline.last()
    assert last is not None
    roll_back_instant(shared.open().with_context(**setting()), last.requested_time)
    assert cluster(shared.open().with_context(**setting(**SORTED)))
    saved = create_savepoint(shared.open().with_context(**setting()))
    assert saved.partition_metadata
    shared.ours("upsert", shared.source.mixed(8, 2))
    shared.ours("upsert", shared.source.mixed(8, 2))
    delete_savepoint(shared.open().with_context(**setting()), next(iter(shared.open().savepoints())))
    assert clean(shared.open().with_context(**setting(**ONE_COMMIT)))
    agree(shared, hudi)
    for _ in range(5):
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1), **SERVICES)
        agree(shared, hudi)
    table = shared.open()
    assert len(table.timeline.of(Action.CLEAN)) >= 2
    assert table.timeline.archived(), "Hudi archived nothing"
    shared.ours("upsert", shared.source.mixed(6, 1))
    agree(shared, hudi)


SERVICES = {
    "clean__automatic": "true",
    "cleaner__commits__retained": "1",
    "archive__automatic": "true",
    "keep__min__commits": "2",
    "keep__max__commits": "3",
}


@with_both_types
def test_we_clean_and_archive_after_hudi_and_it_reads_our_archive(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    for _ in range(3):
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1))
    if shape.type.value == "COPY_ON_WRITE":
        assert schedule_clean(shared.open().with_context(**setting(**ONE_COMMIT))) is not None
        agree(shared, hudi)
        assert execute_pending_cleans(shared.open().with_context(**setting()))
    else:
        call(hudi, "run_compaction", shared, op="run")
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1))
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1))
        clean(shared.open().with_context(**setting(**ONE_COMMIT)))
    archived = archive(shared.open().with_context(**setting(**SHORT, **{"hoodie.compact.inline.max.delta.commits": 1})))
    assert archived.instants, archived.held_back
    agree(shared, hudi)
    known = archived_as_hudi_sees(hudi, shared)
    commits = {i.requested_time for i in archived.instants if i.action in (Action.COMMIT, Action.DELTA_COMMIT)}
    assert commits <= known
    for _ in range(3):
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1), **SERVICES)
    agree(shared, hudi)
    shared.ours("upsert", shared.source.mixed(6, 1))
    agree(shared, hudi)


@with_both_types
def test_hudi_reads_an_archive_of_rollbacks_cleans_and_replaced_files(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    """All that archiving moves, in all states; Hudi archives and rolls back on after it."""
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    assert cluster(shared.open().with_context(**setting(**SORTED)))
    for number in range(5):
        shared.crash(shared.source.again(3))  # rolled back by the next writer
        shared.ours("upsert", shared.source.mixed(6, 1))
        if number % 2:
            compact_all(shared)
        clean(shared.open().with_context(**setting(**ONE_COMMIT)))
    assert len(shared.open().timeline.of(Action.ROLLBACK)) == 5
    archived = archive(
        shared.open().with_context(**setting(**SHORT, **{"hoodie.compact.inline.max.delta.commits": 1}))
    ).instants
    assert {Action.ROLLBACK, Action.REPLACE_COMMIT} <= {instant.action for instant in archived}
    agree(shared, hudi)
    known = archived_as_hudi_sees(hudi, shared)
    commits = {i.requested_time for i in archived if i.action in (Action.COMMIT, Action.DELTA_COMMIT)}
    assert commits <= known
    if release == "0.15.0":  # 1.x has another class for it
        contents = hudi.archived(shared.path)
        assert all(contents[instant.requested_time] for instant in archived)
        rollbacks = [instant.requested_time for instant in archived if instant.action is Action.ROLLBACK]
        assert all(json.loads(contents[time])["startRollbackTime"] == time for time in rollbacks)
    if release != "0.15.0" or shape.type.value == "COPY_ON_WRITE":
        # 0.15 dates its rollback after the delta commit that goes with it, whose log blocks its own reader then misses.
        shared.crash(shared.source.again(3))
    for _ in range(4):
        shared.theirs(hudi, "upsert", shared.source.mixed(6, 1), **SERVICES)
        agree(shared, hudi)
    now = {instant.requested_time for instant in shared.open().timeline.archived()}
    assert {instant.requested_time for instant in archived} < now, "Hudi archived nothing"
    shared.ours("upsert", shared.source.mixed(6, 1))
    agree(shared, hudi)


def compact_all(shared: Shared) -> None:
    if shared.shape.type.value == "MERGE_ON_READ":
        assert compact(shared.open().with_context(**setting()), chooser(Options(), datetime.now(timezone.utc)))


@hudi_releases
@pytest.mark.parametrize("shape", SHAPES[:1], ids=str)
def test_hudi_carries_out_our_clean(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    shared.ours("upsert", shared.source.again(6))
    planned = schedule_clean(shared.open().with_context(**setting(**ONE_COMMIT)))
    assert planned is not None
    shared.theirs(hudi, "upsert", shared.source.again(3), **SERVICES)
    done = [i.requested_time for i in shared.open().timeline.completed().of(Action.CLEAN)]
    assert planned.requested_time in done
    agree(shared, hudi)


@hudi_releases
@pytest.mark.parametrize("shape", MERGE_ON_READ[:1], ids=str)
def test_hudi_reads_and_compacts_what_our_log_compaction_left(
    release: str, shape: Shape, jvm: Start, tmp_path: Path
) -> None:
    hudi, shared = jvm(release), filled(tmp_path / shape.name, shape)
    shared.theirs(hudi, "upsert", shared.source.again(5))
    two = setting(**{"hoodie.log.compaction.blocks.threshold": 2})
    (done,) = compact_logs(shared.open().with_context(**two))
    assert done.metadata.operation_type is WriteOperation.LOG_COMPACT
    agree(shared, hudi)
    shared.theirs(hudi, "upsert", shared.source.mixed(6, 1))
    shared.ours("upsert", shared.source.mixed(6, 1))
    agree(shared, hudi)
    call(hudi, "run_compaction", shared, op="schedule")
    call(hudi, "run_compaction", shared, op="run")
    agree(shared, hudi)


def files(shared: Shared) -> list[str]:
    """The base files that are read now."""
    view = shared.open().view()
    slices = [slice_ for partition in view.partitions() for slice_ in view.slices(partition)]
    return [slice_.base_file.path for slice_ in slices if slice_.base_file]


@pytest.mark.parametrize(
    "release",
    [
        pytest.param("0.15.0", marks=[pytest.mark.peer("hudi-0.15.0"), pytest.mark.slow]),
        pytest.param("1.2.0", marks=pytest.mark.peer("hudi-1.2.0")),
    ],
)
@pytest.mark.parametrize("shape", SHAPES[:1], ids=str)
def test_both_write_clean_archive_and_roll_back_in_turn(release: str, shape: Shape, jvm: Start, tmp_path: Path) -> None:
    """After each step both read the whole table as it was written: after failed writes too."""
    hudi, shared = jvm(release), Shared.make(tmp_path / shape.name, shape)
    source = shared.source

    def theirs(operation: str, rows: list[dict[str, Any]], **more: str) -> None:
        shared.theirs(hudi, operation, rows, **more)

    def failed(rows: list[dict[str, Any]]) -> str:
        """Hudi's upsert without its last step, as after a driver's death."""
        rows_before, born = dict(shared.rows), dict(source.born)
        theirs("upsert", rows)
        last = shared.open().timeline.data().completed().last()
        assert last is not None
        Path(shared.path, shared.open().layout.path(last)).unlink()
        shared.rows, source.born = rows_before, born
        return last.requested_time

    shared.ours("insert", source.new(15))
    agree(shared, hudi)
    theirs("insert", source.new(15))
    agree(shared, hudi)
    for turn in range(2):
        shared.ours("upsert", source.mixed(6, 2))
        agree(shared, hudi)
        theirs("upsert", source.mixed(6, 2))
        agree(shared, hudi)
        shared.ours("delete", source.forget(source.again(2)))
        agree(shared, hudi)
        theirs("delete", source.forget(source.again(2)))
        agree(shared, hudi)
        shared.crash(source.again(3))
        theirs("upsert", source.mixed(4, 1))  # rolls ours back
        agree(shared, hudi)
        time = failed(source.again(3))
        agree(shared, hudi)
        shared.ours("upsert", source.mixed(4, 1))  # rolls Hudi's back
        assert not shared.open().timeline.contains(time)
        agree(shared, hudi)
        if turn % 2:
            theirs("upsert", source.mixed(4, 1), **SERVICES)
        else:
            assert clean(shared.open().with_context(**setting(**ONE_COMMIT)))
            assert archive(shared.open().with_context(**setting(**SHORT))).instants
        agree(shared, hudi)
    timeline = shared.open().timeline
    assert len(timeline.of(Action.ROLLBACK)) + sum(i.action is Action.ROLLBACK for i in timeline.archived()) >= 4
    assert not timeline.pending().instants
