"""Delivery at least once: what a receiver has been told is kept beside the table, all else is told again.

There is no list of failures that could itself be lost. The timeline has the commits; a small file for each receiver,
below `.hoodie/.skep/callbacks`, says which of them it knows. A writer that dies after its commit, or a receiver that is
down, leaves commits untold, and the next commit or `skep callbacks replay` tells them, the oldest first.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from skep_sync.callbacks.message import CallbackMessage
from skep_sync.callbacks.senders import Sender
from skep_table.errors import CorruptFileError, SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import CommitHook, Committed
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import WriteOperation

FOLDER: Final = ".hoodie/.skep/callbacks"
_SERVICES: Final = (WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)


class CallbackWarning(UserWarning):
    """A commit stands, and a receiver has not been told: the next commit, or a replay, makes up for it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was told now, and what is left to be told because the first of it failed with `error`."""

    told: tuple[Instant, ...] = ()
    left: tuple[Instant, ...] = ()
    error: SkepError | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What a receiver knows: all writes up to `since`, and those in `told`."""

    since: str
    told: frozenset[str] = frozenset()

    def has(self, instant: Instant) -> bool:
        return instant.requested_time <= self.since or instant.requested_time in self.told

    def also(self, instant: Instant) -> _Known:
        return replace(self, told=self.told | {instant.requested_time})

    def settled(self, table: HudiTable) -> _Known:
        """With `since` moved up to the newest write before which nothing is pending or untold."""
        since = self.since
        for instant in table.timeline.data():
            if instant.requested_time in self.told:
                since = max(since, instant.requested_time)
            elif instant.requested_time > since and not _is_service(table, instant):
                break
        return _Known(since, frozenset(time for time in self.told if time > since))


def callback_hook(
    sender: Callable[[], Sender], open_table: Callable[[str], HudiTable], events: Events = NO_EVENTS
) -> CommitHook:
    """Tells a commit, and whatever could not be told before it. A callback never fails a write that is committed."""

    def hook(committed: Committed) -> None:
        try:
            delivery = deliver(open_table(committed.base_path), sender(), began_with=committed.instant)
        except SkepError as error:
            delivery = Delivery(left=(committed.instant,), error=error)
        if delivery.error is not None:
            count = len(delivery.left)
            events.emit("callback.failed", table=committed.table_name, untold=count, error=delivery.error)
            warnings.warn(
                f"commit {committed.instant.requested_time} of {committed.table_name} stands, but {count} commits could"
                f" not be told: {delivery.error.message}; skep callbacks replay tells them again",
                CallbackWarning,
                stacklevel=2,
            )
        for instant in delivery.told:
            events.emit("callback.told", table=committed.table_name, instant=instant.requested_time)

    return hook


def untold(table: HudiTable, sender: Sender, *, since: str | None = None) -> list[Instant]:
    """The writes of the active timeline that the receiver has not been told; with `since`, all after it."""
    known = _Known(since) if since is not None else _load(table.storage, sender)
    if known is None:
        return []
    return [
        instant
        for instant in table.timeline.data().completed()
        if not known.has(instant) and not _is_service(table, instant)
    ]


def deliver(
    table: HudiTable, sender: Sender, *, since: str | None = None, began_with: Instant | None = None
) -> Delivery:
    """Tells what is untold, in the order of the timeline, until one fails.

    `since`: also what was told before, all writes after that instant. `began_with`: a receiver that has not been told
    anything yet is told this commit and later ones; without it, nothing.
    """
    known = _load(table.storage, sender)
    if known is None:
        begin = began_with.requested_time if began_with else ""
        known = _Known(max((i.requested_time for i in table.timeline.data() if i.requested_time < begin), default=""))
        if began_with is None and since is None:
            return Delivery()
        _store(table.storage, sender, known)
    waiting = untold(table, sender, since=since)
    told: list[Instant] = []
    error: SkepError | None = None
    for instant in waiting:
        message = CallbackMessage(table.storage.root, table.config.name, instant, table.commit_metadata(instant))
        try:
            sender.send(message)
        except SkepError as failure:
            error = failure
            break
        known = known.also(instant)
        told.append(instant)
    if told:
        _store(table.storage, sender, known.settled(table))
    return Delivery(tuple(told), tuple(waiting[len(told) :]), error)


def _is_service(table: HudiTable, instant: Instant) -> bool:
    """Hudi tells writes, not what its table services commit."""
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
        return _Known(str(record["since"]), frozenset(map(str, record["told"])))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} does not say what was told: {error}", path=path) from error


def _store(storage: Storage, sender: Sender, known: _Known) -> None:
    record = {"address": sender.address, "since": known.since, "told": sorted(known.told)}
    storage.replace_atomic(_path(sender), json.dumps(record, indent=1).encode())
