"""Delivery at least once: a file beside the table records what a receiver got; everything else is sent again.

There is no list of failures that could itself be lost. The timeline has the commits; a small file for each receiver,
below `.hoodie/.skep/callbacks`, records which of them were delivered. A writer that dies after its commit, or a
receiver that is down, leaves commits undelivered; the next commit or `skep callbacks replay` sends them, oldest first.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from skep_format.errors import CorruptFileError, SkepError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.storage import Storage
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import WriteOperation
from skep_sync.callbacks.senders import CallbackMessage, Sender
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import CommitHook, Committed
from skep_table.table import HudiTable

FOLDER: Final = ".hoodie/.skep/callbacks"
_SERVICES: Final = (WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)


class CallbackWarning(UserWarning):
    """A commit is complete, but a receiver did not get it: the next commit, or a replay, sends it again."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was delivered now, and what is left because the first of it failed with `error`."""

    delivered: tuple[Instant, ...] = ()
    left: tuple[Instant, ...] = ()
    error: SkepError | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What a receiver got: all writes up to `since`, and those in `delivered`."""

    since: InstantTime
    delivered: frozenset[InstantTime] = frozenset()

    def has(self, instant: Instant) -> bool:
        return instant.requested_time.is_at_or_before(self.since) or instant.requested_time in self.delivered

    def also(self, instant: Instant) -> _Known:
        return replace(self, delivered=self.delivered | {instant.requested_time})

    def settled(self, table: HudiTable) -> _Known:
        """With `since` moved up to the newest write before which nothing is pending or undelivered."""
        since = self.since
        for instant in table.timeline.data():
            if instant.requested_time in self.delivered:
                since = max(since, instant.requested_time)
            elif instant.requested_time.is_after(since) and not _is_service(table, instant):
                break
        return _Known(since, frozenset(time for time in self.delivered if time.is_after(since)))


def callback_hook(
    sender: Callable[[], Sender], open_table: Callable[[str], HudiTable], events: Events = NO_EVENTS
) -> CommitHook:
    """Sends a commit, and those that could not be delivered before it. A callback never fails a committed write."""

    def hook(committed: Committed) -> None:
        try:
            delivery = deliver(open_table(committed.base_path), sender(), began_with=committed.instant)
        except SkepError as error:
            delivery = Delivery(left=(committed.instant,), error=error)
        if delivery.error is not None:
            count = len(delivery.left)
            events.emit("callback.failed", table=committed.table_name, undelivered=count, error=delivery.error)
            warnings.warn(
                f"commit {committed.instant.requested_time} of {committed.table_name} is complete, but {count} commits"
                f" could not be delivered: {delivery.error.message}; skep callbacks replay sends them again",
                CallbackWarning,
                stacklevel=2,
            )
        for instant in delivery.delivered:
            events.emit("callback.delivered", table=committed.table_name, instant=instant.requested_time)

    return hook


def undelivered(table: HudiTable, sender: Sender, *, since: InstantTime | None = None) -> list[Instant]:
    """The writes of the active timeline that the receiver did not get; with `since`, all after it."""
    known = _Known(since) if since is not None else _load(table.storage, sender)
    if known is None:
        return []
    return [
        instant
        for instant in table.timeline.data().completed()
        if not known.has(instant) and not _is_service(table, instant)
    ]


def deliver(
    table: HudiTable, sender: Sender, *, since: InstantTime | None = None, began_with: Instant | None = None
) -> Delivery:
    """Sends what is undelivered, in the order of the timeline, until one fails.

    `since`: also what was delivered before, all writes after that instant. `began_with`: a receiver that got nothing
    yet gets this commit and later ones; without it, nothing.
    """
    known = _load(table.storage, sender)
    if known is None:
        begin = began_with.requested_time if began_with else BEFORE_ALL
        before = table.timeline.data().before(begin).last()
        known = _Known(before.requested_time if before else BEFORE_ALL)
        if began_with is None and since is None:
            return Delivery()
        _store(table.storage, sender, known)
    waiting = undelivered(table, sender, since=since)
    delivered: list[Instant] = []
    error: SkepError | None = None
    for instant in waiting:
        message = CallbackMessage(table.storage.root, table.config.name, instant, table.commit_metadata(instant))
        try:
            sender.send(message)
        except SkepError as failure:
            error = failure
            break
        known = known.also(instant)
        delivered.append(instant)
    if delivered:
        _store(table.storage, sender, known.settled(table))
    return Delivery(tuple(delivered), tuple(waiting[len(delivered) :]), error)


def _is_service(table: HudiTable, instant: Instant) -> bool:
    """Hudi sends callbacks for writes, not for commits of table services."""
    return instant.is_completed and table.commit_metadata(instant).operation_type in _SERVICES


def _path(sender: Sender) -> str:
    return f"{FOLDER}/{hashlib.sha256(sender.address.encode()).hexdigest()[:16]}.json"


def _load(storage: Storage, sender: Sender) -> _Known | None:
    path = _path(sender)
    try:
        text = storage.read(path)
    except FileNotFoundError:
        return None
    try:
        record = json.loads(text)
        return _Known(InstantTime(record["since"]), frozenset(map(InstantTime, record["told"])))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no record of delivered commits: {error}", path=path) from error


def _store(storage: Storage, sender: Sender, known: _Known) -> None:
    record = {"address": sender.address, "since": known.since, "told": sorted(known.delivered)}
    storage.replace_atomic(_path(sender), json.dumps(record, indent=1).encode())
