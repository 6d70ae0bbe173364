"""Hudi's read keys, as `skep.load` and the DataFrame reader of Hudi take them."""

from __future__ import annotations

from enum import Enum

from skep_format.options import Status, at_least, boolean, one_of, option


class QueryType(str, Enum):
    """What a read asks for. Hudi spells CDC as an incremental query of another format."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"
    CDC = "cdc"


class IncrementalFormat(str, Enum):
    """Values of hoodie.datasource.query.incremental.format."""

    LATEST_STATE = "latest_state"
    CDC = "cdc"


QUERY_TYPE = option(
    "hoodie.datasource.query.type",
    one_of(QueryType),
    QueryType.SNAPSHOT,
    "snapshot, read_optimized, incremental (or cdc)",
    "hoodie.datasource.view.type",
)
INCREMENTAL_FORMAT = option(
    "hoodie.datasource.query.incremental.format",
    one_of(IncrementalFormat),
    IncrementalFormat.LATEST_STATE,
    "what an incremental query answers: latest_state rows, or cdc (operation, before and after images)",
)
BEGIN_INSTANT = option(
    "hoodie.datasource.read.begin.instanttime",
    str,
    "",
    "incremental and cdc: changes after this time, exclusive; completion times from table version 8 on",
)
END_INSTANT = option(
    "hoodie.datasource.read.end.instanttime", str, "", "incremental and cdc: changes up to this time, inclusive"
)
START_OFFSET = option(
    "hoodie.datasource.streaming.startOffset",
    str,
    "earliest",
    "streams of Spark: earliest (the whole table first), latest, or the time behind which the first batch begins",
)
_all_commits: int | None = None
COMMITS_OF_BATCH = option(
    "skep.stream.max.commits", at_least(1), _all_commits, "streams of Spark: a batch has so many commits at most"
)
AS_OF_INSTANT = option("as.of.instant", str, "", "time travel: the table as of this instant, date or time")
INCREMENTAL_PATH_GLOB = option(
    "hoodie.datasource.read.incr.path.glob",
    str,
    "",
    "incremental and cdc: only files whose path below the table matches this glob",
)
EXTRACT_PARTITION_VALUES = option(
    "hoodie.datasource.read.extract.partition.values.from.path",
    boolean,
    False,
    "take the partition columns' values from the folder names, whatever the table's key generator",
)
DATA_SKIPPING = option(
    "hoodie.enable.data.skipping",
    boolean,
    True,
    "leave out partitions and files by the indexes of the metadata table",
)
FALL_BACK_TO_FULL_SCAN = option(
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable",
    boolean,
    False,
    "answer an incremental query from the table as it is now when files that it needs were cleaned; without this key, "
    "tables of version 8 and later do and older ones don't",
)

_PLANNED_ONCE = "a read is planned once, by a listing of the partitions that its filters leave"
for _key, (_anyway, _doc) in {
    "hoodie.fileIndex.dataSkippingFailureMode": ("strict", "an index that can't be read is an error"),
    "hoodie.file.index.enable": ("true", _PLANNED_ONCE),
    "hoodie.file.index.cache.use.spillable.map": ("false", _PLANNED_ONCE),
    "hoodie.file.index.cache.spillable.mem": ("", _PLANNED_ONCE),
    "hoodie.datasource.read.file.index.listing.mode": ("lazy", _PLANNED_ONCE),
    "hoodie.datasource.read.file.index.listing.partition-path-prefix.analysis.enabled": ("true", _PLANNED_ONCE),
    "hoodie.datasource.read.file.index.list.partitions.from.catalog": ("false", _PLANNED_ONCE),
    "hoodie.datasource.read.file.index.optimize.listing.using.path.filter": ("false", _PLANNED_ONCE),
}.items():
    option(_key, str, _anyway, _doc, status=Status.NO_EFFECT)
