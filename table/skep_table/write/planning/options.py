"""Options of the write path, by Hudi's names and with Hudi's defaults unless the docs give a reason."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from skep_format.basefile.options import ORC_CODEC, STRIPE_BYTES
from skep_format.basefile.value_filters import ENABLED
from skep_format.names import BaseFormat
from skep_format.options import (
    INSERTS,
    WRITES_OF_ROWS,
    Option,
    Options,
    Status,
    at_least,
    boolean,
    comma_list,
    one_of,
    option,
    planned,
    warn_ineffective,
)
from skep_format.table_config import TableConfig
from skep_table.keys.generator import ALLOW_AMBIGUOUS


class StorageLevel(str, Enum):
    """Where Spark keeps tagged rows until the commit."""

    MEMORY_ONLY = "MEMORY_ONLY"
    MEMORY_AND_DISK = "MEMORY_AND_DISK"
    MEMORY_AND_DISK_SER = "MEMORY_AND_DISK_SER"
    DISK_ONLY = "DISK_ONLY"


class Duplicates(str, Enum):
    """What an insert does with rows whose key is in the table."""

    NONE = "none"
    DROP = "drop"
    FAIL = "fail"


class AmbiguousKeys(str, Enum):
    """What a write does with values whose record key or partition path other values may have, too."""

    REFUSE = "refuse"
    ALLOW = "allow"


class IndexType(str, Enum):
    """How keys are looked up: the first four do so in footers and key columns of base files."""

    BLOOM = "BLOOM"
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    SIMPLE = "SIMPLE"
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    BUCKET = "BUCKET"
    INMEMORY = "INMEMORY"
    HBASE = "HBASE"
    RECORD_INDEX = "RECORD_INDEX"
    GLOBAL_RECORD_LEVEL_INDEX = "GLOBAL_RECORD_LEVEL_INDEX"
    RECORD_LEVEL_INDEX = "RECORD_LEVEL_INDEX"


def _index_type(text: str) -> IndexType:
    if text.upper() not in IndexType.__members__:
        raise ValueError(f"one of {', '.join(IndexType.__members__)}; other indexes are not supported yet")
    return IndexType(text.upper())


class BucketEngine(str, Enum):
    """How buckets are numbered: by the remainder of a hash, or by ranges of hashes, which can be split and merged."""

    SIMPLE = "SIMPLE"
    CONSISTENT_HASHING = "CONSISTENT_HASHING"


def _level(text: str) -> str:
    name = text.upper()
    if name not in StorageLevel.__members__:
        raise ValueError(f"one of {', '.join(StorageLevel.__members__)}")
    # Python rows are serialised in either case: pyspark has no levels of its own for it.
    return name.removesuffix("_SER")


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError("a number above 0, up to 1")
    return share


def _queries(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


_nothing: tuple[str, ...] = ()

SMALL_FILE_BYTES = option(
    "hoodie.parquet.small.file.limit",
    int,
    104_857_600,
    "Inserts fill up base files smaller than this, in bytes",
)
SMALL_GROUPS = option(
    "hoodie.merge.small.file.group.candidates.limit",
    at_least(0),
    1,
    "Merge-on-read: so many small file groups of a partition are rewritten to take inserts; when not set, only one"
    " that is at most four times as large as these",
)
MAX_FILE_BYTES = option("hoodie.parquet.max.file.size", int, 125_829_120, "Base files end at about this size, in bytes")
ORC_MAX_FILE_BYTES = option("hoodie.orc.max.file.size", int, 125_829_120, "The same of base files in ORC")


def most_bytes(config: TableConfig, options: Options) -> int:
    """The size at which the base files of a table end."""
    return options.value(ORC_MAX_FILE_BYTES if config.base_format is BaseFormat.ORC else MAX_FILE_BYTES)


_OF_FORMATS: Final[dict[BaseFormat, tuple[Option[Any], ...]]] = {
    BaseFormat.PARQUET: (MAX_FILE_BYTES, ENABLED),
    BaseFormat.ORC: (ORC_MAX_FILE_BYTES, ORC_CODEC, STRIPE_BYTES),
}


def warn_of_other_formats(config: TableConfig, options: Options) -> None:
    """An IneffectiveOptionWarning for each option that files of another format than the table's would have."""
    for base_format, known in _OF_FORMATS.items():
        for each in known if base_format is not config.base_format else ():
            if options.is_set(each) and options.value(each) != each.default:
                warn_ineffective(f"option {each.key} has no effect: base files are {config.base_format.value}")


RECORD_BYTES = option("hoodie.copyonwrite.record.size.estimate", int, 1024, "Bytes of a record, until commits show it")
AUTO_SPLIT = option(
    "hoodie.copyonwrite.insert.auto.split", boolean, True, "New files get as many rows as fit, by the size of records"
)
SPLIT_ROWS = option(
    "hoodie.copyonwrite.insert.split.size", at_least(1), 500_000, "Rows of a new file, without auto.split"
)
RECORD_BYTES_THRESHOLD = option(
    "hoodie.record.size.estimation.threshold",
    float,
    1.0,
    "Commits that wrote more than this share of the small file limit show the size of records",
    only=WRITES_OF_ROWS,
)
PARTIAL_MERGE = option(
    "hoodie.spark.sql.merge.into.partial.updates",
    boolean,
    True,
    "MERGE INTO and UPDATE write only the columns that they set, in merge-on-read tables from version 8 on",
)
COMBINE_UPSERT = option(
    "hoodie.combine.before.upsert", boolean, True, "One row a key, by the merge rule", only=("upsert", "delete")
)
COMBINE_INSERT = option(
    "hoodie.combine.before.insert", boolean, False, "The same for insert and bulk_insert", only=INSERTS
)
EVENT_TIME = option(
    "hoodie.payload.event.time.field",
    str,
    "",
    "A column of event times: commits record the least and the greatest of the rows that they write, file by file",
    only=WRITES_OF_ROWS,
)
DUPLICATES_DROPPED = option(
    "hoodie.datasource.write.insert.drop.duplicates",
    boolean,
    False,
    "Inserts leave out rows whose key is in the table, or was in the batch before",
    only=("insert", "bulk_insert"),
)
DUPLICATES = option(
    "hoodie.datasource.insert.dup.policy",
    one_of(Duplicates),
    Duplicates.NONE,
    "What inserts do about keys that are in the table: none (adds rows), drop (leaves them out), fail",
    only=("insert", "bulk_insert"),
)
ALLOW_DUPLICATE_INSERTS = option(
    "hoodie.merge.allow.duplicate.on.inserts",
    boolean,
    True,
    "An insert that fills up a file adds rows for keys that the file holds; false updates these",
    only=("insert",),
)
AMBIGUOUS_KEYS = option(
    ALLOW_AMBIGUOUS,
    one_of(AmbiguousKeys),
    AmbiguousKeys.REFUSE,
    "Values that make the record key or partition path of others by Hudi's encoding: refuse, or allow as Hudi does",
)
PARTITIONS_TO_DELETE = option(
    "hoodie.datasource.write.partitions.to.delete",
    comma_list,
    _nothing,
    "delete_partition: partition paths, * for any text; without it the partitions of the frame's rows",
    only=("delete_partition",),
)
COMMIT_METADATA_PREFIX = option(
    "hoodie.datasource.write.commitmeta.key.prefix", str, "_", "Options with this prefix go into the commit's metadata"
)
TAGGED_LEVEL = option(
    "hoodie.write.tagged.record.storage.level",
    _level,
    "MEMORY_AND_DISK",
    "Spark's storage level for rows until the commit",
)
INDEX_TYPE = option("hoodie.index.type", _index_type, IndexType.BLOOM, "How keys are looked up")
INDEX_CLASS = option(
    "hoodie.index.class", str, "", "An index of one's own: the name of an entry point of group skep.indexes"
)
BLOOM_MOVES = option(
    "hoodie.bloom.index.update.partition.path",
    boolean,
    True,
    "GLOBAL_BLOOM: a row that arrives for another partition moves there; false leaves it where it is",
    only=("upsert", "delete"),
)
BLOOM_BY_METADATA = option(
    "hoodie.bloom.index.use.metadata",
    boolean,
    False,
    "BLOOM, GLOBAL_BLOOM: key ranges and filters are those of the metadata table, where it has them",
)
SIMPLE_MOVES = option(
    "hoodie.simple.index.update.partition.path", boolean, True, "The same for GLOBAL_SIMPLE", only=("upsert", "delete")
)
HBASE_MOVES = option(
    "hoodie.hbase.index.update.partition.path",
    boolean,
    False,
    "The same for HBASE, where rows stay by default",
    only=("upsert", "delete"),
)
RECORD_INDEX_MOVES = option(
    "hoodie.record.index.update.partition.path",
    boolean,
    False,
    "The same for RECORD_INDEX and GLOBAL_RECORD_LEVEL_INDEX, where rows stay by default",
    only=("upsert", "delete"),
)
HBASE_GATEWAY = option("skep.hbase.thrift", str, "", "HBASE: host:port of HBase's Thrift gateway")
HBASE_TABLE = option("hoodie.index.hbase.table", str, "", "HBASE: the table of keys, with column family _s")
HBASE_GET_BATCH = option(
    "hoodie.index.hbase.get.batch.size",
    at_least(1),
    100,
    "HBASE: keys looked up at once; where it is given, ten times as many a second of each task",
)
HBASE_PUT_BATCH = option(
    "hoodie.index.hbase.put.batch.size",
    at_least(1),
    100,
    "HBASE: keys stored at once; where it is given, so many a second of each task",
)
HBASE_AUTO_RATE = option(
    "hoodie.index.hbase.put.batch.size.autocompute",
    boolean,
    False,
    "HBASE: puts a second follow from the number of region servers and the next two options",
)
HBASE_SHARE = option(
    "hoodie.index.hbase.qps.fraction", _share, 0.5, "HBASE: the part of all puts that is this writer's"
)
HBASE_SERVER_RATE = option(
    "hoodie.index.hbase.max.qps.per.region.server", at_least(1), 1000, "HBASE: puts a second of one region server"
)
HBASE_REPAIRS = option(
    "hoodie.index.hbase.rollback.sync",
    boolean,
    False,
    "HBASE: a write first replaces the entries of writes that failed or were rolled back, for writers of the JVM",
)
BUCKET_ENGINE = option(
    "hoodie.index.bucket.engine",
    one_of(BucketEngine),
    BucketEngine.SIMPLE,
    "BUCKET: SIMPLE, or CONSISTENT_HASHING in merge-on-read tables, whose buckets a clustering splits and merges",
)
COMMIT_ON_ERRORS = option(
    "skep.write.commit.on.errors", boolean, False, "Commit although rows failed; they are left out and counted"
)
ROWS_PER_BATCH = option(
    "skep.spark.rows.per.batch", int, 0, "Rows of a batch between Spark and Python; 0 chooses by the row size"
)
COLLECTED_BYTES = option(
    "skep.spark.collect.max.bytes",
    int,
    64 << 20,
    "Rows of a Spark frame up to this size are held by the driver until they are written, larger ones by Spark",
)

MEMORY_BYTES = option(
    "skep.write.memory.max.bytes",
    at_least(1),
    256 << 20,
    "Without Spark: rows that a write holds in memory, in bytes; more go to hoodie.memory.spillable.map.path",
)

EMPTY_COMMITS = option(
    "hoodie.allow.empty.commit", boolean, True, "A write of nothing commits, too; false leaves no trace of it"
)

VALIDATORS = option(
    "hoodie.precommit.validators",
    comma_list,
    _nothing,
    "What checks a write before it commits: Hudi's SQL validators, or entry points of group skep.validators",
)
EQUALITY = option(
    "hoodie.precommit.validators.equality.sql.queries",
    _queries,
    _nothing,
    "Queries whose answer a write may not change, by ;",
)
INEQUALITY = option(
    "hoodie.precommit.validators.inequality.sql.queries",
    _queries,
    _nothing,
    "Queries whose answer a write has to change, by ;",
)
SINGLE_VALUE = option(
    "hoodie.precommit.validators.single.value.sql.queries",
    _queries,
    _nothing,
    "query#value: what a query returns after a write, by ;",
)

# The values that ask for what skep does in any case.
_ANYWAY: Final = {
    "hoodie.bloom.index.prune.by.ranges": "true",
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.merge.data.validation.enabled": "false",
    "hoodie.parquet.writelegacyformat.enabled": "false",
    "hoodie.parquet.field_id.write.enabled": "false",
    "hoodie.auto.commit": "true",
    "hoodie.consistency.check.enabled": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.embed.timeline.server": "false",
    "hoodie.combine.before.delete": "true",
    "hoodie.index.hbase.dynamic_qps": "false",
}

for key, doc in {
    "hoodie.upsert.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.insert.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.delete.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.bloom.index.parallelism": "",
    "hoodie.bloom.index.use.caching": "rows are held until the commit",
    "hoodie.bloom.index.use.treebased.filter": "key ranges are searched in order",
    "hoodie.bloom.index.prune.by.ranges": "key ranges are in the footers, which are read anyway",
    "hoodie.bloom.index.bucketized.checking": "each file is read once",
    "hoodie.bloom.index.keys.per.bucket": "each file is read once",
    "hoodie.bloom.index.bucketized.checking.enable.dynamic.parallelism": "each file is read once",
    "hoodie.bloom.index.fileid.key.sorting.enable": "each file is read once",
    "hoodie.global.index.reconcile.parallelism": "",
    "hoodie.record.index.use.caching": "rows are held until the commit",
    "hoodie.record.index.input.storage.level": "see hoodie.write.tagged.record.storage.level",
    **dict.fromkeys(
        (
            "hoodie.index.hbase.zkquorum",
            "hoodie.index.hbase.zkport",
            "hoodie.index.hbase.zknode.path",
            "hoodie.index.hbase.zk.connection_timeout_ms",
            "hoodie.index.hbase.zk.session_timeout_ms",
        ),
        "ZooKeeper is known to the Thrift gateway, which skep.hbase.thrift names",
    ),
    **dict.fromkeys(
        (
            "hoodie.index.hbase.kerberos.user.keytab",
            "hoodie.index.hbase.kerberos.user.principal",
            "hoodie.index.hbase.master.kerberos.principal",
            "hoodie.index.hbase.regionserver.kerberos.principal",
        ),
        "it is for hoodie.index.hbase.security.authentication=kerberos",
    ),
    **dict.fromkeys(
        (
            "hoodie.index.hbase.desired_puts_time_in_secs",
            "hoodie.index.hbase.dynamic_qps",
            "hoodie.index.hbase.max.qps.fraction",
            "hoodie.index.hbase.min.qps.fraction",
            "hoodie.index.hbase.sleep.ms.for.get.batch",
            "hoodie.index.hbase.sleep.ms.for.put.batch",
            "hoodie.index.hbase.zkpath.qps_root",
        ),
        "nor has it in Hudi, where only allocators of one's own could read it",
    ),
    "hoodie.index.hbase.bucket.number": "it is for Hudi's RebalancedSparkHoodieHBaseIndex",
    "hoodie.bloom.index.input.storage.level": "see hoodie.write.tagged.record.storage.level",
    "hoodie.simple.index.use.caching": "rows are held until the commit",
    "hoodie.simple.index.parallelism": "",
    "hoodie.global.simple.index.parallelism": "",
    "hoodie.simple.index.input.storage.level": "see hoodie.write.tagged.record.storage.level",
    "hoodie.datasource.write.row.writer.enable": "rows are always columns",
    "hoodie.finalize.write.parallelism": "",
    "hoodie.rollback.parallelism": "",
    "hoodie.markers.delete.parallelism": "",
    "hoodie.merge.data.validation.enabled": "",
    "hoodie.parquet.writelegacyformat.enabled": "decimals and lists are as the Parquet standard has them",
    "hoodie.parquet.outputtimestamptype": "timestamps keep their unit",
    "hoodie.parquet.field_id.write.enabled": "",
    "hoodie.auto.commit": "a write that succeeds commits",
    "hoodie.write.status.class": "",
    "hoodie.write.status.storage.level": "",
    "hoodie.write.executor.type": "",
    "hoodie.consistency.check.enabled": "",
    "hoodie.memory.merge.fraction": "",
    "hoodie.write.markers.type": "markers are direct",
    "hoodie.markers.timeline.server.based.batch.num.threads": "",
    "hoodie.embed.timeline.server": "there is no timeline server",
    "hoodie.datasource.overwrite.mode": "insert_overwrite replaces partitions, insert_overwrite_table all of them",
    "hoodie.combine.before.delete": "a key that is deleted twice counts once",
}.items():
    option(key, str, _ANYWAY.get(key, ""), doc, status=Status.NO_EFFECT)

planned(
    "hoodie.fileid.prefix.provider.class",
)
option(
    "hoodie.index.hbase.security.authentication",
    str,
    "simple",
    "calls of the Thrift gateway carry no name of a user; a gateway of a secured HBase signs in there itself",
    status=Status.PLANNED,
)
option(
    "hoodie.index.hbase.qps.allocator.class",
    str,
    "org.apache.hudi.index.hbase.DefaultHBaseQPSResourceAllocator",
    "classes of one's own are the JVM's",
    status=Status.PLANNED,
)
