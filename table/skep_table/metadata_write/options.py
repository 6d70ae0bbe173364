"""Options of the metadata table, by Hudi's names in its releases from 0.15 to 1.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from skep_format.errors import OptionError
from skep_format.options import Option, Options, Status, at_least, boolean, comma_list, one_of, option, warn_ineffective
from skep_format.timeline.trigger import Trigger
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY,
    SINGLE,
    kind_of,
)
from skep_table.table import METADATA_ENABLE, HudiTable

_NO_NAMES: tuple[str, ...] = ()
_ONE_RECORD_BYTES = 48

COMPACT_DELTA_COMMITS = option(
    "hoodie.metadata.compact.max.delta.commits",
    at_least(1),
    10,
    "The metadata table is compacted after this number of its delta commits",
)
COMPACT_TRIGGER = option(
    "hoodie.metadata.compact.trigger.strategy",
    one_of(Trigger),
    Trigger.NUM_COMMITS,
    "What starts a compaction of the metadata table: delta commits, time, both, or either",
)
COMPACT_DELTA_SECONDS = option(
    "hoodie.metadata.compact.max.delta.seconds",
    at_least(0),
    7200,
    "Seconds since the last compaction of the metadata table that start one, where the trigger counts them",
)

LOG_COMPACT_ENABLE = option(
    "hoodie.metadata.log.compaction.enable",
    boolean,
    False,
    "Between its compactions, the log files of the metadata table are merged",
)
LOG_COMPACT_BLOCKS = option(
    "hoodie.metadata.log.compaction.blocks.threshold",
    at_least(2),
    5,
    "The log files of the metadata table are merged after this number of its delta commits",
)

# -- column statistics

COLUMN_STATS_ENABLE = option(
    "hoodie.metadata.index.column.stats.enable",
    boolean,
    False,
    "Writes that keep a metadata table make column statistics in it, and with them those of partitions",
)
COLUMN_STATS_COLUMNS = option(
    "hoodie.metadata.index.column.stats.column.list",
    comma_list,
    _NO_NAMES,
    "The columns of a new index of column statistics; one that is there keeps its own",
)
COLUMN_STATS_MOST_COLUMNS = option(
    "hoodie.metadata.index.column.stats.max.columns.to.index",
    at_least(1),
    32,
    "So many columns a new index of column statistics has where none are named, from table version 8 on",
)
COLUMN_STATS_GROUPS = option(
    "hoodie.metadata.index.column.stats.file.group.count",
    at_least(1),
    2,
    "The file groups of a new index of column statistics",
)
PARTITION_STATS_ENABLE = option(
    "hoodie.metadata.index.partition.stats.enable",
    boolean,
    True,
    "With column statistics, those of whole partitions are made too, in partitioned tables from version 8 on",
)
PARTITION_STATS_GROUPS = option(
    "hoodie.metadata.index.partition.stats.file.group.count",
    at_least(1),
    1,
    "The file groups of a new index of partition statistics",
)

# -- Bloom filters

BLOOM_FILTERS_ENABLE = option(
    "hoodie.metadata.index.bloom.filter.enable",
    boolean,
    False,
    "Writes that keep a metadata table collect the Bloom filters of base files in it",
)
BLOOM_FILTER_GROUPS = option(
    "hoodie.metadata.index.bloom.filter.file.group.count",
    at_least(1),
    4,
    "The file groups of a new index of Bloom filters",
)
BLOOM_FILTER_COLUMNS = option(
    "hoodie.metadata.index.bloom.filter.column.list",
    comma_list,
    _NO_NAMES,
    "The columns of Bloom filters: those of base files are of the record key, the only one accepted here",
)

# -- the record index

RECORD_INDEX_ENABLE = option(
    "hoodie.metadata.global.record.level.index.enable",
    boolean,
    False,
    "Writes that keep a metadata table keep the place of each record key in it",
    "hoodie.metadata.record.index.enable",
)
PARTITIONED_RECORD_INDEX_ENABLE = option(
    "hoodie.metadata.record.level.index.enable",
    boolean,
    False,
    "As the global record index, with a key once in each partition of the table; from table version 9 on",
)
LEAST_RECORD_GROUPS = option(
    "hoodie.metadata.global.record.level.index.min.filegroup.count",
    at_least(1),
    10,
    "A new global record index has at least so many file groups",
    "hoodie.metadata.record.index.min.filegroup.count",
)
MOST_RECORD_GROUPS = option(
    "hoodie.metadata.global.record.level.index.max.filegroup.count",
    at_least(1),
    10_000,
    "A new global record index has at most so many file groups",
    "hoodie.metadata.record.index.max.filegroup.count",
)
LEAST_RECORD_GROUPS_OF_PARTITION = option(
    "hoodie.metadata.record.level.index.min.filegroup.count",
    at_least(1),
    1,
    "A new partitioned record index has at least so many file groups for each partition",
    "hoodie.metadata.partitioned.record.index.min.filegroup.count",
)
MOST_RECORD_GROUPS_OF_PARTITION = option(
    "hoodie.metadata.record.level.index.max.filegroup.count",
    at_least(1),
    10,
    "A new partitioned record index has at most so many file groups for each partition",
    "hoodie.metadata.partitioned.record.index.max.filegroup.count",
)


def _factor(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError("a number above 0")
    return number


RECORD_GROWTH = option(
    "hoodie.metadata.record.index.growth.factor",
    _factor,
    2.0,
    "A new record index has file groups for so many times the records that the table has",
)
RECORD_GROUP_BYTES = option(
    "hoodie.metadata.record.index.max.filegroup.size",
    at_least(_ONE_RECORD_BYTES),
    1 << 30,
    "A new record index has so many file groups that none of them exceeds this size in bytes",
)

# -- indexes over expressions

EXPRESSION_GROUPS = option(
    "hoodie.metadata.index.expression.file.group.count",
    at_least(1),
    2,
    "The file groups of a new index over an expression",
    "hoodie.metadata.index.functional.file.group.count",
)

_DEFINED_BY_COMMAND = "CREATE INDEX and skep index build state it of an index"
for _key in (
    "hoodie.expression.index.name",
    "hoodie.expression.index.function",
    "hoodie.expression.index.definition.checksum",
    "hoodie.metadata.index.expression.column",
    "hoodie.metadata.index.expression.options",
):
    option(_key, str, "", _DEFINED_BY_COMMAND, status=Status.PLANNED)
option("hoodie.expression.index.type", str, "COLUMN_STATS", _DEFINED_BY_COMMAND, status=Status.PLANNED)

# -- secondary indexes

SECONDARY_COLUMN = option(
    "hoodie.metadata.index.secondary.column",
    str,
    "",
    "Writes that keep a metadata table make a secondary index of this column, and a record index, unless it has one",
)
SECONDARY_NAME = option("hoodie.index.name", str, "", "The name of that index; else it is named by its column")

# -- others that work on the metadata table

_ONE_LOCK = "all that changes the metadata table holds the table's lock, and compacts it in the same process"
option("hoodie.metadata.table.service.manager.enabled", str, "false", _ONE_LOCK, status=Status.PLANNED)
option("hoodie.metadata.table.service.manager.actions", str, "", _ONE_LOCK, status=Status.PLANNED)
option("hoodie.metadata.write.concurrency.mode", str, "SINGLE_WRITER", _ONE_LOCK, status=Status.PLANNED)

# -- indexes that are built beside writes

INDEX_ASYNC = option(
    "hoodie.metadata.index.async",
    boolean,
    False,
    "A write does not make the indexes that are missing: they are built beside other writes, after a commit",
)
INDEX_CHECK_TIMEOUT_SECONDS = option(
    "hoodie.metadata.index.check.timeout.seconds",
    at_least(1),
    900,
    "An index that is built waits so long for writers that began before it, then the plan is left to another attempt",
)

# -- what changes nothing here

_THREADS = "the work runs on threads"
_SERVICES = "skep keeps of its timeline and files what its readers need"
_MEMORY = "memory is bounded by hoodie.memory.merge.max.size"
for _key, (_anyway, _doc) in {
    "hoodie.metadata.auto.initialize": ("true", "a new metadata table lists the files that are there"),
    "hoodie.metadata.auto.delete.partitions": ("false", "an index that is there is kept, whatever the options"),
    "hoodie.metadata.index.drop": ("", "skep metadata drops an index"),
    "hoodie.metadata.populate.meta.fields": ("false", "records of the metadata table have no meta columns"),
    "hoodie.metadata.dir.filter.regex": ("", "partitions are the folders with a partition metafile"),
    "hoodie.assume.date.partitioning": ("false", "partitions are the folders with a partition metafile"),
    "hoodie.metadata.clean.async": ("false", _SERVICES),
    "hoodie.metadata.cleaner.commits.retained": ("", _SERVICES),
    "hoodie.metadata.cleaner.parallelism": ("", _THREADS),
    "hoodie.metadata.keep.min.commits": ("", _SERVICES),
    "hoodie.metadata.keep.max.commits": ("", _SERVICES),
    "hoodie.metadata.max.deltacommits.when_pending": ("", "writes never fail for a compaction that waits"),
    "hoodie.metadata.max.logfile.size": ("", "each delta commit has log files of its own"),
    "hoodie.metadata.max.init.parallelism": ("", _THREADS),
    "hoodie.metadata.insert.parallelism": ("", _THREADS),
    "hoodie.metadata.max.reader.memory": ("", _MEMORY),
    "hoodie.metadata.max.reader.buffer.size": ("", _MEMORY),
    "hoodie.metadata.spillable.map.path": ("", "hoodie.memory.spillable.map.path is for all temporary files"),
    "hoodie.metadata.enable.full.scan.log.files": ("", "look-ups read what they need"),
    "hoodie.metadata.optimized.log.blocks.scan.enable": ("", "look-ups read what they need"),
    "hoodie.metadata.file.cache.max.size.mb": ("", "look-ups read what they need"),
    "hoodie.metadata.bloom.filter.enable": ("false", "files of the metadata table have no Bloom filters"),
    "hoodie.metadata.bloom.filter.num.entries": ("", "files of the metadata table have no Bloom filters"),
    "hoodie.metadata.bloom.filter.fpp": ("", "files of the metadata table have no Bloom filters"),
    "hoodie.metadata.bloom.filter.type": ("", "files of the metadata table have no Bloom filters"),
    "hoodie.metadata.bloom.filter.dynamic.max.entries": ("", "files of the metadata table have no Bloom filters"),
    "hoodie.metadata.index.bloom.filter.parallelism": ("", _THREADS),
    "hoodie.metadata.index.column.stats.parallelism": ("", _THREADS),
    "hoodie.metadata.index.column.stats.processing.mode.override": ("", "it is for readers of Spark"),
    "hoodie.metadata.index.column.stats.inMemory.projection.threshold": ("", "it is for readers of Spark"),
    "hoodie.metadata.index.partition.stats.parallelism": ("", _THREADS),
    "hoodie.metadata.record.index.max.parallelism": ("", _THREADS),
    "hoodie.metadata.record.index.create.parallelism": ("", _THREADS),
    "hoodie.metadata.record.level.index.max.parallelism": ("", _THREADS),
    "hoodie.metadata.global.record.level.index.max.parallelism": ("", _THREADS),
    "hoodie.metadata.record.level.index.defer.init": ("", "an index is made once the table has files"),
    "hoodie.metadata.record.index.enable.validation.on.initialization": ("false", "its keys are always checked"),
    "hoodie.metadata.record.preparation.parallelism": ("", _THREADS),
    "hoodie.metadata.streaming.write.enabled": ("false", "entries are written once the data files are"),
    "hoodie.metadata.streaming.write.datatable.write.statuses.coalesce.divisor": (
        "",
        "entries are written once the data files are",
    ),
    "hoodie.metadata.index.functional.enable": ("true", "CREATE INDEX and skep index build make them"),
    "hoodie.metadata.index.functional.parallelism": ("", _THREADS),
    "hoodie.metadata.index.expression.enable": ("true", "CREATE INDEX and skep index build make them"),
    "hoodie.metadata.index.expression.parallelism": ("", _THREADS),
    "hoodie.metadata.index.secondary.enable": ("true", "CREATE INDEX and skep index build make secondary indexes"),
    "hoodie.metadata.index.secondary.parallelism": ("", _THREADS),
    "hoodie.metadata.range.repartition.target.size.in.mb": ("", _THREADS),
    "hoodie.metadata.range.repartition.target.records.per.partition": ("", _THREADS),
    "hoodie.metadata.range.repartition.sampling.fraction": ("", _THREADS),
    "hoodie.metadata.range.repartition.random.seed": ("", _THREADS),
    "hoodie.metadata.repartition.default.partitions": ("", _THREADS),
    "hoodie.metadata.repartition.min.partitions.threshold": ("", _THREADS),
    "hoodie.file.listing.parallelism": ("", _THREADS),
    "hoodie.expression.index.range.metadata.storage.level": ("", _THREADS),
    "hoodie.metadata.fallback.enable": (
        "false",
        "an outdated metadata table is not read, one that can't be is an error",
    ),
    "hoodie.metadata.derive.from.datatable.clean.policy": ("", _SERVICES),
    "hoodie.metadata.write.fail.on.table.service.failures": (
        "false",
        "a service that fails is a warning, and is tried again after the next commit",
    ),
    "_hoodie.metadata.ignore.spurious.deletes": ("true", "deleting a file that is not listed changes nothing"),
}.items():
    option(_key, str, _anyway, _doc, status=Status.NO_EFFECT)


def warn_of_ineffective(table: HudiTable) -> None:
    """Warns, once a process each, of options that switch off an index that the table has and keeps, or that are to make
    one where a metadata table is not asked for, as it is by Hudi's default."""
    options, there = table.options, table.config.metadata_partitions
    for kind, of in _BY_KIND.items():
        given = [each for each in of.made_by if options.is_set(each)]
        on, off = ([each.key for each in given if bool(options.value(each)) is value] for value in (True, False))
        for key in () if options.value(METADATA_ENABLE) or kind in there else on:
            warn_ineffective(
                f"option {key} has no effect without {METADATA_ENABLE.key}=true: table {table.config.name} is not"
                " given an index"
            )
        if off and kind in there and not any(map(options.value, of.made_by)):
            warn_ineffective(
                f"option {off[0]}=false has no effect: table {table.config.name} keeps the index {kind},"
                " which skep index drop drops"
            )
    if options.value(SECONDARY_NAME) and not options.value(SECONDARY_COLUMN):
        warn_ineffective(f"option {SECONDARY_NAME.key} has no effect without {SECONDARY_COLUMN.key}")


def partitions_of_options(table: HudiTable) -> frozenset[str]:
    """The partitions that a metadata table is to have by the options. OptionError where the table can't have one."""
    value = table.options.value
    return frozenset({FILES, *(name for name, of in _BY_KIND.items() if any(map(value, of.made_by)) and of.can(table))})


def group_count(partition: str, options: Options) -> int:
    """How many groups a new partition has whose size does not count."""
    kind = kind_of(partition)
    groups = None if kind is None else _BY_KIND[kind.name].groups
    return 1 if groups is None else options.value(groups)


def makes_partition_stats(table: HudiTable) -> bool:
    """Whether new statistics of columns come with those of partitions."""
    able = table.config.partition_fields and SINGLE[PARTITION_STATS].fits(table.config, table.format.metadata)
    return bool(able) and table.options.value(PARTITION_STATS_ENABLE)


def is_partitioned_by_options(table: HudiTable) -> bool:
    """Whether a new record index has file groups of its own for each partition of the table. OptionError where it
    can't have."""
    option_ = PARTITIONED_RECORD_INDEX_ENABLE
    if not table.options.value(option_):
        return False
    found: str | None = None
    if not table.format.metadata.partitions_record_index:
        found = f"of version {table.config.version}, and Hudi has partitioned record indexes from version 9 on"
    elif not table.config.partition_fields:
        found = "not partitioned"
    elif table.options.value(RECORD_INDEX_ENABLE):
        found = f"to have one record index, and {RECORD_INDEX_ENABLE.key} is set too"
    if found is not None:
        raise OptionError(
            f"option {option_.key}: table {table.config.name} is {found}",
            hint=f"{RECORD_INDEX_ENABLE.key} alone makes a global one",
            option=option_.key,
            table=table.config.name,
        )
    return True


def _has_record_keys(table: HudiTable) -> bool:
    option_ = PARTITIONED_RECORD_INDEX_ENABLE if is_partitioned_by_options(table) else RECORD_INDEX_ENABLE
    if not table.config.populate_meta_fields:
        raise OptionError(
            f"option {option_.key}: table {table.config.name} does not keep its record keys"
            " (hoodie.populate.meta.fields=false), and a record index is made of these",
            option=option_.key,
            table=table.config.name,
        )
    return True


def _has_keys_only(table: HudiTable) -> bool:
    keys = {*table.config.record_key_fields, "_hoodie_record_key"}
    others = [name for name in table.options.value(BLOOM_FILTER_COLUMNS) if name not in keys]
    if others:
        raise OptionError(
            f"option {BLOOM_FILTER_COLUMNS.key}: table {table.config.name} has Bloom filters of its record key only",
            option=BLOOM_FILTER_COLUMNS.key,
            found=", ".join(others),
            expected=", ".join(table.config.record_key_fields),
        )
    return True


@dataclass(frozen=True, slots=True)
class _OfKind:
    """Each of the options `made_by` makes one, where the table `can` have it by options; `groups`: their number."""

    made_by: tuple[Option[Any], ...] = ()
    groups: Option[int] | None = None
    can: Callable[[HudiTable], bool] = lambda _: True


_BY_KIND: Final[Mapping[str, _OfKind]] = {
    FILES: _OfKind(),
    COLUMN_STATS: _OfKind((COLUMN_STATS_ENABLE,), COLUMN_STATS_GROUPS),
    PARTITION_STATS: _OfKind(
        (PARTITION_STATS_ENABLE,),
        PARTITION_STATS_GROUPS,
        lambda table: table.options.value(COLUMN_STATS_ENABLE) and makes_partition_stats(table),
    ),
    BLOOM_FILTERS: _OfKind((BLOOM_FILTERS_ENABLE,), BLOOM_FILTER_GROUPS, _has_keys_only),
    RECORD_INDEX: _OfKind((RECORD_INDEX_ENABLE, PARTITIONED_RECORD_INDEX_ENABLE), can=_has_record_keys),
    SECONDARY.name: _OfKind((SECONDARY_COLUMN,), can=lambda _: False),  # its definition names it
    EXPRESSION.name: _OfKind(groups=EXPRESSION_GROUPS),
}
