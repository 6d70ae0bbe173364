"""Syncs tables to all their targets, on request and after commits. A failed sync does not affect the commit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skep_format.errors import SkepError
from skep_format.options import Options, boolean, option
from skep_format.storage import open_storage
from skep_sync.following.queue import SyncQueue
from skep_sync.targets import Clients, Outcome, Target, each_target, sync_target
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import CommitHook, Committed
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_sync.sync import SyncReport

SYNC = option("skep.sync.after.commit", boolean, True, "Bring the metastore up to date after each commit")
QUEUE = option(
    "skep.sync.queue", str, "", "Folder that keeps what is left to sync; else .skep/sync below the lake's warehouse"
)

_FOLDER = ".skep/sync"


class SyncWarning(UserWarning):
    """A commit is complete and a metastore is not up to date: the next sync of the table updates it."""


def open_queue(options: Mapping[str, object], warehouse: str | None = None) -> SyncQueue | None:
    """The queue that the options name, else the warehouse's own; None where there is neither."""
    given = options if isinstance(options, Options) else Options(options)
    place = given.value(QUEUE) or (f"{warehouse.rstrip('/')}/{_FOLDER}" if warehouse else "")
    return SyncQueue(open_storage(place, given)) if place else None


def queue_if_any(queue: Callable[[], SyncQueue | None]) -> SyncQueue | None:
    """A queue for a sync, which one that can't be opened must not fail."""
    with suppress(SkepError, OSError):
        return queue()
    return None


@dataclass(frozen=True)
class TableSyncs:
    """The targets of tables, and the queue that remembers what failed. Targets are synced at once, not in turn."""

    targets: tuple[Target, ...]
    clients: Clients
    queue: Callable[[], SyncQueue | None]
    events: Events = NO_EVENTS

    def outcomes(self, table: HudiTable | str, entry: str | None = None, *, full: bool = False) -> list[Outcome]:
        """Syncs a table, or what lies at a path now, to all targets."""
        queue = queue_if_any(self.queue)
        base_path = table if isinstance(table, str) else table.storage.root

        def sync(target: Target) -> SyncReport:
            with nullcontext() if queue is None else queue.settling(target.name, base_path, entry):
                report = sync_target(target, self.clients, table, entry, full=full, events=self.events)
            self.events.emit("sync.report", report=report, target=target.name)
            return report

        return each_target(self.targets, sync)

    def sync(self, table: HudiTable, entry: str | None = None) -> SyncReport:
        """Syncs to all targets; returns the report of the main one, or raises its error. Others are queued."""
        main, *others = self.outcomes(table, entry)
        for outcome in others:
            if outcome.error is not None:
                self._missed(outcome, outcome.error, _Missed(table.storage.root, table.config.name, entry))
        if isinstance(main.result, SkepError):
            raise main.result
        return main.result

    def after_commit(self, entry: str | None = None) -> CommitHook:
        """A hook that syncs the snapshot that the commit ended with. A target that fails is reported and queued; if the
        process dies before, the entry's marker is behind the timeline, and the next sync updates it."""

        def hook(committed: Committed) -> None:
            missed = _Missed(committed.base_path, committed.table_name, entry, committed.instant.requested_time)
            for outcome in self.outcomes(committed.table, entry):
                if outcome.error is not None:
                    self._missed(outcome, outcome.error, missed)

        return hook

    def _missed(self, outcome: Outcome, error: SkepError, missed: _Missed) -> None:
        self._remember(outcome.target, error, missed)
        self.events.emit("sync.failed", table=missed.table, target=outcome.target, instant=missed.instant, error=error)
        what = f"commit {missed.instant} of {missed.table} is complete" if missed.instant else f"{missed.table} exists"
        where = "the metastore" if len(self.targets) == 1 else f"target {outcome.target}"
        warnings.warn(f"{what}, but {where} is not up to date: {error.message}", SyncWarning, stacklevel=3)

    def _remember(self, target: str, error: SkepError, missed: _Missed) -> None:
        try:
            queue = self.queue()
            if queue is not None:
                pending = queue.add(target, missed.base_path, missed.table, missed.instant, missed.entry)
                queue.note(queue.failed(pending, error))
        except (SkepError, OSError) as problem:
            self.events.emit("sync.not_remembered", table=missed.entry or missed.table, error=problem)


@dataclass(frozen=True, slots=True)
class _Missed:
    """A commit that a target has not received."""

    base_path: str
    table: str
    entry: str | None
    instant: str | None = None
