"""Engines for queries: Spark, and DuckDB in this process for queries that mean the same to both."""

from __future__ import annotations

import importlib.util
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event, Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from sqlglot import exp

from skep.base.display import print_table
from skep.query.engine_errors import SparkQuery, engine_errors
from skep.query.implied_filters import filter_on
from skep.query.path_rows import ParquetRows, SparkFiles
from skep.query.result import SparkResult, SqlResult, engine_line
from skep.query.rows import EMBEDDED_BYTES, Rows
from skep.query.spark import UTC, SparkHolder, needed_because
from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError, InputError, SkepError, UnsupportedError
from skep_format.schema.untyped import untyped
from skep_sql.parsing.columns import names_used
from skep_sql.parsing.written import spark_text
from skep_sql.protocols import TIME_ZONE, Relation
from skep_sql.settings import SessionSettings
from skep_sql.translation.queries import DiffersError, DuckQuery, duckdb_query
from skep_sql.translation.spark_types import spark_type
from skep_table.write.input.given import arrow_table, row_input

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class EngineChoice(str, Enum):
    """Who answers a query."""

    AUTO = "auto"
    DUCKDB = "duckdb"
    SPARK = "spark"


# Settings of Spark that change how fast a query is, not what it answers.
_OF_SPEED: Final = (
    *("adaptive.", "shuffle.", "files.", "execution.", "parquet.", "orc.", "warehouse.", "ui.", "session.timeZone"),
    *("broadcastTimeout", "autoBroadcastJoinThreshold", "catalogImplementation"),
)


class LakeEngine:
    """Spark where the caller gave a session; else DuckDB where it is there and a query suits it.

    `spark` starts a session for the queries that need one; `settings` are those of the client, which hold for both.
    `most_bytes`: queries that read more are left to Spark.
    """

    def __init__(
        self,
        spark: SparkHolder,
        settings: SessionSettings | None = None,
        most_bytes: Callable[[], int] = lambda: EMBEDDED_BYTES.default,
    ) -> None:
        self._holder = spark
        self._most_bytes = most_bytes
        self._settings = settings or SessionSettings()
        self._spark = SparkEngine(spark, self._settings)
        self._duckdb = DuckEngine()

    @property
    def in_utc(self) -> bool:
        """See `Engine`. By the client's setting, else by the session that runs, or that would be started."""
        return self._spark.in_utc

    def why_spark(self, query: exp.Query, relations: Mapping[str, Relation]) -> str | None:
        """What leaves a query to Spark, whatever it asks for."""
        if not DuckEngine.is_there():
            return f"DuckDB is not installed ({install_command('duckdb')})"
        if any(map(_is_spark, relations.values())):
            return "it reads a Spark frame"
        files = next((each for each in relations.values() if isinstance(each, SparkFiles)), None)
        if files is not None:
            return f"it reads {files.format}.`{files.path}`"
        given = {**self._holder.conf, **self._settings.engine}
        named = [key.removeprefix("spark.sql.") for key in given if key.startswith("spark.sql.")]
        changed = [key for key in named if not key.startswith(_OF_SPEED)]
        if not changed and given.get(TIME_ZONE, UTC) != UTC and _has_times(query, relations):
            changed = [TIME_ZONE.removeprefix("spark.sql.")]
        return f"spark.sql.{changed[0]} is set" if changed else None

    def _answered(
        self, query: exp.Query, relations: Mapping[str, Relation], ask: Callable[[SparkEngine | DuckEngine], T]
    ) -> T:
        why = self._why_given() or self.why_spark(query, relations)
        if why is None and self._holder.is_started:  # none is started for the size of a statement's query
            needed = reads_needed(query, relations, in_utc=self.in_utc)
            why = _why_big(_bytes_read(needed), self._most_bytes())
        if why is None:
            try:
                return ask(self._duckdb)
            except LeftToSpark as error:
                why = str(error)
        with because(why):
            return ask(self._spark)

    def _why_given(self) -> str | None:
        return None if self._holder.given is None else "the lake was given a session"

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        return self._answered(query, relations, lambda engine: engine.schema(query, relations))

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        return self._answered(query, relations, lambda engine: engine.rows(query, relations))

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """See `Engine`."""
        return self._answered(query, relations, lambda engine: engine.frame(query, relations))

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        return self._answered(query, relations, lambda engine: engine.numbered(query, relations, column))

    def errors_of_frames(self) -> AbstractContextManager[None]:
        """See `SparkEngine`."""
        return self._spark.errors_of_frames()

    def explained(self, query: exp.Query, relations: Mapping[str, Relation]) -> str:
        """See `Engine`. Spark's plan, where a session runs; none is started for it."""
        found = self._planned(query, relations, EngineChoice.AUTO)
        if not isinstance(found, str) and (why := _why_big(found.bytes_read(), self._most_bytes())) is not None:
            found = why
        if isinstance(found, str) and self._holder.is_started:
            return self.on_spark(query, relations, found).explain()
        needed = reads_needed(query, relations, in_utc=self.in_utc)
        engine = engine_line("spark", found) if isinstance(found, str) else engine_line("duckdb", None)
        return "\n".join([engine, *(str(rows.files_chosen()) for rows in _reads(needed))])

    def functions(self) -> Collection[str]:
        """See `Engine`. Those of Spark, which is started for it."""
        return self._spark.functions()

    def files(self, provider: str, options: Mapping[str, str], columns: str | None) -> Relation:
        """See `Engine`. A frame of Spark, which is started for it: formats and options are Spark's."""
        return self._spark.files(provider, options, columns)

    # -- queries of their own

    def result(self, query: exp.Query, relations: Mapping[str, Relation], engine: EngineChoice) -> SqlResult:
        """The answer of a query, which is run when it is asked for rows. A session of the caller's wins over DuckDB.

        By `engine` DUCKDB, UnsupportedError for a query that is not known to mean the same to Spark.
        """
        found = self._planned(query, relations, engine)
        if isinstance(found, DuckPlan):
            is_strict = engine is EngineChoice.DUCKDB
            most = None if is_strict else self._most_bytes()
            return DuckResult(found, lambda why: self.on_spark(query, relations, why), most, is_strict)
        if engine is EngineChoice.DUCKDB:
            raise UnsupportedError(
                f"the query is left to Spark: {found}", hint="leave out the engine, or name spark", found=found
            )
        return self.on_spark(query, relations, found)

    def _planned(self, query: exp.Query, relations: Mapping[str, Relation], engine: EngineChoice) -> DuckPlan | str:
        """The plan of DuckDB, or why the query is left to Spark."""
        if engine is EngineChoice.SPARK:
            return "the engine is named"
        why = self._why_given() if engine is EngineChoice.AUTO else None
        why = why or self.why_spark(query, relations)
        if why is not None:
            return why
        try:
            return self._duckdb.planned(query, relations)
        except LeftToSpark as error:
            return str(error)

    def on_spark(self, query: exp.Query, relations: Mapping[str, Relation], why: str) -> SparkResult:
        """The answer as Spark gives it; the query is analysed now."""
        with because(why):
            frame, scans = self._spark.planned(query, relations)
        return SparkResult(frame, scans, why, partial(engine_errors, [SparkQuery(query, relations)]))


@contextmanager
def because(why: str) -> Iterator[None]:
    """A session that is started in here has the reason in its event, and in the error where it can't be had."""
    try:
        with needed_because(why):
            yield
    except EnvironmentMissingError as error:
        raise EnvironmentMissingError(
            f"the query needs Spark ({why}), and {error.message}", hint=error.hint, missing="Spark"
        ) from error


class SparkEngine:
    """Spark SQL. Each relation is a temporary view while a query is analysed: a session's own ones are not touched."""

    def __init__(self, holder: SparkHolder, settings: SessionSettings | None = None) -> None:
        self._holder = holder
        self._settings = settings or SessionSettings()
        self._frames: list[SparkQuery] = []

    @property
    def in_utc(self) -> bool:
        """See `Engine`."""
        return (self._settings.engine.get(TIME_ZONE) or self._holder.time_zone) == UTC

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        from skep_writer import frame_schema

        return frame_schema(self.frame(query, relations))

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        from skep_writer import collect_arrow

        frame, _ = self.planned(query, relations)
        with engine_errors([SparkQuery(query, relations), *self._frames]):
            return collect_arrow(frame)

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> DataFrame:
        """See `Engine`."""
        self._frames.insert(0, SparkQuery(query, relations))
        return self.planned(query, relations)[0]

    @contextmanager
    def errors_of_frames(self) -> Iterator[None]:
        """As `engine_errors`, of the frames that are made in here: they are computed when they are written."""
        try:
            with engine_errors(self._frames):
                yield
        finally:
            self._frames.clear()

    def planned(self, query: exp.Query, relations: Mapping[str, Relation]) -> tuple[DataFrame, Sequence[Rows]]:
        """The answer as a frame, and the reads of tables that it is made of."""
        session, frames = self._holder.session, {}
        needed = reads_needed(query, relations, in_utc=self.in_utc)
        try:
            for name, relation in needed.items():
                if id(relation) not in frames:
                    frames[id(relation)] = self._frame_of(relation)
                frames[id(relation)].createOrReplaceTempView(name)
            with (
                engine_errors([SparkQuery(query, relations)]),
                _set(session, {**_INNERMOST, **self._settings.engine}),
            ):
                frame = session.sql(spark_text(query))
        finally:
            for name in relations:  # the plan of the answer holds the frames themselves
                session.catalog.dropTempView(name)
        return frame, tuple(_reads(needed))

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        from skep_writer import numbered

        return numbered(self.frame(query, relations), column)

    def functions(self) -> Collection[str]:
        """See `Engine`."""
        return [row[0] for row in self._holder.session.sql("SHOW FUNCTIONS").collect()]

    def files(self, provider: str, options: Mapping[str, str], columns: str | None) -> DataFrame:
        """See `Engine`."""
        reader = self._holder.session.read.format(provider).options(**options)
        try:
            return (reader if columns is None else reader.schema(columns)).load()
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            raise InputError(f"USING {provider}: {text}", option="USING", found=provider) from error

    def _frame_of(self, relation: Relation) -> Any:
        if isinstance(relation, (Rows, ParquetRows, SparkFiles)):
            return relation.to_spark()
        if _is_spark(relation):
            return relation
        from skep_writer import arrow_frame

        return arrow_frame(self._holder.session, arrow_table(relation))


# A name means the innermost WITH that has it, as in Spark 4; Spark 3 refuses names that two of them have.
_INNERMOST: Final = {"spark.sql.legacy.ctePrecedencePolicy": "CORRECTED"}
_PLANNING: Final = RLock()  # settings of one client are those of the session while its query is analysed


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Expressions take their time zone, and whether they are ANSI's, from the session when they are analysed."""
    with _PLANNING:
        before = {key: session.conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                try:
                    session.conf.set(key, value)
                except Exception as error:
                    text = str(error).strip().partition("\n")[0]
                    raise InputError(f"SET {key}={value}: {text}", option=key, found=value) from error
            yield
        finally:
            for key, old in before.items():
                if old is not None:
                    session.conf.set(key, old)
                elif session.conf.isModifiable(key):
                    session.conf.unset(key)


class QueryStoppedError(SkepError):
    """A query that another thread has ended, see `stoppable`."""


_LOOK_SECONDS: Final = 0.1
_STOP: Final[ContextVar[Event | None]] = ContextVar("stop", default=None)


@contextmanager
def stoppable(stop: Event) -> Iterator[None]:
    """Queries of DuckDB that begin in here end with QueryStoppedError once the event is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


class LeftToSpark(Exception):
    """A query that DuckDB may answer in another way than Spark, or can't answer; the message is the reason."""


@dataclass(frozen=True, slots=True)
class DuckPlan:
    """A query for DuckDB, with the relations that it reads by their names in it."""

    query: DuckQuery
    relations: Mapping[str, Relation]

    def bytes_read(self) -> int:
        """About how many bytes of files are read. Lists the tables."""
        return _bytes_read(self.relations)

    def scans(self) -> list[str]:
        """How many files are read of each table."""
        return [str(rows.files_chosen()) for rows in _reads(self.relations)]

    def explained(self) -> str:
        """DuckDB's plan. Reads nothing."""
        with _connected(self.relations, empty=True) as connection:
            found = connection.execute(f"EXPLAIN {self.query.text}").fetchall()
        return "\n".join(row[1] for row in found)

    def checked(self) -> DuckPlan:
        """This plan. LeftToSpark where DuckDB does not take it."""
        with _connected(self.relations, empty=True) as connection, _duckdb_errors():
            connection.sql(self.query.text)
        return self

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they come, in the types of Spark's answer. LeftToSpark, where DuckDB fails for one."""
        schema, stop = self.query.schema, _STOP.get()
        with _connected(self.relations) as connection, ThreadPoolExecutor(1) as thread:

            def call(work: Callable[[], T]) -> T:
                # DuckDB does not look for signals: Ctrl-C is taken here, and ends what runs there.
                future = thread.submit(work)
                try:
                    while stop is not None and not future.done():
                        if stop.is_set():
                            raise QueryStoppedError("the query was stopped")
                        wait([future], timeout=_LOOK_SECONDS)
                    return future.result()
                except BaseException:
                    while not future.done():  # an interrupt before the query runs has no effect
                        connection.interrupt()
                        wait([future], timeout=_LOOK_SECONDS)
                    raise

            with _duckdb_errors():
                reader = call(lambda: _reader(connection.sql(self.query.text)))
            while True:
                with _duckdb_errors():
                    batch = call(lambda: next(reader, None))
                if batch is None:
                    return
                if batch.num_rows:
                    yield _in_types_of(schema, batch)

    def rows(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches(), self.query.schema)


class DuckEngine:
    """DuckDB in this process, for queries that mean the same to it. It reads streams, and spills to disk."""

    @staticmethod
    def is_there() -> bool:
        """Whether DuckDB is installed."""
        return importlib.util.find_spec("duckdb") is not None

    def planned(self, query: exp.Query, relations: Mapping[str, Relation]) -> DuckPlan:
        """The query as DuckDB takes it. LeftToSpark, with the reason, where it may not mean the same."""
        needed = reads_needed(query, relations, in_utc=True)
        given = {name: each if isinstance(each, Rows) else row_input(each) for name, each in needed.items()}
        try:
            made = duckdb_query(query, {name: each.schema for name, each in given.items()})
        except DiffersError as error:
            raise LeftToSpark(str(error)) from error
        return DuckPlan(made, given)

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        """See `Engine`."""
        return self.planned(query, relations).checked().query.schema

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        return self.planned(query, relations).rows()

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        """See `Engine`."""
        return self.rows(query, relations)

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        import numpy as np

        rows = self.rows(query, relations)
        return rows.append_column(column, pa.array(np.arange(rows.num_rows)))


class DuckResult(SqlResult):
    """The answer of DuckDB; of Spark where more is read than `most_bytes`, or DuckDB fails for a value."""

    def __init__(
        self, plan: DuckPlan, on_spark: Callable[[str], SqlResult], most_bytes: int | None, is_strict: bool
    ) -> None:
        self._plan = plan
        self._on_spark = on_spark
        self._most_bytes = most_bytes
        self._is_strict = is_strict
        self._moved: SqlResult | None = None
        self._size: int | None = None

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._plan.query.schema.names)

    @property
    def engine(self) -> str:
        """`duckdb` or `spark`. Lists the tables."""
        return "duckdb" if self.why is None else "spark"

    @property
    def why(self) -> str | None:
        """Why Spark answers; None where DuckDB does, as far as is known before it has run. Lists the tables."""
        return self._why_big() if self._moved is None else self._moved.why

    def _why_big(self) -> str | None:
        if self._most_bytes is None:
            return None
        if self._size is None:
            self._size = self._plan.bytes_read()
        return _why_big(self._size, self._most_bytes)

    def _moved_to_spark(self, why: str) -> SqlResult:
        if self._moved is None:
            if self._is_strict:
                raise UnsupportedError(f"the query is left to Spark: {why}", hint="leave out the engine", found=why)
            self._moved = self._on_spark(why)
        return self._moved

    def _spark_if_big(self) -> SqlResult | None:
        if self._moved is None and (why := self._why_big()) is not None:
            return self._moved_to_spark(why)
        return self._moved

    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame; a session is started for it."""
        frame: DataFrame = (self._moved or self._on_spark("a Spark frame is asked for")).to_spark()
        return frame

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a streaming Arrow reader. InputError where DuckDB fails after the first rows were read."""
        moved = self._spark_if_big()
        if moved is not None:
            return moved.to_reader()
        batches = self._plan.batches()
        try:
            first = next(batches, None)  # a failure here can still be mended
        except LeftToSpark as error:
            return self._moved_to_spark(str(error)).to_reader()
        return pa.RecordBatchReader.from_batches(self._plan.query.schema, _all(first, batches))

    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""
        moved = self._spark_if_big()
        try:
            return self._plan.rows() if moved is None else moved.to_arrow()
        except LeftToSpark as error:
            return self._moved_to_spark(str(error)).to_arrow()

    def explain(self) -> str:
        """How many files are read of each table, by which filter, and the engine's plan. Lists the tables."""
        moved = self._spark_if_big()
        if moved is not None:
            return moved.explain()
        engine = engine_line("duckdb", None)
        return "\n".join([engine, *self._plan.scans(), "", "== DuckDB ==", self._plan.explained()])

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        print_table(self._first_rows(limit)[0])


def _all(first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    try:
        yield from others
    except LeftToSpark as error:
        raise InputError(f"a part of the rows is left to Spark: {error}", hint="name the engine spark") from error


def _reader(relation: Any) -> pa.RecordBatchReader:
    named = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch  # the latter up to DuckDB 1
    return named(_ROWS_IN_A_BATCH)


_ROWS_IN_A_BATCH: Final = 100_000


class _Stream:
    """A relation as DuckDB reads it: again for each mention, and in types that it takes."""

    def __init__(self, relation: Relation, errors: list[Exception]) -> None:
        self._relation = relation
        self._errors = errors

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        relation = self._relation
        schema = _schema_taken(relation.schema)
        batches = relation.to_batches() if isinstance(relation, Rows) else relation.batches()
        return pa.RecordBatchReader.from_batches(schema, self._converted(batches, schema)).__arrow_c_stream__(
            requested_schema
        )

    def _converted(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch if batch.schema.equals(schema) else _in_types_of(schema, batch)
        except Exception as error:
            self._errors.append(error)
            raise


def _schema_taken(schema: pa.Schema) -> pa.Schema:
    """A relation's columns in the types in which DuckDB gets them."""
    return pa.schema([field.with_type(spark_type(field.type) or field.type) for field in schema])


def _in_types_of(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_spark(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in Spark's type: times lose what is below a microsecond, as there."""
    if column.type == kind:
        return column
    return untyped(column, kind)  # nulls without a type come as numbers


class _Database:
    """DuckDB's database of this process, in memory: queries share its threads, its limit of memory and its folder for
    what does not fit. To start one takes as long as many a query."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._folder: TemporaryDirectory[str] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked process: it has the database without its threads. To close that would end the process."""
        if self._folder is not None:
            self._folder._finalizer.detach()  # type: ignore[attr-defined]
        if self._connection is not None:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # so that it is never closed
        self._lock, self._connection, self._folder = Lock(), None, None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection with tables and a time zone of its own."""
        import duckdb

        with self._lock:
            if self._connection is None:
                self._folder = TemporaryDirectory(prefix="skep-sql-", ignore_cleanup_errors=True)
                config = {
                    "temp_directory": self._folder.name,
                    "python_enable_replacements": "false",
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                }
                self._connection = duckdb.connect(config=config)  # type: ignore[arg-type,unused-ignore]
            return self._connection.cursor()


_DATABASE: Final = _Database()


@contextmanager
def _connected(relations: Mapping[str, Relation], *, empty: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    errors: list[Exception] = []
    connection = _DATABASE.cursor()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, relation in relations.items():
            whole = _Stream(relation, errors)
            connection.register(name, _schema_taken(relation.schema).empty_table() if empty else whole)
        yield connection
    except LeftToSpark:
        if errors:  # the read failed, not the query
            raise errors[0] from None
        raise
    finally:
        connection.close()


@contextmanager
def _duckdb_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise LeftToSpark(f"DuckDB: {str(error).strip().partition(chr(10))[0]}") from error


def _reads(relations: Mapping[str, Relation]) -> list[Rows]:
    return list({id(each): each for each in relations.values() if isinstance(each, Rows)}.values())


def _bytes_read(relations: Mapping[str, Relation]) -> int:
    return sum(rows.bytes_read() for rows in _reads(relations))


def _why_big(found: int, most: int) -> str | None:
    return f"it reads {found} bytes, more than {EMBEDDED_BYTES.key}" if found > most else None


def reads_needed(query: exp.Query, relations: Mapping[str, Relation], *, in_utc: bool = False) -> dict[str, Relation]:
    """The relations, of reads the columns and rows that the query can need. Equal reads are one object.

    `in_utc`: the engine takes times in UTC.
    """
    used = names_used(query)
    nodes: dict[str, list[exp.Table]] = defaultdict(list)
    for node in query.find_all(exp.Table):
        nodes[node.name].append(node)
    needed: dict[str, Relation] = {}
    reads: dict[tuple[int, str], Rows] = {}
    for name, relation in relations.items():
        needed[name] = relation
        if isinstance(relation, Rows):
            where = filter_on(nodes[name][0], relation.schema, in_utc=in_utc) if len(nodes[name]) == 1 else None
            needed[name] = reads.setdefault((id(relation), str(where)), relation.narrowed(used).filtered(where))
        elif isinstance(relation, ParquetRows):
            needed[name] = relation.narrowed(used)
    return needed


def _has_times(query: exp.Query, relations: Mapping[str, Relation]) -> bool:
    """Whether the query may depend on a time zone."""
    fields = [field.type for each in relations.values() for field in getattr(each, "schema", ())]
    named = any(node.is_type(*exp.DataType.TEMPORAL_TYPES) for node in query.find_all(exp.DataType))
    return named or any(map(_holds_times, fields))


def _holds_times(kind: pa.DataType) -> bool:
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or any(map(_holds_times, inner))


def _is_spark(relation: Relation) -> bool:
    from skep_writer.session import is_spark_frame

    return bool(is_spark_frame(relation))
