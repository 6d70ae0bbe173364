"""SQL statements on a lake: its tables as the catalog of skep_sql, and results as callers take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import skep_writer
from skep.base.names import TableName
from skep.base.specs import check_same
from skep.base.times import requested_time_of
from skep.handles.lake_tables import LakeTables
from skep.handles.new_tables import is_left_over
from skep.handles.table import Table
from skep.query.engines import EngineChoice, LakeEngine
from skep.query.path_rows import files_at
from skep.query.result import Result, SqlResult
from skep.query.rows import EMBEDDED_BYTES, Rows
from skep.query.views import drop_view, put_view, view_names, view_of_entry
from skep_catalog.entities import Database, TableEntry
from skep_format.errors import InputError, NoSuchTableError, NotATableError
from skep_format.storage import open_storage
from skep_sql.answer import Answer
from skep_sql.parsing.parameters import with_parameters
from skep_sql.parsing.statements import Query, Statement
from skep_sql.protocols import EntryFacts, Relation, StoredView, TableCatalog
from skep_sql.session import Session
from skep_sql.settings import SessionSettings
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from skep_table.services.done import Done


_MANAGED: Final = "skep.sql.managed"  # of the entry of a table whose files are deleted when it is dropped


class StatementResult(Result):
    """What a statement answered: its rows, which are here, and what its writes changed."""

    def __init__(self, answer: Answer, lake: LakeTables) -> None:
        self._answer = answer
        self._lake = lake

    def __repr__(self) -> str:
        return f"StatementResult({', '.join(self._answer.rows.schema.names)})"

    @property
    def writes(self) -> tuple[WriteResult, ...]:
        """The commits of the statement, as `Table.upsert` returns them."""
        return self._answer.writes

    @property
    def counts(self) -> dict[str, int]:
        """Rows inserted, updated and deleted by all of its commits."""
        names = ("inserted", "updated", "deleted")
        return {name: sum(getattr(write, name) for write in self.writes) for name in names}

    def to_arrow(self) -> pa.Table:
        return self._answer.rows

    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame."""
        return skep_writer.arrow_frame(self._lake.spark, self.to_arrow())


class LakeSession:
    """The statements of one lake: settings and temporary views last as long as it."""

    def __init__(self, lake: LakeTables) -> None:
        self._lake = lake
        settings = SessionSettings()
        self._engine = LakeEngine(lake.spark_holder, settings, lambda: lake.options.value(EMBEDDED_BYTES))
        self._session = Session(LakeCatalog(lake), self._engine, settings)

    @property
    def session(self) -> Session:
        """Catalog, engine, settings and views."""
        return self._session

    def run(
        self,
        text: str,
        engine: str = "auto",
        args: Mapping[str, object] | Sequence[object] | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> SqlResult | StatementResult:
        """Queries are answered when rows are asked for; everything else takes effect now. `args` and `parameters` as
        of `Lake.sql`."""
        try:
            choice = EngineChoice(engine.lower())
        except ValueError as error:
            known = ", ".join(EngineChoice)
            raise InputError(f"there is no engine {engine}", option="engine", found=engine, expected=known) from error
        given = _together(args, parameters or {})
        return self.carry_out(self._session.parse(with_parameters(text, given) if given else text), choice)

    def carry_out(self, statement: Statement, choice: EngineChoice = EngineChoice.AUTO) -> SqlResult | StatementResult:
        """The same for a statement that was parsed before."""
        if not isinstance(statement, Query):
            from skep_sql.effects import run

            with self._engine.errors_of_frames():
                return StatementResult(run(self._session, statement), self._lake)
        bound = self._session.bound(statement.tree)
        return self._engine.result(bound.query, bound.relations, choice)


def _together(
    args: Mapping[str, object] | Sequence[object] | None, named: Mapping[str, object]
) -> Mapping[str, object] | Sequence[object]:
    """The values of the parameters of a statement; a commit stands for its instant."""
    if isinstance(args, Mapping) or args is None:
        return {name: requested_time_of(value) for name, value in {**(args or {}), **named}.items()}
    if named or isinstance(args, (str, bytes)):
        raise InputError(
            "args are a mapping of the values of :name, or a sequence of those of ?",
            hint="lake.sql('… :id', id=3) or lake.sql('… ?', [3])",
            option="args",
            found=type(args).__name__,
        )
    return [requested_time_of(value) for value in args]


class LakeCatalog(TableCatalog):
    """The tables of a lake by name; see `skep_sql.protocols.TableCatalog`."""

    def __init__(self, lake: LakeTables) -> None:
        self._lake = lake
        self._seen: dict[TableName, TableEntry | None] | None = None

    @contextmanager
    def looking_once(self) -> Iterator[None]:
        """Entries of the metastore are looked up once, each."""
        before, self._seen = self._seen, {} if self._seen is None else self._seen
        try:
            yield
        finally:
            self._seen = before

    def _entry(self, name: TableName) -> TableEntry | None:
        if self._seen is None:
            return self._lake.entry(name)
        if name not in self._seen:
            self._seen[name] = self._lake.entry(name)
        return self._seen[name]

    @property
    def database(self) -> str:
        """The database of names without one."""
        return self._lake.database

    @database.setter
    def database(self, name: str) -> None:
        self._lake.database = name.lower()

    def _full(self, name: str) -> TableName:
        return TableName.parse(name, self._lake.database)

    def table(self, name: str) -> Table:
        return self._lake.table(name, as_view=True, entry=self._entry(self._full(name)))

    def table_at(self, path: str, as_of: str | None) -> Relation:
        request = ReadRequest(as_of=as_of)
        return Rows(HudiTable.open(path, self._lake.options), request, self._lake.spark_holder)

    def files_at(self, format: str, path: str) -> Relation:
        return files_at(format, path, self._lake.spark_holder)

    def facts(self, name: str) -> EntryFacts | None:
        full = self._full(name)
        entry = self._entry(full)
        if entry is None:
            return None
        managed = entry.table_type == "MANAGED_TABLE" or entry.parameters.get(_MANAGED) == "true"
        return EntryFacts(
            full.database,
            full.name,
            entry.storage.location or "",
            managed,
            entry.owner,
            entry.parameters,
            tuple((each.name, each.type) for each in (*entry.storage.columns, *entry.partition_keys)),
            tuple(each.name for each in entry.partition_keys),
        )

    def taken(self, name: str) -> EntryFacts | None:
        found = self.facts(name)
        return None if found is None or self._lake.is_left_over(self._full(name)) else found

    def table_names(self, database: str | None) -> list[str]:
        return [entry.name for entry in self._lake.entries(database or self._lake.database)]

    def view(self, name: str) -> StoredView | None:
        try:
            full = self._full(name)
        except InputError:  # no name that a metastore could hold
            return None
        return view_of_entry(self._entry(full))

    def view_names(self, database: str | None) -> list[str]:
        return view_names(self._lake.metastore, database or self._lake.database)

    def create_view(self, name: str, view: StoredView, schema: pa.Schema, written: str, **facts: Any) -> None:
        put_view(self._lake.metastore, self._full(name), view, schema, written, **facts)

    def drop_view(self, name: str) -> None:
        drop_view(self._lake.metastore, self._full(name))

    def databases(self) -> list[str]:
        return self._lake.metastore.databases()

    def database_facts(self, name: str) -> Mapping[str, str | None]:
        found = self._lake.metastore.database(name)
        return {"location": found.location, "comment": found.description, "owner": found.owner}

    def create_database(self, name: str, location: str | None, comment: str | None, if_not_exists: bool) -> None:
        folder = location or f"{self._lake.warehouse}/{name}.db"
        made = Database(name, comment, open_storage(folder, self._lake.options).uri(""))
        self._lake.metastore.create_database(made, if_not_exists=if_not_exists)

    def drop_database(self, name: str, if_exists: bool, cascade: bool) -> None:
        """InputError for one that has tables, unless `cascade`, which drops these as DROP TABLE does."""
        metastore = self._lake.metastore
        if name not in metastore.databases():
            if if_exists:
                return
            raise NoSuchTableError(f"there is no database {name}", found=name)
        tables = metastore.tables(name)
        if tables and not cascade:
            raise InputError(
                f"database {name} has {len(tables)} tables", hint="DROP DATABASE … CASCADE", found=tables[0]
            )
        own = self.table_names(name)
        others = sorted({*tables} - {*own, *self.view_names(name)})
        if others:
            raise InputError(
                f"database {name} has tables that are not Hudi's: {', '.join(others)}",
                hint="drop them with the engine whose they are",
                found=others[0],
            )
        self.drop_tables(name, own)
        metastore.drop_database(name, cascade=cascade)

    def drop_tables(self, database: str, tables: Iterable[str]) -> None:
        """As DROP TABLE does: managed ones lose their files."""
        for table in tables:
            facts = self.facts(f"{database}.{table}")
            self.drop_table(f"{database}.{table}", purge=facts is not None and facts.is_managed)

    @contextmanager
    def new_table(self, name: str, schema: pa.Schema, *, managed: bool, **spec: Any) -> Iterator[Table]:
        """A new table. To the metastore a managed one is external, too: no other engine is to delete files."""
        with self._lake.new_table(str(self._full(name)), schema, **spec) as table:
            if managed:
                self.set_parameters(name, {_MANAGED: "true"})
            yield table

    def bootstrap(self, name: str, source: str, options: Mapping[str, object], **described: Any) -> list[Done]:
        how: dict[str, Any] = {**described, **options}
        return self._lake.bootstrap(str(self._full(name)), source, **how)

    def holds_table(self, location: str) -> bool:
        try:
            return not is_left_over(HudiTable.open(location, self._lake.options))
        except NotATableError:
            return False

    def register(self, location: str, name: str, expected: Mapping[str, Any]) -> Table:
        check_same(HudiTable.open(open_storage(location, self._lake.options)), **expected)
        return self._lake.register(location, str(self._full(name)))

    def drop_table(self, name: str, *, purge: bool) -> None:
        self._lake.drop_table(name, purge=purge)

    def rename_table(self, name: str, new_name: str) -> None:
        self._lake.rename_table(name, new_name)

    def set_parameters(self, name: str, changes: Mapping[str, str | None]) -> None:
        self._lake.set_parameters(self._full(name), changes)
