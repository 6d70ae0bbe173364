"""Hudi's formats and tables of a Spark session, passed to skep: readers and writers that call a `Routes` for them.

A session is marked by a setting of its own, which sessions cloned from it share (those of a stream's batches) and new
ones don't have. PySpark's classes are changed while at least one session is marked, and then get their attributes back.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession, SQLContext
from pyspark.sql.catalog import Catalog
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from skep_format.errors import InputError, UnsupportedError
from skep_format.schema.types import quoted

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

try:  # Spark 4 keeps the methods in a class below the one that users import
    from pyspark.sql.classic.dataframe import DataFrame as _Frame
except ImportError:
    _Frame = DataFrame

FORMATS: Final = ("hudi", "org.apache.hudi", "org.apache.hudi.defaultsource")
MARK: Final = "spark.skep.hudi.jobs"
_DEFAULT_SOURCE: Final = "spark.sql.sources.default"
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"


@dataclass
class JobSettings:
    """What a job has set on a reader or writer so far."""

    source: str | None = None
    mode: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    schema: StructType | str | None = None
    in_buckets: bool = False

    def also(self, options: Mapping[str, object]) -> dict[str, object]:
        """The change by options; None leaves one out, as in PySpark."""
        return {"options": self.options | {key: value for key, value in options.items() if value is not None}}

    def path(self, given: object = None) -> object:
        """The path that is given, else the one among the options. InputError where there is neither."""
        found = given if given is not None else self.options.get("path")
        if found is None:
            raise InputError('format("hudi") needs the path of a table', option="path")
        return found


class Routes(Protocol):
    """What happens to the calls of a marked session that concern Hudi. Methods on a name answer None or False where
    it is no Hudi table, and Spark carries the call out."""

    def save(self, frame: DataFrame, asked: JobSettings, path: object, batch: str | None = None) -> None:
        """Writes to a path; `batch` names a micro-batch of a stream, which is written once."""

    def save_as_table(self, frame: DataFrame, asked: JobSettings, name: str, batch: str | None = None) -> None:
        """Writes to a table of Hudi's format, and makes it where it is not there."""

    def insert_into(self, frame: DataFrame, asked: JobSettings, name: str, *, by_name: bool = False) -> None:
        """Inserts into a table that is there; mode overwrite replaces rows."""

    def load(self, spark: SparkSession, asked: JobSettings, path: object) -> DataFrame:
        """Reads from a path."""

    def table(self, spark: SparkSession, name: str, options: Mapping[str, object]) -> DataFrame | None:
        """Reads a table by its name."""

    def stream(self, spark: SparkSession, asked: JobSettings, path: object) -> DataFrame:
        """Streams the changes of the table at a path."""

    def stream_table(self, spark: SparkSession, name: str, asked: JobSettings) -> DataFrame:
        """The same of a Hudi table by its name."""

    def is_hudi(self, spark: SparkSession, name: str) -> bool:
        """Whether a name is that of a Hudi table or of a view over such tables."""

    def sql(
        self, spark: SparkSession, text: str, args: Mapping[str, object] | Sequence[object] | None
    ) -> DataFrame | None:
        """Carries out a statement."""

    def tables(self, spark: SparkSession, database: str | None, pattern: str | None) -> list[tuple[str, str]]:
        """Database and name of the Hudi tables of a database, None for the current one, that are like a pattern."""

    def drop_view(self, name: str) -> bool:
        """Drops a temporary view over Hudi tables. False where there is none."""


def is_hudi_format(spark: SparkSession, source: str | None) -> bool:
    """Whether a format is Hudi's; None is the session's default."""
    name = source if source is not None else spark.conf.get(_DEFAULT_SOURCE, "")
    return str(name).lower() in FORMATS


class _Kept:
    """A method of PySpark's class that also keeps what it is given: `keep` has the changes of the settings so far."""

    def __init__(self, keep: Callable[..., Mapping[str, object]]) -> None:
        self._keep = keep

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: Any, _: type) -> Any:
        if instance is None:
            return self
        own = getattr(super(self._owner, instance), self._name)

        @wraps(own)
        def method(*given: Any, **named: Any) -> Any:
            for key, value in self._keep(instance._asked, *given, **named).items():
                setattr(instance._asked, key, value)
            own(*given, **named)
            return instance

        return method


class _WithOptions:
    """Keeps options beside PySpark's class, which comes next among the bases."""

    _asked: JobSettings
    _spark: SparkSession

    option: Any = _Kept(lambda asked, key, value: asked.also({key: value}))
    options: Any = _Kept(lambda asked, /, **options: asked.also(options))


class _OfFormat(_WithOptions):
    """The same with a format."""

    format: Any = _Kept(lambda _, source: {"source": source})

    def _is_hudi(self, options: Mapping[str, Any], **given: Any) -> bool:
        """Sets what the last call of a chain is given, by the methods of these names, and decides by the format."""
        self.options(**options)
        for method, value in given.items():
            if value is not None:
                getattr(self, method)(value)
        if not is_hudi_format(self._spark, self._asked.source):
            return False
        if self._asked.in_buckets:
            raise UnsupportedError(
                "bucketBy and sortBy are not for Hudi's format",
                hint="hoodie.index.type=BUCKET makes a table in buckets",
            )
        return True


class _Writer(_OfFormat, DataFrameWriter):
    """`df.write`: keeps what is set, in case the format turns out to be Hudi's."""

    def __init__(self, frame: DataFrame, routes: Routes) -> None:
        super().__init__(frame)
        self._frame, self._routes, self._asked = frame, routes, JobSettings()

    mode: Any = _Kept(lambda asked, saveMode: {"mode": saveMode or asked.mode})
    partitionBy: Any = _Kept(lambda _, *cols: {"partition_by": _names(cols)})
    bucketBy: Any = _Kept(lambda *_, **__: {"in_buckets": True})
    sortBy: Any = _Kept(lambda *_, **__: {"in_buckets": True})

    def save(
        self, path: Any = None, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
    ) -> None:
        if not self._is_hudi(options, mode=mode, partitionBy=partitionBy, format=format):
            return super().save(path)
        return self._routes.save(self._frame, self._asked, self._asked.path(path))

    def saveAsTable(
        self, name: str, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
    ) -> None:
        if not self._is_hudi(options, mode=mode, partitionBy=partitionBy, format=format):
            if self._routes.is_hudi(self._spark, name):
                raise _other_format(name, self._asked.source)
            return super().saveAsTable(name)
        return self._routes.save_as_table(self._frame, self._asked, name)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:
        if not self._routes.is_hudi(self._spark, tableName):
            return super().insertInto(tableName, overwrite)
        if self._asked.partition_by:
            raise InputError(
                "insertInto takes no partitionBy: the table has its partition columns", option="partitionBy"
            )
        if overwrite is not None:
            self.mode("overwrite" if overwrite else "append")
        return self._routes.insert_into(self._frame, self._asked, tableName)


class _WriterV2(_WithOptions, DataFrameWriterV2):
    """`df.writeTo(name)`, as far as Hudi's tables can be written in this way."""

    def __init__(self, frame: DataFrame, name: str, routes: Routes) -> None:
        super().__init__(frame, name)
        self._frame, self._name, self._routes, self._asked = frame, name, routes, JobSettings()

    tableProperty: Any = _Kept(lambda asked, property, value: asked.also({property: value}))
    using: Any = _Kept(lambda _, provider: {"source": provider})
    partitionedBy: Any = _Kept(
        lambda _, col, *cols: {"partition_by": tuple(each._jc.toString() for each in (col, *cols))}
    )

    def create(self) -> None:
        if self._asked.source is None or not is_hudi_format(self._spark, self._asked.source):
            return super().create()
        self._asked.mode = "error"
        return self._routes.save_as_table(self._frame, self._asked, self._name)

    def append(self) -> None:
        if not self._routes.is_hudi(self._spark, self._name):
            return super().append()
        return self._routes.insert_into(self._frame, self._asked, self._name, by_name=True)

    def overwritePartitions(self) -> None:
        if not self._routes.is_hudi(self._spark, self._name):
            return super().overwritePartitions()
        self._asked.mode = "overwrite"
        self._asked.options["hoodie.datasource.overwrite.mode"] = "dynamic"
        return self._routes.insert_into(self._frame, self._asked, self._name, by_name=True)

    def overwrite(self, condition: Any) -> None:
        self._refuse("overwrite")
        return super().overwrite(condition)

    def replace(self) -> None:
        self._refuse("replace")
        return super().replace()

    def createOrReplace(self) -> None:
        self._refuse("createOrReplace")
        return super().createOrReplace()

    def _refuse(self, method: str) -> None:
        given = self._asked.source is not None and is_hudi_format(self._spark, self._asked.source)
        if given or self._routes.is_hudi(self._spark, self._name):
            raise UnsupportedError(
                f"writeTo({self._name!r}).{method}() is not supported for Hudi tables",
                hint='write.format("hudi").mode("overwrite").saveAsTable(…) replaces a table',
                table=self._name,
            )


class _OfTable(_OfFormat):
    """What `spark.read` and `spark.readStream` share."""

    def __init__(self, spark: SparkSession, routes: Routes) -> None:
        super().__init__(spark)  # type: ignore[call-arg]
        self._spark, self._routes, self._asked = spark, routes, JobSettings()

    schema: Any = _Kept(lambda _, schema: {"schema": schema})

    def load(self, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> DataFrame:
        if not self._is_hudi(options, format=format, schema=schema):
            found: DataFrame = super().load(path)  # type: ignore[misc]
            return found
        return self._of_path(self._asked.path(path))

    def _of_path(self, path: object) -> DataFrame:
        raise NotImplementedError


class _Reader(_OfTable, DataFrameReader):
    """`spark.read`: keeps what is set, in case the format turns out to be Hudi's."""

    def _of_path(self, path: object) -> DataFrame:
        return self._routes.load(self._spark, self._asked, path)

    def table(self, tableName: str) -> DataFrame:
        found = self._routes.table(self._spark, tableName, self._asked.options)
        return super().table(tableName) if found is None else found


class _StreamWriter(_OfFormat, DataStreamWriter):
    """`df.writeStream`: for Hudi's format every micro-batch is one commit, written once however often it is tried."""

    def __init__(self, frame: DataFrame, routes: Routes) -> None:
        super().__init__(frame)
        self._routes, self._asked = routes, JobSettings()

    outputMode: Any = _Kept(lambda _, outputMode: {"mode": outputMode})
    foreach: Any = _Kept(lambda *_, **__: {"source": "foreach"})
    foreachBatch: Any = _Kept(lambda *_, **__: {"source": "foreachBatch"})

    def partitionBy(self, *cols: Any) -> _StreamWriter:  # Spark's, where the format is not Hudi's, gets them at the end
        self._asked.partition_by = _names(cols)
        return self

    def start(
        self,
        path: Any = None,
        format: Any = None,
        outputMode: Any = None,
        partitionBy: Any = None,
        queryName: Any = None,
        **options: Any,
    ) -> StreamingQuery:
        given = {"outputMode": outputMode, "partitionBy": partitionBy, "format": format, "queryName": queryName}
        if not self._is_hudi(options, **given):
            return super().start(path)
        routes, asked, place = self._routes, self._asked, self._asked.path(path)
        return self._started(lambda frame, batch: routes.save(frame, asked, place, batch))

    def toTable(
        self,
        tableName: str,
        format: Any = None,
        outputMode: Any = None,
        partitionBy: Any = None,
        queryName: Any = None,
        **options: Any,
    ) -> StreamingQuery:
        given = {"outputMode": outputMode, "partitionBy": partitionBy, "format": format, "queryName": queryName}
        if not self._is_hudi(options, **given):
            if self._routes.is_hudi(self._spark, tableName):
                raise _other_format(tableName, self._asked.source)
            return super().toTable(tableName)
        routes, asked = self._routes, self._asked
        return self._started(lambda frame, batch: routes.save_as_table(frame, asked, tableName, batch))

    def _is_hudi(self, options: Mapping[str, Any], **given: Any) -> bool:
        found = super()._is_hudi(options, **given)
        if not found and self._asked.partition_by:
            super().partitionBy(*self._asked.partition_by)
        return found

    def _started(self, write: Callable[[DataFrame, str], None]) -> StreamingQuery:
        modes = {None: "append", "append": "append", "complete": "overwrite"}
        output = self._asked.mode.lower() if self._asked.mode else None
        if output not in modes:
            raise UnsupportedError(
                f"a stream into a Hudi table in output mode {output} is not supported",
                hint='outputMode("append") upserts each batch',
                found=output,
                expected="append or complete",
            )
        self._asked.mode = modes[output]
        checkpoint = self._asked.options.get("checkpointLocation") or self._spark.conf.get(_CHECKPOINTS, "")
        if not checkpoint:
            raise InputError(
                "a stream into a Hudi table needs the option checkpointLocation", option="checkpointLocation"
            )
        named = self._asked.options.get("hoodie.datasource.write.streaming.checkpoint.identifier")
        label = named or str(checkpoint).rstrip("/")
        super().foreachBatch(lambda frame, number: write(frame, f"{label}#{number}"))
        return super().start()


class _StreamReader(_OfTable, DataStreamReader):
    """`spark.readStream`: keeps what is set, in case the format turns out to be Hudi's."""

    def _of_path(self, path: object) -> DataFrame:
        return self._routes.stream(self._spark, self._asked, path)

    def table(self, tableName: str) -> DataFrame:
        if self._routes.is_hudi(self._spark, tableName):
            return self._routes.stream_table(self._spark, tableName, self._asked)
        return super().table(tableName)


class _Catalog(Catalog):
    """`spark.catalog`, which knows Hudi's tables, too, where jobs ask it for tables."""

    def __init__(self, spark: SparkSession, routes: Routes) -> None:
        super().__init__(spark)
        self._routes = routes

    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:
        full = tableName if dbName is None else f"{dbName}.{tableName}"
        return self._routes.is_hudi(self._sparkSession, full) or super().tableExists(tableName, dbName)

    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Any]:
        from pyspark.sql.catalog import Table

        found = super().listTables(dbName, pattern)
        known = {each.name for each in found}
        more = [
            Table(name, "spark_catalog", [database], None, "EXTERNAL", False)
            for database, name in self._routes.tables(self._sparkSession, dbName, pattern)
            if name not in known
        ]
        return found + more

    def refreshTable(self, tableName: str) -> None:
        if not self._routes.is_hudi(self._sparkSession, tableName):  # each read of a Hudi table is of a new snapshot
            super().refreshTable(tableName)

    def dropTempView(self, viewName: str) -> bool:
        return self._routes.drop_view(viewName) or super().dropTempView(viewName)


def _other_format(name: str, source: str | None) -> InputError:
    return InputError(
        f"table {name} is Hudi's, and the format is {source or 'the default'}",
        hint='format("hudi")',
        table=name,
        found=source,
        expected="hudi",
    )


def _names(columns: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(columns[0]) if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns


# -- the classes of PySpark

_guard = threading.RLock()
_marked: dict[str, Routes] = {}
_alone: ContextVar[bool] = ContextVar("_alone", default=False)
_changed: dict[tuple[type, str], tuple[Any, Any]] = {}  # the attribute of PySpark, and the one in its place


def routes_of(spark: SparkSession) -> Routes | None:
    """The routes of a marked session; None within `spark_alone`, too."""
    if _alone.get():
        return None
    mark = spark.conf.get(MARK, "")
    return _marked.get(str(mark)) if mark else None


def mark(spark: SparkSession, routes: Routes) -> str:
    """Marks a session. Its Hudi calls go to `routes` until `unmark`, to which the result is passed."""
    name = uuid.uuid4().hex
    with _guard:
        if not _marked:
            _change_classes()
        _marked[name] = routes
    spark.conf.set(MARK, name)
    return name


def unmark(name: str) -> None:
    """Calling it again is no error."""
    with _guard:
        if _marked.pop(name, None) is not None and not _marked:
            _restore_classes()


@contextmanager
def spark_alone() -> Iterator[None]:
    """Meanwhile this thread's calls of PySpark are Spark's own, in a marked session, too."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def _change_classes() -> None:
    sql, table = SparkSession.__dict__["sql"], SparkSession.__dict__["table"]

    @wraps(sql)
    def routed_sql(self: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        routes = routes_of(self)
        if routes is None:
            return sql(self, sqlQuery, args, **kwargs)
        with _formatted(self, sqlQuery, kwargs) as text:
            found = routes.sql(self, text, args)
        return sql(self, sqlQuery, args, **kwargs) if found is None else found

    @wraps(table)
    def routed_table(self: SparkSession, tableName: str) -> DataFrame:
        routes = routes_of(self)
        found = None if routes is None else routes.table(self, tableName, {})
        return table(self, tableName) if found is None else found

    _change(SparkSession, "sql", routed_sql)
    _change(SparkSession, "table", routed_table)
    _change_property(SparkSession, "read", _Reader)
    _change_property(SparkSession, "readStream", _StreamReader)
    _change_property(SparkSession, "catalog", _Catalog)
    _change_property(_Frame, "write", _Writer)
    _change_property(_Frame, "writeStream", _StreamWriter)
    write_to = _Frame.__dict__["writeTo"]

    @wraps(write_to)
    def routed_write_to(self: DataFrame, table: str) -> DataFrameWriterV2:
        routes = routes_of(self.sparkSession)
        return write_to(self, table) if routes is None else _WriterV2(self, table, routes)

    _change(_Frame, "writeTo", routed_write_to)

    @property  # type: ignore[misc]
    def context_read(self: SQLContext) -> DataFrameReader:
        return self.sparkSession.read

    _change(SQLContext, "read", context_read)


def _change_property(kind: type, name: str, routed: Callable[[Any, Routes], Any]) -> None:
    own = kind.__dict__[name]

    def get(self: Any) -> Any:
        routes = routes_of(self if kind is SparkSession else self.sparkSession)
        return own.__get__(self, type(self)) if routes is None else routed(self, routes)

    _change(kind, name, property(get, doc=own.__doc__))


def _change(kind: type, name: str, value: Any) -> None:
    _changed[kind, name] = kind.__dict__[name], value
    setattr(kind, name, value)


def _restore_classes() -> None:
    for (kind, name), (own, routed) in _changed.items():
        if kind.__dict__[name] is routed:  # what another library has put over it stays, and calls PySpark's through it
            setattr(kind, name, own)
    _changed.clear()


@contextmanager
def _formatted(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """The text with its `{name}` filled in as PySpark does it; frames among the values are views meanwhile."""
    if not values:
        yield text
        return
    from pyspark.sql.sql_formatter import SQLStringFormatter

    formatter = SQLStringFormatter(spark)
    try:
        yield formatter.format(text, **values)
    finally:
        formatter.clear()


@contextmanager
def each_new_session(
    use: Callable[[SparkSession], object], clean: Callable[[dict[str, Any]], object]
) -> Iterator[None]:
    """Meanwhile `getOrCreate` first passes the builder's settings to `clean`, which may change them, and then the
    session to `use`."""
    builder = SparkSession.Builder
    own = builder.__dict__["getOrCreate"]

    @wraps(own)
    def routed(self: Any) -> SparkSession:
        clean(self._options)
        session: SparkSession = own(self)
        use(session)
        return session

    builder.getOrCreate = routed
    try:
        yield
    finally:
        builder.getOrCreate = own


# -- what a session has


def session_values(spark: SparkSession, *prefixes: str) -> dict[str, str]:
    """The settings of a session whose keys begin with one of the prefixes."""
    jvm, found = spark._jvm, spark._jsparkSession.conf().getAll()
    pairs = jvm.scala.collection.JavaConverters.mapAsJavaMapConverter(found).asJava()
    return {str(key): str(pairs[key]) for key in pairs if str(key).startswith(prefixes)}


def hadoop_value(spark: SparkSession, key: str) -> str | None:
    """A setting of Hadoop, with what a session's own files and settings add to it."""
    found = spark._jsparkSession.sessionState().newHadoopConf().get(key)
    return str(found) if found else None


def hadoop_values(spark: SparkSession, *prefixes: str) -> dict[str, str]:
    """The settings of Hadoop whose keys begin with one of the prefixes, with those that a session adds."""
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    found = {}
    for prefix in prefixes:
        of_prefix = settings.getPropsWithPrefix(prefix)
        found.update({f"{prefix}{key}": str(of_prefix[key]) for key in of_prefix})
    return found


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether a class is on the session's class path."""
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def has_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether Spark has a temporary view of this name."""
    return bool(spark._jsparkSession.sessionState().catalog().getTempView(name).isDefined())


def session_id(spark: SparkSession) -> str:
    """The same for all of Python's handles of one session."""
    return str(spark._jsparkSession.sessionUUID())


def empty_frame(spark: SparkSession) -> DataFrame:
    """Without rows and columns, as commands answer."""
    return spark.range(0).select()


def with_schema(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """The columns that a schema names, null where the table has none. InputError where a type differs."""
    from pyspark.sql.functions import col, lit
    from pyspark.sql.types import StructType as Struct
    from pyspark.sql.types import _parse_datatype_string

    asked = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(asked, Struct):
        raise InputError(f"a schema is columns and types, not {asked.simpleString()}", option="schema")
    there = {each.name.lower(): each for each in frame.schema.fields}
    columns = []
    for each in asked.fields:
        own = there.get(each.name.lower())
        wanted = each.dataType.simpleString()
        if own is not None and (found := own.dataType.simpleString()) != wanted:
            raise InputError(
                f"column {each.name} is {found}, and the schema has {wanted}",
                hint="read it as it is, and cast it",
                column=each.name,
                found=found,
                expected=wanted,
            )
        source = lit(None).cast(each.dataType) if own is None else col(quoted(own.name))
        columns.append(source.alias(each.name))
    return frame.select(*columns)
