"""How far a table's entries are behind its timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import TableEntry
from skep_format.clock import SYSTEM_CLOCK
from skep_format.instant_time import InstantTime
from skep_format.table_config import TimelineZone
from skep_sync.manifest import planning
from skep_sync.options import SyncOptions
from skep_sync.planning.changes import TimelineState
from skep_sync.planning.plan import marker_of
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How far one entry is behind the table. `commits` and `seconds` are None where that is unknown."""

    entry: str
    registered: bool
    synced_to: str | None
    latest: str | None
    commits: int | None
    seconds: float | None

    COLUMNS: ClassVar = ("entry", "registered", "synced_to", "latest", "commits", "seconds")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sync_status(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
) -> list[SyncStatus]:
    """Each entry's marker against the timeline. Reads no partitions."""
    with planning(table, metastore, database, name, options) as planner:
        history, wanted = planner.look()
        entries = [(entry.table, metastore.find_table(planner.database, entry.table.name)) for entry in wanted.entries]
        return [_status(wanted_entry, actual, history) for wanted_entry, actual in entries]


def _status(wanted: TableEntry, actual: TableEntry | None, history: TimelineState) -> SyncStatus:
    marker, point = marker_of(actual), history.point
    commits = seconds = None
    if marker is not None and point is not None:
        if history.knows(marker):
            behind = history.after(marker)
            commits = len(behind)
            seconds = _seconds_since(min(i.requested_time for i in behind), history) if behind else 0.0
    elif point is None and actual is not None:
        commits, seconds = 0, 0.0
    return SyncStatus(
        wanted.full_name,
        actual is not None,
        None if marker is None else marker.requested_time,
        None if point is None else point.requested_time,
        commits,
        seconds,
    )


def _seconds_since(requested_time: InstantTime, history: TimelineState) -> float:
    """How long a reader of the metastore has been missing the oldest commit that was not synced."""
    then = datetime.strptime(requested_time[:14], "%Y%m%d%H%M%S")
    utc = history.table.config.timezone is TimelineZone.UTC
    moment = then.replace(tzinfo=timezone.utc) if utc else then.astimezone()
    return round(max(0.0, (SYSTEM_CLOCK.now() - moment).total_seconds()), 3)
