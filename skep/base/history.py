"""The entries of a table's history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from skep_format.instant_time import InstantTime
from skep_format.schema.types import Schema
from skep_format.timeline.instant import Instant
from skep_format.timeline.timeline import milliseconds_of
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult


@dataclass(frozen=True, slots=True)
class Commit:
    """One completed write of a table's history: when it was requested, which is its name, and when it completed.

    `completed` is None in table version 6, which does not record it.
    """

    instant: str
    action: str
    operation: str | None
    inserted: int
    updated: int
    deleted: int
    files: int
    partitions: tuple[str, ...]
    time: datetime
    """When it was completed, in UTC; before table version 8, when it was requested."""
    rows: int
    """As many as the files written hold: of a copy-on-write table, also those that stayed as they were."""
    bytes: int
    completed: str | None = None


def commit_of(table: HudiTable, instant: Instant) -> Commit:
    """The entry of a completed write."""
    at = milliseconds_of(InstantTime(instant.completion_time or instant.requested_time), table.config.timezone)
    found = WriteResult(instant, table.commit_metadata(instant), Schema(()))
    operation = found.metadata.operation_type
    return Commit(
        instant=instant.requested_time,
        action=instant.action.value,
        operation=operation.value.lower().removesuffix("_prepped") if operation else None,
        inserted=found.inserted,
        updated=found.updated,
        deleted=found.deleted,
        files=found.files,
        partitions=found.partitions,
        time=datetime.fromtimestamp(at / 1000, timezone.utc),
        rows=sum(stat.num_writes for stat in found.metadata.stats),
        bytes=found.counts["bytes"],
        completed=instant.completion_time,
    )
