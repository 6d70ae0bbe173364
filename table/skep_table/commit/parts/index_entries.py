"""Entries that a write puts into an index outside of the table, before it completes: those of which instants count.

An entry has its instant, and counts when that is completed. Instants that are older than the timeline count as
completed too, and the entries of a write that failed would count with them. So a file per instant is there from before
its first entry until it is complete, and again once it is rolled back: the entries of an instant whose file stays never
count, however old it becomes. The file has content once the entries were replaced by those that were valid before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from skep_format.errors import AlreadyExistsError
from skep_format.instant_time import InstantTime
from skep_format.names import META_FOLDER
from skep_format.timeline.instant import Instant
from skep_table.commit.parts.participant import Participant
from skep_table.table import HudiTable

FOLDER: Final = f"{META_FOLDER}/.skep_index_entries"
_IN_USE: Final = "in_use"
"""A file that always stays: it shows rollbacks that the table has such an index."""


def entries_are_kept(table: HudiTable) -> bool:
    """Whether a write to this table has put entries before; without request where the listed timeline shows it."""
    return table.may_have_folder(FOLDER) and table.storage.exists(_path(_IN_USE))


def entries_begin(table: HudiTable, time: InstantTime) -> None:
    """Before the first entry of an instant. May be repeated. StorageError."""
    if not table.may_have_folder(FOLDER):
        _create(table, _IN_USE)
    _create(table, time)


def entries_count(table: HudiTable, time: InstantTime) -> None:
    """After the completion of an instant. StorageError, without consequence: the entries are verified until it is
    repeated by `uncounted`."""
    table.storage.delete(_path(time))


class Uncounted(NamedTuple):
    """The instants whose entries do not count, although they may be older than the timeline.

    `unrepaired`: those whose entries may still be there; some may be pending.
    """

    times: frozenset[InstantTime] = frozenset()
    unrepaired: frozenset[InstantTime] = frozenset()


def uncounted(table: HudiTable) -> Uncounted:
    """Of the table as it is. Deletes the files of instants that are complete, which processes that died have left."""
    if not table.may_have_folder(FOLDER):
        return Uncounted()
    sizes = {file.name: file.size_bytes for file in table.storage.list_prefix(FOLDER)}
    times = {InstantTime(name): size for name, size in sizes.items() if name != _IN_USE}
    done = {instant.requested_time for instant in table.timeline.data().completed()} & set(times)
    table.storage.delete_many([_path(time) for time in sorted(done)])
    left = {time: size for time, size in times.items() if time not in done}
    return Uncounted(frozenset(left), frozenset(time for time, size in left.items() if not size))


def entries_repaired(table: HudiTable, times: Iterable[InstantTime]) -> None:
    """Remembers that no entry of some instants, which ended, is left. Further ones would not count, either."""
    for time in times:
        table.storage.replace_atomic(_path(time), b"repaired")


class IndexEntries(Participant):
    """The entries of an index as a participant of every table: the tasks put them, they count once their instant is
    complete, and a rollback makes them void."""

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Makes them void, where the table has an index outside."""
        if entries_are_kept(table):
            _create(table, instant.requested_time)


def _create(table: HudiTable, name: str) -> None:
    with suppress(AlreadyExistsError):
        table.storage.create_exclusive(_path(name), b"")


def _path(name: str) -> str:
    return f"{FOLDER}/{name}"
