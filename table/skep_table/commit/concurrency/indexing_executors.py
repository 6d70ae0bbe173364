"""What executors of indexing that may still be active write to, although it was dropped (format guide 16.9)."""

from __future__ import annotations

from collections.abc import Collection

from skep_format.errors import CommitConflictError
from skep_format.timeline.instant import Action
from skep_table.commit.heartbeat import ActiveWriters
from skep_table.metadata_write.own import building_partitions, planned_partitions
from skep_table.table import HudiTable


def reserved_partitions(table: HudiTable) -> frozenset[str]:
    """The partitions that were dropped while they were built, by an executor that has not noticed it yet.

    It may write base files into them, and must not meet partitions that were made since. Its plan is pending until it
    has ended or its heartbeat has expired.
    """
    plans = {each: planned_partitions(table, each) for each in table.timeline.pending().of(Action.INDEXING)}
    building = building_partitions(table.config)
    dropped = {each: set(names) - set(building) for each, names in plans.items()}
    if not any(dropped.values()):
        return frozenset()
    writers = ActiveWriters(table.context)
    active = (names for each, names in dropped.items() if writers.is_active(each.requested_time))
    return frozenset().union(*active)


def refuse_reserved(table: HudiTable, partitions: Collection[str]) -> None:
    """CommitConflictError where one of these partitions is reserved."""
    if found := sorted(reserved_partitions(table).intersection(partitions)):
        problem = f"an executor that was building {', '.join(found)} has not ended yet"
        raise table.error(CommitConflictError, problem, hint="try again in a moment", found=", ".join(found))
