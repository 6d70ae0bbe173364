"""What a write answers."""

from __future__ import annotations

from dataclasses import dataclass

from skep_table.schema.types import Schema
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import CommitMetadata


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A commit. `repeated`: the batch had been committed before under this instant, and nothing was written now.

    `empty`: there was nothing to write, and options forbid commits of nothing; the instant is gone again.

    `inserted`, `updated` and `deleted` are what the commit's metadata counts, as Hudi counts it. They are exact
    where the index looked every key up. With the `BUCKET` index (and `INMEMORY`) on a merge-on-read table no row is
    looked up: all rows appended to the logs of a file group that was there count as updated, rows that begin a group as
    inserted, and a delete counts the keys given, whether or not they were in the table.
    """

    instant: Instant
    metadata: CommitMetadata
    schema: Schema
    seconds: float = 0.0
    repeated: bool = False
    empty: bool = False

    def __repr__(self) -> str:
        told = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count and name != "bytes")
        again = ", committed before" if self.repeated else ""
        operation = (self.metadata.operation_type or self.instant.action).value.lower()
        return f"<{operation} {self.instant.requested_time}: {told or 'nothing'}{again}>"

    @property
    def counts(self) -> dict[str, int]:
        """What the events of a write and the command line tell of it."""
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
        return sum(stat.num_inserts for stat in self.metadata.stats)

    @property
    def updated(self) -> int:
        return sum(stat.num_update_writes for stat in self.metadata.stats)

    @property
    def deleted(self) -> int:
        return sum(stat.num_deletes for stat in self.metadata.stats)

    @property
    def errors(self) -> int:
        return sum(stat.total_write_errors for stat in self.metadata.stats)

    @property
    def files(self) -> int:
        return len(self.metadata.stats)

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.metadata.partitions
