"""Changes are delivered at least once: a position beside the table moves on when a receiver has a commit as a whole.

The position is a time of the table's ranges (`ReadRules.time_in_range`). Where these are requested times, a write that
is under way may complete before commits that are there: those that were requested after it wait.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from skep_format.errors import CorruptFileError
from skep_format.instant_time import AFTER_ALL, InstantTime
from skep_format.storage import Storage
from skep_format.timeline.instant import Action
from skep_sync.feed.receivers import CommitChanges, Receiver, lines_of
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.query import ReadRequest
from skep_table.query.cdc import ChangeTask, plan_changes, run
from skep_table.query.incremental import instants_between
from skep_table.query.options import QueryType
from skep_table.table import HudiTable

FOLDER: Final = ".hoodie/.skep/changes"
_SERVICES: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


@dataclass(frozen=True, slots=True)
class Fed:
    """A commit that the receiver has, how many changes it made, and the position behind it."""

    instant: InstantTime
    changes: int
    position: InstantTime


def feed(
    table: HudiTable, receiver: Receiver, *, consumer: str | None = None, since: str | None = None
) -> Iterator[Fed]:
    """Sends what was committed since the position, and moves that on behind each commit.

    The position is the receiver's, or that of a `consumer` by its name; a receiver without address has none. Without
    a position everything that can be read is sent, with `since` what was committed after this time. InputError where a
    clean or an archive took what is asked for, SyncError of the receiver; the next call goes on with the commit that
    failed.
    """
    table = table.reload()
    path = _path(consumer or receiver.address)
    begin = _load(table.storage, path) if path and since is None else since
    request = ReadRequest(query=QueryType.CDC, since=begin)
    time_of = table.format.reads.time_in_range
    bound = _bound(table)
    instants = sorted(instants_between(table, request), key=time_of)
    chosen = [instant for instant in instants if instant.requested_time.is_before(bound)]
    if not chosen:
        return
    request = ReadRequest(query=QueryType.CDC, since=begin, until=time_of(chosen[-1]))
    tasks = {time: list(found) for time, found in groupby(plan_changes(table, request), key=lambda task: task.instant)}
    for instant in chosen:
        lines = _lines(tasks.get(instant.requested_time, []))
        sent = receiver.send(CommitChanges(table.config.name, table.storage.root, instant.requested_time, lines))
        if path:
            _store(table.storage, path, time_of(instant))
        yield Fed(instant.requested_time, sent, time_of(instant))


def _lines(tasks: list[ChangeTask]) -> Iterator[pa.Array]:
    for task in tasks:
        for rows in run(task):
            yield lines_of(rows)


def _bound(table: HudiTable) -> InstantTime:
    """Of writes requested after it none is sent yet."""
    if table.format.reads.ranges_by_completion_time:
        return AFTER_ALL
    running = (each for each in table.timeline.data().pending() if each.action not in _SERVICES)
    return min((each.requested_time for each in running if not is_clustering(table, each)), default=AFTER_ALL)


def _path(consumer: str) -> str:
    if not consumer:
        return ""
    return f"{FOLDER}/{hashlib.sha256(consumer.encode()).hexdigest()[:16]}.json"


def _load(storage: Storage, path: str) -> str | None:
    try:
        text = storage.read(path)
    except FileNotFoundError:
        return None
    try:
        return InstantTime(json.loads(text)["position"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no position in a table's changes: {error}", path=path) from error


def _store(storage: Storage, path: str, position: InstantTime) -> None:
    storage.replace_atomic(path, json.dumps({"position": position}).encode())
