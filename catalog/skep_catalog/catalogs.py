"""What syncs and tables by name need of a catalog, whatever server keeps it: a Hive Metastore, or AWS Glue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skep_catalog.entities import Database, Partition, PartitionIndexes, TableEntry
from skep_catalog.lengths import METASTORE_LENGTHS, Lengths
from skep_format.errors import EntryExistsError, NoSuchTableError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Self


class EntryCatalog(Protocol):
    """Databases, tables and partitions as frozen values. Errors name catalog, call and table; see CatalogError."""

    @property
    def uri(self) -> str:
        """Where the catalog is."""

    @property
    def user(self) -> str | None:
        """Who owns new entries; None where entries have no owner."""

    @property
    def calls(self) -> int:
        """How many calls were sent so far."""

    lengths: Lengths = METASTORE_LENGTHS
    """How long texts may be."""
    compares_columns: bool = True
    """Whether an alteration is refused for columns whose types the old ones can't become. Servers of metastores do
    that unless their settings lift it."""

    @property
    def entry_parameters(self) -> Mapping[str, str]:
        """Parameters that entries of Hudi tables have in this catalog beside their own."""
        return {}

    def check(self, table: TableEntry) -> None:  # noqa: ARG002
        """UnsupportedError for an entry that this catalog can't have."""
        return

    def location(self, uri: str) -> str:
        """A folder as entries of this catalog name it."""
        return uri

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""

    def database(self, name: str) -> Database:
        """NoSuchTableError when there is none."""

    def create_database(self, database: Database, *, if_not_exists: bool = False) -> bool:
        """Returns whether it was made."""
        try:
            self.new_database(database)
        except EntryExistsError:
            if not if_not_exists:
                raise
            return False
        return True

    def new_database(self, database: Database) -> None:
        """EntryExistsError when there is one."""

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Never deletes data. With `cascade` its tables' entries go first."""

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables and views, sorted."""

    def table(self, database: str, name: str) -> TableEntry:
        """NoSuchTableError when there is none."""

    def find_table(self, database: str, name: str) -> TableEntry | None:
        """The table, or None when there is none."""
        try:
            return self.table(database, name)
        except NoSuchTableError:
            return None

    def find_tables(self, database: str, names: Sequence[str]) -> dict[str, TableEntry | None]:
        """Each of a few tables, None for those that are not there."""
        return {name: self.find_table(database, name) for name in names}

    def tables_of(self, database: str, names: Sequence[str] | None = None) -> Iterator[TableEntry]:
        """The tables of these names (None: all). Missing ones are passed over."""

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> None:
        """Renames the entry; the data of an external table stays where it is."""

    def create_table(self, table: TableEntry) -> None:
        """EntryExistsError when there is one; NoSuchTableError when the database is missing."""

    def alter_table(
        self,
        database: str,
        name: str,
        table: TableEntry,
        *,
        cascade: bool = False,
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Writes `table` over an entry. `expected`: a parameter and the value that it must still have."""

    def drop_table(self, database: str, name: str) -> None:
        """Drops the entry, never the data. NoSuchTableError when there is none."""

    def partition_names(self, database: str, name: str) -> list[str]:
        """All partitions as `k=v/…`, values escaped as Hive does."""

    def partitions(self, database: str, name: str, names: Sequence[str] | None = None) -> Iterator[Partition]:
        """The partitions of these names (None: all). A name that is not there is passed over."""

    def add_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        """Those that exist are left as they are. With the parameters numFiles and totalSize partitions keep these; else
        the server of a metastore lists their folders."""

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        """Writes whole partitions over those of the same values."""

    def drop_partitions(self, database: str, name: str, names: Sequence[str]) -> None:
        """Drops the entries of these names, never the data. A name that is not there is passed over."""

    def lacking_indexes(self, table: TableEntry) -> PartitionIndexes | None:  # noqa: ARG002
        """What indexes of the partitions lack by the options of the catalog; None where nothing is to be done: the
        database of a metastore has the indexes of its schema."""
        return None

    def change_indexes(self, table: TableEntry, changes: PartitionIndexes) -> None:
        """Drops and adds indexes of a table's partitions."""
        raise UnsupportedError.of_table(table.full_name, f"a Hive Metastore has no partition indexes: {changes}")
