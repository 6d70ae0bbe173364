"""Log compaction: the log files of a slice become one, and nobody reads other rows for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skep_format.errors import CommitConflictError, InputError
from skep_format.logfile import read_blocks
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteOperation
from skep_table.services.compaction.compact import (
    compact,
    compact_logs,
    execute_log_compaction,
    execute_pending_log_compactions,
    pending_log_compactions,
    schedule_log_compaction,
)
from skep_table.services.compaction.plan import plan_log_compaction
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.write.local import LocalWriter

pytestmark = pytest.mark.parametrize("table_version", [6, 9], indirect=True)

TWO = {"log__compaction__blocks__threshold": 2}


def fill(maker: Any) -> list[str]:
    """A base file, three commits to its logs: updates, a delete, and a key that comes back."""
    times = [maker.upsert(1, "p/a", "p/b", "p/c", "p/d"), maker.upsert(2, "p/a", "p/b")]
    removed = maker.frame(3, "p/b", "p/c").select(["id", "part"])
    times.append(LocalWriter(maker.table.with_context(**maker.setting())).delete(removed).instant.requested_time)
    times.append(maker.upsert(4, "p/b"))
    return times


def slice_of(maker: Any) -> Any:
    (slice_,) = maker.table.view().slices("p")
    return slice_


def blocks_that_count(maker: Any) -> list[str]:
    """Instant times of the blocks that a reader takes, by their headers."""
    from skep_format.options import Options
    from skep_table.slices.context import SliceContext
    from skep_table.slices.logs import open_blocks

    table = maker.table
    schema = table.schema().with_meta()
    context = SliceContext(table, schema, schema.names(), None, Options())
    with open_blocks(context, slice_of(maker).log_files) as blocks:
        return [block.instant_time for block in blocks]


def test_one_log_file_remains_for_all(mor_maker: Any) -> None:
    times = fill(mor_maker)
    before = mor_maker.rows()
    assert before == {"p/a": 2, "p/b": 4, "p/d": 1}
    asked: list[dict[str, Any]] = [{"as_of": time} for time in times]
    asked += [{"query": "incremental", "since": time} for time in times]
    answers = [mor_maker.rows(**how) for how in asked]
    (done,) = compact_logs(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    assert mor_maker.rows() == before
    assert [mor_maker.rows(**how) for how in asked] == answers
    assert done.metadata.operation_type is WriteOperation.LOG_COMPACT
    assert done.metadata.compacted
    assert done.instant.action is Action.DELTA_COMMIT
    assert set(blocks_that_count(mor_maker)) == {done.instant.requested_time}
    (stat,) = done.metadata.stats
    with mor_maker.table.storage.open_input(stat.path) as file:
        assert {time for block in read_blocks(file, stat.path) for time in block.compacted_times} == set(times[1:])
    assert stat.log_files[-1] == stat.path.rpartition("/")[2]


def test_writes_compactions_and_rollbacks_go_on_from_there(mor_maker: Any) -> None:
    fill(mor_maker)
    (done,) = compact_logs(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    roll_back_instant(mor_maker.table.with_context(**mor_maker.setting()), done.instant.requested_time)
    assert mor_maker.rows() == {"p/a": 2, "p/b": 4, "p/d": 1}
    compact_logs(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    mor_maker.upsert(5, "p/c", "p/d")
    compact_logs(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    expected = {"p/a": 2, "p/b": 4, "p/c": 5, "p/d": 5}
    assert mor_maker.rows() == expected
    compact(mor_maker.table.with_context(**mor_maker.setting()))
    assert mor_maker.rows(query="read_optimized") == mor_maker.rows() == expected
    assert compact_logs(mor_maker.table.with_context(**mor_maker.setting(**TWO))) == []


def test_logs_that_are_merged_already_are_not_merged_again(mor_maker: Any) -> None:
    """The files that a log compaction merged stay until the next compaction; only newer ones count."""
    fill(mor_maker)
    table = mor_maker.table.with_context(**mor_maker.setting(**TWO))
    (first,) = compact_logs(table)
    files = slice_of(mor_maker).file_names
    assert compact_logs(table) == []
    assert slice_of(mor_maker).file_names == files
    mor_maker.upsert(5, "p/a")
    (second,) = compact_logs(table)
    assert set(blocks_that_count(mor_maker)) == {second.instant.requested_time}
    assert compact_logs(table) == []
    roll_back_instant(table, second.instant.requested_time)
    assert blocks_that_count(mor_maker)[0] == first.instant.requested_time
    assert len(compact_logs(table)) == 1
    assert mor_maker.rows() == {"p/a": 5, "p/b": 4, "p/d": 1}


def test_few_log_files_are_left_alone(mor_maker: Any) -> None:
    fill(mor_maker)
    assert plan_log_compaction(mor_maker.table.with_context(**mor_maker.setting())) is None
    assert schedule_log_compaction(mor_maker.table.with_context(**mor_maker.setting(**TWO))) is not None
    assert schedule_log_compaction(mor_maker.table.with_context(**mor_maker.setting(**TWO))) is None


def test_copy_on_write_tables_have_no_logs(maker: Any) -> None:
    maker.upsert(1, "p/a")
    with pytest.raises(InputError, match="copy-on-write"):
        schedule_log_compaction(maker.table.with_context(**maker.setting()))


def test_what_was_appended_meanwhile_makes_the_plan_useless(mor_maker: Any) -> None:
    fill(mor_maker)
    instant = schedule_log_compaction(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    assert instant is not None
    mor_maker.upsert(5, "p/a")
    before = mor_maker.rows()
    with pytest.raises(CommitConflictError, match="was written to"):
        execute_log_compaction(mor_maker.table.with_context(**mor_maker.setting()), instant)
    assert pending_log_compactions(mor_maker.table) == ()
    assert mor_maker.rows() == before


def test_an_execution_that_dies_at_any_call_is_done_by_the_next(
    mor_maker: Any, each_fault: Callable[..., Iterator[Any]]
) -> None:
    fill(mor_maker)
    instant = schedule_log_compaction(mor_maker.table.with_context(**mor_maker.setting(**TWO)))
    before = mor_maker.rows()
    for copy, table, _ in each_fault(mor_maker, dies=True):
        try:
            execute_log_compaction(table.with_context(**copy.setting()), instant)
        except OSError:
            assert copy.rows() == before
            execute_pending_log_compactions(copy.table.with_context(**copy.setting()))
        assert copy.rows() == before
        assert pending_log_compactions(copy.table) == ()
        assert set(blocks_that_count(copy)) == {instant.requested_time}
