"""Checks that the metastore still has a table where a handle of it was opened: writers lock and sync that name."""

from __future__ import annotations

from dataclasses import dataclass

from skep.base.names import TableName
from skep_catalog.catalogs import EntryCatalog
from skep_format.errors import MetastoreUnreachableError, NoSuchTableError, TableMismatchError
from skep_sync.planning.locations import registered_there
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class Registration:
    """The entry under which a table was opened. Renamed, dropped or moved meanwhile, it must not be recreated."""

    metastore: EntryCatalog
    name: TableName
    table: HudiTable

    def ensure(self) -> None:
        """NoSuchTableError when the entry no longer exists, TableMismatchError when it is of another folder."""
        try:
            entry = self.metastore.find_table(self.name.database, self.name.name)
        except MetastoreUnreachableError:
            return  # unknown; under the metastore's own lock the write fails anyway
        storage = self.table.storage
        if entry is None:
            raise NoSuchTableError(
                f"table {self.name} is not in the metastore any more: it was renamed or dropped",
                hint=f"open it by its new name, or register it again: lake.register({storage.root!r})",
                table=str(self.name),
                path=storage.root,
            )
        if not registered_there(entry.storage.location, storage.uri("")):
            raise TableMismatchError(
                f"table {self.name} lies at {entry.storage.location} now, no longer at {storage.root}",
                hint=f"open it again: lake.table({str(self.name)!r})",
                table=str(self.name),
                found=entry.storage.location,
                expected=storage.root,
            )
