"""Compaction: no answer changes, the base files hold it all afterwards, and writers and readers go on meanwhile."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.basefile import read_footer
from skep_format.errors import CommitConflictError, InputError, SkepError, StorageError
from skep_format.names import BaseFileName
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action, State
from skep_format.timeline.metadata import WriteOperation
from skep_format.timeline.plans import CompactionPlan
from skep_format.timeline.write import transition_to_inflight
from skep_table.commit.transaction import Transaction
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import (
    compact,
    execute_compaction,
    execute_pending_compactions,
    pending_compactions,
    schedule_compaction,
)
from skep_table.services.compaction.plan import plan_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.write.local import LocalWriter


def delete(maker: Any, *keys: str) -> str:
    frame = pa.table({"part": [key.split("/")[0] for key in keys], "id": [key.split("/")[1] for key in keys]})
    return LocalWriter(maker.table.with_context(**maker.setting())).delete(frame).instant.requested_time


def with_logs(maker: Any) -> Any:
    """Two partitions; the slice of `p` has updates and a delete in its logs, that of `q` none."""
    maker.upsert(1, "p/a", "p/b", "p/c", "q/d")
    maker.upsert(2, "p/a")
    delete(maker, "p/b")
    return maker


def logs_of(maker: Any) -> list[str]:
    view = maker.table.view()
    return [str(log.name) for path in view.partitions() for slice_ in view.slices(path) for log in slice_.log_files]


def every_row(maker: Any, **how: Any) -> list[str]:
    rows = read(maker.table, ReadRequest(**how)).to_arrow().drop(["_hoodie_file_name"]).to_pylist()
    return sorted(map(str, rows))


# -- what it does ------------------------------------------------------------------------------------------------------


def test_the_logs_of_a_slice_become_its_next_base_file(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    before = every_row(maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    plan = maker.table.requested_plan(CompactionPlan, planned)
    assert plan is not None
    (operation,) = plan.operations
    (slice_,) = maker.table.view().slices("p")
    assert operation.data_file_path == str(slice_.base_file.name)
    assert operation.delta_file_paths == tuple(str(log.name) for log in slice_.log_files)
    assert (operation.base_instant_time, plan.version) == (slice_.base_instant, 2)
    (done,) = execute_pending_compactions(maker.table.with_context(**maker.setting()))
    assert (done.instant.action, done.instant.requested_time) == (Action.COMMIT, planned.requested_time)
    metadata = maker.table.commit_metadata(done.instant)
    assert (metadata.operation_type, metadata.compacted) == (WriteOperation.COMPACT, True)
    (stat,) = metadata.stats
    assert stat.prev_commit == slice_.base_instant
    assert (stat.num_writes, stat.num_update_writes, stat.num_deletes, stat.num_inserts) == (2, 1, 1, 0)
    assert (stat.total_log_files_compacted, stat.total_log_blocks, stat.total_log_records) == (2, 2, 2)
    assert stat.total_log_size_compacted == sum(log.size_bytes for log in slice_.log_files)
    assert every_row(maker) == before
    assert maker.rows(query="read_optimized") == {"p/a": 2, "p/c": 1, "q/d": 1}
    assert not logs_of(maker)
    assert compact(maker.table.with_context(**maker.setting())) == []


GOLDEN = [
    "mor_bucket_index",
    "mor_clustering",
    "mor_compaction",
    "mor_delete",
    "mor_event_time",
    "mor_log_rollback",
    "mor_parquet_log",
    "mor_partial_update",
    "mor_schema_evolution",
    "mor_upsert",
]


@pytest.mark.parametrize("case", GOLDEN)
def test_tables_of_hudi_hold_the_same_rows_with_their_meta_columns(
    case: str, golden_copy: Callable[[str], Any]
) -> None:
    """Its pending plans are carried out as well as our own."""
    maker = golden_copy(case)
    before = every_row(maker)
    assert compact(maker.table.with_context(**maker.setting()))
    assert every_row(maker) == every_row(maker, query="read_optimized") == before
    assert not logs_of(maker)


def test_logs_that_do_not_fit_into_memory_are_merged_on_disk(mor_maker: Any) -> None:
    maker = mor_maker
    keys = [f"p/{at:04d}" for at in range(500)]
    maker.upsert(1, *keys)
    maker.upsert(2, *keys[::2])
    delete(maker, *keys[::5])
    before = every_row(maker)
    (done,) = compact(maker.table.with_context(**maker.setting(memory__merge__max__size=2_000)))
    assert every_row(maker) == before
    (stat,) = done.metadata.stats
    assert (stat.num_writes, stat.num_deletes, stat.total_log_records) == (400, 100, 350)


def test_the_new_footer_knows_all_keys(mor_maker: Any) -> None:
    """Whether the old filter goes on, or is recreated because keys went away."""
    maker = mor_maker
    maker.upsert(1, "p/a", "p/b", "p/c")
    maker.upsert(2, "p/a")
    compact(maker.table.with_context(**maker.setting()))
    delete(maker, "p/c")
    for keys in (["a", "b", "c"], ["a", "b"]):
        (slice_,) = maker.table.view().slices("p")
        footer = read_footer(maker.table.storage, slice_.base_file.path)
        assert footer.bloom is not None
        assert footer.bloom.might_contain(pa.array(keys)).to_pylist() == [True] * len(keys)
        assert (footer.min_key, footer.max_key) == (keys[0], keys[-1])
        compact(maker.table.with_context(**maker.setting()))
    maker.upsert(3, "p/a", "p/c")
    assert maker.rows() == {"p/a": 3, "p/b": 1, "p/c": 3}


def test_copy_on_write_tables_have_nothing_to_compact(maker: Any) -> None:
    maker.upsert(1, "p/a")
    with pytest.raises(InputError, match="copy-on-write"):
        compact(maker.table.with_context(**maker.setting()))


# -- beside others -----------------------------------------------------------------------------------------------------


def test_writers_go_on_over_a_planned_compaction(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    updated = maker.upsert(3, "p/a", "p/new")
    deleted = delete(maker, "p/c")
    (group,) = [group for group in maker.table.view().file_groups("p") if group.pending_compaction]
    assert group.slices[0].base_instant == planned.requested_time
    names = [log.name for log in group.slices[0].log_files]
    if maker.table.format.logs.of_delta_commit:
        assert [name.instant_time for name in names] == [updated, deleted]
        assert [name.version for name in names] == [1, 1]
    else:
        assert [name.instant_time for name in names] == [planned.requested_time] * 2
        assert [name.version for name in names] == [1, 2]
    expected = {"p/a": 3, "p/new": 3, "q/d": 1}
    assert maker.rows() == expected
    assert maker.rows(query="read_optimized") == {"p/a": 1, "p/b": 1, "p/c": 1, "p/new": 3, "q/d": 1}
    assert len(execute_pending_compactions(maker.table.with_context(**maker.setting()))) == 1
    assert maker.rows() == expected
    assert maker.rows(query="read_optimized") == {"p/a": 2, "p/c": 1, "p/new": 3, "q/d": 1}
    maker.upsert(4, "p/a")
    compact(maker.table.with_context(**maker.setting()))
    assert maker.rows() == maker.rows(query="read_optimized") == {"p/a": 4, "p/new": 3, "q/d": 1}


def test_a_write_that_began_before_the_plan_was_carried_out_completes_after_it(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None

    def meanwhile(_: object) -> None:
        execute_compaction(maker.table.with_context(**maker.setting()), planned)

    setting = maker.setting()
    slow = {"runner": setting["runner"], "clock": setting["clock"], "conflict_check": meanwhile}
    frame = pa.table({"id": ["a"], "part": ["p"], "ts": [9]})
    LocalWriter(maker.table.with_context(**slow)).upsert(frame)
    assert maker.rows() == {"p/a": 9, "p/c": 1, "q/d": 1}


def test_a_key_that_the_planned_compaction_deletes_begins_again(mor_maker: Any) -> None:
    """In the logs over the compaction no index of base files would find it again."""
    maker = with_logs(mor_maker)
    assert schedule_compaction(maker.table.with_context(**maker.setting())) is not None
    maker.upsert(3, "p/b")
    assert maker.rows() == {"p/a": 2, "p/b": 3, "p/c": 1, "q/d": 1}
    maker.upsert(4, "p/b", "p/a")
    assert maker.rows() == {"p/a": 4, "p/b": 4, "p/c": 1, "q/d": 1}
    execute_pending_compactions(maker.table.with_context(**maker.setting()))
    maker.upsert(5, "p/b")
    assert maker.rows() == {"p/a": 4, "p/b": 5, "p/c": 1, "q/d": 1}
    compact(maker.table.with_context(**maker.setting()))
    assert maker.rows() == maker.rows(query="read_optimized")


def test_a_compaction_shows_incremental_readers_nothing_new(mor_maker: Any) -> None:
    maker = mor_maker
    first = maker.upsert(1, "p/a", "p/b", "q/d")
    maker.upsert(2, "p/a")
    since = maker.time_of(first)
    expected = maker.rows(query="incremental", since=since)
    (done,) = compact(maker.table.with_context(**maker.setting()))
    assert maker.rows(query="incremental", since=since) == expected == {"p/a": 2}
    assert maker.rows(query="incremental", since=maker.time_of(done.instant.requested_time)) == {}
    assert maker.rows(as_of=first) == {"p/a": 1, "p/b": 1, "q/d": 1}


def test_partitions_that_were_dropped_meanwhile_stay_dropped(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    assert schedule_compaction(maker.table.with_context(**maker.setting())) is not None
    LocalWriter(maker.table.with_context(**maker.setting())).delete_partitions(["p"])
    assert maker.rows() == {"q/d": 1}
    execute_pending_compactions(maker.table.with_context(**maker.setting()))
    assert maker.rows() == maker.rows(query="read_optimized") == {"q/d": 1}
    maker.upsert(4, "p/a")
    assert maker.rows() == {"p/a": 4, "q/d": 1}


def test_nothing_is_planned_while_a_write_is_under_way(table_version: int, mor_maker: Any) -> None:
    """It could still append to a slice that the plan takes as it is."""
    if table_version != 6:
        pytest.skip("a write that completes later belongs to the next slice (test_completion_times.py)")
    maker = with_logs(mor_maker)
    with Transaction.begin(maker.table.with_context(**maker.setting()), Action.DELTA_COMMIT) as running:
        with pytest.raises(CommitConflictError, match=running.instant.requested_time):
            schedule_compaction(maker.table.with_context(**maker.setting()))
        running.abort(None)
    assert schedule_compaction(maker.table.with_context(**maker.setting())) is not None


def test_slices_are_planned_once(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    assert schedule_compaction(maker.table.with_context(**maker.setting())) is not None
    assert plan_compaction(maker.table.with_context(**maker.setting())) is None
    maker.upsert(3, "q/d")
    plan = plan_compaction(maker.table.with_context(**maker.setting()))
    assert plan is not None
    assert [operation.partition_path for operation in plan.operations] == ["q"]


def test_what_an_executor_left_that_died_is_taken_over(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    before = every_row(maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    inflight = transition_to_inflight(maker.table, planned)
    left = maker.folder / "p" / str(BaseFileName("left", "0-0-0", planned.requested_time))
    left.write_bytes(b"half a file")
    assert every_row(maker) == before
    set_time(maker.path_of(inflight), maker, seconds_ago=121)
    (done,) = execute_pending_compactions(maker.table.with_context(**maker.setting()))
    assert done.instant.requested_time == planned.requested_time
    assert every_row(maker) == before
    assert not left.exists()


@pytest.mark.parametrize("sign", ["inflight", "marker"])
def test_an_executor_of_hudi_without_heartbeat_is_left_alone(sign: str, mor_maker: Any) -> None:
    """For as long as a heartbeat would be valid after the last file that it left; releases before 1.2 keep none."""
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    inflight = transition_to_inflight(maker.table, planned)
    set_time(maker.path_of(inflight), maker, seconds_ago=90 if sign == "inflight" else 300)
    if sign == "marker":
        marker = maker.folder / ".hoodie/.temp" / planned.requested_time / "p/f_0-0-0_1.parquet.marker.CREATE"
        marker.parent.mkdir(parents=True)
        marker.touch()
        set_time(marker, maker, seconds_ago=90)
    with pytest.raises(CommitConflictError, match="another executor is carrying out compaction"):
        execute_pending_compactions(maker.table.with_context(**maker.setting()))
    assert maker.path_of(inflight).exists()


def set_time(file: Path, maker: Any, seconds_ago: int) -> None:
    moment = maker.clock.now().timestamp() - seconds_ago
    os.utime(file, (moment, moment))


def test_two_executors_of_one_plan(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    assert execute_compaction(maker.table.with_context(**maker.setting()), planned) is not None
    assert execute_compaction(maker.table.with_context(**maker.setting()), planned) is None


def test_a_compaction_is_rolled_back_with_the_logs_over_it_left_out(mor_maker: Any) -> None:
    maker = with_logs(mor_maker)
    before = every_row(maker)
    (done,) = compact(maker.table.with_context(**maker.setting()))
    roll_back_instant(maker.table.with_context(**maker.setting()), done.instant.requested_time)
    assert every_row(maker) == before
    assert len(logs_of(maker)) == 2
    compact(maker.table.with_context(**maker.setting()))
    assert every_row(maker) == before


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="fails", marks=pytest.mark.slow),
        pytest.param({"dies": True}, id="dies"),
        pytest.param({"dies": True, "after": True}, id="dies+after", marks=pytest.mark.slow),
    ],
)
def test_a_fault_at_any_call_changes_no_answer_and_the_next_one_finishes(
    how: dict[str, bool], mor_maker: Any, each_fault: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skep")
    maker = with_logs(mor_maker)
    before = maker.rows()
    runs = 0
    for copied, table, storage in each_fault(maker, **how):
        with suppress(SkepError):
            compact(table.with_context(**copied.setting()))
        where = storage.calls[storage.at - 1] if storage.hit else "no fault"
        assert copied.rows() == before, where
        copied.upsert(5, "q/d")
        assert copied.rows() == {**before, "q/d": 5}, where
        compact(copied.table.with_context(**copied.setting()))
        assert copied.rows() == copied.rows(query="read_optimized") == {**before, "q/d": 5}, where
        after = copied.table
        assert not after.timeline.pending().instants, where
        assert not pending_compactions(after)
        completed = {instant.requested_time for instant in after.timeline.completed().data()}
        for file in copied.folder.rglob("*.parquet"):
            name = BaseFileName.parse(file.name)
            assert name is not None
            assert name.instant_time in completed, f"{where}: {file} was left behind"
        runs += 1
    assert runs > 25


def test_an_attempt_that_fails_gives_the_plan_back(
    mor_maker: Any, each_fault: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What it wrote is deleted, and the next executor carries the plan out."""
    caplog.set_level(logging.CRITICAL, "skep")
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    files = maker.files()
    given_back = 0
    for copied, table, storage in each_fault(maker):
        with suppress(SkepError):
            execute_compaction(table.with_context(**copied.setting()), planned)
        pending = pending_compactions(copied.table)
        if [instant.state for instant in pending] == [State.REQUESTED]:
            assert copied.files() == files, storage.calls[storage.at - 1]
            given_back += 1
        execute_pending_compactions(copied.table.with_context(**copied.setting()))
        assert copied.rows(query="read_optimized") == maker.rows()
    assert given_back > 5


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        pytest.param(KeyboardInterrupt(), KeyboardInterrupt, id="interrupt"),
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), StorageError, id="full disk"),
    ],
)
def test_an_attempt_that_is_ended_gives_the_plan_back_and_reports_it(
    raised: BaseException,
    expected: type[BaseException],
    mor_maker: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    maker = with_logs(mor_maker)
    planned = schedule_compaction(maker.table.with_context(**maker.setting()))
    assert planned is not None
    files = maker.files()

    @contextmanager
    def opened(self: LocalStorage, path: str) -> Iterator[Any]:
        with open_write(self, path) as file:
            yield file
            raise raised

    open_write = LocalStorage.open_write
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "open_write", opened)
        with pytest.raises(expected):
            execute_compaction(maker.table.with_context(**maker.setting()), planned)
    assert "its files are deleted, the plan stays" in caplog.text
    assert [instant.state for instant in pending_compactions(maker.table)] == [State.REQUESTED]
    assert maker.files() == files
