"""Rollback, savepoint and restore: what is allowed, what is taken back, who finishes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from skep_format.errors import InputError, SkepError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, read_blocks
from skep_format.names import LogFileName
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import RestoreMetadata, RollbackMetadata, RollbackPlan, SavepointMetadata
from skep_format.timeline.write import create_requested
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import clean, schedule_clean
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import (
    check_not_cleaned,
    create_savepoint,
    delete_savepoint,
    plan_restore,
    preview_rollback,
    restore,
    roll_back_instant,
)
from skep_table.table import HudiTable

pytestmark = pytest.mark.parametrize("table_version", [6, pytest.param(9, marks=pytest.mark.slow)], indirect=True)


def snapshot(table: HudiTable, **how: Any) -> list[str]:
    return sorted(map(repr, read(table, ReadRequest(**how)).to_arrow().to_pylist()))


def writes(table: HudiTable) -> list[str]:
    return [instant.requested_time for instant in table.timeline.data().completed()]


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_the_newest_commit_is_taken_back(maker: Any) -> None:
    first = maker.upsert(1, "p/a")
    second = maker.upsert(2, "p/a", "q/b")
    plan = preview_rollback(maker.table.with_context(**maker.setting()), second)
    assert maker.rows() == {"p/a": 2, "q/b": 2}
    recorded = roll_back_instant(maker.table.with_context(**maker.setting()), second)
    assert maker.rows() == {"p/a": 1}
    assert maker.table.timeline.contains(first)
    assert not maker.table.timeline.contains(second)
    (rollback,) = maker.table.timeline.of(Action.ROLLBACK)
    assert maker.table.requested_plan(RollbackPlan, rollback) == plan
    assert isinstance(recorded, RollbackMetadata)
    assert maker.table.plan(rollback) == recorded
    assert recorded.commits_rollback == (second,)
    planned = {uri for request in plan.rollback_requests for uri in request.files_to_be_deleted}
    deleted = {uri for part in recorded.partition_metadata.values() for uri in part.success_delete_files}
    assert planned == deleted
    assert len(deleted) == recorded.total_files_deleted == 2
    maker.upsert(3, "p/a")
    assert maker.rows() == {"p/a": 3}


def test_what_may_not_be_rolled_back(maker: Any) -> None:
    first = maker.upsert(1, "p/a")
    second = maker.upsert(2, "p/a")
    setting = maker.setting()
    before = maker.rows()
    with pytest.raises(InputError, match=f"not the newest write.*{second}"):
        roll_back_instant(maker.table.with_context(**setting), first)
    with pytest.raises(InputError, match="there is no write 29990101000000000"):
        roll_back_instant(maker.table.with_context(**setting), "29990101000000000")
    create_savepoint(maker.table.with_context(**setting), second)
    with pytest.raises(InputError, match="kept by a savepoint"):
        roll_back_instant(maker.table.with_context(**setting), second)
    delete_savepoint(maker.table.with_context(**setting), second)
    maker.upsert(3, "p/a")
    clean(
        maker.table.with_context(
            **maker.setting(cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1)
        )
    )
    third = writes(maker.table)[-1]
    with pytest.raises(InputError, match="would be lost: the cleaner has removed"):
        roll_back_instant(maker.table.with_context(**setting), third)
    (cleaned,) = maker.table.timeline.of(Action.CLEAN)
    with pytest.raises(InputError, match="is a clean, which can't be rolled back"):
        roll_back_instant(maker.table.with_context(**setting), cleaned.requested_time)
    assert maker.rows() == {**before, "p/a": 3}


def test_a_planned_clean_does_not_take_what_a_rollback_makes_current(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    schedule_clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    roll_back_instant(maker.table.with_context(**maker.setting()), times[3])
    assert maker.rows() == {"p/a": 3}
    assert not maker.table.timeline.pending().instants
    with pytest.raises(InputError, match="would be lost"):
        roll_back_instant(maker.table.with_context(**maker.setting()), times[2])


@pytest.mark.parametrize("pending", [False, True], ids=["completed", "pending"])
@pytest.mark.parametrize("case", ["mor_upsert", "mor_delete", "mor_bucket_index", "mor_event_time", "mor_parquet_log"])
def test_log_blocks_are_taken_back_by_command(case: str, pending: bool, golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy(case)
    times = writes(maker.table)
    logs = set(maker.folder.rglob(".*.log.*"))
    # What the commits before the last one had written: the same table without the last one's files and blocks.
    expected = snapshot(maker.table, as_of=times[-2])
    if pending:
        (maker.folder / f".hoodie/{times[-1]}.deltacommit").unlink()
        assert snapshot(maker.table) == expected
    recorded = roll_back_instant(maker.table.with_context(**maker.setting()), times[-1])
    assert snapshot(maker.table) == expected
    commands = {uri for part in recorded.partition_metadata.values() for uri in part.rollback_log_files or {}}
    new = set(maker.folder.rglob(".*.log.*")) - logs
    assert {maker.table.storage.uri(str(path.relative_to(maker.folder))) for path in new} == commands
    for path in new:
        name = LogFileName.parse(path.name)
        assert name is not None
        assert name.write_token == "1-0-1"
        relative = str(path.relative_to(maker.folder))
        with maker.table.storage.open_input(relative) as file:
            (block,) = read_blocks(file, relative)
        assert block.type is BlockType.COMMAND
        assert block.target_instant_time == times[-1]
        assert block.instant_time == recorded.start_rollback_time
    # Readers that take everything before the timeline's start for committed need the command.
    for file in (maker.folder / ".hoodie").glob(f"{times[0]}*"):
        file.unlink()
    assert snapshot(maker.table) == expected


def test_hudis_own_metadata_name_the_same_slices(golden_copy: Callable[[str], Any]) -> None:
    """The rollback that Hudi made of a delta commit, rebuilt from the same files."""
    maker = golden_copy("mor_log_rollback")
    rollback = maker.table.timeline.of(Action.ROLLBACK).instants[0]
    plan = maker.table.requested_plan(RollbackPlan, rollback)
    assert plan is not None
    assert plan.instant_to_rollback is not None
    failed = plan.instant_to_rollback.commit_time
    folder = maker.folder / ".hoodie"
    for file in folder.iterdir():
        if file.name[:17].isdigit() and file.name[:17] >= rollback.requested_time:
            file.unlink()
    for file in maker.folder.rglob("*_1-0-1"):
        file.unlink()
    (folder / f"{failed}.deltacommit.requested").touch()
    (folder / f"{failed}.deltacommit.inflight").touch()
    ours = preview_rollback(maker.table.with_context(**maker.setting()), failed)

    def slices(found: RollbackPlan) -> set[tuple[object, ...]]:
        return {
            (r.partition_path, r.file_id, r.latest_base_instant, tuple((r.log_blocks_to_be_deleted or {}).values()))
            for r in found.rollback_requests
        }

    assert slices(ours) == slices(plan)


def test_a_compaction_that_was_under_way_stays_planned(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("mor_compaction")
    table = maker.table
    (compaction,) = table.timeline.pending().of(Action.COMPACTION)
    before = snapshot(table)
    with pytest.raises(UnsupportedError, match="only planned"):
        roll_back_instant(table.with_context(**maker.setting()), compaction.requested_time)
    time = compaction.requested_time
    (maker.folder / f".hoodie/{time}.compaction.inflight").touch()
    partition = table.view(metadata=False).partitions()[0]
    left = maker.folder / partition / f"{'0' * 8}-0_0-1-1_{time}.parquet"
    left.touch()
    roll_back_instant(maker.table.with_context(**maker.setting()), time)
    assert not left.exists()
    assert maker.table.timeline.pending().of(Action.COMPACTION).instants == (
        replace(compaction, state=State.REQUESTED),
    )
    assert snapshot(maker.table) == before


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_rollback_is_finished_by_the_next_writer(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    maker.upsert(1, "p/a")
    second = maker.upsert(2, "p/a", "q/b")
    after, before = {"p/a": 1}, {"p/a": 2, "q/b": 2}
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            roll_back_instant(table.with_context(**maker.setting()), second)
        except SkepError:
            assert copied.rows() in (before, after), where
        copied.upsert(9, "z/z")
        found = copied.rows()
        assert found in ({**before, "z/z": 9}, {**after, "z/z": 9}), where
        assert not copied.table.timeline.pending().instants, where
        assert len(copied.files()) == 1 + len(found) - (found["p/a"] == 1), where
        runs += 1
    assert runs > 15


@pytest.mark.parametrize("how", [{"dies": True}, {"dies": True, "after": True}], ids=["dies", "after"])
def test_a_rollback_of_log_blocks_is_finished(how: dict[str, bool], golden_copy: Any, each_fault: Any) -> None:
    maker = golden_copy("mor_upsert")
    times = writes(maker.table)
    before, after = snapshot(maker.table), snapshot(maker.table, as_of=times[-2])
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            roll_back_instant(table.with_context(**maker.setting()), times[-1])
        except SkepError:
            assert snapshot(copied.table) in (before, after), where
        roll_back_failed(copied.table.with_context(**copied.setting()))
        if copied.table.timeline.contains(times[-1]):
            assert snapshot(copied.table) == before, where
        else:
            assert snapshot(copied.table) == after, where
        assert not copied.table.timeline.pending().instants, where


# -- savepoint ---------------------------------------------------------------------------------------------------------


def test_savepoints_are_those_of_hudi(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("cow_savepoint_restore")
    ((time, expected),) = maker.table.savepoints().items()
    delete_savepoint(maker.table.with_context(**maker.setting()), time)
    assert not maker.table.timeline.of(Action.SAVEPOINT).instants
    created = create_savepoint(maker.table.with_context(**maker.setting()), time, user="me", comments="before the move")
    assert maker.table.savepoints() == {time: created}
    assert created.partition_metadata == expected.partition_metadata
    assert (created.savepointed_by, created.comments) == ("me", "before the move")
    assert isinstance(created, SavepointMetadata)


def test_what_a_clean_by_versions_took_files_of_is_neither_read_nor_kept(maker: Any) -> None:
    """It records no earliest instant: the files that it deleted decide, group by group."""
    first, second, third = maker.upsert(1, "p/a", "q/a"), maker.upsert(2, "p/a"), maker.upsert(3, "p/a")
    by_versions = maker.setting(cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=2)
    assert schedule_clean(maker.table.with_context(**by_versions)) is not None
    assert maker.rows(as_of=first) == {"p/a": 1, "q/a": 1}, "planned is not deleted"
    clean(maker.table.with_context(**by_versions))
    for call in (
        lambda: maker.rows(as_of=first),
        lambda: create_savepoint(maker.table.with_context(**maker.setting()), first),
    ):
        with pytest.raises(InputError, match=rf"cleaner has removed files .* p/.*{first}\.parquet is among them"):
            call()
    assert maker.rows(as_of=second) == {"p/a": 2, "q/a": 1}
    assert maker.rows(as_of=third) == {"p/a": 3, "q/a": 1}
    create_savepoint(maker.table.with_context(**maker.setting()), second)


def test_what_may_not_be_kept(maker: Any) -> None:
    with pytest.raises(InputError, match="no commit is completed"):
        create_savepoint(maker.table.with_context(**maker.setting()))
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    create_savepoint(maker.table.with_context(**maker.setting()))
    assert list(maker.table.savepoints()) == [times[-1]]
    with pytest.raises(InputError, match="has a savepoint already"):
        create_savepoint(maker.table.with_context(**maker.setting()), times[-1])
    with pytest.raises(InputError, match="no completed commit 1"):
        create_savepoint(maker.table.with_context(**maker.setting()), "1")
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    with pytest.raises(InputError, match=f"as of {times[-1]} or later"):
        create_savepoint(maker.table.with_context(**maker.setting()), times[0])
    with pytest.raises(InputError, match="there is no savepoint 1"):
        delete_savepoint(maker.table.with_context(**maker.setting()), "1")


def test_a_planned_clean_may_have_the_files(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    schedule_clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    with pytest.raises(InputError, match="the cleaner has removed"):
        create_savepoint(maker.table.with_context(**maker.setting()), times[0])
    assert not maker.table.savepoints()


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_savepoint_that_died_is_made_again(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    maker.upsert(1, "p/a")
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            create_savepoint(table.with_context(**maker.setting()))
        except SkepError:
            assert copied.rows() == {"p/a": 1}
        copied.upsert(2, "p/a")
        if not copied.table.savepoints():
            create_savepoint(copied.table.with_context(**maker.setting()))  # of the next commit: what died goes
        assert len(copied.table.savepoints()) == 1, where
        (time,) = copied.table.savepoints()
        delete_savepoint(copied.table.with_context(**maker.setting()), time)
        assert not copied.table.timeline.of(Action.SAVEPOINT).instants


# -- restore -----------------------------------------------------------------------------------------------------------


def test_the_table_is_what_it_was(maker: Any) -> None:
    maker.upsert(1, "p/a", "q/b")
    time = maker.upsert(2, "p/a")
    create_savepoint(maker.table.with_context(**maker.setting()))
    later = [maker.upsert(3, "p/a", "r/c"), maker.upsert(4, "q/b")]
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    plan = plan_restore(maker.table, time)
    assert [info.commit_time for info in plan.instants_to_rollback] == later[::-1]
    recorded = restore(maker.table.with_context(**maker.setting()), time)
    assert maker.rows() == {"p/a": 2, "q/b": 1}
    assert isinstance(recorded, RestoreMetadata)
    assert recorded.instants_to_rollback == tuple(later[::-1])
    assert recorded.restore_instant_info == plan.instants_to_rollback
    assert set(recorded.hoodie_restore_metadata) == set(later)
    (instant,) = maker.table.timeline.of(Action.RESTORE)
    assert maker.table.plan(instant) == recorded
    assert not maker.table.timeline.of(Action.ROLLBACK).instants
    assert restore(maker.table.with_context(**maker.setting()), time) is None
    maker.upsert(5, "r/c")
    assert maker.rows() == {"p/a": 2, "q/b": 1, "r/c": 5}


def compacted_and_cleaned(maker: Any) -> None:
    only_latest = {"cleaner__policy": "KEEP_LATEST_FILE_VERSIONS", "cleaner__fileversions__retained": 1}
    assert compact(maker.table.with_context(**maker.setting(compact__inline__max__delta__commits=1)))
    assert clean(maker.table.with_context(**maker.setting(**only_latest)))


def test_a_file_group_that_began_after_the_savepoint_may_be_cleaned(mor_maker: Any) -> None:
    mor_maker.upsert(1, "p/a")
    time = mor_maker.upsert(2, "p/a")
    create_savepoint(mor_maker.table.with_context(**mor_maker.setting()), time)
    for ts in (3, 4):
        mor_maker.upsert(ts, "q/b", "p/a")
    compacted_and_cleaned(mor_maker)
    restore(mor_maker.table.with_context(**mor_maker.setting()), time)
    assert mor_maker.rows() == {"p/a": 2}
    mor_maker.upsert(5, "q/b")
    assert mor_maker.rows() == {"p/a": 2, "q/b": 5}


def test_log_files_whose_slice_is_cleaned_are_not_rolled_back(mor_maker: Any) -> None:
    mor_maker.upsert(1, "p/a")
    later = mor_maker.upsert(2, "p/a")
    compacted_and_cleaned(mor_maker)
    table = mor_maker.table
    targets = [i for i in table.timeline.data().completed() if i.requested_time >= later]
    assert [i.action for i in targets] == [Action.DELTA_COMMIT, Action.COMMIT]
    for together in (targets, targets[::-1], targets[1:]):
        with pytest.raises(InputError, match="would be lost: the cleaner has removed"):
            check_not_cleaned(table, together)
    with pytest.raises(InputError, match="would be lost: the cleaner has removed"):
        roll_back_instant(table.with_context(**mor_maker.setting()), targets[1].requested_time)
    assert mor_maker.rows() == {"p/a": 2}
    newest = mor_maker.upsert(3, "p/a")
    roll_back_instant(mor_maker.table.with_context(**mor_maker.setting()), newest)
    assert mor_maker.rows() == {"p/a": 2}


def test_restores_look_like_hudis(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("cow_savepoint_restore")
    (savepoint,) = maker.table.savepoints()
    hudis = maker.table.plan(maker.table.timeline.of(Action.RESTORE).instants[0])
    expected = snapshot(maker.table, as_of=savepoint)
    ours = restore(maker.table.with_context(**maker.setting()), savepoint)
    assert isinstance(hudis, RestoreMetadata)
    assert ours is not None
    assert snapshot(maker.table) == expected
    for recorded in (hudis, ours):
        for time, (rollback,) in recorded.hoodie_restore_metadata.items():
            assert rollback is not None
            assert rollback.commits_rollback == (time,)
            assert rollback.version == 1


def test_compactions_planned_and_done_since_are_taken_back(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("mor_compaction")
    table = maker.table
    first = writes(table)[1]
    create_savepoint(table.with_context(**maker.setting()), first)
    expected = snapshot(table, as_of=first)
    restore(maker.table.with_context(**maker.setting()), first)
    assert snapshot(maker.table) == expected
    assert writes(maker.table)[-1] == first
    assert not maker.table.timeline.pending().instants
    # No slice is left over that a reader could take for an archived one's.
    late = [
        group.file_id
        for partition in maker.table.view(metadata=False).partitions()
        for file in maker.table.storage.list_prefix(partition)
        if (group := LogFileName.parse(file.name)) is not None and group.instant_time > first
    ]
    assert late == []


def test_a_later_savepoint_remains_in_the_way(maker: Any) -> None:
    first = maker.upsert(1, "p/a")
    create_savepoint(maker.table.with_context(**maker.setting()))
    second = maker.upsert(2, "p/a")
    create_savepoint(maker.table.with_context(**maker.setting()))
    with pytest.raises(InputError, match=f"savepoint {second} is later"):
        restore(maker.table.with_context(**maker.setting()), first)
    with pytest.raises(InputError, match="there is no savepoint 1"):
        restore(maker.table.with_context(**maker.setting()), "1")
    delete_savepoint(maker.table.with_context(**maker.setting()), second)
    restore(maker.table.with_context(**maker.setting()), first)
    assert maker.rows() == {"p/a": 1}


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_restore_is_finished_by_the_next_writer(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    first = maker.upsert(1, "p/a")
    create_savepoint(maker.table.with_context(**maker.setting()))
    maker.upsert(2, "p/a")
    maker.upsert(3, "p/a", "q/b")
    states = [{"p/a": 1}, {"p/a": 2}, {"p/a": 3, "q/b": 3}]
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            restore(table.with_context(**maker.setting()), first)
        except SkepError:
            assert copied.rows() in states, where
        started = copied.table.timeline.of(Action.RESTORE).instants
        copied.upsert(9, "z/z")
        assert copied.rows() == {**states[0 if started else 2], "z/z": 9}, where
        assert not copied.table.timeline.pending().instants, where
        completed = {instant.requested_time for instant in copied.table.timeline.data().completed()}
        assert {path.rpartition("_")[2].removesuffix(".parquet") for path in copied.files()} <= completed, where
        runs += 1
    assert runs > 25


def test_a_rollback_of_what_others_built_on_is_dropped(maker: Any) -> None:
    """Another implementation planned it, died, and its successor wrote on without finishing it."""
    maker.upsert(1, "p/a")
    second = maker.upsert(2, "p/a")
    plan = preview_rollback(maker.table.with_context(**maker.setting()), second)
    maker.upsert(3, "p/a")
    create_requested(maker.table, Instant(InstantTime("29990101000000000"), Action.ROLLBACK, State.REQUESTED), plan)
    roll_back_failed(maker.table.with_context(**maker.setting()))
    assert maker.rows() == {"p/a": 3}
    assert not maker.table.timeline.of(Action.ROLLBACK).instants
