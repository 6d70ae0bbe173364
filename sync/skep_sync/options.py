"""The options of a sync: Hudi's own keys with their meaning, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

import skep_catalog.glue.settings  # noqa: F401 - with it the options of AWS Glue are known
from skep_catalog.addresses import GLUE
from skep_catalog.entry_options import BUCKET_SPEC, BUCKETS, HIVE, EntryOptions, HiveBuckets
from skep_format.errors import OptionError
from skep_format.options import Options, Status, at_least, boolean, comma_list, of_option, one_of, option, setting
from skep_sync.values import Extractor

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


def sync_tools(text: str) -> tuple[str, ...]:
    """Hudi's sync tools by class, without their packages; skep stands in for those of Hive Metastores and AWS Glue."""
    named = tuple(name.rpartition(".")[2] for name in comma_list(text))
    if any(name not in (HIVE_TOOL, GLUE_TOOL) for name in named):
        tools = "org.apache.hudi.hive.HiveSyncTool or org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
        raise ValueError(f"{tools}, whose work is done here")
    return named


_no_names: tuple[str, ...] = ()
_optional_text: Callable[[str], str | None] = str

ENABLE = option(HIVE + "enable", boolean, False, "Sync after each commit.", "hoodie.datasource.meta.sync.enable")
MODE = option(HIVE + "mode", str, "hms", "Only hms is spoken: the metastore's own interface.")
URIS = option(
    HIVE + "metastore.uris", str, "", "Addresses of the metastore, separated by commas.", "hive.metastore.uris"
)
DATABASE = option(HIVE + "database", _optional_text, None, "The database; else the table's own, else default.")
TABLE = option(HIVE + "table", _optional_text, None, "The entry's name; else the table's own.")
KIND = option(
    "skep.sync.kind",
    one_of(TargetKind),
    TargetKind.HUDI,
    "hudi: entries for engines that know Hudi; manifest: one for those that don't, over lists of base files.",
)
RELOCATE = option(
    "skep.sync.relocate",
    boolean,
    True,
    "An entry of the name that lies elsewhere gets the table's path. skep serve refuses that unless this is set.",
)
for _key, (_anyway, _doc) in {
    HIVE + "username": ("", "skep speaks to the metastore, not to HiveServer2"),
    HIVE + "password": ("", "skep speaks to the metastore, not to HiveServer2"),
    HIVE + "jdbcurl": ("", "skep speaks to the metastore, not to HiveServer2"),
    HIVE + "use_jdbc": ("false", "skep speaks to the metastore, not to HiveServer2"),
    HIVE + "filter_pushdown_enabled": ("", "partitions are asked for by name"),
    HIVE + "filter_pushdown_max_size": ("", "partitions are asked for by name"),
    "hoodie.meta.sync.decode_partition": ("", "the table's properties state whether its paths are encoded"),
    "hoodie.meta.sync.metadata_file_listing": ("false", "the partitions are read from the timeline"),
    HIVE + "recreate_table_on_error": ("false", "tables are never dropped"),
    HIVE + "ignore_exceptions": ("true", "a failed sync is never a failed write: it is reported, and tried again"),
    HIVE + "base_file_format": ("PARQUET", "the table's properties state it"),
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
    extractor: Extractor | None = setting(
        HIVE + "partition_extractor_class",
        Extractor.of,
        None,
        "How values are read from partition paths: Hudi's class or a short name; else by the number of fields.",
    )
    incremental: bool = setting(
        "hoodie.meta.sync.incremental", boolean, True, "Only partitions written since the last sync."
    )
    no_partitions: bool = setting("hoodie.meta.sync.no_partition_metadata", boolean, False, "Register no partitions.")
    auto_create_database: bool = setting(
        HIVE + "auto_create_database", boolean, True, "Make the database when it is missing."
    )
    batch_size: int = setting(HIVE + "batch_num", at_least(1), 1000, "Partitions a call.")
    cascade: Cascade = setting(
        "skep.sync.cascade", one_of(Cascade), Cascade.ALL, "Partitions that get changed columns: all, touched, none."
    )
    connections: int = setting(
        "skep.sync.connections", at_least(1), 4, "Batches of new partitions that are sent at once."
    )
    lock_wait_seconds: float = setting(
        "skep.sync.lock.wait_seconds", float, 120.0, "How long a sync waits for another one."
    )
    conditional: bool = setting(
        "hoodie.datasource.meta_sync.condition.sync",
        boolean,
        False,
        "Leave an entry alone of which only markers would change.",
    )
    relocate: bool = of_option(RELOCATE)
    touch: bool = setting(
        "hoodie.meta.sync.touch.partitions.enabled", boolean, False, "Renew the time of partitions that were written."
    )
    kind: TargetKind = of_option(KIND)

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
        buckets = _buckets(options) if options.value(BUCKETS) else None
        return options.read(cls, entry=options.read(EntryOptions, buckets=buckets))


def _buckets(options: Options) -> HiveBuckets:
    """As a writer's tool has them, whose defaults these are."""
    given = options.value(BUCKET_SPEC)
    if given is not None:
        return given
    columns = comma_list(options.get("hoodie.bucket.index.hash.field", ""))
    return HiveBuckets(columns, at_least(1)(options.get("hoodie.bucket.index.num.buckets", "256")))
