"""The Hudi tables among the entries of a metastore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from skep_catalog.entries import is_hudi
from skep_format.errors import MetastoreUnreachableError, NoSuchTableError, TableMismatchError
from skep_format.nearest import did_you_mean

if TYPE_CHECKING:
    from skep.base.names import TableName
    from skep_catalog.catalogs import EntryCatalog
    from skep_catalog.entities import TableEntry as Entry
    from skep_format.storage import Storage

VIEWS: Final = ("_ro", "_rt")  # of a merge-on-read table, behind its name


def hudi_entries(metastore: EntryCatalog, database: str | None = None) -> Iterator[Entry]:
    """Those of one database, or of all, in the order of their names. Views of merge-on-read tables are left out."""
    for name in [database.lower()] if database else metastore.databases():
        known = {entry.name: entry for entry in metastore.tables_of(name) if is_hudi(entry)}
        views = {entry + view for entry in known for view in VIEWS}
        yield from (known[entry] for entry in sorted(known.keys() - views))


def named_entry(metastore: EntryCatalog, name: TableName) -> Entry:
    """The entry of a table that a user names. NoSuchTableError with the nearest name."""
    try:
        return metastore.table(name.database, name.name)
    except NoSuchTableError as error:
        known = metastore.tables(name.database) if name.database in metastore.databases() else ()
        hint = did_you_mean(name.name, known) or error.hint
        raise NoSuchTableError(error.message, hint=hint, **error.fields) from None


def check_registered(metastore: EntryCatalog, name: TableName, storage: Storage) -> None:
    """That the metastore still has a table where a handle of it was opened: writers lock and sync that name. Renamed,
    dropped or moved meanwhile, it must not be recreated.

    NoSuchTableError when the entry no longer exists, TableMismatchError when it is of another folder.
    """
    from skep_sync.planning.locations import registered_there

    try:
        entry = metastore.find_table(name.database, name.name)
    except MetastoreUnreachableError:
        return  # unknown; under the metastore's own lock the write fails anyway
    if entry is None:
        raise NoSuchTableError(
            f"table {name} is not in the metastore any more: it was renamed or dropped",
            hint=f"open it by its new name, or register it again: lake.register({storage.root!r})",
            table=str(name),
            path=storage.root,
        )
    if not registered_there(entry.storage.location, storage.uri("")):
        raise TableMismatchError(
            f"table {name} lies at {entry.storage.location} now, no longer at {storage.root}",
            hint=f"open it again: lake.table({str(name)!r})",
            table=str(name),
            found=entry.storage.location,
            expected=storage.root,
        )
