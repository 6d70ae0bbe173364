"""Syncs tables to all their targets, on request and after commits. A failed sync does not affect the commit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from skep.base.background import beside
from skep_format.errors import SkepError
from skep_format.options import Options, boolean, option
from skep_format.storage import open_storage
from skep_sync.following.queue import SyncQueue
from skep_sync.targets import MAIN, Clients, Outcome, Target, each_target, look_ahead, sync_target
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import Committed
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_sync.planning.ahead import Ahead
    from skep_sync.sync import SyncReport

SYNC = option("skep.sync.after.commit", boolean, True, "Bring the metastore up to date after each commit")
QUEUE = option(
    "skep.sync.queue", str, "", "Folder that keeps what is left to sync; else .skep/sync below the lake's warehouse"
)

_FOLDER = ".skep/sync"
_MOST_PARTITIONS: Final = 1_000


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


def _passes() -> None:
    """A check of nothing."""


@dataclass(frozen=True)
class TableSyncs:
    """The targets of tables, and the queue that remembers what failed. Targets are synced at once, not in turn."""

    targets: tuple[Target, ...]
    clients: Clients
    queue: Callable[[], SyncQueue | None]
    events: Events = NO_EVENTS

    def outcomes(
        self,
        table: HudiTable | str,
        entry: str | None = None,
        *,
        full: bool = False,
        ahead: Mapping[str, Ahead] | None = None,
    ) -> list[Outcome]:
        """Syncs a table, or what lies at a path now, to all targets. `ahead`: what was looked up for some, by name."""
        queue = queue_if_any(self.queue)
        base_path = table if isinstance(table, str) else table.storage.root

        def sync(target: Target) -> SyncReport:
            with nullcontext() if queue is None else queue.settling(target.name, base_path, entry):
                known = None if ahead is None else ahead.get(target.name)
                report = sync_target(target, self.clients, table, entry, full=full, events=self.events, ahead=known)
            self.events.emit("sync.report", report=report, target=target.name)
            return report

        return each_target(self.targets, sync)

    def sync(self, table: HudiTable, entry: str | None = None) -> SyncReport:
        """Syncs to all targets; returns the report of the main one, or raises its error. Others are queued."""
        main, *others = self.outcomes(table, entry)
        for outcome in others:
            if outcome.error is not None:
                self.missed(outcome, outcome.error, _Missed(table.storage.root, table.config.name, entry))
        if isinstance(main.result, SkepError):
            raise main.result
        return main.result

    def after_commit(self, entry: str | None = None, check: Callable[[], None] = _passes) -> SyncAfterCommit:
        """A hook that syncs the snapshot that the commit ended with, where `check` passes."""
        return SyncAfterCommit(self, entry, check)

    def missed(self, outcome: Outcome, error: SkepError, missed: _Missed) -> None:
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


@dataclass(frozen=True)
class SyncAfterCommit:
    """The hook that syncs. A target that fails is reported and queued; if the process dies before, the entry's marker
    is behind the timeline, and the next sync updates it.

    `check` raises a SkepError where the table must not be synced under this name any more. `looks` are under way, by
    the names of targets.
    """

    syncs: TableSyncs
    entry: str | None
    check: Callable[[], None]
    looks: Mapping[str, Future[Ahead]] = field(default_factory=dict)

    def before(self, table: HudiTable, partitions: Collection[str]) -> SyncAfterCommit:
        """Looks up what the sync will compare with, beside the write.

        Not for so many partitions that it may take longer than what it finds is used.
        """
        if len(partitions) > _MOST_PARTITIONS:
            return self
        look = partial(look_ahead, clients=self.syncs.clients, table=table, entry=self.entry, paths=partitions)
        looks = {target.name: beside(partial(look, target, confirm=self._confirm)) for target in self.syncs.targets}
        return replace(self, looks=looks)

    def __call__(self, committed: Committed) -> None:
        missed = _Missed(committed.base_path, committed.table_name, self.entry, committed.instant.requested_time)
        ahead = {name: found for name, look in self.looks.items() if (found := _recent(look)) is not None}
        try:
            if MAIN not in ahead:
                self._confirm()
            outcomes = self.syncs.outcomes(committed.table, self.entry, ahead=ahead)
        except _NotSyncedError as error:
            what = f"commit {missed.instant} of {self.entry or missed.table} is complete, and is not synced"
            warnings.warn(f"{what}: {error}", SyncWarning, stacklevel=2)
            return
        for outcome in outcomes:
            if outcome.error is not None:
                self.syncs.missed(outcome, outcome.error, missed)

    def _confirm(self) -> None:
        try:
            self.check()
        except SkepError as error:
            raise _NotSyncedError(error.message) from error


class _NotSyncedError(Exception):
    """The check of a hook failed: no target may be synced, now or later."""


def _recent(look: Future[Ahead]) -> Ahead | None:
    try:
        found = look.result()
    except Exception:  # the sync looks again, and raises what concerns it
        return None
    return found if found.is_recent else None


@dataclass(frozen=True, slots=True)
class _Missed:
    """A commit that a target has not received."""

    base_path: str
    table: str
    entry: str | None
    instant: str | None = None
