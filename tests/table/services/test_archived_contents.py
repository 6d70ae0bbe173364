"""Every action in every state goes into the archive of either layout, and is read from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.logfile import BlockType, HeaderKey, read_blocks
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.layout import TimelineLayout, layout_1, layout_2
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.plans import (
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
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.archive import archive, move_to_archive
from skep_table.table import HudiTable

SMALL = {"keep__max__commits": 4, "keep__min__commits": 2, "cleaner__commits__retained": 1}
ROLLED_BACK = RollbackMetadata(
    start_rollback_time="20260101000000000",
    time_taken_in_millis=1,
    total_files_deleted=1,
    commits_rollback=("20250101000000000",),
    partition_metadata={"p": RollbackPartitionMetadata(partition_path="p", success_delete_files=("f",))},
)


LAYOUTS = {6: layout_1(), 9: layout_2()}
TIME = InstantTime("20260101000000000")


def of(layout: TimelineLayout, action: Action, state: State) -> Instant:
    completes = layout.has_completion_times and state is State.COMPLETED
    return Instant(TIME, action, state, CompletionTime(TIME.plus_milliseconds(7)) if completes else None)


ENDINGS = [
    pytest.param(version, action, state, id=f"{version}-{action.value}-{state.name.lower()}")
    for version, layout in LAYOUTS.items()
    for action in Action
    for state in State
    if (state, action) != (State.REQUESTED, Action.SAVEPOINT)  # the only state that Hudi does not have
    and layout.parse(layout.file_name(of(layout, action, state))) == of(layout, action, state)
]
"""Every action in every state that a file of a layout can have."""
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


def completed(table: HudiTable) -> set[Instant]:
    return {*table.timeline.archived(), *table.timeline.completed()}


def snapshot(table: HudiTable) -> list[str]:
    return sorted(map(repr, read(table, ReadRequest()).to_arrow().to_pylist()))


def content_of(layout: TimelineLayout, action: Action, state: State) -> bytes:
    if plan := CONTENTS.get((action, state)):
        return encode_plan(plan, layout.release)
    if (action, state) == (Action.CLUSTERING, State.REQUESTED):
        return encode_plan(CONTENTS[Action.REPLACE_COMMIT, State.REQUESTED], layout.release)
    if action in DATA_ACTIONS and state is not State.REQUESTED:
        replaced = {"p": ("f-0",)} if action is Action.REPLACE_COMMIT else None
        return layout.encode_commit(
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
@pytest.mark.parametrize(("table_version", "action", "state"), ENDINGS, indirect=["table_version"])
def test_every_action_in_every_state_goes_into_the_archive(
    table_version: int, action: Action, state: State, empty: bool, maker: Any
) -> None:
    layout = LAYOUTS[table_version]
    done = of(layout, action.completed_as, State.COMPLETED)
    contents = {
        each: b"" if empty else content_of(layout, each.action, each.state)
        for each in {of(layout, action, state), done}
    }
    for each, data in contents.items():
        file = maker.folder / layout.path(each)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    maker.upsert(1, "q/a")  # there are no files of the commits above
    table = maker.table
    there = table.plan(done) if action.completed_as not in DATA_ACTIONS else table.commit_metadata(done)
    path = move_to_archive(table.with_context(**maker.setting()), (done,))
    table = maker.table
    assert not table.timeline.contains(TIME)
    assert not [*(maker.folder / layout.folder).glob(f"{TIME}*")]
    assert table.timeline.archived() == (done,)
    assert table.timeline.archive is not None
    found = table.timeline.archive.completed_content(done)
    if layout.has_completion_times:
        assert found == (there if done.action in DATA_ACTIONS or not empty else None)
        check_row(maker, path, action, state, contents)
    else:
        if action in UNARCHIVED:
            assert found is None
        elif empty and isinstance(found, CommitMetadata):
            assert not [*found.stats]
        else:
            assert archived_form(found) == archived_form(there)
        check_entries(table, path, action, state, empty)
    assert maker.rows() == {"q/a": 1}


PLANNED = {Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT}
"""Of these the history has the requested file, too (format guide 3.2)."""
REPLACING = {Action.CLUSTERING, Action.REPLACE_COMMIT}
"""Of these it has the inflight file instead, where that has content."""


def check_row(maker: Any, path: str, action: Action, state: State, contents: dict[Instant, bytes]) -> None:
    """One row for each instant, with the bytes of its files as they are."""
    (row,) = pq.read_table(maker.folder / path).to_pylist()
    done = next(each for each in contents if each.is_completed)
    kept = (state is State.REQUESTED and action in PLANNED) or (state is State.INFLIGHT and action in REPLACING)
    plan = next((data for each, data in contents.items() if each.state is state), b"") if kept else b""
    assert row == {
        "instantTime": TIME,
        "completionTime": done.completion_time,
        "action": done.action.value,
        "metadata": contents[done],
        "plan": plan or None,
        "version": 1,
    }


def check_entries(table: HudiTable, path: str, action: Action, state: State, empty: bool) -> None:
    """One entry for each file, with the member that Hudi's archive has for its kind."""
    with table.storage.open_input(path) as opened:
        entries = [entry for block in read_blocks(opened, path) for entry in block.records().to_pylist()]
    assert {(e["actionType"], e["actionState"]) for e in entries} == {
        (action.value, state.name),
        (action.completed_as.value, "COMPLETED"),
    }
    named = {"actionType", "actionState", "commitTime", "stateTransitionTime", "version"}
    members = {e["actionState"]: [k for k, v in e.items() if v is not None and k not in named] for e in entries}
    always = action in (Action.COMMIT, Action.DELTA_COMMIT)  # with null members where the file is empty
    if not empty or always:
        assert members[state.name] == MEMBERS.get((action, state), [])


@pytest.mark.parametrize(
    "case", ["cow_clean", "mor_clustering", "mor_log_rollback", "mor_compaction", "cow_insert_overwrite"]
)
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_every_kind_of_instant_goes_into_the_archive(case: str, golden_copy_of_version: Callable[[str], Any]) -> None:
    maker = golden_copy_of_version(case)
    table = maker.table
    before, rows = (
        {*table.timeline.archived(), *table.timeline.completed()},
        sorted(map(repr, read(table, ReadRequest()).to_arrow().to_pylist())),
    )
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
    assert completed(table) == before
    assert snapshot(table) == rows
    assert table.timeline.archive is not None
    form = (lambda content: content) if table.layout.has_completion_times else archived_form
    for instant in plan.instants:
        found = table.timeline.archive.completed_content(instant)
        assert form(found) == form(contents[instant]), instant


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


@pytest.mark.parametrize("table_version", [6], indirect=True)
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
