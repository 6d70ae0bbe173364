"""Services of tables whose timeline states when each instant completed: which write is part of which slice.

Format guide 14.1 and 14.6: a delta commit that completes before a compaction was requested is in its plan, one that
completes later is in the slice that the compaction begins, and none is in neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import CommitConflictError, InputError
from skep_format.timeline.instant import Action
from skep_table.lock import InProcessLock
from skep_table.services.cleaning.clean import clean
from skep_table.services.clustering.cluster import schedule_clustering
from skep_table.services.compaction import compact as compact_module
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_log_compaction,
    execute_pending_compactions,
    pending_log_compactions,
    schedule_compaction,
    schedule_log_compaction,
)
from skep_table.services.compaction.plan import compaction_plan, plan_compaction
from skep_table.services.fsck import fsck
from skep_table.services.undo.rollback import create_savepoint, plan_restore, restore, roll_back_instant
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [8, 9], indirect=True)

TWO = {"log__compaction__blocks__threshold": 2}
Call = Callable[[Any], None]


def during(maker: Any, frame: pa.Table, meanwhile: Call) -> str:
    """An upsert beside which something else happens: after its files are written, before it completes."""
    setting = {**maker.setting(), "conflict_check": meanwhile}
    return LocalWriter(maker.table.with_context(**setting)).upsert(frame).instant.requested_time


def with_logs(maker: Any) -> Any:
    maker.upsert(1, "p/a", "p/b", "p/c")
    maker.upsert(2, "p/a")
    return maker


def context(maker: Any, **options: Any) -> Any:
    return maker.table.with_context(**maker.setting(**options))


class Leased(InProcessLock):
    """A lock that may be lost: others share it."""

    leased = True


# -- compaction --------------------------------------------------------------------------------------------------------


def test_a_compaction_is_planned_and_carried_out_beside_a_write(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    planned = []

    def meanwhile(_: object) -> None:
        planned.append(schedule_compaction(context(maker)))
        assert len(execute_pending_compactions(context(maker))) == 1

    began = during(maker, maker.frame(9, "p/a", "p/b"), meanwhile)
    (compaction,) = planned
    assert began < compaction.requested_time < maker.time_of(began)
    assert maker.rows() == {"p/a": 9, "p/b": 9, "p/c": 1}
    assert maker.rows(query="read_optimized") == {"p/a": 2, "p/b": 1, "p/c": 1}
    (group,) = maker.table.view().file_groups("p")
    assert group.slices[0].base_instant == compaction.requested_time
    assert [log.name.instant_time for log in group.slices[0].log_files] == [began]
    assert fsck(maker.table) == []
    compact(context(maker))
    assert maker.rows(query="read_optimized") == {"p/a": 9, "p/b": 9, "p/c": 1}


def test_a_write_that_completes_over_a_plan_is_not_part_of_it(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    during(maker, maker.frame(9, "p/b"), lambda _: schedule_compaction(context(maker)))
    assert maker.rows() == {"p/a": 2, "p/b": 9, "p/c": 1}
    assert len(execute_pending_compactions(context(maker))) == 1
    assert maker.rows() == {"p/a": 2, "p/b": 9, "p/c": 1}
    plan = plan_compaction(context(maker))
    assert plan is not None, "its logs are the next candidates"


@pytest.mark.parametrize("service", ["compaction", "log compaction"])
def test_a_write_that_completes_while_a_plan_is_made_takes_it_off_the_timeline(
    service: str, mor_maker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lease that was lost: the plan has not seen the write, and the slice after it would not have it."""
    maker = with_logs(mor_maker)
    maker.upsert(3, "p/b")
    module: Any = compact_module
    name = "plan_compaction" if service == "compaction" else "plan_log_compaction"
    schedule: Any = schedule_compaction if service == "compaction" else schedule_log_compaction
    plan_of = getattr(module, name)

    def slowly(*arguments: Any) -> Any:
        plan = plan_of(*arguments)
        maker.upsert(9, "p/c")
        return plan

    table = context(maker, **TWO)
    table = table.with_context(lock=Leased(str(maker.folder)))
    with monkeypatch.context() as patched:
        patched.setattr(module, name, slowly)
        with pytest.raises(CommitConflictError, match="completed while a"):
            schedule(table)
    assert not maker.table.timeline.pending().instants
    assert schedule(table.reload()) is not None
    compact(context(maker))
    assert maker.rows() == {"p/a": 2, "p/b": 3, "p/c": 9}


def test_file_groups_of_a_planned_log_compaction_are_not_compacted(mor_maker: Any) -> None:
    """Another executor may complete it after the compaction was planned: old rows would come back as new ones."""
    maker = with_logs(mor_maker)
    maker.upsert(3, "p/b")
    maker.upsert(1, "q/d")
    maker.upsert(2, "q/d")
    planned = schedule_log_compaction(context(maker, **TWO))
    assert planned is not None
    plan = compaction_plan(context(maker), planned)
    assert {operation.partition_path for operation in plan.operations} == {"p"}
    plan = plan_compaction(context(maker))
    assert plan is not None
    assert {operation.partition_path for operation in plan.operations} == {"q"}
    compact(context(maker))
    assert execute_log_compaction(context(maker), planned) is not None
    plan = plan_compaction(context(maker))
    assert plan is not None
    assert {operation.partition_path for operation in plan.operations} == {"p"}, "the coverage of the first has it left"


# -- log compaction ----------------------------------------------------------------------------------------------------


def test_a_log_compaction_waits_for_earlier_writes(mor_maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log files apply by the times at which they were requested: its result would count as newer than such a write."""
    maker = with_logs(mor_maker)
    maker.upsert(3, "p/b")
    refused: list[CommitConflictError] = []

    def meanwhile(_: object) -> None:
        with pytest.raises(CommitConflictError, match="can be planned when it has ended"):
            schedule_log_compaction(context(maker, **TWO))
        with monkeypatch.context() as careless:  # as another implementation plans it
            careless.setattr(compact_module, "refuse_running_writes", lambda _: None)
            planned = schedule_log_compaction(context(maker, **TWO))
        assert planned is not None
        with pytest.raises(CommitConflictError, match="can be carried out when it has ended") as error:
            execute_log_compaction(context(maker), planned)
        refused.append(error.value)

    during(maker, maker.frame(9, "p/a"), meanwhile)
    assert refused
    (planned,) = pending_log_compactions(maker.table)
    with pytest.raises(CommitConflictError, match="was written to"):
        execute_log_compaction(context(maker), planned)
    assert maker.rows() == {"p/a": 9, "p/b": 3, "p/c": 1}
    compact_logs(context(maker, **TWO))
    assert maker.rows() == {"p/a": 9, "p/b": 3, "p/c": 1}


def test_a_later_write_applies_after_the_result(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    maker.upsert(3, "p/b")
    planned = schedule_log_compaction(context(maker, **TWO))
    assert planned is not None
    during(maker, maker.frame(9, "p/a"), lambda _: execute_log_compaction(context(maker), planned))
    assert maker.rows() == {"p/a": 9, "p/b": 3, "p/c": 1}


def test_one_log_compaction_is_planned_at_a_time(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    maker.upsert(3, "p/b")
    assert schedule_log_compaction(context(maker, **TWO)) is not None
    maker.upsert(1, "q/d")
    maker.upsert(2, "q/d")
    maker.upsert(3, "q/d")
    assert schedule_log_compaction(context(maker, **TWO)) is None


def test_blocks_name_what_they_replace_newest_first(mor_maker: Any) -> None:
    from skep_format.logfile import read_blocks

    maker = mor_maker
    maker.upsert(1, "p/a", "p/b")
    times = [maker.upsert(ts, "p/a") for ts in (2, 3, 4)]
    (done,) = compact_logs(context(maker, **TWO))
    (stat,) = done.metadata.stats
    with maker.table.storage.open_input(stat.path) as file:
        (block,) = read_blocks(file, stat.path)
    assert block.compacted_times == tuple(reversed(times))
    (group,) = maker.table.view().file_groups("p")
    assert stat.prev_commit == group.slices[0].base_instant
    assert (stat.total_log_files_compacted, stat.total_log_records, stat.total_updated_records_compacted) == (3, 3, 1)


# -- savepoint and restore ---------------------------------------------------------------------------------------------


def overlapping(maker: Any) -> tuple[str, str]:
    """A write during which another one begins and completes. Returns the requested times, that of the first first."""
    inner: list[str] = []
    outer = during(maker, maker.frame(5, "q/x"), lambda _: inner.append(maker.upsert(6, "p/a")))
    return outer, inner[0]


@pytest.mark.parametrize("kind", ["maker", "mor_maker"])
def test_a_restore_keeps_what_had_completed_and_nothing_else(kind: str, request: pytest.FixtureRequest) -> None:
    """The inner write was requested after the outer one, and completed before it."""
    maker = request.getfixturevalue(kind)
    maker.upsert(1, "p/a", "q/x")
    outer, inner = overlapping(maker)
    create_savepoint(context(maker), inner)
    assert [info.commit_time for info in plan_restore(maker.table, inner).instants_to_rollback] == [outer]
    restore(context(maker), inner)
    assert maker.rows() == {"p/a": 6, "q/x": 1}
    assert fsck(maker.table) == []


@pytest.mark.parametrize("kind", ["maker", "mor_maker"])
def test_a_savepoint_keeps_the_files_of_writes_that_were_requested_later(
    kind: str, request: pytest.FixtureRequest
) -> None:
    maker = request.getfixturevalue(kind)
    maker.upsert(1, "p/a", "q/x")
    outer, _ = overlapping(maker)
    create_savepoint(context(maker), outer)
    for ts in (7, 8, 9):
        maker.upsert(ts, "p/a", "q/x")
        if kind == "mor_maker":
            compact(context(maker))
    clean(context(maker, cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1))
    restore(context(maker), outer)
    assert maker.rows() == {"p/a": 6, "q/x": 5}
    assert not maker.table.timeline.pending().instants


def test_compactions_are_rolled_back_by_when_they_were_planned(mor_maker: Any) -> None:
    """One that was planned before the commit completed holds nothing that came after it."""
    maker = with_logs(mor_maker)
    planned = schedule_compaction(context(maker))
    assert planned is not None
    saved = maker.upsert(3, "p/b")
    create_savepoint(context(maker), saved)
    execute_pending_compactions(context(maker))
    maker.upsert(4, "p/c")
    compact(context(maker))
    restore(context(maker), saved)
    assert maker.rows() == {"p/a": 2, "p/b": 3, "p/c": 1}
    assert [i.requested_time for i in maker.table.timeline.of(Action.COMMIT)] == [planned.requested_time]
    assert fsck(maker.table) == []


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_log_files_of_a_write_are_deleted_one_request_each(mor_maker: Any) -> None:
    from skep_table.services.undo.rollback import preview_rollback

    maker = mor_maker
    maker.upsert(1, "p/a", "q/x")
    last = maker.upsert(2, "p/a", "q/x", "r/n")
    logs = {str(path.relative_to(maker.folder)) for path in maker.folder.rglob(".*.log.*")}
    plan = preview_rollback(context(maker), last)
    files = [uri for request in plan.rollback_requests for uri in request.files_to_be_deleted]
    assert all(len(request.files_to_be_deleted) == 1 for request in plan.rollback_requests)
    assert all(request.log_blocks_to_be_deleted == {} for request in plan.rollback_requests)
    assert {maker.table.storage.uri(log) for log in logs} < set(files)
    done = roll_back_instant(context(maker), last)
    assert done.total_files_deleted == len(files) == 3
    assert not list(maker.folder.rglob(".*.log.*"))
    for part in done.partition_metadata.values():
        assert (part.rollback_log_files, part.log_files_from_failed_commit) == ({}, {})
    assert maker.rows() == {"p/a": 1, "q/x": 1}


def test_a_compaction_is_rolled_back_and_what_came_over_it_stays(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    compacted: list[str] = []

    def meanwhile(_: object) -> None:
        (done,) = compact(context(maker))
        compacted.append(done.instant.requested_time)

    during(maker, maker.frame(9, "p/b"), meanwhile)
    roll_back_instant(context(maker), compacted[0])
    assert maker.rows() == {"p/a": 2, "p/b": 9, "p/c": 1}
    assert fsck(maker.table) == []


def test_two_completed_files_of_one_instant_are_both_deleted(maker: Any) -> None:
    """No writer leaves two; where one did, readers take either, and a rollback must leave none."""
    maker.upsert(1, "p/a")
    last = maker.upsert(2, "p/a")
    (instant,) = (each for each in maker.table.timeline.completed() if each.requested_time == last)
    path = maker.path_of(instant)
    path.with_name(path.name.replace("000.commit", "999.commit")).write_bytes(path.read_bytes())
    roll_back_instant(context(maker), last)
    assert maker.rows() == {"p/a": 1}
    assert not [file for file in path.parent.iterdir() if file.name.startswith(last)]


def test_a_log_only_slice_that_was_compacted_and_cleaned_is_not_brought_back(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    (done,) = compact(context(maker))
    clean(context(maker, cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1))
    with pytest.raises(InputError, match="would be lost: the cleaner has removed"):
        roll_back_instant(context(maker), done.instant.requested_time)
    assert maker.rows() == {"p/a": 2, "p/b": 1, "p/c": 1}


# -- clustering --------------------------------------------------------------------------------------------------------


def test_a_clustering_is_an_action_of_its_own_until_it_completes(maker: Any) -> None:
    maker.upsert(1, "p/a")
    maker.upsert(2, "p/b")
    sorting = {"clustering__plan__strategy__sort__columns": "ts"}
    planned = schedule_clustering(context(maker, **sorting))
    assert planned is not None
    assert planned.action is Action.CLUSTERING
    assert maker.path_of(planned).name == f"{planned.requested_time}.clustering.requested"
