"""What statements need from outside: tables by name, a table's reads and writes, and an engine that answers queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from skep_format.timeline.metadata import WriteOperation
    from skep_table.services.metadata.indexing import TableIndex
    from skep_table.table import HudiTable
    from skep_table.write.flow import TableWriter
    from skep_table.write.result import WriteResult

# What a query reads under one of its names: the answer of a read, or a frame.
Relation = Any

SPARK_CATALOG: Final = "spark_catalog"  # the one catalog that there is
TIME_ZONE: Final = "spark.sql.session.timeZone"  # in which engines take times without a zone


class QueryEngine(Protocol):
    """Answers queries in Spark's dialect. Their tables are names of `relations`."""

    @property
    def in_utc(self) -> bool:
        """Whether times without a zone are in UTC."""

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """The columns of the answer, without computing it. InputError for a query that does not fit its relations."""

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """All rows of the answer."""

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """The answer as what a writer takes: evaluated when it is written, where the engine can."""

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """The answer as a relation for another query, with a further column that rises from row to row."""

    def held(self, relation: Relation) -> pa.Table | None:
        """All rows of a relation in this process; None where queries of it are answered elsewhere."""

    def explained(self, query: exp.Query, relations: Mapping[str, Relation]) -> str:
        """How many files of each table the query reads, by which filter, and the engine's plan where there is one."""

    def functions(self) -> Collection[str]:
        """The names of the functions that queries may call."""

    def files(self, provider: str, options: Mapping[str, str], columns: str | None) -> Relation:
        """The rows of files or another source; `columns` as CREATE TABLE writes them. InputError for what is none."""


class TargetTable(Protocol):
    """A table that statements read and change. Options are Hudi's, for one call."""

    name: str

    @property
    def hudi(self) -> HudiTable:
        """A new snapshot."""

    @property
    def snapshot(self) -> HudiTable:
        """That with which it was looked up."""

    def rows(self, snapshot: HudiTable | None = None, **request: Any) -> Relation:
        """The rows of a snapshot, None for the newest; the keywords are those of a read.

        Its `query` is by default what the target's name stands for: read-optimized for such a view.
        """

    def write(
        self,
        operation: WriteOperation,
        frame: object,
        options: Mapping[str, object],
        partitions: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """One commit of an operation that takes rows; `partitions` as of `TableWriter.insert_overwrite`."""

    def commit(self, write: Callable[[TableWriter], WriteResult], options: Mapping[str, object]) -> WriteResult:
        """One commit, by what `write` does with a writer of the table."""

    def indexes(self) -> Sequence[TableIndex]:
        """The indexes of the table's metadata table, by name."""

    def build_index(
        self,
        kind: str,
        *,
        name: str | None = None,
        columns: Sequence[str] = (),
        expression: Mapping[str, str] | None = None,
        **options: object,
    ) -> TableIndex:
        """Makes an index; EntryExistsError where there is one of that name."""

    def drop_index(self, name: str, **options: object) -> tuple[str, ...]:
        """Drops an index, and those that depend on it. InputError where there is none."""

    def sync(self) -> object:
        """Brings the metastore's entry up to the table."""


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What the catalog keeps about a table beside the table itself. `columns` are names and types as Hive writes them,
    those of partitions last."""

    database: str
    name: str
    location: str
    is_managed: bool = False
    owner: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    partition_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view of the catalog: its query, and the names of its columns.

    `database` is that of names without one in the query. `outputs` are the query's own columns, where they are known:
    tables may have got further ones since. `types` and `comments` are those of the columns of a view that is there.
    """

    query: str
    columns: tuple[str, ...]
    database: str
    outputs: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    comments: tuple[str | None, ...] = ()


class TableCatalog(Protocol):
    """Tables and databases by name: `table` or `database.table`, in any case."""

    database: str

    def looking_once(self) -> AbstractContextManager[None]:
        """Within it, what was looked up of a name is not looked up again: for blocks that do not change names."""

    def table(self, name: str) -> TargetTable:
        """NoSuchTableError when there is none."""

    def table_at(self, path: str, as_of: str | None) -> Relation:
        """The rows of the Hudi table at a path, None for the newest. NotATableError where there is none."""

    def files_at(self, format: str, path: str) -> Relation:
        """The rows of the files at a path, by the Spark name of their format. InputError where there are none."""

    def facts(self, name: str) -> EntryFacts | None:
        """What the catalog keeps about a table; None when there is none."""

    def taken(self, name: str) -> EntryFacts | None:
        """The same of a name that a new table can't have: one whose maker died does not count."""

    def table_names(self, database: str | None) -> list[str]:
        """The Hudi tables of a database, None for the current one."""

    def view(self, name: str) -> StoredView | None:
        """A view by its name; None for what is none, or is not there."""

    def view_names(self, database: str | None) -> list[str]:
        """The views of a database, None for the current one."""

    def create_view(self, name: str, view: StoredView, schema: pa.Schema, written: str, **facts: Any) -> None:
        """Makes a view, or replaces the one there is; `facts` are its comment and properties."""

    def drop_view(self, name: str) -> None:
        """NoSuchTableError when there is none."""

    def databases(self) -> list[str]:
        """The names of all databases."""

    def database_facts(self, name: str) -> Mapping[str, str | None]:
        """Location, comment and owner of a database."""

    def create_database(self, name: str, location: str | None, comment: str | None, if_not_exists: bool) -> None:
        """EntryExistsError when it is there."""

    def drop_database(self, name: str, if_exists: bool, cascade: bool) -> None:
        """InputError for a database that has tables, unless `cascade`."""

    def new_table(
        self, name: str, schema: pa.Schema, *, managed: bool, **spec: Any
    ) -> AbstractContextManager[TargetTable]:
        """A new table for a block, which undoes it where it fails; `spec` is what `Lake.create_table` takes.

        A managed one loses its files when it is dropped.
        """

    def bootstrap(self, name: str, source: str, options: Mapping[str, object], **described: Any) -> object:
        """A table of the files in the folder `source`; `described` is what `Lake.bootstrap` takes."""

    def holds_table(self, location: str) -> bool:
        """Whether a Hudi table lies there."""

    def register(self, location: str, name: str, expected: Mapping[str, Any]) -> TargetTable:
        """A table that lies at `location`. TableMismatchError where it differs from what is expected."""

    def drop_table(self, name: str, *, purge: bool) -> None:
        """Its entries, and with `purge` its files."""

    def rename_table(self, name: str, new_name: str) -> None:
        """Its entries; the files stay."""

    def set_parameters(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Parameters of the entry; None removes one."""
