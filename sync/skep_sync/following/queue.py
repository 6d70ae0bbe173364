"""Pending syncs, kept across processes: small files below a folder of any storage.

    <folder>/<target>/<table>/<time>-<random>.json   one per announced commit, or failed sync; never changed
    <folder>/<target>/<table>/failure.json           how often syncing failed, with what, and when to try again

An event is a file of its own, created in one step: several processes may add while others work. A sync of a table
deletes the events that it saw before it began, so what arrives meanwhile remains, and a process that dies leaves all.
The truth about a table is in its timeline and markers: a second sync of the same commit does nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final

from skep_format.clock import SYSTEM_CLOCK, Clock, doubled
from skep_format.errors import MetastoreUnreachableError, SkepError, SyncError
from skep_format.runner import ThreadRunner
from skep_format.storage import Storage
from skep_sync.planning.locations import location

_FAILURE: Final = "failure.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][\w-]*")


@dataclass(frozen=True, slots=True)
class QueuedCommit:
    """A commit to sync. `entry` is `database.table` where it is known, else the table's own names hold."""

    base_path: str
    table: str
    instant: str | None
    received: str
    entry: str | None = None


@dataclass(frozen=True, slots=True)
class SyncFailure:
    """How often a table failed in a row, since when, the last error, and when it is due again (ISO, UTC)."""

    attempts: int
    since: str
    error: str
    retry_at: str
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """A table to sync to a target. `events` are the files' names, oldest first; `latest` the newest."""

    target: str
    key: str
    events: tuple[str, ...]
    latest: QueuedCommit
    failure: SyncFailure | None = None

    def to_json(self) -> dict[str, Any]:
        """As a row of `skep sync status --pending`."""
        failure = self.failure
        return {
            "target": self.target,
            "table": self.latest.entry or self.latest.table,
            "base_path": self.latest.base_path,
            "instant": self.latest.instant,
            "commits": len(self.events),
            "received": self.latest.received,
            "attempts": failure.attempts if failure else 0,
            "error": failure and failure.error,
            "retry_at": failure and failure.retry_at,
        }


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after so many failures in a row: doubling up to a longest wait, spread by a fifth."""

    first_seconds: float = 5.0
    longest_seconds: float = 900.0

    def after(self, attempts: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return doubled(self.first_seconds, self.longest_seconds, attempts) * random.uniform(0.8, 1.2)


def table_key(base_path: str) -> str:
    """One name for one table, whether it is written s3 or s3a."""
    return hashlib.sha256("\0".join(location(base_path)).encode()).hexdigest()[:24]


class SyncQueue:
    """The pending syncs of any number of targets. Threads and processes may share it."""

    def __init__(self, storage: Storage, *, clock: Clock = SYSTEM_CLOCK, backoff: Backoff | None = None) -> None:
        self._storage, self._clock, self._backoff = storage, clock, backoff or Backoff()
        self._read: dict[str, QueuedCommit] = {}  # events never change

    @property
    def place(self) -> str:
        """The queue's folder."""
        return self._storage.root

    def add(self, target: str, base_path: str, table: str, instant: str | None, entry: str | None = None) -> Pending:
        """Adds a commit. When this returns it is on storage."""
        now = self._clock.now()
        event = QueuedCommit(base_path, table, instant, now.isoformat(timespec="milliseconds"), entry)
        key = table_key(base_path)
        name = f"{now:%Y%m%d%H%M%S%f}-{uuid.uuid4().hex[:8]}.json"
        path = f"{_checked(target)}/{key}/{name}"
        self._storage.create_exclusive(path, _to_json(event))
        self._read[path] = event
        return Pending(target, key, (name,), event)

    def pending(self) -> list[Pending]:
        """All that is left, oldest first: one listing, and the newest event of each table."""
        names: dict[tuple[str, str], list[str]] = defaultdict(list)
        for file in self._storage.list_prefix("", recursive=True):
            parts = file.path.split("/")
            if len(parts) == 3 and parts[2].endswith(".json") and not parts[2].startswith("."):
                names[parts[0], parts[1]].append(parts[2])
        found = ThreadRunner().map(lambda item: self._pending(*item[0], item[1]), list(names.items()))
        return sorted(filter(None, found), key=lambda one: one.events[0])

    def of_table(self, target: str, base_path: str) -> Pending | None:
        """What is left of one table at one target: one listing where nothing is."""
        folder = f"{_checked(target)}/{table_key(base_path)}"
        names = [file.name for file in self._storage.list_prefix(folder) if file.name.endswith(".json")]
        return self._pending(target, table_key(base_path), names) if names else None

    @contextmanager
    def settling(self, target: str, base_path: str, entry: str | None = None) -> Iterator[None]:
        """Around any sync of a table: success deletes the events that were pending before it began.
        `entry`: as which it is synced; events of the table under another name remain.

        A queue that can't be read or written fails no sync; a remaining event is tried once more, and does nothing.
        """
        left = None
        with suppress(SkepError, OSError):
            left = self.of_table(target, base_path)
        yield
        if left is not None and (entry is None or left.latest.entry in (None, entry)):
            with suppress(SkepError, OSError):
                self.done(left)

    def done(self, pending: Pending) -> None:
        """Forgets the events that `pending` names, and its failures."""
        folder = f"{pending.target}/{pending.key}"
        for name in (*pending.events, *((_FAILURE,) if pending.failure else ())):
            self._storage.delete(f"{folder}/{name}")
            self._read.pop(f"{folder}/{name}", None)

    def failed(self, pending: Pending, error: BaseException) -> Pending:
        """With one more failure, and the time of the next attempt; `note` writes it."""
        now = self._clock.now()
        attempts = pending.failure.attempts + 1 if pending.failure else 1
        failure = SyncFailure(
            attempts,
            pending.failure.since if pending.failure else now.isoformat(timespec="milliseconds"),
            error.message if isinstance(error, SkepError) else repr(error),
            (now + timedelta(seconds=self._backoff.after(attempts))).isoformat(timespec="milliseconds"),
            is_unreachable(error),
        )
        return replace(pending, failure=failure)

    def note(self, pending: Pending) -> None:
        """Writes the failure of `pending`, for other and later processes."""
        if pending.failure is not None:
            path = f"{pending.target}/{pending.key}/{_FAILURE}"
            self._storage.replace_atomic(path, _to_json(pending.failure))

    # -- how

    def _pending(self, target: str, key: str, names: list[str]) -> Pending | None:
        folder = f"{target}/{key}"
        events = tuple(sorted(name for name in names if name != _FAILURE))
        latest = next(filter(None, (self._event(f"{folder}/{name}") for name in reversed(events))), None)
        if latest is None:
            if not events:
                self._storage.delete(
                    f"{folder}/{_FAILURE}"
                )  # left by a process that died between the deletions of `done`
            return None
        failure = self._json(f"{folder}/{_FAILURE}") if _FAILURE in names else None
        return Pending(target, key, events, latest, SyncFailure(**failure) if failure else None)

    def _event(self, path: str) -> QueuedCommit | None:
        if path not in self._read:
            record = self._json(path)
            if record is None:
                return None
            self._read[path] = QueuedCommit(**record)
        return self._read[path]

    def _json(self, path: str) -> dict[str, Any] | None:
        """None when another process has just done it."""
        try:
            record: dict[str, Any] = json.loads(self._storage.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise SyncError(
                f"{self._storage.uri(path)} is no pending sync: {error}", hint="delete the file", path=path
            ) from error
        return record


def is_unreachable(error: BaseException | None) -> bool:
    """Whether the target did not answer: then what failed is no fault of the table."""
    while error is not None:
        if isinstance(error, MetastoreUnreachableError):
            return True
        error = error.__cause__
    return False


def _checked(target: str) -> str:
    if not _NAME.fullmatch(target):
        raise ValueError(f"{target!r} is no name of a target")
    return target


def _to_json(value: QueuedCommit | SyncFailure) -> bytes:
    return json.dumps(asdict(value), ensure_ascii=False).encode()
