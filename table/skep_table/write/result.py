"""What a write returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from skep_format.schema.types import Schema
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What one of several writes that are one commit did."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A commit. `repeated`: the batch had been committed before by this instant, and nothing was written now.

    `empty`: there was nothing to write, and options forbid empty commits; the instant was deleted. `seconds` is the
    duration of the whole call.

    `table` is the snapshot that the commit ended with; None where nothing was committed.

    `own`: the rows of this write, where others are in the same commit (`Table.batched`): `inserted`, `updated` and
    `deleted` are these, and the metadata counts all.

    `inserted`, `updated` and `deleted` are what the commit's metadata counts, as Hudi counts it. They are exact
    where the index looked every key up. With the `BUCKET` index (and `INMEMORY`) on a merge-on-read table no row is
    looked up: all rows appended to the logs of an existing file group count as updated, rows that begin a group as
    inserted, and a delete counts the keys given, whether or not they were in the table.
    """

    instant: Instant
    metadata: CommitMetadata
    schema: Schema
    seconds: float = 0.0
    repeated: bool = False
    empty: bool = False
    table: HudiTable | None = field(default=None, repr=False, compare=False)
    own: RowCounts | None = None

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count and name != "bytes")
        again = ", committed before" if self.repeated else ""
        operation = (self.metadata.operation_type or self.instant.action).value.lower()
        return f"<{operation} {self.instant.requested_time}: {counts or 'nothing'}{again}>"

    @property
    def counts(self) -> dict[str, int]:
        """Rows, files, bytes and replaced groups, as events and the command line report them."""
        stats = self.metadata.stats
        return {
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "errors": self.errors,
            "files": self.files,
            "bytes": sum(stat.total_write_bytes for stat in stats),
            "replaced_groups": sum(map(len, (self.metadata.partition_to_replace_file_ids or {}).values())),
        }

    @property
    def inserted(self) -> int:
        """Rows with new keys."""
        return sum(stat.num_inserts for stat in self.metadata.stats) if self.own is None else self.own.inserted

    @property
    def updated(self) -> int:
        """Rows whose key was in the table."""
        return sum(stat.num_update_writes for stat in self.metadata.stats) if self.own is None else self.own.updated

    @property
    def deleted(self) -> int:
        """Rows that were deleted."""
        return sum(stat.num_deletes for stat in self.metadata.stats) if self.own is None else self.own.deleted

    @property
    def errors(self) -> int:
        """Rows that were left out, as they have no ordering value."""
        return sum(stat.total_write_errors for stat in self.metadata.stats)

    @property
    def files(self) -> int:
        """Base and log files that were written."""
        return len(self.metadata.stats)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partition paths that were written to or replaced in, sorted."""
        return self.metadata.partitions
