"""Every table of a metastore that is behind its timeline, made up for: what failed syncs have left to do.

There is no list of failed syncs that could itself be lost: an entry whose marker is behind the timeline is pending,
whether its sync failed, its writer was killed, or nobody ever tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from skep_catalog.client import Metastore
from skep_catalog.entities import Table
from skep_catalog.entries import MARKER
from skep_sync.sync import SyncReport, sync_table
from skep_table.errors import SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable

_VIEWS = ("_ro", "_rt")


def sync_pending(
    metastore: Metastore,
    database: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    events: Events = NO_EVENTS,
) -> Iterator[tuple[str, SyncReport | SkepError]]:
    """Syncs the Hudi tables of one database, or of all, one by one. A table that fails does not stop the others."""
    for entry in _hudi_tables(metastore, database):
        try:
            table = HudiTable.open(entry.storage.location or "", options)
            report = sync_table(table, metastore, entry.database, entry.name, options, events=events)
        except SkepError as error:
            yield entry.full_name, error
        else:
            yield entry.full_name, report


def _hudi_tables(metastore: Metastore, database: str | None) -> Iterator[Table]:
    """Tables that were synced at some time, each once: not by its views as well."""
    for name in [database] if database else metastore.databases():
        entries = metastore.tables(name)
        known = set(entries)
        for entry in entries:
            if any(entry.endswith(view) and entry.removesuffix(view) in known for view in _VIEWS):
                continue
            found = metastore.find_table(name, entry)
            if found is not None and MARKER in found.parameters:
                yield found
