"""`use_for_hudi`: in one Spark session, the reads, writes and statements of PySpark jobs on Hudi tables go to skep."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from skep.base.names import TableName, parts_of
from skep.handles.by_path import rows_at
from skep.handles.destination import Destination
from skep.handles.frame_writer import OPERATION, FrameWriter, Operation, spec_for
from skep.lake import Lake, connect
from skep.query.spark import SparkHolder
from skep_catalog.embedded import FOLDER, local_folder
from skep_format.errors import (
    EnvironmentMissingError,
    InputError,
    NotATableError,
    OptionError,
    TableExistsError,
    UnsupportedError,
)
from skep_format.options import Options
from skep_format.storage import open_storage
from skep_sql.names import without_catalog
from skep_sync.options import ENABLE, URIS, main_address
from skep_table.services.compaction.options import streaming_defaults
from skep_table.table import HudiTable
from skep_table.write.planning.settings import (
    HIVE_STYLE,
    PARTITION_FIELDS,
    SQL_NAMES,
    TABLE_NAME,
    path_settings,
    settings_among,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skep.handles.table import Table
    from skep.jobs.hudi_statements import Statements
    from skep_sql.bind import NamedQuery
    from skep_writer.routed import JobSettings

P = ParamSpec("P")
R = TypeVar("R")

_HUDI_CLASS: Final = "org.apache.hudi.DefaultSource"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_REGISTRATOR: Final = "spark.kryo.registrator"
_EXTENSIONS: Final = "spark.sql.extensions"
_PACKAGES: Final = "spark.jars.packages"
_HUDI_NAMES: Final = ("org.apache.spark.sql.hudi", "org.apache.spark.HoodieSparkKryo", "org.apache.hudi")
_READ_PATHS: Final = "hoodie.datasource.read.paths"
_INSERT_OPERATION: Final = "hoodie.spark.sql.insert.into.operation"


def use_for_hudi(
    spark: SparkSession,
    lake: Lake | None = None,
    *,
    options: Mapping[str, object] | None = None,
    replace: bool = False,
) -> HudiJobs:
    """From now on skep carries out this session's reads, writes and statements on Hudi tables, until `undo`.

    Statements and names mean tables of `lake`; without it, of the session's own metastore (`hive.metastore.uris`), else
    of the embedded one in Spark's warehouse, which is started when it is first needed. `options` count for all reads
    and writes; those of the job win. Other sessions of the process are not concerned. A session that is in use already
    stays as it is, and has one handle.

    UnsupportedError for Spark Connect, and where Hudi's own classes are on the class path, unless `replace`.
    EnvironmentMissingError where the session's settings need Hudi's classes.
    """
    from skep_writer.session import check_session

    check_session(spark)
    from skep_writer.routed import has_class, routes_of

    known = routes_of(spark)
    if isinstance(known, HudiJobs):
        if lake is not None or options is not None:
            known.check_same(lake, options)
        return known
    given = Options(options or {})
    given.check()
    if has_class(spark, _HUDI_CLASS):
        if not replace:
            raise UnsupportedError(
                "the session has Hudi's own classes on its class path",
                hint="leave the jar out, or use_for_hudi(spark, replace=True)",
                found=_HUDI_CLASS,
            )
    else:
        registrator = spark.sparkContext.getConf().get(_REGISTRATOR) or ""
        if _is_hudis(registrator):
            raise EnvironmentMissingError(
                f"{_REGISTRATOR} names {registrator}, which is not on the class path",
                hint="start the session without this setting",
                missing=registrator,
            )
    return HudiJobs(spark, lake, given)


def _alone(method: Callable[Concatenate[HudiJobs, P], R]) -> Callable[Concatenate[HudiJobs, P], R]:
    """Within the method, calls of PySpark are Spark's own."""

    @wraps(method)
    def run(self: HudiJobs, /, *args: P.args, **kwargs: P.kwargs) -> R:
        from skep_writer.routed import spark_alone

        with spark_alone():
            return method(self, *args, **kwargs)

    return run


class HudiJobs:
    """A session whose Hudi calls skep carries out, see `skep_writer.routed.Routes`, until `undo` or a block ends."""

    def __init__(self, spark: SparkSession, lake: Lake | None, options: Options) -> None:
        from skep_writer.routed import mark

        self._spark = spark
        self._given = lake
        self._options = options
        self._made: Lake | None = None
        self._lakes: dict[str, Lake] = {}
        self._views: dict[str, NamedQuery] = {}
        self._guard = threading.RLock()
        catalog = str(spark.conf.get(_CATALOG, ""))
        self._catalog = catalog if _is_hudis(catalog) else ""
        if self._catalog:  # a class that is not there; with it Spark would not find its own catalog
            spark.conf.unset(_CATALOG)
        self._mark = mark(spark, self)

    def __enter__(self) -> HudiJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Spark carries out everything again. Closes what was opened for the session. Calling it again is no error."""
        from skep_writer.routed import MARK, unmark

        unmark(self._mark)
        is_running = self._spark.sparkContext._jsc is not None
        if is_running and self._spark.conf.get(MARK, "") == self._mark:
            self._spark.conf.unset(MARK)
            if self._catalog:
                self._spark.conf.set(_CATALOG, self._catalog)
        with self._guard:
            made, self._made = self._made, None
            self._lakes.clear()
            if made is not None:
                made.close()

    def check_same(self, lake: Lake | None, options: Mapping[str, object] | None) -> None:
        """InputError where the session is in use with another lake or other options."""
        if (lake is not None and lake is not self._given) or Options(options or {}) != self._options:
            raise InputError("the session is in use for Hudi with another lake or other options", hint="undo it first")

    # -- writes

    @_alone
    def save(self, frame: DataFrame, asked: JobSettings, path: object, batch: str | None = None) -> None:
        options = self._write_options(asked, frame.sparkSession, batch)
        FrameWriter(frame).options(**_hudis(options)).mode(asked.mode or "error").save(str(path), batch_id=batch)

    @_alone
    def save_as_table(self, frame: DataFrame, asked: JobSettings, name: str, batch: str | None = None) -> None:
        """A new table is made as CREATE TABLE … AS makes it."""
        spark, mode = frame.sparkSession, (asked.mode or "error").lower()
        parts = _parts(name)
        name = ".".join(parts)
        statements = self._statements(spark)
        options = self._write_options(asked, spark, batch)
        named, _ = settings_among({key: options.pop(key) for key in list(options) if key.lower() in SQL_NAMES})
        for key, value in named.items():
            options.setdefault(key, value)
        path = asked.options.get("path")
        lake, is_hudi = statements.lake, statements.is_hudi(parts)
        full = TableName.parse(name, lake.database)

        def make(rows: object, settings: Mapping[str, str] | None = None) -> AbstractContextManager[Table]:
            if not is_hudi and spark.catalog.tableExists(name):
                hint = f"DROP TABLE {name}"
                raise TableExistsError(f"table {name} exists, and is no Hudi table", hint=hint, table=name)
            given = Options(_hudis({TABLE_NAME.key: full.name, **options, **(settings or {})}))
            place = str(path) if path is not None else statements.catalog.location_of(name)
            return lake.making(full, open_storage(place, given), partial(spec_for, rows, given), {})

        there = Destination(name, partial(lake.table, name), make)
        table = there.table() if is_hudi else None
        if table is None or mode == "overwrite":
            options.setdefault(HIVE_STYLE.key, True)
            if OPERATION.key not in options and batch is None:
                options[OPERATION.key] = Operation.BULK_INSERT.value
        if table is not None:
            if path is not None and mode != "ignore" and open_storage(str(path)).root != open_storage(table.path).root:
                raise OptionError(f"table {name} lies at {table.path}, not at {path}", option="path", found=str(path))
            options = {TABLE_NAME.key: table.snapshot.config.name, **path_settings(table.snapshot.options), **options}
        FrameWriter(frame).options(**_hudis(options)).mode(mode).save_to(there, batch_id=batch)

    @_alone
    def insert_into(self, frame: DataFrame, asked: JobSettings, name: str, *, by_name: bool = False) -> None:
        spark = frame.sparkSession
        settings = {key: str(value) for key, value in asked.options.items() if key.startswith("hoodie.")}
        if operation := settings.pop(OPERATION.key, None):
            settings.setdefault(_INSERT_OPERATION, operation)
        verb = "OVERWRITE" if (asked.mode or "").lower() == "overwrite" else "INTO"
        words = " BY NAME" if by_name else ""
        view = f"skep_rows_{uuid.uuid4().hex}"  # threads of a job share the session
        frame.createOrReplaceTempView(view)
        try:
            done = self._statements(spark).run(f"INSERT {verb} {name}{words} SELECT * FROM {view}", None, settings)
        finally:
            spark.catalog.dropTempView(view)
        if done is None:
            raise InputError(f"{name!r} is no name of a Hudi table", found=name, table=name)

    def _write_options(self, asked: JobSettings, spark: SparkSession, batch: str | None) -> dict[str, Any]:
        """What a job has set; `batch` is a stream's. OptionError where partitionBy and Hudi's option differ."""
        own = {key: value for key, value in asked.options.items() if key not in ("path", "checkpointLocation")}
        options: dict[str, Any] = {**self._options_in(spark), **own}
        if asked.partition_by:
            columns = ",".join(asked.partition_by)
            named = str(options.setdefault(PARTITION_FIELDS.key, columns))
            if ",".join(part.strip().partition(":")[0] for part in named.split(",")) != columns:
                raise OptionError(
                    f"partitionBy names {columns}, and {PARTITION_FIELDS.key} {named}",
                    option=PARTITION_FIELDS.key,
                    found=named,
                    expected=columns,
                )
        typed = Options(options)
        if typed.value(ENABLE) and not main_address(typed):
            options[URIS.key] = self._lake_of(spark).metastore.uri
        return options if batch is None else {**options, **streaming_defaults(typed)}

    # -- reads

    @_alone
    def load(self, spark: SparkSession, asked: JobSettings, path: object) -> DataFrame:
        """Patterns at the end of the path are taken where they mean the whole table."""
        from skep_writer.routed import with_schema

        if isinstance(path, (list, tuple)):
            if len(path) != 1:
                raise UnsupportedError(f"load takes the path of one Hudi table, found {len(path)}", found=list(path))
            path = path[0]
        if asked.options.get(_READ_PATHS):
            raise UnsupportedError(f"{_READ_PATHS} is not supported", hint="load(path) of the table, and a filter")
        options = {**self._options_in(spark), **_hudis(asked.options)}
        place = _without_pattern(str(path), Options(options))
        frame = rows_at(place, options, SparkHolder(spark)).to_spark()
        return frame if asked.schema is None else with_schema(frame, asked.schema)

    @_alone
    def table(self, spark: SparkSession, name: str, options: Mapping[str, object]) -> DataFrame | None:
        statements = self._statements(spark)
        if not statements.concerns(_parts(name)):
            return None
        if not options:
            return statements.run(f"SELECT * FROM {name}")
        return rows_at(
            self._path_of(spark, name), {**self._options_in(spark), **options}, SparkHolder(spark)
        ).to_spark()

    @_alone
    def stream(self, spark: SparkSession, asked: JobSettings, path: object) -> DataFrame:
        from skep_writer import stream_changes
        from skep_writer.routed import with_schema

        options = Options({**self._options_in(spark), **_hudis(asked.options)})
        options.check()
        frame = stream_changes(spark, HudiTable.open(_without_pattern(str(path), options), options), options)
        return frame if asked.schema is None else with_schema(frame, asked.schema)

    def stream_table(self, spark: SparkSession, name: str, asked: JobSettings) -> DataFrame:
        return self.stream(spark, asked, self._path_of(spark, name))

    @_alone
    def _path_of(self, spark: SparkSession, name: str) -> str:
        return self._statements(spark).lake.table(".".join(_parts(name))).path

    # -- names and statements

    @_alone
    def is_hudi(self, spark: SparkSession, name: str) -> bool:
        return self._statements(spark).concerns(_parts(name))

    @_alone
    def tables(self, spark: SparkSession, database: str | None, pattern: str | None) -> list[tuple[str, str]]:
        return self._statements(spark).tables(database, pattern)

    def drop_view(self, name: str) -> bool:
        return self._views.pop(name.lower(), None) is not None

    @_alone
    def sql(
        self, spark: SparkSession, text: str, args: Mapping[str, object] | Sequence[object] | None
    ) -> DataFrame | None:
        words = text.split(None, 1)
        if words and words[0].upper().rstrip(";") == "RESET":
            self._reset(spark, text)
            from skep_writer.routed import empty_frame

            return empty_frame(spark)
        return self._statements(spark).run(text, args)

    def _reset(self, spark: SparkSession, text: str) -> None:
        """RESET would also take the session's mark away."""
        from skep_writer.routed import MARK

        spark.sql(text)
        if spark.conf.get(MARK, "") != self._mark:
            spark.conf.set(MARK, self._mark)
        if self._catalog:
            spark.conf.unset(_CATALOG)

    def _statements(self, spark: SparkSession) -> Statements:
        from skep.jobs.hudi_statements import Statements

        lake, may_have_tables = partial(self._lake_of, spark), partial(self._may_have_tables, spark)
        return Statements(spark, lake, may_have_tables, self._views, self._options)

    def _options_in(self, spark: SparkSession) -> dict[str, str]:
        return {**_keys_in(spark), **self._options}

    def _may_have_tables(self, spark: SparkSession) -> bool:
        """Whether the lake can have any: not where its metastore would be an embedded one that nobody has made yet."""
        if self._given is not None or self._made is not None or self._address(spark):
            return True
        try:
            return (local_folder(_warehouse(spark)) / FOLDER).is_dir()
        except InputError:  # a warehouse that has no embedded metastore
            return False

    def _address(self, spark: SparkSession) -> str | None:
        from skep.base.config import load
        from skep_writer.routed import hadoop_value

        return hadoop_value(spark, "hive.metastore.uris") or load().settings.metastore

    def _lake_of(self, spark: SparkSession) -> Lake:
        """The lake as this session sees it, with a current database of its own."""
        from skep_writer.routed import session_id

        with self._guard:
            main = self._given or self._made
            if main is None:
                main = self._made = connect(
                    self._address(spark), _warehouse(spark), self._spark, options=dict(self._options)
                )
            found = self._lakes.get(session_id(spark))
            options = main.options.with_values(_keys_in(spark))
            if found is None or found.options != options:
                holder = SparkHolder(spark)
                database = main.database if found is None else found.database
                found = Lake(main.metastore, main.warehouse, holder, database, options, main.events)
                self._lakes[session_id(spark)] = found
            return found


def _keys_in(spark: SparkSession) -> dict[str, str]:
    """Parquet's options of encryption, which jobs give to Hadoop: Hudi's writers and readers find them there."""
    from skep_writer.routed import hadoop_values

    return hadoop_values(spark, "parquet.crypto.", "parquet.encryption.")


def without_hudi_classes(settings: dict[str, Any]) -> None:
    """Takes the settings of a session builder that name Hudi's classes and jars out, in place; others stay."""
    for key in (_CATALOG, _REGISTRATOR):
        if _is_hudis(str(settings.get(key, ""))):
            del settings[key]
    for key in (_EXTENSIONS, _PACKAGES):
        if key in settings:
            kept = [part for part in str(settings[key]).split(",") if not _is_hudis(part.strip())]
            settings[key] = ",".join(kept)
            if not kept:
                del settings[key]


def _is_hudis(name: str) -> bool:
    return name.startswith(_HUDI_NAMES)


def _hudis(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those with a dot. What a job sets without one is of Spark's own sources, as in Hudi's."""
    return {key: value for key, value in options.items() if "." in key}


def _parts(name: str) -> tuple[str, ...]:
    return without_catalog(tuple(parts_of(name)))


def _warehouse(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.warehouse.dir"))


def _without_pattern(path: str, options: Options) -> str:
    """The table's path where a path ends in `/*`, once for each level of folders. UnsupportedError for other patterns.

    Hudi takes such patterns for the files below; as many as there are levels of partitions, and one for the files, are
    the whole table.
    """
    if not set(path) & set("*?[{"):
        return path
    base = path.rstrip("/")
    levels = 0
    while Path(base).name == "*":
        base, levels = base.rpartition("/")[0], levels + 1
    if levels and not set(base) & set("*?[{"):
        try:
            table = HudiTable.open(base, options)
        except NotATableError:
            table = None
        if table is not None and levels <= len(table.config.partition_fields) + 1:
            return base
        if table is not None:
            depth = len(table.config.partition_fields)
            raise UnsupportedError(
                f"{path}: the pattern has {levels} levels, and the table {depth} of partitions and one of files",
                hint=f"load({base!r})",
                found=path,
            )
    raise UnsupportedError(
        f"{path}: a pattern for part of a Hudi table is not supported",
        hint="load the table's path, and filter by its partition columns",
        found=path,
    )
