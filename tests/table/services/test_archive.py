"""Archiving: what leaves the timeline, what holds it back, in files that read back as Hudi's do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from skep_table.commit.recovery import roll_back_failed
from skep_table.errors import OptionError, SkepError
from skep_table.instant_time import InstantTime
from skep_table.logfile import BlockType, HeaderKey, read_blocks
from skep_table.query import ReadRequest, read
from skep_table.services.archive import archive, move_to_archive
from skep_table.services.archive_plan import plan_archive
from skep_table.services.clean import clean
from skep_table.services.rollback import roll_back_instant
from skep_table.services.savepoint import create_savepoint
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_table.timeline.layout import layout_1
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.timeline.plans import (
    PLAN_OF,
    ActionInstant,
    CleanerPlan,
    CleanMetadata,
    CleanPartitionMetadata,
    ClusteringGroup,
    ClusteringPlan,
    CompactionOperation,
    CompactionPlan,
    IndexCommitMetadata,
    IndexPartitionInfo,
    IndexPlan,
    InstantInfo,
    Plan,
    RequestedReplaceMetadata,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    SavepointMetadata,
    SavepointPartitionMetadata,
    encode_plan,
)
from skep_table.timeline.write import request_instant

SMALL = {"keep__max__commits": 4, "keep__min__commits": 2, "cleaner__commits__retained": 1}


ROLLED_BACK = RollbackMetadata(
    start_rollback_time="20260101000000000",
    time_taken_in_millis=1,
    total_files_deleted=1,
    commits_rollback=("20250101000000000",),
    partition_metadata={"p": RollbackPartitionMetadata(partition_path="p", success_delete_files=("f",))},
)


def history(table: HudiTable) -> set[tuple[str, Action]]:
    """All completed instants, archived or active."""
    instants: list[Instant] = [*table.timeline.archived(), *table.timeline.completed()]
    return {(instant.requested_time, instant.action) for instant in instants}


def snapshot(table: HudiTable, **how: Any) -> list[str]:
    return sorted(map(repr, read(table, ReadRequest(**how)).to_arrow().to_pylist()))


def test_the_commits_past_the_limit_go(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    assert archive(maker.table.with_context(**maker.setting(**SMALL))).instants == ()
    times.append(maker.upsert(5, "p/a"))
    before = history(maker.table)
    metadata = {i.requested_time: maker.table.commit_metadata(i) for i in maker.table.timeline.data()}
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [instant.requested_time for instant in plan.instants] == times[:3]
    assert plan.held_back is None
    table = maker.table
    assert [i.requested_time for i in table.timeline] == times[3:]
    assert history(table) == before
    assert maker.rows() == {"p/a": 5}
    assert maker.rows(as_of=times[0]) == {"p/a": 1}
    for instant in table.timeline.archived():
        assert table.commit_metadata(instant) == metadata[instant.requested_time]


def test_defaults_are_hudis(maker: Any) -> None:
    maker.upsert(1, "p/a")
    first = maker.table.timeline.data().completed().instants[0]
    path = maker.folder / ".hoodie" / f"{first.requested_time}.commit"
    for number in range(30):
        (maker.folder / f".hoodie/2027010101010{number:04d}.commit").write_bytes(path.read_bytes())
    plan = plan_archive(maker.table.with_context(**maker.setting()))
    assert len(plan.instants) == 11


def test_files_are_in_hudis_form(maker: Any, golden: Any) -> None:
    for ts in range(1, 6):
        maker.upsert(ts, "p/a")
    archive(maker.table.with_context(**maker.setting(**SMALL, commits__archival__batch=4)))
    storage = maker.table.storage
    (file,) = storage.list_prefix(".hoodie/archived")
    assert file.name == ".commits_.archive.1_1-0-1"
    with storage.open_input(file.path) as opened:
        blocks = list(read_blocks(opened, file.path))
        entries = [block.records().to_pylist() for block in blocks]
    assert {block.type for block in blocks} == {BlockType.AVRO_DATA}
    assert {tuple(block.headers) for block in blocks} == {(HeaderKey.SCHEMA,)}
    assert [len(batch) for batch in entries] == [4, 4, 1]
    states = [entry["actionState"] for batch in entries for entry in batch]
    assert states == ["REQUESTED", "INFLIGHT", "COMPLETED"] * 3
    theirs = HudiTable.open(str(golden / "0.15.0" / "cow_archive" / "table")).storage
    path = theirs.list_prefix(".hoodie/archived")[0].path
    with theirs.open_input(path) as opened:
        (hudis, *_) = read_blocks(opened, path)
    assert members(blocks[0].schema_text) == members(hudis.schema_text)


def members(schema: str) -> list[str]:
    return [field["name"] for field in json.loads(schema)["fields"]]


def test_what_holds_archiving_back(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 7)]
    setting = maker.setting(**SMALL)

    def planned() -> list[str]:
        return [i.requested_time for i in plan_archive(maker.table.with_context(**setting)).instants]

    assert planned() == times[:4]
    create_savepoint(maker.table.with_context(**setting), times[2])
    assert planned() == times[:2]
    plan = plan_archive(maker.table.with_context(**setting))
    assert plan.held_back == f"{times[2]} has a savepoint"


def test_nothing_pending_is_left_behind(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 4)]
    pending, _ = request_instant(maker.table, Action.REPLACE_COMMIT, None, maker.clock)
    source = maker.folder / f".hoodie/{times[0]}.commit"
    for number in range(5):
        (maker.folder / f".hoodie/2027010101010{number:04d}.commit").write_bytes(source.read_bytes())
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [i.requested_time for i in plan.instants] == times
    assert plan.held_back is not None
    assert pending.requested_time in plan.held_back
    assert maker.table.timeline.first_time == pending.requested_time


def test_replaced_files_are_cleaned_before_their_replace_commit_goes(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("cow_insert_overwrite")
    (*_, replacing) = maker.table.timeline.of(Action.REPLACE_COMMIT)
    options = {"keep__max__commits": 2, "keep__min__commits": 1}
    expected = snapshot(maker.table)
    versions = {"cleaner__policy": "KEEP_LATEST_FILE_VERSIONS", "cleaner__fileversions__retained": 1}
    for ts in range(3):  # later commits, so that all others might go
        source = maker.folder / f".hoodie/{replacing.requested_time}.replacecommit"
        empty = json.loads(source.read_text()) | {"partitionToWriteStats": {}, "partitionToReplaceFileIds": {}}
        (maker.folder / f".hoodie/2029010101010000{ts}.replacecommit").write_text(json.dumps(empty))
    plan = archive(maker.table.with_context(**maker.setting(**options, **versions)))
    assert plan.held_back is not None
    assert "not cleaned yet" in plan.held_back
    assert snapshot(maker.table) == expected
    clean(maker.table.with_context(**maker.setting(**versions)))
    plan = archive(maker.table.with_context(**maker.setting(**options, **versions)))
    assert replacing in plan.instants
    assert snapshot(maker.table) == expected


def test_incremental_cleaning_finds_what_it_needs(maker: Any) -> None:
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    times = [maker.upsert(ts, "p/a") for ts in range(4, 8)]
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert plan.held_back is not None
    assert "the next clean goes on from" in plan.held_back
    (cleaned,) = clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert len(cleaned.deleted) == 4
    assert maker.rows(as_of=times[-1]) == {"p/a": 7}


def test_numbers_that_do_not_fit_are_refused_by_name(maker: Any) -> None:
    with pytest.raises(
        OptionError, match=r"hoodie.cleaner.commits.retained=20 is not below hoodie.keep.min.commits=20"
    ):
        archive(maker.table.with_context(**maker.setting(cleaner__commits__retained=20)))
    with pytest.raises(OptionError, match=r"hoodie.keep.max.commits=20 is not greater"):
        archive(maker.table.with_context(**maker.setting(keep__max__commits=20)))
    archive(
        maker.table.with_context(**maker.setting(cleaner__policy="KEEP_LATEST_BY_HOURS", cleaner__hours__retained=200))
    )


def test_services_are_archived_by_their_own_number(maker: Any) -> None:
    for ts in range(1, 8):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    before = history(maker.table)
    cleans = maker.table.timeline.of(Action.CLEAN).instants
    assert len(cleans) == 5
    plan = archive(maker.table.with_context(**maker.setting(**SMALL)))
    assert [i for i in plan.instants if i.action is Action.CLEAN] == list(cleans[:3])
    table = maker.table
    assert history(table) == before
    archived = [i for i in table.timeline.archived() if i.action is Action.CLEAN]
    assert archived == list(cleans[:3])
    assert table.timeline.archive is not None
    assert table.timeline.archive.completed_content(archived[0]) is not None


@pytest.mark.parametrize(
    "case", ["cow_clean", "mor_clustering", "mor_log_rollback", "mor_compaction", "cow_insert_overwrite"]
)
def test_every_kind_of_instant_goes_into_the_archive(case: str, golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy(case)
    table = maker.table
    before, rows = history(table), snapshot(table)
    options = {"keep__max__commits": 2, "keep__min__commits": 1, "compact__inline__max__delta__commits": 1}
    versions = {"cleaner__policy": "KEEP_LATEST_FILE_VERSIONS", "cleaner__fileversions__retained": 1}
    contents = {
        instant: table.plan(instant) or table.commit_metadata(instant)
        for instant in table.timeline.completed()
        if instant.action not in (Action.SAVEPOINT, Action.RESTORE)
    }
    plan = archive(table.with_context(**maker.setting(**options, **versions)))
    table = maker.table
    assert plan.instants
    assert history(table) == before
    assert snapshot(table) == rows
    assert table.timeline.archive is not None
    for instant in plan.instants:
        found = table.timeline.archive.completed_content(instant)
        assert archived_form(found) == archived_form(contents[instant]), instant


LAYOUT = layout_1()
ENDINGS = [
    (action, state)
    for action in Action
    for state in State
    if (state, action) != (State.REQUESTED, Action.SAVEPOINT)  # the only state that Hudi does not have
    and LAYOUT.parse(LAYOUT.file_name(Instant(InstantTime("20260101000000000"), action, state)))
    == Instant(InstantTime("20260101000000000"), action, state)
]
"""Every action in every state that a file of layout 1 can have."""
CONTENTS: dict[tuple[Action, State], Plan] = {
    (Action.COMPACTION, State.REQUESTED): CompactionPlan(
        operations=(
            CompactionOperation(
                base_instant_time="20250101000000000",
                file_id="f-0",
                delta_file_paths=("l",),
                metrics={"TOTAL_IO_MB": 1.5},
            ),
        )
    ),
    (Action.LOG_COMPACTION, State.REQUESTED): CompactionPlan(extra_metadata={"k": "v"}),
    (Action.REPLACE_COMMIT, State.REQUESTED): RequestedReplaceMetadata(
        operation_type="CLUSTER", clustering_plan=ClusteringPlan(input_groups=(ClusteringGroup(),))
    ),
    (Action.CLEAN, State.REQUESTED): CleanerPlan(policy="KEEP_LATEST_COMMITS", extra_metadata={"k": "v"}),
    (Action.CLEAN, State.INFLIGHT): CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        earliest_instant_to_retain=ActionInstant(
            timestamp=InstantTime("20250101000000000"), action="commit", state="COMPLETED"
        ),
    ),
    (Action.CLEAN, State.COMPLETED): CleanMetadata(
        start_clean_time="20260101000000000",
        time_taken_in_millis=1,
        total_files_deleted=1,
        earliest_commit_to_retain="",
        partition_metadata={
            "p": CleanPartitionMetadata(partition_path="p", policy="KEEP_LATEST_COMMITS", success_delete_files=("f",))
        },
    ),
    (Action.ROLLBACK, State.REQUESTED): RollbackPlan(
        instant_to_rollback=InstantInfo(commit_time="20250101000000000", action="commit"),
        rollback_requests=(RollbackRequest(partition_path="p", files_to_be_deleted=("f",)),),
    ),
    (Action.ROLLBACK, State.COMPLETED): ROLLED_BACK,
    (Action.RESTORE, State.REQUESTED): RestorePlan(savepoint_to_restore_timestamp=InstantTime("20250101000000000")),
    (Action.RESTORE, State.COMPLETED): RestoreMetadata(
        start_restore_time="20260101000000000",
        time_taken_in_millis=1,
        instants_to_rollback=("20250101000000000",),
        hoodie_restore_metadata={"20250101000000000": (ROLLED_BACK, None)},
    ),
    (Action.SAVEPOINT, State.COMPLETED): SavepointMetadata(
        savepointed_by="me",
        savepointed_at=1,
        comments="",
        partition_metadata={"p": SavepointPartitionMetadata(partition_path="p", savepoint_data_file=("f",))},
    ),
    (Action.INDEXING, State.REQUESTED): IndexPlan(index_partition_infos=()),
    (Action.INDEXING, State.COMPLETED): IndexCommitMetadata(
        operation_type="INDEX",
        index_partition_infos=(
            IndexPartitionInfo(metadata_partition_path="files", index_upto_instant="20250101000000000"),
        ),
    ),
}
MEMBERS: dict[tuple[Action, State], list[str]] = {
    **{(action, state): ["hoodieCommitMetadata"] for action in (Action.COMMIT, Action.DELTA_COMMIT) for state in State},
    (Action.COMPACTION, State.REQUESTED): ["hoodieCompactionPlan"],
    (Action.LOG_COMPACTION, State.REQUESTED): ["hoodieCompactionPlan"],
    (Action.REPLACE_COMMIT, State.REQUESTED): ["hoodieRequestedReplaceMetadata"],
    (Action.REPLACE_COMMIT, State.INFLIGHT): ["HoodieInflightReplaceMetadata"],
    (Action.REPLACE_COMMIT, State.COMPLETED): ["hoodieReplaceCommitMetadata"],
    (Action.CLEAN, State.REQUESTED): ["hoodieCleanerPlan"],
    (Action.CLEAN, State.INFLIGHT): ["hoodieCleanerPlan"],
    (Action.CLEAN, State.COMPLETED): ["hoodieCleanMetadata"],
    (Action.ROLLBACK, State.COMPLETED): ["hoodieRollbackMetadata"],
    (Action.SAVEPOINT, State.COMPLETED): ["hoodieSavePointMetadata"],
    (Action.INDEXING, State.COMPLETED): ["hoodieIndexCommitMetadata"],
}
"""Where Hudi's archive keeps what a file holds (format guide 2.10)."""
UNARCHIVED = {Action.RESTORE, Action.SCHEMA_COMMIT}
"""Actions for whose content Hudi's archive has no member: it keeps that they were."""


def test_the_contents_are_those_of_every_kind_of_instant() -> None:
    assert {*CONTENTS, (Action.CLUSTERING, State.REQUESTED)} == {*PLAN_OF}


def content_of(action: Action, state: State) -> bytes:
    if plan := CONTENTS.get((action, state)):
        return encode_plan(plan, LAYOUT.release)
    if action in DATA_ACTIONS and state is not State.REQUESTED:
        replaced = {"p": ("f-0",)} if action is Action.REPLACE_COMMIT else None
        return LAYOUT.encode_commit(
            CommitMetadata(
                partition_to_write_stats={
                    "p": (WriteStat(file_id="f-1", path="p/f-1_0_1.parquet", partition_path="p"),)
                },
                operation_type=WriteOperation.UPSERT,
                partition_to_replace_file_ids=replaced,
                extra_metadata={"k": "v"},
            )
        )
    return b""


@pytest.mark.parametrize("empty", [False, True], ids=["with_content", "of_no_bytes"])
@pytest.mark.parametrize(("action", "state"), ENDINGS, ids=lambda each: str(each.value).lower())
def test_every_action_in_every_state_goes_into_the_archive(
    action: Action, state: State, empty: bool, maker: Any
) -> None:
    done = Instant(InstantTime("20260101000000000"), action.completed_as, State.COMPLETED)
    for each in {Instant(done.requested_time, action, state), done}:
        data = b"" if empty else content_of(each.action, each.state)
        (maker.folder / LAYOUT.path(each)).write_bytes(data)
    maker.upsert(1, "p/a")
    table = maker.table
    there = table.plan(done) if action.completed_as not in DATA_ACTIONS else table.commit_metadata(done)
    path = move_to_archive(table.with_context(**maker.setting()), (done,))
    table = maker.table
    assert not table.timeline.contains(done.requested_time)
    assert table.timeline.archived() == (done,)
    assert table.timeline.archive is not None
    found = table.timeline.archive.completed_content(done)
    if action in UNARCHIVED:
        assert found is None
    elif empty and isinstance(found, CommitMetadata):
        assert not [*found.stats]
    else:
        assert archived_form(found) == archived_form(there)
    with table.storage.open_input(path) as opened:
        entries = [entry for block in read_blocks(opened, path) for entry in block.records().to_pylist()]
    assert {(e["actionType"], e["actionState"]) for e in entries} == {
        (action.value, state.name),
        (done.action.value, "COMPLETED"),
    }
    named = {"actionType", "actionState", "commitTime", "stateTransitionTime", "version"}
    members = {e["actionState"]: [k for k, v in e.items() if v is not None and k not in named] for e in entries}
    always = action in (Action.COMMIT, Action.DELTA_COMMIT)  # with null members where the file is empty
    if not empty or always:
        assert members[state.name] == MEMBERS.get((action, state), [])
    assert maker.rows() == {"p/a": 1}


def test_a_plan_that_can_not_be_read_does_not_stop_archiving(maker: Any, caplog: pytest.LogCaptureFixture) -> None:
    for ts in range(1, 6):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    broken = maker.table.timeline.of(Action.CLEAN).instants[0]
    (maker.folder / f".hoodie/{broken.requested_time}.clean.requested").write_bytes(b"Obj cut")
    for ts in range(6, 9):
        maker.upsert(ts, "p/a")
        clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert broken in archive(maker.table.with_context(**maker.setting(**SMALL))).instants
    assert f"{broken.requested_time}.clean.requested" in caplog.text
    assert broken in maker.table.timeline.archived()


@pytest.mark.parametrize("killed", [False, True])
def test_rollbacks_are_archived_by_their_own_number(killed: bool, maker: Any) -> None:
    """After conflicts, killed writers, rollbacks by hand: their requested files hold plans, which no archive keeps."""
    maker.upsert(1, "p/a")
    for ts in range(2, 8):
        if killed:
            request_instant(maker.table, Action.COMMIT, None, maker.clock)
            roll_back_failed(maker.table.with_context(**maker.setting()))
        else:
            roll_back_instant(maker.table.with_context(**maker.setting()), maker.upsert(ts, "p/a"))
    rollbacks = maker.table.timeline.of(Action.ROLLBACK).instants
    assert len(rollbacks) == 6
    contents = {instant: maker.table.plan(instant) for instant in rollbacks}
    before = history(maker.table)
    archive(maker.table.with_context(**maker.setting(**SMALL)))
    table = maker.table
    assert table.timeline.of(Action.ROLLBACK).instants == rollbacks[-2:]
    assert history(table) == before
    assert table.timeline.archive is not None
    assert {i: table.timeline.archive.completed_content(i) for i in table.timeline.archived()} == {
        i: contents[i] for i in rollbacks[:-2]
    }
    assert not [name for i in rollbacks[:-2] for name in (maker.folder / ".hoodie").glob(f"{i.requested_time}*")]
    assert maker.rows() == {"p/a": 1}
    maker.upsert(9, "p/a")
    assert maker.rows() == {"p/a": 9}


def archived_form(content: Any) -> Any:
    """What release 0.15.0 keeps of a commit: its archive has no run times, and of logs not their places."""
    if not isinstance(content, CommitMetadata):
        return content
    unknown = ("runtime_stats", "log_version", "log_offset", "base_file", "log_files", "cdc_stats")
    lost: dict[str, Any] = {**dict.fromkeys(unknown), "total_log_files_compacted": 0, "total_log_size_compacted": 0}
    stats = {
        partition: tuple(replace(stat, **lost) for stat in stats)
        for partition, stats in content.partition_to_write_stats.items()
    }
    return replace(content, partition_to_write_stats=stats, compacted=False)


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_fault_at_any_call(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 6)]
    before = history(maker.table)
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        where = storage.calls[storage.at - 1] if storage.hit else ""
        try:
            archive(table.with_context(**maker.setting(**SMALL)))
        except SkepError:
            assert history(copied.table) == before, where
            assert not copied.table.timeline.pending().instants, where
            assert copied.rows() == {"p/a": 5}, where
            assert copied.rows(query="incremental", since=times[3]) == {"p/a": 5}, where
        archive(copied.table.with_context(**maker.setting(**SMALL | {"keep__max__commits": 3})))
        assert history(copied.table) == before, where
        assert len(copied.table.timeline) == 2 or len(copied.table.timeline) == 3, where
        assert copied.rows() == {"p/a": 5}, where
        runs += 1
    assert runs > 15
