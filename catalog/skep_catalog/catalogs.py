"""What syncs and tables by name need of a catalog, whatever server keeps it: a Hive Metastore, or AWS Glue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skep_catalog.entities import Database, Partition, PartitionIndexes, TableEntry
from skep_catalog.lengths import Lengths

if TYPE_CHECKING:
    from typing_extensions import Self

GLUE = "glue:"
"""What an address of AWS Glue begins with."""


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

    @property
    def lengths(self) -> Lengths:
        """How long texts may be."""

    @property
    def compares_columns(self) -> bool:
        """Whether an alteration is refused for columns whose types the old ones can't become."""

    @property
    def entry_parameters(self) -> Mapping[str, str]:
        """Parameters that entries of Hudi tables have in this catalog beside their own."""

    def check(self, table: TableEntry) -> None:
        """UnsupportedError for an entry that this catalog can't have."""

    def location(self, uri: str) -> str:
        """A folder as entries of this catalog name it."""

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""

    def database(self, name: str) -> Database:
        """NoSuchTableError when there is none."""

    def create_database(self, database: Database, *, if_not_exists: bool = False) -> bool:
        """Returns whether it was made."""

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Never deletes data. With `cascade` its tables' entries go first."""

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables and views, sorted."""

    def table(self, database: str, name: str) -> TableEntry:
        """NoSuchTableError when there is none."""

    def find_table(self, database: str, name: str) -> TableEntry | None:
        """The table, or None when there is none."""

    def find_tables(self, database: str, names: Sequence[str]) -> dict[str, TableEntry | None]:
        """Each of a few tables, None for those that are not there."""

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

    def drop_table(self, database: str, name: str, *, delete_data: bool = False) -> None:
        """Drops the entry. NoSuchTableError when there is none."""

    def partition_names(self, database: str, name: str) -> list[str]:
        """All partitions as `k=v/…`, values escaped as Hive does."""

    def partitions(self, database: str, name: str, names: Sequence[str] | None = None) -> Iterator[Partition]:
        """The partitions of these names (None: all). A name that is not there is passed over."""

    def add_partitions(
        self, database: str, name: str, partitions: Iterable[Partition], *, batch_size: int = 1000
    ) -> Iterator[int]:
        """Adds in batches; those that exist are left as they are. Yields how many were sent after each batch."""

    def alter_partitions(
        self, database: str, name: str, partitions: Iterable[Partition], *, batch_size: int = 1000
    ) -> Iterator[int]:
        """Writes whole partitions over those of the same values, in batches."""

    def lacking_indexes(self, table: TableEntry) -> PartitionIndexes | None:
        """What indexes of the partitions lack by the options of the catalog; None where nothing is to be done."""

    def change_indexes(self, table: TableEntry, changes: PartitionIndexes) -> None:
        """Drops and adds indexes of a table's partitions."""

    def drop_partitions(
        self, database: str, name: str, names: Sequence[str], *, batch_size: int = 1000
    ) -> Iterator[int]:
        """Drops the entries of these names, never the data, in batches. A name that is not there is passed over."""


def is_glue(uri: str | None) -> bool:
    """Whether an address is one of AWS Glue."""
    return uri is not None and uri.strip().lower().startswith(GLUE)


def is_of_glue(catalog: EntryCatalog) -> bool:
    """Whether a client is one of AWS Glue, without a call."""
    from skep_catalog.glue.client import GlueCatalog

    return isinstance(catalog, GlueCatalog)


def catalog_at(uri: str | Sequence[str], settings: Mapping[str, object] | None = None) -> EntryCatalog:
    """The client of the catalog at an address: `thrift://host:port`, or `glue:`. No connection is opened before the
    first call."""
    if isinstance(uri, str) and is_glue(uri):
        from skep_catalog.glue.client import GlueCatalog

        return GlueCatalog.connect(uri, settings)
    from skep_catalog.client import Metastore

    return Metastore.connect(uri, settings)
