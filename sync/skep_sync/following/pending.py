"""All tables of a metastore, or those that are behind: what is left by syncs that failed or never ran.

Markers and timelines, which can't be lost, show what is behind: an entry whose marker is behind is pending, whether its
sync failed, its writer was killed, or none ever ran. The queue also has tables without an entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from operator import itemgetter

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import TableEntry
from skep_catalog.entries import is_hudi
from skep_format.errors import NoSuchTableError, NotATableError, SkepError
from skep_sync.following.queue import Pending, SyncQueue, table_key
from skep_sync.following.status import sync_status
from skep_sync.following.watch import WatchedTable, table_of_view
from skep_sync.planning.planner import SYMLINKS
from skep_sync.sync import SyncReport
from skep_sync.targets import Clients, Outcome, Target, each_target, sync_target
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable


class KnownTables:
    """The Hudi tables of one database of a metastore, or of all; a later call reads only entries with new names."""

    def __init__(self, metastore: EntryCatalog, database: str | None = None) -> None:
        self._metastore, self._database = metastore, database
        self._known: dict[tuple[str, str], WatchedTable | None] = {}

    def __call__(self) -> list[WatchedTable]:
        """Each once, by its location; views of merge-on-read tables count as their table."""
        names = set(self._names())
        for dropped in self._known.keys() - names:
            del self._known[dropped]
        new = sorted(names - self._known.keys())
        self._known |= dict.fromkeys(new)
        for database, of_database in groupby(new, key=itemgetter(0)):
            for entry in self._metastore.tables_of(database, [name for _, name in of_database]):
                self._known[database, entry.name] = _watched(entry)
        found: dict[str, WatchedTable] = {}
        # Sorted, a plain name comes before its views.
        for _, table in sorted(self._known.items()):
            if table is not None:
                found.setdefault(table_key(table.base_path), table)
        return list(found.values())

    def _names(self) -> Iterator[tuple[str, str]]:
        for database in [self._database] if self._database else self._metastore.databases():
            names = self._metastore.tables(database)
            if not names and self._database:
                self._metastore.database(database)  # a missing database lists no tables, without an error
            for name in names:
                yield database, name


class DroppedEntries:
    """Which watched tables have lost an entry: one that existed in an earlier round, or all of a table's.

    The names of each database are read once a round, and nothing else.
    """

    def __init__(self, targets: Sequence[Target], clients: Clients) -> None:
        self._targets, self._clients = targets, clients
        self._there: dict[tuple[str, str], frozenset[str]] = {}

    def __call__(self, tables: Sequence[tuple[WatchedTable, str | None, str]]) -> list[WatchedTable]:
        lost: dict[str, WatchedTable] = {}
        for target in self._targets:
            names: dict[str, frozenset[str]] = {}
            for watched, own_database, own_name in tables:
                database, name = target.names(watched.entry)
                database, name = (database or own_database or "default").lower(), (name or own_name).lower()
                if database not in names:
                    names[database] = self._names(target, database)
                key = target.name, table_key(watched.base_path)
                there = names[database] & {name, f"{name}_ro", f"{name}_rt"}
                # The queue retries what is submitted once: it is not submitted in each round.
                if (key not in self._there and not there) or not there >= self._there.get(key, frozenset()):
                    lost[key[1]] = watched
                self._there[key] = there
        return list(lost.values())

    def _names(self, target: Target, database: str) -> frozenset[str]:
        try:
            return frozenset(self._clients.of(target).tables(database))
        except NoSuchTableError:  # the database was dropped, too
            return frozenset()


def _watched(entry: TableEntry) -> WatchedTable | None:
    location = entry.storage.location
    if not location or not is_hudi(entry) or entry.storage.input_format == SYMLINKS:
        return None
    return WatchedTable(location, entry.full_name)


def sync_all(
    tables: Sequence[WatchedTable],
    targets: Sequence[Target],
    clients: Clients,
    *,
    only_behind: bool = False,
    full: bool = False,
    queue: SyncQueue | None = None,
    events: Events = NO_EVENTS,
) -> Iterator[tuple[str, Outcome]]:
    """Syncs tables one by one, each to all targets. One that fails stops no other. `only_behind`: where a marker is.
    `queue`: what it has of a table is settled by a sync of it."""
    for watched in tables:
        entry = watched.entry or watched.base_path
        try:
            table = HudiTable.open(watched.base_path, targets[0].options)
        except SkepError as error:
            yield entry, Outcome(targets[0].name, error)
            continue
        entry = table_of_view(entry, table.config.name) if watched.entry else table.config.name
        sync = partial(_sync, clients=clients, table=table, entry=entry, full=full, queue=queue, events=events)
        behind = [target for target in targets if not only_behind or _is_behind(target, clients, table, entry)]
        for outcome in each_target(behind, sync) if behind else ():
            yield entry, outcome


def _sync(
    target: Target,
    clients: Clients,
    table: HudiTable,
    entry: str,
    full: bool,
    queue: SyncQueue | None,
    events: Events,
) -> SyncReport:
    with nullcontext() if queue is None else queue.settling(target.name, table.storage.root, entry):
        return sync_target(target, clients, table, entry, full=full, events=events)


def _is_behind(target: Target, clients: Clients, table: HudiTable, entry: str) -> bool:
    database, name = target.names(entry)
    try:
        states = sync_status(table, clients.of(target), database, name, target.options)
    except SkepError:
        return True  # the sync will raise the error
    return any(not state.registered or state.commits != 0 for state in states)


def sync_queued(
    queue: SyncQueue, targets: Sequence[Target], clients: Clients, *, events: Events = NO_EVENTS
) -> Iterator[tuple[str, Outcome]]:
    """Tries everything that is in the queue, due or not, and keeps it up to date."""
    known = {target.name: target for target in targets}
    for pending in queue.pending():
        if pending.target in known:
            shown = pending.latest.entry or pending.latest.table
            yield shown, _retry(queue, pending, known[pending.target], clients, events)


def _retry(queue: SyncQueue, pending: Pending, target: Target, clients: Clients, events: Events) -> Outcome:
    event = pending.latest
    try:
        report = sync_target(target, clients, event.base_path, event.entry, events=events)
    except NotATableError as error:
        queue.done(pending)  # dropped meanwhile: there is nothing to sync any more
        return Outcome(target.name, error)
    except SkepError as error:
        queue.note(queue.failed(pending, error))
        return Outcome(target.name, error)
    queue.done(pending)
    return Outcome(target.name, report)
