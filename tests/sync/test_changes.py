"""What a sync finds on the timeline since its marker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from skep_sync.changes import TimelineState
from skep_table.services.savepoint import create_savepoint
from skep_table.table import HudiTable


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
