"""Brings an entry back to what it was before a sync changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entries import MARKER
from skep_format.errors import InputError
from skep_sync.apply import Applier
from skep_sync.backup import Backup, backups, restored
from skep_sync.options import Cascade, SyncOptions
from skep_sync.planning.plan import differences
from skep_sync.planning.planner import target_of
from skep_sync.planning.steps import AlterEntry, Change
from skep_sync.sync_lock import as_sync_error, sync_lock
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class Restored:
    """An entry that was brought back. `changes` is empty where it was as in the copy already."""

    backup: Backup
    changes: tuple[Change, ...]
    created: bool = False

    def __str__(self) -> str:
        how = "recreated" if self.created else "unchanged" if not self.changes else f"{len(self.changes)} changes"
        lines = [f"{self.backup.table.full_name}: as of {self.backup.time} ({how})"]
        return "\n".join([*lines, *(f"    {change}" for change in self.changes)])

    def to_json(self) -> dict[str, Any]:
        changes = [{"what": c.what, "old": c.old, "new": c.new} for c in self.changes]
        return {**self.backup.to_json(), "created": self.created, "changes": changes}


def kept_entries(
    table: HudiTable, metastore: EntryCatalog, database: str | None = None, name: str | None = None
) -> list[Backup]:
    """The copies of the table's entries in this metastore, oldest first."""
    database, name = target_of(table, database, name)
    return [one for one in backups(table.storage, metastore.uri) if _is_of(one, database, name)]


def restore_entries(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    backup_id: str | None = None,
    events: Events = NO_EVENTS,
) -> list[Restored]:
    """Each entry of the table as its latest copy has it, or one as the copy `backup_id` has it.

    The present entry is kept as well, so a restore can be undone by the next one. Partitions stay as they are. The
    old marker comes back too: the next sync then does again what came after it.
    """
    settings = SyncOptions.of(options)
    database, name = target_of(table, database, name)
    known = kept_entries(table, metastore, database, name)
    if backup_id is not None:
        chosen = [one for one in known if one.id == backup_id]
    else:
        chosen = list({one.table.full_name: one for one in known}.values())
    if not chosen:
        raise InputError(
            f"no copy{f' {backup_id}' if backup_id else ''} of {database}.{name} at {metastore.uri} is kept with the "
            "table",
            hint="skep sync restore TABLE --list shows those there are",
            table=f"{database}.{name}",
        )
    with (
        as_sync_error(database, name, table.storage.root),
        sync_lock(metastore, database, name, settings.lock_wait_seconds, events),
    ):
        return [_restore(one, table, metastore, settings, events) for one in chosen]


def _is_of(backup: Backup, database: str, name: str) -> bool:
    return backup.table.database == database and backup.table.name in (name, f"{name}_ro", f"{name}_rt")


def _restore(
    backup: Backup, table: HudiTable, metastore: EntryCatalog, options: SyncOptions, events: Events
) -> Restored:
    actual = metastore.find_table(backup.table.database, backup.table.name)
    target = restored(backup, actual)
    if actual is None:
        metastore.create_table(target)
        return Restored(backup, (), created=True)
    changes = tuple(differences(actual, target))
    if changes:
        before = actual.parameters.get(MARKER)
        columns = any(change.what.startswith("column") for change in changes)
        cascade = columns and bool(target.partition_keys) and options.cascade is Cascade.ALL
        expected = None if before is None else (MARKER, before)
        Applier(metastore, table.storage, options, events).alter(AlterEntry(target, changes, cascade, expected))
    return Restored(backup, changes)
