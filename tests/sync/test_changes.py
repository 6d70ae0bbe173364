"""What a sync finds on the timeline since its marker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from skep_sync.planning.changes import TimelineState
from skep_table.services.undo.rollback import create_savepoint
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter


def test_a_savepoint_leaves_the_completion_of_its_commit_as_it_was(write: Callable[..., HudiTable]) -> None:
    """Its file has the commit's instant time in its name, and is written later: the commit is no later for it."""
    first = write("t", 1)
    table = write("t", 2)
    saved, last = (instant.requested_time for instant in table.timeline.data())
    before = TimelineState.of(table)
    assert before.point is not None
    create_savepoint(first, saved)
    savepoint = Path(table.storage.root) / ".hoodie" / f"{saved}.savepoint"
    late = savepoint.stat().st_mtime + 3600
    os.utime(savepoint, (late, late))
    after = TimelineState.of(table.reload())
    assert after.commits == before.commits
    assert after.point == before.point
    assert after.point.requested_time == last
    assert after.after(before.point) == []


def test_partitions_that_several_commits_emptied(write: Callable[..., HudiTable]) -> None:
    write("t", 1, day="2026-01-01")
    write("t", 2, day="2026-01-02")
    table = write("t", 3, day="2026-01-03")
    before = TimelineState.of(table).point
    *emptied, left = table.view().partitions()
    for path in emptied:
        LocalWriter(table.reload()).delete_partitions([path])
    changes = TimelineState.of(table.reload()).changes_since(before)
    assert changes.emptied == set(emptied)
    assert left not in changes.live
