"""SQL of a Spark session: statements that concern Hudi tables are carried out here, all others are Spark's."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlglot import exp

import skep_writer
from skep.base.names import parts_of
from skep.handles.statements import LakeCatalog
from skep.handles.table import Table
from skep.lake import Lake
from skep.query.engines import LakeEngine, SparkEngine
from skep_catalog.entries import is_hudi
from skep_format.errors import EntryExistsError, InputError, NoSuchTableError, TableExistsError, UnsupportedError
from skep_format.options import Options
from skep_sql.answer import answer
from skep_sql.bind import NamedQuery, named_tables, opened_view, table_parts
from skep_sql.effects import run
from skep_sql.functions import FUNCTIONS
from skep_sql.names import without_catalog
from skep_sql.parsing import statements as st
from skep_sql.parsing.parameters import with_parameters
from skep_sql.parsing.parse import parse
from skep_sql.parsing.paths import HUDI, path_in
from skep_sql.protocols import EntryFacts, StoredView
from skep_sql.session import Session
from skep_writer.routed import empty_frame, has_temporary_view, session_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROVIDERS: Final = ("hudi", "org.apache.hudi")
_SETTINGS: Final = ("hoodie.", "spark.sql.storeAssignmentPolicy", "spark.sql.sources.partitionOverwriteMode")
_CATALOG_KIND: Final = "spark.sql.catalogImplementation"
_OF_SESSION: Final = "@session"  # the database, to the binder, of what is Spark's own
_NAMED: Final = (
    *(st.AlterTable, st.CreateIndex, st.Delete, st.DropIndex, st.Insert, st.Merge, st.Refresh, st.RefreshIndex),
    *(st.Truncate, st.Update),
)
_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/"""
_PART: Final = r"(?:\w+|`[^`]+`)"
_AFTER_WORD: Final = re.compile(
    rf"\b(?:FROM|JOIN|INTO|TABLE|UPDATE|EXISTS|USING|ON)\s+({_PART}(?:\s*\.\s*{_PART})*)", re.IGNORECASE
)
_QUERY_BEGINS: Final = re.compile(rf"{_QUOTED}|[()]|\b(?:SELECT|WITH|FROM|VALUES)\b", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A table or view of Spark's own, as a query's relation."""

    spark: SparkSession
    name: str

    snapshot = None  # it has none

    def rows(self, snapshot: object = None, **request: object) -> DataFrame:  # noqa: ARG002 - it has none
        """InputError for a read that only Hudi's tables have."""
        if request:
            raise InputError(
                f"{self.name} is no Hudi table: it can't be read with {', '.join(request)}", table=self.name
            )
        return self.spark.table(self.name)


def is_of_spark(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Whether a name can't be a Hudi table's: it is a temporary view of Spark's, or has more than two parts."""
    return len(parts) > 2 or (len(parts) == 1 and has_temporary_view(spark, parts[0]))


class SessionCatalog(LakeCatalog):
    """The Hudi tables of a lake, and what else a Spark session has, in Spark's databases."""

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        super().__init__(lake)
        self._of = lake
        self._session = spark

    def is_hudi(self, parts: Sequence[str]) -> bool:
        """Whether a name is a Hudi table's. Temporary views of Spark come first.

        InputError for a name that Spark's own catalog has, too, for another table.
        """
        if is_of_spark(self._session, parts):
            return False
        try:
            full = self._full(".".join(parts))
        except InputError:  # no name that a metastore could hold
            return False
        entry = self._of.metastore.find_table(full.database, full.name)
        if entry is None or not is_hudi(entry):
            return False
        # a catalog in memory knows nothing of the metastore
        if self._session.conf.get(_CATALOG_KIND) == "in-memory" and self._session.catalog.tableExists(str(full)):
            raise InputError(
                f"{full} is a table of Spark's own catalog, and a Hudi table at {entry.storage.location}",
                hint="drop one of them, or rename it",
                found=str(full),
            )
        return True

    def view(self, name: str) -> StoredView | None:
        """A view of the metastore over Hudi tables; others are Spark's own."""
        if is_of_spark(self._session, name.split(".")):
            return None
        found = super().view(name)
        return found if found is not None and self._reads_hudi(found) else None

    def _reads_hudi(self, view: StoredView) -> bool:
        try:
            query = opened_view("", view).query
        except UnsupportedError:  # of Hive's own words: Spark may know what it means
            return False
        for node in named_tables(query):
            parts = [each.name for each in (node.args.get("db"), node.this) if each]
            if self.is_hudi(parts) or self.view(".".join(parts)) is not None:
                return True
        return False

    def facts(self, name: str) -> EntryFacts | None:
        """What the metastore has of a Hudi table, or that Spark has something of this name."""
        if self.is_hudi(name.split(".")):
            return super().facts(name)
        if self._session.catalog.tableExists(name):
            return EntryFacts(_OF_SESSION, name, "")
        return None

    def table(self, name: str) -> Table:
        database, _, own = name.partition(".")
        if database == _OF_SESSION:
            return SessionTable(self._session, own)  # type: ignore[return-value]
        return super().table(name)

    @contextmanager
    def new_table(
        self, name: str, schema: pa.Schema, *, managed: bool, location: str | None = None, **spec: Any
    ) -> Iterator[Table]:
        """Without a location the table is where Spark has its database."""
        place = location or self.location_of(name)
        with super().new_table(name, schema, managed=managed, location=place, **spec) as made:
            yield made

    def location_of(self, name: str) -> str:
        """Where a new table is put. NoSuchTableError for an unknown database."""
        full = self._full(name)
        catalog = self._session.catalog
        if catalog.databaseExists(full.database):
            return f"{catalog.getDatabase(full.database).locationUri.rstrip('/')}/{full.name}"
        known = self.databases()
        if full.database not in known:
            raise NoSuchTableError(f"there is no database {full.database}", found=full.database)
        return f"{(self.database_facts(full.database)['location'] or '').rstrip('/')}/{full.name}"


class Statements:
    """The statements of one session on the tables of one lake. `views` are temporary ones over Hudi tables.

    `lake` connects it when it is first needed; `may_have_tables` is False while it can have none, and need not be
    connected to know that a name is none of its tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Callable[[], Lake],
        may_have_tables: Callable[[], bool],
        views: dict[str, NamedQuery],
        options: Options,
    ) -> None:
        self._spark, self._views, self._options = spark, views, options
        self._connect, self._may_have_tables = lake, may_have_tables
        for name in [each for each in views if has_temporary_view(spark, each)]:
            del views[name]  # one of Spark that was made later has the name now

    @cached_property
    def lake(self) -> Lake:
        """The lake, with the session's database as its current one."""
        lake = self._connect()
        lake.database = self._spark.catalog.currentDatabase().lower()
        return lake

    @cached_property
    def catalog(self) -> SessionCatalog:
        """The lake's tables, and Spark's own."""
        return SessionCatalog(self.lake, self._spark)

    def run(
        self,
        text: str,
        args: Mapping[str, object] | Sequence[object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> DataFrame | None:
        """The answer; None for a statement that is Spark's. `settings` are for this statement."""
        try:
            statement = parse(text)
        except InputError as error:
            self._refuse_unread(text, error.message)
            return None
        if not self._is_ours(statement, text):
            return None
        filled = with_parameters(text, args, all_used=False) if args else text
        statement = parse(filled)
        if isinstance(statement, st.Use):
            return self._use(str(statement.name))
        if isinstance(statement, st.Show) and statement.what == "tables":
            return self._tables(statement, filled)
        if isinstance(statement, st.Drop) and statement.kind == "database":
            return self._drop_database(statement)
        session = self._session(settings or {})
        if isinstance(statement, st.Query):
            return self._answer(session, statement.tree)
        if isinstance(statement, (st.CreateTable, st.Insert)) and not self._writes_hudi(statement):
            return self._into_spark(session, statement, filled)
        if isinstance(statement, st.CreateView) and statement.temporary:
            self._make_room(statement)
        found = run(session, statement)
        return self._frame(found.rows)

    def concerns(self, parts: Sequence[str]) -> bool:
        """Whether a name is that of a Hudi table, or of a view over such tables."""
        parts = without_catalog(tuple(parts))
        if len(parts) == 2 and (path := path_in(*parts)) is not None:
            return path[0] == HUDI
        return (len(parts) == 1 and parts[0].lower() in self._views) or self.is_hudi(parts) or self.is_view(parts)

    def is_view(self, parts: Sequence[str]) -> bool:
        """Whether a name is that of a view of the metastore over Hudi tables."""
        if is_of_spark(self._spark, parts) or not self._may_have_tables():
            return False
        return self.catalog.view(".".join(parts)) is not None

    def is_hudi(self, parts: Sequence[str]) -> bool:
        """Whether a name is a Hudi table's."""
        return not is_of_spark(self._spark, parts) and self._may_have_tables() and self.catalog.is_hudi(parts)

    # -- which

    def _is_ours(self, statement: st.Statement, text: str) -> bool:
        if isinstance(statement, st.Query):
            return self._reads_hudi(statement.tree)
        if isinstance(statement, st.Explain):
            return self._is_ours(statement.statement, text)
        if isinstance(statement, st.CreateView):
            found = self._reads_hudi(statement.query)
            if not found and statement.replace and statement.temporary:
                self._views.pop(str(statement.name).lower(), None)
            return found
        if isinstance(statement, st.CreateTable):
            if self._writes_hudi(statement):
                return True
            if self.is_hudi(statement.name.parts):
                raise TableExistsError(
                    f"table {statement.name} exists, and is a Hudi table",
                    hint=f"DROP TABLE {statement.name}",
                    table=str(statement.name),
                )
            return statement.query is not None and self._reads_hudi(statement.query)
        if isinstance(statement, st.Drop):
            parts = statement.name.parts
            return {
                "table": self.is_hudi(parts),
                "view": str(statement.name).lower() in self._views or self.is_view(parts),
                "database": bool(self._hudi_tables(str(statement.name))),
            }[statement.kind]
        if isinstance(statement, st.Call):
            return "." not in statement.name
        if isinstance(statement, st.DescribeQuery):
            return self._reads_hudi(statement.query)
        if isinstance(statement, (st.Show, st.Describe)):
            return self._shows_hudi(statement)
        if isinstance(statement, st.Use):
            return not self._spark.catalog.databaseExists(str(statement.name))
        if isinstance(statement, st.Insert):
            return self.is_hudi(statement.name.parts) or self._reads_hudi(statement.query)
        if isinstance(statement, st.Merge) and not self.is_hudi(statement.name.parts):
            if self._reads_hudi(statement.source):
                raise UnsupportedError(
                    f"MERGE INTO {statement.name}, which is no Hudi table, from a Hudi table is not supported",
                    hint='spark.table("…").createOrReplaceTempView("v"), and MERGE … USING v',
                    table=str(statement.name),
                )
            return False
        if isinstance(statement, st.Uncache):
            return statement.name is not None and self.concerns(statement.name.parts)
        if isinstance(statement, _NAMED):
            return self.is_hudi(statement.name.parts)
        if isinstance(statement, st.Unsupported):
            self._refuse_unread(text, f"{statement.what} is not supported", statement.hint)
        return False

    def _shows_hudi(self, statement: st.Show | st.Describe) -> bool:
        if isinstance(statement, st.Describe):
            return statement.kind == "table" and self.concerns(statement.name.parts)
        if statement.what == "tables":
            return bool(self._hudi_tables(str(statement.name) if statement.name else None))
        listed = statement.what in ("databases", "views", "table extended", "functions")
        return statement.name is not None and not listed and self.is_hudi(statement.name.parts)

    def _writes_hudi(self, statement: st.CreateTable | st.Insert) -> bool:
        if isinstance(statement, st.Insert):
            return self.is_hudi(statement.name.parts)
        if statement.provider is not None:
            return statement.provider in _PROVIDERS
        return statement.like is not None and self.is_hudi(statement.like.parts)

    def _reads_hudi(self, tree: exp.Query) -> bool:
        if any(self.concerns(table_parts(node)) for node in named_tables(tree)):
            return True
        return any(node.name.lower() in FUNCTIONS for node in tree.find_all(exp.Anonymous))

    def _refuse_unread(self, text: str, reason: str, hint: str | None = None) -> None:
        """UnsupportedError for a statement that names a Hudi table and is none of those carried out here."""
        plain = re.sub(_QUOTED, lambda found: found[0] if found[0][0] == "`" else " ", text, flags=re.DOTALL)
        for found in _AFTER_WORD.finditer(plain):
            parts = parts_of(found[1])
            if self.concerns(parts):
                name = ".".join(parts)
                raise UnsupportedError(f"a statement on Hudi table {name}: {reason}", hint=hint, table=name, found=text)

    # -- how

    def _session(self, more: Mapping[str, str]) -> Session:
        session = Session(self.catalog, LakeEngine(self.lake.spark_holder))
        session.views = self._views
        options = {key: value for key, value in self._options.items() if key.startswith("hoodie.")}
        for key, value in {**options, **session_values(self._spark, *_SETTINGS), **more}.items():
            session.settings.set(key, value)
        return session

    def _answer(self, session: Session, tree: exp.Query) -> DataFrame:
        bound = session.bound(tree)
        return SparkEngine(self.lake.spark_holder).frame(bound.query, bound.relations)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return skep_writer.arrow_frame(self._spark, rows) if rows.schema.names else empty_frame(self._spark)

    def _into_spark(self, session: Session, statement: st.CreateTable | st.Insert, text: str) -> DataFrame:
        """A statement of Spark's own whose query reads Hudi tables: Spark gets the query's rows under a name."""
        assert statement.query is not None
        at = _query_start(text)
        if at is None:
            raise UnsupportedError(
                f"{statement.name}: the query of this statement reads Hudi tables, and is not at its end",
                hint="without parentheses around it",
                found=text,
            )
        name = f"skep_rows_{uuid.uuid4().hex}"  # threads of a job share the session
        self._answer(session, statement.query).createOrReplaceTempView(name)
        try:
            return self._spark.sql(f"{text[:at]}SELECT * FROM {name}")
        finally:
            self._spark.catalog.dropTempView(name)

    def _make_room(self, statement: st.CreateView) -> None:
        """A temporary view of Spark's of the same name is replaced, or is an error."""
        name = str(statement.name).lower()
        if not has_temporary_view(self._spark, name):
            return
        if not statement.replace:
            raise EntryExistsError(f"temporary view {name} already exists", hint="CREATE OR REPLACE TEMPORARY VIEW")
        self._spark.catalog.dropTempView(name)

    def _hudi_tables(self, database: str | None) -> list[str]:
        if not self._may_have_tables():
            return []
        name = (database or self.lake.database).lower()
        if name not in self.lake.metastore.databases():
            return []
        return [entry.name for entry in self.lake.entries(name)]

    def _use(self, name: str) -> DataFrame | None:
        """A database that the lake has and Spark has not becomes one of Spark's."""
        if self._may_have_tables():
            self._known_to_spark(name)
        return None

    def _known_to_spark(self, name: str) -> None:
        if not self._spark.catalog.databaseExists(name) and name.lower() in self.lake.metastore.databases():
            location = self.catalog.database_facts(name.lower())["location"]
            self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{name}` LOCATION '{location}'")

    def _tables(self, statement: st.Show, text: str) -> DataFrame:
        """Spark's, and the Hudi tables that it does not list."""
        database = (str(statement.name) if statement.name else self.lake.database).lower()
        self._known_to_spark(database)
        listed = [(row[0], row[1], row[2]) for row in self._spark.sql(text).collect()]
        known = {name for _, name, _ in listed}
        found = self.tables(database, statement.pattern)
        listed += [(place, name, False) for place, name in found if name not in known]
        columns = [("namespace", pa.string()), ("tableName", pa.string()), ("isTemporary", pa.bool_())]
        return self._frame(answer(columns, sorted(listed, key=lambda row: str(row[1]))).rows)

    def tables(self, database: str | None, pattern: str | None) -> list[tuple[str, str]]:
        """See `skep_writer.routed.Routes`."""
        found = [name for name in self._hudi_tables(database) if _matches(name, pattern)]
        return [(database or self.lake.database, name) for name in found]

    def _drop_database(self, statement: st.Drop) -> DataFrame | None:
        """Its Hudi tables, by CASCADE; the rest of it is Spark's, where Spark knows it."""
        name = str(statement.name).lower()
        tables = self._hudi_tables(name)
        if not statement.cascade:
            raise InputError(
                f"database {name} has {len(tables)} Hudi tables", hint="DROP DATABASE … CASCADE", found=tables[0]
            )
        self.catalog.drop_tables(name, tables)
        if self._spark.catalog.databaseExists(name):
            return None
        self.catalog.drop_database(name, if_exists=True, cascade=True)
        return self._frame(pa.table({}))


def _query_start(text: str) -> int | None:
    """Where the query of INSERT or CREATE TABLE … AS begins: its first word outside of parentheses."""
    depth = 0
    for found in _QUERY_BEGINS.finditer(text):
        if found[0] in "()":
            depth += 1 if found[0] == "(" else -1
        elif depth == 0 and found[0].isalpha():
            return found.start()
    return None


def _matches(name: str, pattern: str | None) -> bool:
    patterns: Iterable[str] = () if pattern is None else pattern.lower().split("|")
    return pattern is None or any(fnmatchcase(name, each.strip()) for each in patterns)
