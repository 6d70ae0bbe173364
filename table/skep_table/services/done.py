"""The results of services in one form: for the command line, events, and the hooks that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skep_format.errors import CommitConflictError, SkepError
from skep_format.timeline.instant import Instant
from skep_table.hooks import Committed
from skep_table.services.cleaning.archive_plan import ArchivePlan
from skep_table.services.cleaning.clean import CleanResult
from skep_table.services.metadata.index_build import Indexed
from skep_table.services.rewriting import Rewritten
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult

Detail = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """One result: completed, planned, put off or failed. `committed` is set where readers see other files after it.

    `details` has a row for each file slice, file group, partition or file of a preview, and for each file of a clean.
    """

    service: str
    instant: str | None
    state: str
    what: str
    committed: Committed | None = None
    error: Exception | None = None
    details: Sequence[Detail] = field(default=(), compare=False)

    def __repr__(self) -> str:
        name = self.service if self.instant is None else f"{self.service} {self.instant}"
        state = "" if self.state == "completed" else f"{self.state}, "
        return f"<{name}: {state}{self.what}>"


def put_off(service: str, error: CommitConflictError) -> Done:
    """An active writer or executor blocks the service: it is tried again the next time."""
    time = error.fields.get("instant")
    return Done(service, None if time is None else str(time), "put off", error.message)


def failed(service: str, error: Exception) -> Done:
    """A service that raised `error`."""
    return Done(service, None, "failed", error.message if isinstance(error, SkepError) else str(error), error=error)


def planned(service: str, details: Sequence[Detail], what: str) -> list[Done]:
    """A preview of so many; empty when there are none."""
    return [Done(service, None, "planned", _count(len(details), what), details=details)] if details else []


def scheduled(service: str, instant: Instant, details: Sequence[Detail] = ()) -> Done:
    """A plan that was written onto the timeline."""
    return Done(service, instant.requested_time, "scheduled", "planned, to be executed", details=details)


def compacted(found: Rewritten) -> Done:
    """A completed compaction."""
    what = f"{_count(found.slices, 'file slice')} compacted"
    return Done("compact", found.instant.requested_time, "completed", what, _committed(found.table, found))


def logs_compacted(found: Rewritten) -> Done:
    """A completed log compaction."""
    what = f"the logs of {_count(found.slices, 'file slice')} merged"
    return Done("log-compact", found.instant.requested_time, "completed", what, _committed(found.table, found))


def clustered(found: Rewritten) -> Done:
    """A completed clustering."""
    what = f"{_count(found.replaced, 'file group')} rewritten as {len(found.metadata.stats)}"
    return Done("cluster", found.instant.requested_time, "completed", what, _committed(found.table, found))


def expired(found: WriteResult) -> Done:
    """A commit that dropped expired partitions."""
    what = f"{_count(len(found.partitions), 'partition')} dropped"
    return Done("ttl", found.instant.requested_time, "completed", what, _committed(found.table, found))


def cleaned(found: CleanResult) -> Done:
    """A completed clean."""
    what, paths = f"{_count(len(found.deleted), 'file')} deleted", (path.rpartition("/") for path in found.deleted)
    details = [{"partition": partition, "file": name} for partition, _, name in paths]
    return Done("clean", found.instant.requested_time, "completed", what, details=details)


def indexed(found: Indexed) -> Done:
    """A completed indexing of the metadata table."""
    return Done("index", found.instant.requested_time, "completed", f"{', '.join(found.partitions)} built")


def metadata_compacted(instant: Instant) -> Done:
    """A completed compaction of the metadata table."""
    return Done("metadata", instant.requested_time, "completed", "the metadata table compacted")


def archived(found: ArchivePlan) -> Done:
    """Instants that were archived."""
    return Done("archive", None, "completed", f"{_count(len(found.instants), 'instant')} archived")


def _committed(table: HudiTable | None, found: Rewritten | WriteResult) -> Committed | None:
    return None if table is None else Committed(table, found.instant, found.metadata, table.schema())


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
