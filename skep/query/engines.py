"""Engines for queries: Spark, and Sail in this process for queries that mean the same to both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from sqlglot import exp

import skep_writer
from skep.query.engine_errors import SparkQuery, engine_errors
from skep.query.path_rows import ParquetRows, SparkFiles
from skep.query.reads import bytes_read, reads, reads_needed, why_big
from skep.query.result import SparkResult, SqlResult, engine_line
from skep.query.rows import EMBEDDED_BYTES, Rows
from skep.query.sail import LeftToSpark, SailEngine, SailPlan, SailResult
from skep.query.spark import UTC, SparkHolder, needed_because
from skep_format.errors import EnvironmentMissingError, InputError, UnsupportedError
from skep_sql.parsing.written import spark_text
from skep_sql.protocols import TIME_ZONE, QueryEngine, Relation
from skep_sql.settings import SessionSettings
from skep_table.write.input.given import arrow_table
from skep_writer.session import is_spark_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class EngineChoice(str, Enum):
    """Who answers a query."""

    AUTO = "auto"
    SAIL = "sail"
    SPARK = "spark"


# Settings of Spark that change how fast a query is, not what it answers.
_OF_SPEED: Final = (
    *("adaptive.", "shuffle.", "files.", "execution.", "parquet.", "orc.", "warehouse.", "ui.", "session.timeZone"),
    *("broadcastTimeout", "autoBroadcastJoinThreshold", "catalogImplementation"),
)


class LakeEngine(QueryEngine):
    """Spark where the caller gave a session; else Sail where it is there and a query suits it.

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
        self._sail = SailEngine()

    @property
    def in_utc(self) -> bool:
        """See `Engine`. By the client's setting, else by the session that runs, or that would be started."""
        return self._spark.in_utc

    def why_spark(self, query: exp.Query, relations: Mapping[str, Relation]) -> str | None:
        """What leaves a query to Spark, whatever it asks for."""
        missing = SailEngine.why_missing()
        if missing is not None:
            return missing
        if any(map(is_spark_frame, relations.values())):
            return "it reads a Spark frame"
        files = next((each for each in relations.values() if isinstance(each, SparkFiles)), None)
        if files is not None:
            return f"it reads {files.format}.`{files.path}`"
        given = {**self._holder.conf, **self._settings.engine}
        named = [key.removeprefix("spark.sql.") for key in given if key.startswith("spark.sql.")]
        changed = [key for key in named if not key.startswith(_OF_SPEED)]
        session = self._holder.given
        if session is not None:
            given = {TIME_ZONE: session.conf.get(TIME_ZONE), **self._settings.engine}
        if not changed and given.get(TIME_ZONE, UTC) != UTC and _has_times(query, relations):
            changed = [TIME_ZONE.removeprefix("spark.sql.")]
        return f"spark.sql.{changed[0]} is set" if changed else None

    def _answered(
        self, query: exp.Query, relations: Mapping[str, Relation], ask: Callable[[SparkEngine | SailEngine], T]
    ) -> T:
        why = self._why_given() or self.why_spark(query, relations)
        why = why or self._why_big(lambda: reads_needed(query, relations, in_utc=self.in_utc))
        if why is None:
            try:
                return ask(self._sail)
            except LeftToSpark as error:
                why = str(error)
        with because(why):
            return ask(self._spark)

    def _why_big(self, needed: Callable[[], Mapping[str, Relation]]) -> str | None:
        """No session is started for the size of a statement's query."""
        return why_big(bytes_read(needed()), self._most_bytes()) if self._holder.is_started else None

    def _why_given(self) -> str | None:
        return None if self._holder.given is None else "the lake was given a session"

    def schema(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Schema:
        return self._answered(query, relations, lambda engine: engine.schema(query, relations))

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        return self._answered(query, relations, lambda engine: engine.rows(query, relations))

    def frame(self, query: exp.Query, relations: Mapping[str, Relation]) -> object:
        return self._answered(query, relations, lambda engine: engine.frame(query, relations))

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        return self._answered(query, relations, lambda engine: engine.numbered(query, relations, column))

    def held(self, relation: Relation) -> pa.Table | None:
        elsewhere = self._why_given() or self._why_big(lambda: {"": relation})
        return None if elsewhere else self._sail.held(relation)

    def errors_of_frames(self) -> AbstractContextManager[None]:
        """See `SparkEngine`."""
        return self._spark.errors_of_frames()

    def explained(self, query: exp.Query, relations: Mapping[str, Relation]) -> str:
        """See `Engine`. Spark's plan, where a session runs; none is started for it."""
        found = self._planned(query, relations, EngineChoice.AUTO)
        if not isinstance(found, str) and (why := why_big(found.bytes_read(), self._most_bytes())) is not None:
            found = why
        if isinstance(found, str) and self._holder.is_started:
            return self.on_spark(query, relations, found).explain()
        needed = reads_needed(query, relations, in_utc=self.in_utc)
        engine = engine_line("spark", found) if isinstance(found, str) else engine_line("sail", None)
        return "\n".join([engine, *(str(rows.files_chosen()) for rows in reads(needed))])

    def functions(self) -> Collection[str]:
        """See `Engine`. Those of Spark, which is started for it."""
        return self._spark.functions()

    def files(self, provider: str, options: Mapping[str, str], columns: str | None) -> Relation:
        """See `Engine`. A frame of Spark, which is started for it: formats and options are Spark's."""
        return self._spark.files(provider, options, columns)

    # -- queries of their own

    def result(self, query: exp.Query, relations: Mapping[str, Relation], engine: EngineChoice) -> SqlResult:
        """The answer of a query, which is run when it is asked for rows. A session of the caller's wins over Sail.

        By `engine` SAIL, UnsupportedError for a query that is not known to mean the same to Spark.
        """
        found = self._planned(query, relations, engine)
        if isinstance(found, SailPlan):
            is_strict = engine is EngineChoice.SAIL
            most = None if is_strict else self._most_bytes()
            return SailResult(found, lambda why: self.on_spark(query, relations, why), most, is_strict)
        if engine is EngineChoice.SAIL:
            raise UnsupportedError(
                f"the query is left to Spark: {found}", hint="leave out the engine, or name spark", found=found
            )
        return self.on_spark(query, relations, found)

    def _planned(self, query: exp.Query, relations: Mapping[str, Relation], engine: EngineChoice) -> SailPlan | str:
        """The plan of Sail, or why the query is left to Spark."""
        if engine is EngineChoice.SPARK:
            return "the engine is named"
        why = self._why_given() if engine is EngineChoice.AUTO else None
        why = why or self.why_spark(query, relations)
        if why is not None:
            return why
        try:
            return self._sail.planned(query, relations)
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
        return skep_writer.frame_schema(self.frame(query, relations))

    def rows(self, query: exp.Query, relations: Mapping[str, Relation]) -> pa.Table:
        """See `Engine`."""
        frame, _ = self.planned(query, relations)
        with engine_errors([SparkQuery(query, relations), *self._frames]):
            return skep_writer.collect_arrow(frame)

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
        return frame, tuple(reads(needed))

    def numbered(self, query: exp.Query, relations: Mapping[str, Relation], column: str) -> Relation:
        """See `Engine`."""
        return skep_writer.numbered(self.frame(query, relations), column)

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
        if is_spark_frame(relation):
            return relation
        return skep_writer.arrow_frame(self._holder.session, arrow_table(relation))


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


def _has_times(query: exp.Query, relations: Mapping[str, Relation]) -> bool:
    """Whether the query may depend on a time zone."""
    fields = [field.type for each in relations.values() for field in getattr(each, "schema", ())]
    named = any(node.is_type(*exp.DataType.TEMPORAL_TYPES) for node in query.find_all(exp.DataType))
    called = any(not isinstance(node, _WITHOUT_TIMES) for node in query.find_all(exp.Func))  # to_timestamp('…')
    return named or called or any(map(_holds_times, fields))


_WITHOUT_TIMES: Final = (exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Connector, exp.AggFunc)


def _holds_times(kind: pa.DataType) -> bool:
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or any(map(_holds_times, inner))
