"""Hudi's keys of streamers, `hoodie.streamer.…`; the older `hoodie.deltastreamer.…` are aliases."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

from skep_format.errors import OptionError
from skep_format.options import REGISTRY, Option, Options, Status, at_least, boolean, comma_list, one_of, option
from skep_format.rowfiles.rejected import Rejected

T = TypeVar("T")
PREFIX: Final = "hoodie.streamer."
OLD_PREFIX: Final = "hoodie.deltastreamer."
_no_names: tuple[str, ...] = ()
REGISTRY.add_later("skep_stream.kafka.options", "skep_stream.schemas.registry", "skep_stream.proto.options")


def streamer_option(
    name: str,
    parse: Callable[[str], T],
    default: T,
    doc: str,
    *aliases: str,
    status: Status = Status.SUPPORTED,
    secret: bool = False,
    accepts: str = "",
) -> Option[T]:
    """Registers `hoodie.streamer.<name>` with its older spelling."""
    names = (f"{OLD_PREFIX}{name}", *aliases)
    return option(f"{PREFIX}{name}", parse, default, doc, *names, status=status, secret=secret, accepts=accepts)


ROOT = streamer_option("source.dfs.root", str, "", "The folder whose files are read")
SELECTOR = streamer_option(
    "source.input.selector",
    str,
    "",
    "How files are chosen: DFSPathSelector (by modification time) or DatePartitionPathSelector",
)
DATE_FORMAT = streamer_option(
    "source.dfs.datepartitioned.date.format", str, "yyyy-MM-dd", "Of the dates in folder names"
)
DATE_DEPTH = streamer_option(
    "source.dfs.datepartitioned.selector.depth", at_least(0), 0, "Folders above those of dates, below the root"
)
LOOKBACK_DAYS = streamer_option(
    "source.dfs.datepartitioned.selector.lookback.days",
    at_least(0),
    2,
    "Folders of dates up to so many days before the current one are read",
    f"{PREFIX}source.dfs.datepartitioned.selector.lookbackdays",
    f"{OLD_PREFIX}source.dfs.datepartitioned.selector.lookbackdays",
)
CURRENT_DATE = streamer_option(
    "source.dfs.datepartitioned.selector.currentdate", str, "", "The current date as yyyy-MM-dd; today when not set"
)
FORCE_SKIP = streamer_option(
    "checkpoint.force.skip", boolean, False, "Commits state no checkpoint, and the next round looks past them"
)
PROVIDER_PATH = streamer_option(
    "checkpoint.provider.path", str, "", "InitialCheckpointFromAnotherHoodieTimelineProvider: the other table"
)
MULTIWRITER_ID = streamer_option(
    "multiwriter.source.checkpoint.id",
    str,
    "",
    "One of several streamers into a table: its checkpoint is the entry of this id in a JSON object under the key",
)
SOURCE_SCHEMA_FILE = streamer_option("schemaprovider.source.schema.file", str, "", "An Avro schema of the source")
TARGET_SCHEMA_FILE = streamer_option("schemaprovider.target.schema.file", str, "", "An Avro schema of the target")
SOURCE_SCHEMA_DATABASE = streamer_option(
    "schemaprovider.source.schema.hive.database", str, "default", "The database of that table"
)
SOURCE_SCHEMA_TABLE = streamer_option(
    "schemaprovider.source.schema.hive.table", str, "", "HiveSchemaProvider: a table with the columns of the source"
)
TARGET_SCHEMA_DATABASE = streamer_option(
    "schemaprovider.target.schema.hive.database", str, "default", "The database of that table"
)
TARGET_SCHEMA_TABLE = streamer_option(
    "schemaprovider.target.schema.hive.table", str, "", "HiveSchemaProvider: a table with the columns of the target"
)
SQL = streamer_option("transformer.sql", str, "", "The query of SqlQueryBasedTransformer; <SRC> is the batch")
SQL_FILE = streamer_option("transformer.sql.file", str, "", "A file of statements, separated by ;, the last a query")
for _prefix in (PREFIX, OLD_PREFIX):
    REGISTRY.add_family(f"{_prefix}transformer.sql.")  # of a transformer with an id
REMEMBERED = option(
    "skep.stream.files.remembered",
    at_least(0),
    1000,
    "File sources: how many of the files read last are known by name, so that those that arrive with an older or equal"
    " time are read; 0 reads by the time only, as Hudi does",
)
OVERSIZED = option(
    "skep.stream.files.oversized",
    boolean,
    True,
    "File sources: a file as large as the source limit is read alone, with a warning; false: it blocks, as in Hudi",
)
PARTIAL_UPDATES = option(
    "skep.stream.partial.updates",
    boolean,
    False,
    "Rows of an upsert have key, ordering and some other columns: these are set, and the others stay as they are",
)

# -- CSV, by the names of Spark's options

CSV_SEPARATOR = streamer_option("csv.sep", str, ",", "What separates values", f"{PREFIX}csv.delimiter")
CSV_HEADER = streamer_option("csv.header", boolean, False, "Files begin with a line of column names")
CSV_QUOTE = streamer_option("csv.quote", str, '"', "What values are quoted with; empty: nothing is a quote")
CSV_ESCAPE = streamer_option(
    "csv.escape", str, "\\", "What escapes a quote in a quoted value; with that of quotes they are doubled"
)
CSV_ESCAPE_OF_ESCAPE = streamer_option(
    "csv.charToEscapeQuoteEscaping", str, "", "What escapes the escape in a quoted value; the escape where not set"
)
CSV_COMMENT = streamer_option("csv.comment", str, "", "Lines that begin with this character are left out")
CSV_NULL = streamer_option("csv.nullValue", str, "", "The text of a missing value; a value without text is missing")
CSV_EMPTY = streamer_option("csv.emptyValue", str, "", "The text that a quoted value without text stands for")
CSV_TRIMS_LEFT = streamer_option("csv.ignoreLeadingWhiteSpace", boolean, False, "Blanks before values don't count")
CSV_TRIMS_RIGHT = streamer_option("csv.ignoreTrailingWhiteSpace", boolean, False, "Blanks after values don't count")
CSV_MULTILINE = streamer_option("csv.multiLine", boolean, False, "Quoted values may have line ends")
CSV_ENCODING = streamer_option("csv.encoding", str, "UTF-8", "Of the text", f"{PREFIX}csv.charset")
SKIP_INVALID_JSON = streamer_option(
    "source.json.skip.invalid.records", boolean, False, "JSON: lines that can't be read are left out, with a warning"
)
NO_DATA_ROUNDS = option(
    "max.rounds.without.new.data.to.shutdown",
    at_least(1),
    3,
    "NoNewDataTerminationStrategy: a continuous stream ends after so many rounds without new rows",
)

# -- many tables

INGESTED: Final = streamer_option(
    "ingestion.tablesToBeIngested", comma_list, _no_names, "Many tables: their names, each database.table"
)
INGESTED_INTO: Final = streamer_option("ingestion.targetBasePath", str, "", "Of one of many tables: its folder")
for _prefix in (PREFIX, OLD_PREFIX):
    REGISTRY.add_family(f"{_prefix}ingestion.")  # <database>.<table>.configFile

# -- tables as sources


class MissingCheckpoint(Enum):
    """From where a Hudi source goes on without a checkpoint."""

    READ_LATEST = "READ_LATEST"
    READ_UPTO_LATEST_COMMIT = "READ_UPTO_LATEST_COMMIT"


_no_strategy: MissingCheckpoint | None = None
SOURCE_TABLE = streamer_option("source.hoodieincr.path", str, "", "The Hudi table that is read")
SOURCE_INSTANTS = streamer_option(
    "source.hoodieincr.num_instants", at_least(1), 5, "How many of its commits a round reads"
)
MISSING_CHECKPOINT = streamer_option(
    "source.hoodieincr.missing.checkpoint.strategy",
    one_of(MissingCheckpoint),
    _no_strategy,
    "Without a checkpoint: READ_LATEST (the last commit), READ_UPTO_LATEST_COMMIT (the whole table), else an error",
)
READ_LATEST = streamer_option(
    "source.hoodieincr.read_latest_on_missing_ckpt", boolean, False, "The older name of READ_LATEST"
)


class CleanedAway(Enum):
    """What a Hudi source does about commits behind its checkpoint that were archived, or whose files were cleaned."""

    FAIL = "fail"
    FULL = "full"
    EARLIEST = "earliest"


_as_hudi: CleanedAway | None = None
CLEANED_AWAY = option(
    "skep.stream.hudi.cleaned",
    one_of(CleanedAway),
    _as_hudi,
    "Commits of a Hudi source that were archived or whose files were cleaned: fail, full (one round up to the newest"
    " commit, from the table as it is), earliest (goes on at the first commit that can be read, with a warning);"
    " not set: as Hudi, which reads the table as it is instead of archived commits and fails for cleaned files",
)
PULLS = streamer_option("source.incrpull.root", str, "", "HiveIncrPullSource: the folder of the pulls of one table")
SOURCE_QUERY = streamer_option("source.sql.sql.query", str, "", "The query of SqlSource")
SOURCE_QUERY_FILE = streamer_option("source.sql.sql.file", str, "", "The file with the query of SqlFileBasedSource")
SOURCE_QUERY_CHECKPOINT = streamer_option(
    "source.sql.checkpoint.emit", boolean, False, "SqlFileBasedSource: the checkpoint is the time of the round in ms"
)

# -- databases

JDBC_URL = streamer_option("jdbc.url", str, "", "jdbc:sqlite:/path, or jdbc:postgresql://host:port/database")
JDBC_USER = streamer_option("jdbc.user", str, "", "The user of the database")
JDBC_PASSWORD = streamer_option("jdbc.password", str, "", "The password", secret=True)
JDBC_PASSWORD_FILE = streamer_option("jdbc.password.file", str, "", "A file with the password")
JDBC_TABLE = streamer_option("jdbc.table.name", str, "", "The table, or a query in parentheses with a name")
JDBC_INCREMENTAL = streamer_option(
    "jdbc.incr.pull", boolean, False, "Only rows whose value in a column is greater than the checkpoint"
)
JDBC_COLUMN = streamer_option("jdbc.table.incr.column.name", str, "", "That column")
JDBC_FALL_BACK = streamer_option(
    "jdbc.incr.fallback.to.full.fetch", boolean, False, "Where that fails, the whole table is read"
)
# -- error tables


class WriteFailure(Enum):
    """What becomes of a round whose rejected records can't be kept."""

    ROLLBACK_COMMIT = "ROLLBACK_COMMIT"
    LOG_ERROR = "LOG_ERROR"


_ERRORS: Final = "hoodie.errortable."
ERROR_TABLE = option(f"{_ERRORS}enable", boolean, False, "Records that can't be read are kept in an error table")
ERROR_PATH = option(f"{_ERRORS}base.path", str, "", "The folder of the error table")
ERROR_NAME = option(f"{_ERRORS}target.table.name", str, "", "Its name; else that of the target with _errors")
ERROR_FAILURE = option(
    f"{_ERRORS}write.failure.strategy",
    one_of(WriteFailure),
    WriteFailure.ROLLBACK_COMMIT,
    "Where the error table can't be written: ROLLBACK_COMMIT fails the round, LOG_ERROR goes on",
)
for _name in ("write.class", "insert.shuffle.parallelism", "upsert.shuffle.parallelism", "persist.source.rdd"):
    option(f"{_ERRORS}{_name}", str, "", "the error table is written here", status=Status.NO_EFFECT)
for _name in ("validate.targetschema.enable", "validate.recordcreation.enable"):
    option(f"{_ERRORS}{_name}", boolean, False, "", status=Status.PLANNED)


# -- of Hudi's streamers, and without a meaning here

for _name, _value, _doc in (
    ("source.dfs.datepartitioned.selector.parallelism", "20", "folders are listed in one call each"),
    ("csv.inferSchema", "true", "types are inferred where there is no schema"),
    ("csv.samplingRatio", "1.0", "types are inferred from all rows"),
    ("csv.maxColumns", "20480", "there is no limit of columns"),
    ("csv.maxCharsPerColumn", "-1", "there is no limit of characters"),
    ("csv.columnNameOfCorruptRecord", "_corrupt_record", "a row that can't be read is an error"),
    ("sample.writes.enabled", "false", "the size of records is measured on the rows of a write"),
    ("sample.writes.size", "false", "the size of records is measured on the rows of a write"),
    ("row.throw.explicit.exceptions", "false", "errors name the file, the line and the column in any case"),
    ("source.hoodieincr.drop.all.meta.fields.from.source", "true", "meta columns are never copied"),
    ("source.hoodieincr.drop_all_meta_fields", "true", "meta columns are never copied"),
    ("source.hoodieincr.file.format", "parquet", "the table knows it"),
    ("jdbc.driver.class", "", "the driver is Python's, rows are in memory"),
    ("jdbc.storage.level", "", "the driver is Python's, rows are in memory"),
):
    streamer_option(_name, str, _value, _doc, status=Status.NO_EFFECT)
for _name, _value, _doc in (
    ("csv.mode", "FAILFAST", "a row that can't be read, or has another number of values, is an error"),
    ("csv.enforceSchema", "true", "columns are found by the names of the header, where these are the schema's"),
    ("csv.dateFormat", "", "dates are read as yyyy-MM-dd"),
    ("csv.timestampFormat", "", "times are read in the forms of ISO 8601"),
    ("csv.nanValue", "NaN", ""),
    ("csv.positiveInf", "Inf", ""),
    ("csv.negativeInf", "-Inf", ""),
    ("source.sanitize.invalid.schema.field.names", "", ""),
    ("source.sanitize.invalid.char.mask", "", ""),
):
    streamer_option(_name, str, _value, _doc, status=Status.PLANNED)


def rejected_of(options: Options, *more: Option[bool]) -> Rejected | None:
    """What takes the records that can't be read, where these are left out: for an error table, or by `more`."""
    return Rejected() if any(map(options.value, (ERROR_TABLE, *more))) else None


def unknown_class(known: Option[str], options: Options, *expected: str) -> OptionError:
    """The error for an option that names a class of Hudi's which there is not."""
    found = options.value(known)
    names = ", ".join(expected)
    return OptionError(f"{known.key}={found} is not known", option=known.key, found=found, expected=names)
