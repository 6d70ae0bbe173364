"""Clean: what each policy leaves, what it never touches, and that the next executor finishes it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pytest

from skep_format.errors import InputError, SkepError, StorageError
from skep_format.instant_time import InstantTime
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import layout_1
from skep_format.timeline.plans import CleanMetadata
from skep_format.timeline.timeline import Timeline
from skep_table.query import ReadRequest, read
from skep_table.services.cleaning.clean import (
    Retention,
    clean,
    earliest_to_retain,
    execute_pending_cleans,
    finish_cleans,
    plan_clean,
    schedule_clean,
)
from skep_table.services.options import CleanPolicy
from skep_table.services.undo.rollback import create_savepoint, delete_savepoint
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, pytest.param(9, marks=pytest.mark.slow)], indirect=True)


def test_the_last_commits_stay_readable(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a", "q/b") for ts in range(1, 7)]
    (cleaned,) = clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=2)))
    # six versions of each group: two retained, and the one that the older of them supersedes
    assert len(cleaned.deleted) == 2 * 3
    assert cleaned.metadata.earliest_commit_to_retain == times[4]
    assert maker.rows() == {"p/a": 6, "q/b": 6}
    for ts in (5, 6):
        assert maker.rows(as_of=times[ts - 1]) == {"p/a": ts, "q/b": ts}
    with pytest.raises(InputError, match="cleaner has removed"):
        maker.rows(as_of=times[2])
    assert maker.rows(query="incremental", since=times[4]) == {"p/a": 6, "q/b": 6}
    assert clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=2))) == []


def test_a_dropped_partition_is_empty_at_once_and_there_in_the_past_until_it_is_cleaned(maker: Any) -> None:
    before = maker.upsert(1, "p/a", "q/b")
    LocalWriter(maker.table.with_context(**maker.setting())).delete_partitions(["p"])
    assert maker.rows() == {"q/b": 1}
    assert maker.rows(as_of=before) == {"p/a": 1, "q/b": 1}
    for ts in (2, 3):
        maker.upsert(ts, "q/b")
    (cleaned,) = clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    assert any(name.startswith("p/") for name in cleaned.deleted)
    assert maker.rows() == {"q/b": 3}
    with pytest.raises(InputError, match="cleaner has removed"):
        maker.rows(as_of=before)


def test_the_metadata_is_what_was_planned(maker: Any) -> None:
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    (cleaned,) = clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    recorded = maker.table.plan(cleaned.instant)
    assert isinstance(recorded, CleanMetadata)
    assert recorded == cleaned.metadata
    (partition,) = recorded.partition_metadata.values()
    assert partition.success_delete_files == partition.delete_path_patterns
    assert [f"p/{name}" for name in partition.success_delete_files] == list(cleaned.deleted)
    before = Instant(cleaned.instant.requested_time, Action.CLEAN, State.REQUESTED)
    planned, started = (maker.path_of(replace(before, state=state)) for state in (State.REQUESTED, State.INFLIGHT))
    (plan,) = records(planned)
    assert records(started) == ([plan] if maker.table.layout.repeats_clean_plan else [])


def records(path: Path) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(path.read_bytes()))) if path.stat().st_size else []


def test_hours(maker: Any) -> None:
    old = [maker.upsert(ts, "p/a") for ts in (1, 2, 3)]
    maker.clock.start += timedelta(hours=5)
    recent = maker.upsert(4, "p/a")
    setting = maker.setting(cleaner__policy="KEEP_LATEST_BY_HOURS", cleaner__hours__retained=2)
    (cleaned,) = clean(maker.table.with_context(**setting))
    assert cleaned.metadata.earliest_commit_to_retain == recent
    # a moment within the hours, before the commit, is still answered from the version before
    assert len(maker.files()) == 2
    assert {file.rpartition("_")[2] for file in maker.files()} == {f"{old[2]}.parquet", f"{recent}.parquet"}


def test_what_a_pending_write_is_based_on_is_retained() -> None:
    """As Hudi's CleanerUtils has it: the last commit before the first pending one, if the policy would keep less."""
    states = {1: State.COMPLETED, 2: State.COMPLETED, 3: State.INFLIGHT, **dict.fromkeys((4, 5, 6), State.COMPLETED)}
    instants = [Instant(InstantTime(f"{n:017d}"), Action.COMMIT, state) for n, state in states.items()]

    def earliest(commits: int) -> int:
        retention = Retention(CleanPolicy.KEEP_LATEST_COMMITS, commits)
        timeline = Timeline(instants, layout_1())
        found = earliest_to_retain(timeline, retention, datetime(2026, 1, 1, tzinfo=timezone.utc), TimelineZone.UTC)
        assert found is not None
        return int(found.requested_time)

    assert [earliest(commits) for commits in (1, 2, 3, 4)] == [2, 2, 2, 2]
    instants = [each for each in instants if each.is_completed]
    assert [earliest(commits) for commits in (1, 2, 3, 4)] == [6, 5, 4, 2]


def test_versions_count_by_file_group(maker: Any) -> None:
    for ts in range(1, 6):
        maker.upsert(ts, "p/a")
    maker.upsert(6, "q/b")
    setting = maker.setting(cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=2)
    (cleaned,) = clean(maker.table.with_context(**setting))
    assert len(cleaned.deleted) == 3
    assert cleaned.metadata.earliest_commit_to_retain == ""
    assert maker.rows() == {"p/a": 5, "q/b": 6}


def test_a_clean_looks_only_into_partitions_that_were_written_to(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for ts in range(1, 5):
        maker.upsert(ts, "p/a", "q/b", "r/c")
    setting = maker.setting(cleaner__commits__retained=1)
    assert clean(maker.table.with_context(**setting))
    maker.upsert(5, "q/b")
    assert clean(maker.table.with_context(**setting))
    maker.upsert(6, "p/a")
    table = maker.table
    listed: list[str] = []
    original = type(table.storage).list_prefix

    def list_prefix(self: Any, path: str, **how: Any) -> Any:
        listed.append(path)
        return original(self, path, **how)

    monkeypatch.setattr(type(table.storage), "list_prefix", list_prefix)
    plan = plan_clean(table.with_context(**setting))
    assert listed == ["q"]
    full = plan_clean(
        table.with_context(**maker.setting(cleaner__commits__retained=1, cleaner__incremental__mode=False))
    )
    assert plan == full
    assert plan.file_paths_to_be_deleted_per_partition


def test_a_savepoint_keeps_its_files_until_it_is_deleted(maker: Any) -> None:
    times = [maker.upsert(ts, "p/a") for ts in range(1, 5)]
    create_savepoint(maker.table.with_context(**maker.setting()), times[0])
    setting = maker.setting(cleaner__commits__retained=1)
    clean(maker.table.with_context(**setting))
    assert {file.rpartition("_")[2].removesuffix(".parquet") for file in maker.files()} == {times[0], *times[2:]}
    assert maker.rows(as_of=times[0]) == {"p/a": 1}
    with pytest.raises(InputError, match="the cleaner has removed files"):
        maker.rows(as_of=times[1])
    maker.upsert(5, "q/b")
    clean(maker.table.with_context(**setting))
    delete_savepoint(maker.table.with_context(**setting), times[0])
    maker.upsert(6, "q/b")
    # partition p was not written to since, but what the savepoint kept is there to be cleaned
    (cleaned,) = clean(maker.table.with_context(**setting))
    assert any(times[0] in path for path in cleaned.deleted)
    with pytest.raises(InputError, match="the cleaner has removed files"):
        maker.rows(as_of=times[0])


def test_what_replaced_file_groups_left_is_cleaned(golden_copy: Callable[[str], Any]) -> None:
    for case in ("cow_insert_overwrite", "cow_clustering", "mor_clustering"):
        maker = golden_copy(case)
        before = snapshot(maker.table)
        replaced = maker.table.view(metadata=False).states.replaced
        setting = maker.setting(cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1)
        deleted = [path for cleaned in clean(maker.table.with_context(**setting)) for path in cleaned.deleted]
        groups = {path.rpartition("/")[2].removeprefix(".").partition("_")[0] for path in deleted}
        assert {file_id for _, file_id in replaced} <= groups, case
        assert snapshot(maker.table) == before, case


def test_a_replaced_file_group_goes_as_a_whole(maker: Any) -> None:
    """Its older slices, too, stay until no retained commit reads it, as Hudi plans it."""
    setting = maker.setting(cleaner__commits__retained=1)
    for ts in range(1, 4):
        maker.upsert(ts, "p/a")
    (group,) = maker.table.view(metadata=False).file_groups("p")
    LocalWriter(maker.table.with_context(**maker.setting())).delete_partitions(["p"])
    assert clean(maker.table.with_context(**setting)) == []
    maker.upsert(4, "q/b")
    (cleaned,) = clean(maker.table.with_context(**setting))
    assert set(cleaned.deleted) == {slice_.base_file.path for slice_ in group.slices}


def test_the_input_of_a_pending_compaction_stays(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("mor_compaction")
    assert maker.table.view(metadata=False).states.pending_compactions
    before = snapshot(maker.table)
    setting = maker.setting(cleaner__policy="KEEP_LATEST_FILE_VERSIONS", cleaner__fileversions__retained=1)
    clean(maker.table.with_context(**setting))
    assert snapshot(maker.table) == before


def snapshot(table: HudiTable) -> list[str]:
    return sorted(map(repr, read(table, ReadRequest()).to_arrow().to_pylist()))


def test_change_logs_go_with_their_slice(golden_copy: Callable[[str], Any]) -> None:
    maker = golden_copy("cow_cdc")
    logs = set(maker.folder.rglob("*.cdc"))
    assert logs
    setting = maker.setting(cleaner__commits__retained=1)
    (cleaned,) = clean(maker.table.with_context(**setting))
    missing = {str(log.relative_to(maker.folder)) for log in logs if not log.exists()}
    assert missing
    assert missing == {path for path in cleaned.deleted if path.endswith(".cdc")}


def test_a_planned_clean_is_carried_out_by_another(maker: Any) -> None:
    for ts in range(1, 5):
        maker.upsert(ts, "p/a")
    setting = maker.setting(cleaner__commits__retained=1)
    instant = schedule_clean(maker.table.with_context(**setting))
    assert instant is not None
    assert len(maker.files()) == 4
    (cleaned,) = execute_pending_cleans(maker.table.with_context(**setting))
    assert replace(cleaned.instant, completion_time=None) == replace(instant, state=State.COMPLETED)
    assert len(maker.files()) == 2


def test_two_executors_of_one_plan(maker: Any) -> None:
    for ts in range(1, 5):
        maker.upsert(ts, "p/a")
    setting = maker.setting(cleaner__commits__retained=1)
    schedule_clean(maker.table.with_context(**setting))
    seen_before = maker.table
    assert execute_pending_cleans(maker.table.with_context(**setting))
    assert finish_cleans(seen_before.with_context(**setting)) == []
    assert maker.rows() == {"p/a": 4}


@pytest.mark.parametrize("how", [{}, {"dies": True}, {"dies": True, "after": True}], ids=["fails", "dies", "after"])
def test_a_fault_at_any_call(how: dict[str, bool], maker: Any, each_fault: Any) -> None:
    for ts in range(1, 5):
        maker.upsert(ts, "p/a", "q/b")
    setting = maker.setting(cleaner__commits__retained=1)
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        try:
            clean(table.with_context(**setting))
        except SkepError:
            assert copied.rows() == {"p/a": 4, "q/b": 4}
        clean(copied.table.with_context(**setting))
        where = storage.calls[storage.at - 1] if storage.hit else ""
        assert copied.rows() == {"p/a": 4, "q/b": 4}, where
        assert len(copied.files()) == 4, where
        assert not copied.table.timeline.pending().instants, where
        assert len(copied.table.timeline.of(Action.CLEAN)) == 1, where
        runs += 1
    assert runs > 10


PARTS = [f"p{number:02}/a" for number in range(40)]


def test_a_read_that_began_before_a_clean_ends_right_within_the_retention(maker: Any) -> None:
    maker.upsert(1, *PARTS)
    maker.upsert(2, *PARTS)
    batches = read(maker.table, ReadRequest()).to_batches()
    first = next(batches)
    maker.upsert(3, *PARTS)
    maker.upsert(4, *PARTS)
    assert clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=2)))
    rest = [row for batch in batches for row in batch.to_pylist()]
    assert [row["ts"] for row in [*first.to_pylist(), *rest]] == [2] * len(PARTS)


def test_a_read_that_outlasts_the_retention_is_an_error(maker: Any) -> None:
    maker.upsert(1, *PARTS)
    batches = read(maker.table, ReadRequest()).to_batches()
    next(batches)
    maker.upsert(2, *PARTS)
    maker.upsert(3, *PARTS)
    clean(maker.table.with_context(**maker.setting(cleaner__commits__retained=1)))
    with pytest.raises(StorageError, match="deleted by a clean meanwhile"):
        list(batches)


@pytest.mark.parametrize("case", ["0.15.0/cow_clustering", "0.15.0/cow_insert_overwrite", "1.1.1/mor_upsert"])
def test_the_partitions_of_a_commit_are_reported_without_the_rest(case: str, golden: Path) -> None:
    table = HudiTable.open(str(golden / case / "table"))
    commits = table.timeline.data().completed().instants
    assert commits
    assert [table.commit_partitions(i) for i in commits] == [table.commit_metadata(i).partitions for i in commits]
