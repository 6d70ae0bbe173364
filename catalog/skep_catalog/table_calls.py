"""The metastore's databases and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from skep_catalog.calls import MetastoreCalls, batches
from skep_catalog.entities import Database, TableEntry
from skep_format.errors import CatalogError, EntryExistsError, NoSuchTableError

_TABLES: Final = 200  # in one answer


class TableCalls(MetastoreCalls):
    """Databases and tables, named as in Hive, case-insensitively."""

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        return sorted(self._read("get_all_databases", lambda c: c.get_all_databases()))

    def database(self, name: str) -> Database:
        return self._codec.database_of(self._read("get_database", lambda c: c.get_database(name), name))

    def create_database(self, database: Database, *, if_not_exists: bool = False) -> bool:
        """Returns whether it was made."""
        raw = self._codec.database_to(database)
        try:
            self._write("create_database", lambda c: c.create_database(raw), database.name)
        except EntryExistsError:
            if not if_not_exists:
                raise
            return False
        return True

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Never deletes data. With `cascade` its tables' entries go first, one by one."""
        if cascade:
            for table in self.tables(name):
                self.drop_table(name, table)
        self._write("drop_database", lambda c: c.drop_database(name, False, False), name)

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables and views, sorted."""
        return sorted(self._read("get_all_tables", lambda c: c.get_all_tables(database), database))

    def table(self, database: str, name: str) -> TableEntry:
        """NoSuchTableError when there is none."""
        from skep_catalog.connection import UnknownMethodError

        full_name = f"{database}.{name}"
        if self._has_get_table_req:
            request = self._types.GetTableRequest(dbName=database, tblName=name)
            try:
                answer = self._read("get_table_req", lambda c: c.get_table_req(request), full_name)
                return self._codec.table_of(answer.table)
            except UnknownMethodError:
                self._has_get_table_req = False
        return self._codec.table_of(self._read("get_table", lambda c: c.get_table(database, name), full_name))

    def find_table(self, database: str, name: str) -> TableEntry | None:
        """The table, or None when there is none."""
        try:
            return self.table(database, name)
        except NoSuchTableError:
            return None

    def tables_of(self, database: str, names: Sequence[str] | None = None) -> Iterator[TableEntry]:
        """The tables of these names (None: all), in batches: cheaper than one by one. Missing ones are passed over."""
        from skep_catalog.connection import UnknownMethodError

        for batch in batches(self.tables(database) if names is None else list(names), _TABLES):
            request = self._types.GetTablesRequest(dbName=database, tblNames=list(batch))
            try:
                answer = self._read(
                    "get_table_objects_by_name_req", lambda c, r=request: c.get_table_objects_by_name_req(r), database
                )
            except UnknownMethodError:
                yield from filter(None, (self.find_table(database, name) for name in batch))
            else:
                yield from map(self._codec.table_of, answer.tables)

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> None:
        """Renames the entry; the data of an external table stays where it is. EntryExistsError for a name in use."""
        if self.find_table(new_database, new_name) is not None:
            raise EntryExistsError(
                f"table {new_database}.{new_name} exists in metastore {self.uri}",
                uri=self.uri,
                call="alter_table",
                table=f"{new_database}.{new_name}",
            )
        self.alter_table(
            database, name, replace(self.table(database, name), database=new_database.lower(), name=new_name.lower())
        )

    def create_table(self, table: TableEntry) -> None:
        """EntryExistsError when there is one; NoSuchTableError when the database is missing."""
        raw = self._codec.table_to(table)
        try:
            self._write("create_table", lambda c: c.create_table(raw), table.full_name)
        except CatalogError as error:
            # An unknown database is refused as an "invalid object" whose text is the name.
            if error.fields.get("error") == "InvalidObjectException" and table.database not in self.databases():
                raise NoSuchTableError(
                    f"table {table.full_name}: metastore {self.uri} has no database {table.database}",
                    **error.fields,  # type: ignore[arg-type]
                ) from error
            raise

    def alter_table(
        self,
        database: str,
        name: str,
        table: TableEntry,
        *,
        cascade: bool = False,
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Writes `table` over the entry `database.name` (another name in it renames).

        `cascade` takes changed columns to all partitions. `expected` is a parameter's key and value that the entry must
        still have: servers that support it (2.3.10, 4.x) refuse with EntryChangedError otherwise, older ones ignore it.
        """
        properties = {"CASCADE": "true"} if cascade else {}
        if expected is not None:
            properties["expected_parameter_key"], properties["expected_parameter_value"] = expected
        raw = self._codec.table_to(table)
        context = self._types.EnvironmentContext(properties=properties)
        self._write(
            "alter_table",
            lambda c: c.alter_table_with_environment_context(database, name, raw, context),
            f"{database}.{name}",
            long=cascade,
        )

    def drop_table(self, database: str, name: str, *, delete_data: bool = False) -> None:
        """Drops the entry; the data only with `delete_data`. NoSuchTableError when there is none."""
        self._write("drop_table", lambda c: c.drop_table(database, name, delete_data), f"{database}.{name}", long=True)
