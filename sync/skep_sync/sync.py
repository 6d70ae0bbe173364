"""Plan and apply: reads table and metastore, plans, applies the steps under the sync's lock, reports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skep_catalog.catalogs import EntryCatalog
from skep_format.errors import EntryChangedError, EntryExistsError
from skep_sync.apply import Applier
from skep_sync.manifest import planning
from skep_sync.options import SyncOptions
from skep_sync.planning.ahead import Ahead
from skep_sync.planning.changes import TimelineState
from skep_sync.planning.planner import target_of
from skep_sync.planning.steps import SyncPlan
from skep_sync.sync_lock import as_sync_error, sync_lock
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable

_ATTEMPTS = 3  # when other syncs keep changing the entries meanwhile


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did. `counts` counts by kind; `calls` is how many calls the metastore got."""

    plan: SyncPlan
    seconds: float
    calls: int
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether the plan had steps."""
        return bool(self.plan)

    def __str__(self) -> str:
        did = ", ".join(f"{count} {what}" for what, count in self.counts.items()) or "nothing to do"
        return f"{self.plan.full_name}: {did} ({self.calls} calls, {self.seconds:.2f} s)"

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "applied": dict(self.counts),
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
        }


def plan_sync(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    full: bool = False,
    ahead: Ahead | None = None,
) -> SyncPlan:
    """What a sync would do; changes nothing. `full` compares all partitions, whatever the markers are."""
    with planning(table, metastore, database, name, options, full=full, ahead=ahead) as planner:
        return planner.plan()


def sync_table(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    full: bool = False,
    events: Events = NO_EVENTS,
    ahead: Ahead | None = None,
) -> SyncReport:
    """Brings the metastore in line with the table. SyncError when it can't; what was done until then is well-formed,
    and the next sync continues from there. Syncs of one table take turns; with nothing to do there is no waiting.

    `ahead`: what was looked up before the table's last commit was complete.
    """
    settings = SyncOptions.of(options)
    database, name = target_of(table, database, name)
    with events.step("sync.table", table=f"{database}.{name}"):
        start, calls = time.monotonic(), metastore.calls
        plan = plan_sync(table, metastore, database, name, settings, full=full, ahead=ahead)
        counts: dict[str, int] = {}
        if plan:
            with (
                as_sync_error(database, name, table.storage.root),
                sync_lock(metastore, database, name, settings.lock_wait_seconds, events),
            ):
                for attempt in range(_ATTEMPTS):
                    if attempt or not _is_current(plan, table, metastore):
                        if ahead is not None:
                            ahead.confirm()
                        table = table.reload()
                        plan = plan_sync(table, metastore, database, name, settings, full=full)
                    try:
                        plan, counts = Applier(metastore, table.storage, settings, events).take(plan)
                        break
                    except (EntryChangedError, EntryExistsError):
                        if attempt == _ATTEMPTS - 1:
                            raise
        report = SyncReport(plan, time.monotonic() - start, metastore.calls - calls, counts)
        events.emit("sync.done", table=plan.full_name, calls=report.calls, seconds=report.seconds, **counts)
        plan.raise_refused()
        return report


def _is_current(plan: SyncPlan, table: HudiTable, metastore: EntryCatalog) -> bool:
    """Whether no other sync came before this one, and the last commit of the plan has not been rolled back since.

    Commits that completed since are left to the sync after them.
    """
    last = table.timeline.data().completed().last()
    return (
        plan.point == TimelineState.of(table).point
        and (last is None or table.storage.exists(table.layout.path(last)))
        and metastore.find_tables(plan.database, list(plan.seen)) == dict(plan.seen)
    )
