"""The options of a sync: Hudi's own keys with their meaning, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

import skep_catalog.glue.settings  # noqa: F401 - with it the options of AWS Glue are known
from skep_catalog.addresses import GLUE
from skep_catalog.entries import EntryOptions, HiveBuckets, Strategy
from skep_format.errors import OptionError
from skep_format.options import Options, Status, at_least, boolean, comma_list, one_of, option
from skep_sync.values import Extractor

_HIVE: Final = "hoodie.datasource.hive_sync."
HIVE_TOOL: Final = "HiveSyncTool"
GLUE_TOOL: Final = "AwsGlueCatalogSyncTool"
T = TypeVar("T")


class Cascade(str, Enum):
    """To which partitions a change of columns is taken. Hive reads the partitions' columns; Spark, Presto and Trino
    the table's."""

    ALL = "all"
    TOUCHED = "touched"
    NONE = "none"


class TargetKind(str, Enum):
    """What is registered: tables for engines with Hudi's classes, or a list of base files that any engine reads."""

    HUDI = "hudi"
    MANIFEST = "manifest"


def properties(text: str) -> Mapping[str, str]:
    """Lines of `key=value`."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, separator, value = line.partition("=")
        if not separator:
            raise ValueError("lines of key=value: one has no =")
        found[key.strip()] = value.strip()
    return found


def sync_tools(text: str) -> tuple[str, ...]:
    """Hudi's sync tools by class, without their packages; skep stands in for those of Hive Metastores and AWS Glue."""
    named = tuple(name.rpartition(".")[2] for name in comma_list(text))
    if any(name not in (HIVE_TOOL, GLUE_TOOL) for name in named):
        tools = "org.apache.hudi.hive.HiveSyncTool or org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
        raise ValueError(f"{tools}, whose work is done here")
    return named


def bucket_spec(text: str) -> HiveBuckets:
    """Hive's own words for buckets; an order within them is passed over, since Hudi keeps none."""
    pattern = r"\s*clustered\s+by\s*\(([^()]+)\)\s*(?:sorted\s+by\s*\([^()]*\)\s*)?into\s+([1-9]\d*)\s+buckets\s*"
    match = re.fullmatch(pattern, text, re.IGNORECASE)
    if match is None:
        raise ValueError("CLUSTERED BY (columns) INTO n BUCKETS")
    return HiveBuckets(comma_list(match[1].replace("`", "")), int(match[2]))


_no_names: tuple[str, ...] = ()
_no_properties: Mapping[str, str] = {}
_optional_names: Callable[[str], tuple[str, ...] | None] = comma_list
_optional_text: Callable[[str], str | None] = str
_optional_buckets: Callable[[str], HiveBuckets | None] = bucket_spec
_optional_extractor: Callable[[str], Extractor | None] = Extractor.of

ENABLE = option(_HIVE + "enable", boolean, False, "Sync after each commit.", "hoodie.datasource.meta.sync.enable")
MODE = option(_HIVE + "mode", str, "hms", "Only hms is spoken: the metastore's own interface.")
URIS = option(
    _HIVE + "metastore.uris", str, "", "Addresses of the metastore, separated by commas.", "hive.metastore.uris"
)
DATABASE = option(_HIVE + "database", _optional_text, None, "The database; else the table's own, else default.")
TABLE = option(_HIVE + "table", _optional_text, None, "The entry's name; else the table's own.")
PARTITION_FIELDS = option(_HIVE + "partition_fields", _optional_names, None, "Partition keys; else the table's own.")
EXTRACTOR = option(
    _HIVE + "partition_extractor_class",
    _optional_extractor,
    None,
    "How values are read from partition paths: Hudi's class or a short name; else by the number of fields.",
)
AUTO_CREATE = option(_HIVE + "auto_create_database", boolean, True, "Make the database when it is missing.")
SKIP_RO_SUFFIX = option(_HIVE + "skip_ro_suffix", boolean, False, "The plain name is the read-optimized view.")
SUPPORT_TIMESTAMP = option(_HIVE + "support_timestamp", boolean, True, "Timestamps as timestamp, else as bigint.")
TABLE_PROPERTIES = option(_HIVE + "table_properties", properties, _no_properties, "Lines of key=value.")
SERDE_PROPERTIES = option(_HIVE + "serde_properties", properties, _no_properties, "Lines of key=value.")
AS_DATASOURCE = option(_HIVE + "sync_as_datasource", boolean, True, "Spark reads the table through its data source.")
SCHEMA_LENGTH = option(_HIVE + "schema_string_length_thresh", at_least(1), 4000, "Length of a piece of Spark's schema.")
MANAGED = option(_HIVE + "create_managed_table", boolean, False, "DROP in Hive then deletes the data.")
OMIT_METADATA = option(_HIVE + "omit_metadata_fields", boolean, False, "Leave Hudi's meta columns out.")
BATCH = option(_HIVE + "batch_num", at_least(1), 1000, "Partitions a call.")
COMMENTS = option(_HIVE + "sync_comment", boolean, True, "Take column comments along.")
STRATEGY = option(_HIVE + "table.strategy", one_of(Strategy), Strategy.ALL, "Views of a merge-on-read table.")
PRE_APACHE = option(_HIVE + "use_pre_apache_input_format", boolean, False, "Input formats of com.uber.hoodie.")
INCREMENTAL = option("hoodie.meta.sync.incremental", boolean, True, "Only partitions written since the last sync.")
SNAPSHOT_NAME = option(
    "hoodie.meta.sync.sync_snapshot_with_table_name", boolean, True, "The plain name is the snapshot view."
)
NO_PARTITIONS = option("hoodie.meta.sync.no_partition_metadata", boolean, False, "Register no partitions.")
SPARK_VERSION = option("hoodie.meta_sync.spark.version", _optional_text, None, "Value of spark.sql.create.version.")
CASCADE = option(
    "skep.sync.cascade", one_of(Cascade), Cascade.ALL, "Partitions that get changed columns: all, touched, none."
)
CONNECTIONS = option("skep.sync.connections", at_least(1), 4, "Batches of new partitions that are sent at once.")
CONDITIONAL = option(
    "hoodie.datasource.meta_sync.condition.sync",
    boolean,
    False,
    "Leave an entry alone of which only markers would change.",
)
TOUCH = option(
    "hoodie.meta.sync.touch.partitions.enabled", boolean, False, "Renew the time of partitions that were written."
)
KIND = option(
    "skep.sync.kind",
    one_of(TargetKind),
    TargetKind.HUDI,
    "hudi: entries for engines that know Hudi; manifest: one for those that don't, over lists of base files.",
)
BUCKETS = option(_HIVE + "bucket_sync", boolean, False, "Register the buckets of a bucket index with Hive.")
BUCKET_SPEC = option(
    _HIVE + "bucket_sync_spec",
    _optional_buckets,
    None,
    "CLUSTERED BY (columns) INTO n BUCKETS; else by hoodie.bucket.index.*.",
)
RELOCATE = option(
    "skep.sync.relocate",
    boolean,
    True,
    "An entry of the name that lies elsewhere gets the table's path. skep serve refuses that unless this is set.",
)
LOCK_WAIT = option("skep.sync.lock.wait_seconds", float, 120.0, "How long a sync waits for another one.")

for _key, (_anyway, _doc) in {
    _HIVE + "username": ("", "skep speaks to the metastore, not to HiveServer2"),
    _HIVE + "password": ("", "skep speaks to the metastore, not to HiveServer2"),
    _HIVE + "jdbcurl": ("", "skep speaks to the metastore, not to HiveServer2"),
    _HIVE + "use_jdbc": ("false", "skep speaks to the metastore, not to HiveServer2"),
    _HIVE + "filter_pushdown_enabled": ("", "partitions are asked for by name"),
    _HIVE + "filter_pushdown_max_size": ("", "partitions are asked for by name"),
    "hoodie.meta.sync.decode_partition": ("", "the table's properties state whether its paths are encoded"),
    "hoodie.meta.sync.metadata_file_listing": ("false", "the partitions are read from the timeline"),
    _HIVE + "recreate_table_on_error": ("false", "tables are never dropped"),
    _HIVE + "ignore_exceptions": ("true", "a failed sync is never a failed write: it is reported, and tried again"),
    _HIVE + "base_file_format": ("PARQUET", "the table's properties state it"),
    "hoodie.datasource.meta.sync.base.path": ("", "the table's own path is synced"),
}.items():
    option(_key, str, _anyway, _doc, status=Status.NO_EFFECT)
TOOLS = option(
    "hoodie.meta.sync.client.tool.class",
    sync_tools,
    _no_names,
    "HiveSyncTool, AwsGlueCatalogSyncTool, or both: whose work skep does.",
)


def main_address(options: Options) -> str:
    """Where the metastore is by the options of syncs, AWS Glue where its tool alone is named. Empty: they name none."""
    tools = options.value(TOOLS)
    return options.value(URIS) or (GLUE if tools and HIVE_TOOL not in tools else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """How a table is synced."""

    entry: EntryOptions
    extractor: Extractor | None = None
    incremental: bool = True
    partitions: bool = True
    auto_create_database: bool = True
    batch_size: int = 1000
    cascade: Cascade = Cascade.ALL
    connections: int = 4
    lock_wait_seconds: float = 120.0
    conditional: bool = False
    relocate: bool = True
    touch: bool = False
    kind: TargetKind = TargetKind.HUDI

    @classmethod
    def of(cls, given: SyncOptions | Mapping[str, object] | None = None) -> SyncOptions:
        """From option keys. OptionError names the key that does not parse."""
        if isinstance(given, SyncOptions):
            return given
        options = given if isinstance(given, Options) else Options(given)
        if (mode := options.value(MODE).lower()) != "hms":
            raise OptionError(
                f"option {MODE.key}: only hms is supported, not {mode}",
                hint=f"for AWS Glue set {TOOLS.key}={GLUE_TOOL}" if mode == "glue" else None,
                option=MODE.key,
                found=mode,
            )
        options.value(TOOLS)  # another tool than Hudi's own is an error
        return cls(
            entry=EntryOptions(
                strategy=options.value(STRATEGY),
                skip_ro_suffix=options.value(SKIP_RO_SUFFIX),
                snapshot_under_table_name=options.value(SNAPSHOT_NAME),
                omit_metadata_fields=options.value(OMIT_METADATA),
                timestamps=options.value(SUPPORT_TIMESTAMP),
                comments=options.value(COMMENTS),
                as_datasource=options.value(AS_DATASOURCE),
                spark_version=options.value(SPARK_VERSION),
                schema_piece_length=options.value(SCHEMA_LENGTH),
                managed=options.value(MANAGED),
                pre_apache_input_format=options.value(PRE_APACHE),
                partition_fields=options.value(PARTITION_FIELDS),
                table_properties=options.value(TABLE_PROPERTIES),
                serde_properties=options.value(SERDE_PROPERTIES),
                buckets=_buckets(options) if options.value(BUCKETS) else None,
            ),
            extractor=options.value(EXTRACTOR),
            incremental=options.value(INCREMENTAL),
            partitions=not options.value(NO_PARTITIONS),
            auto_create_database=options.value(AUTO_CREATE),
            batch_size=options.value(BATCH),
            cascade=options.value(CASCADE),
            connections=options.value(CONNECTIONS),
            lock_wait_seconds=options.value(LOCK_WAIT),
            conditional=options.value(CONDITIONAL),
            relocate=options.value(RELOCATE),
            touch=options.value(TOUCH),
            kind=options.value(KIND),
        )


def _buckets(options: Options) -> HiveBuckets:
    """As a writer's tool has them, whose defaults these are."""
    given = options.value(BUCKET_SPEC)
    if given is not None:
        return given
    columns = comma_list(options.get("hoodie.bucket.index.hash.field", ""))
    return HiveBuckets(columns, at_least(1)(options.get("hoodie.bucket.index.num.buckets", "256")))
