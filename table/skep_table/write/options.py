"""Options of the write path, by Hudi's names and with Hudi's defaults unless the docs give a reason."""

from __future__ import annotations

from enum import Enum

from skep_table.options import Status, at_least, boolean, comma_list, one_of, option, planned


class StorageLevel(str, Enum):
    """Where Spark keeps tagged rows until the commit."""

    MEMORY_ONLY = "MEMORY_ONLY"
    MEMORY_AND_DISK = "MEMORY_AND_DISK"
    MEMORY_AND_DISK_SER = "MEMORY_AND_DISK_SER"
    DISK_ONLY = "DISK_ONLY"


class Duplicates(str, Enum):
    """What an insert does about rows whose key is in the table."""

    NONE = "none"
    DROP = "drop"
    FAIL = "fail"


class IndexType(str, Enum):
    """How keys are looked up. Both look into the footers and key columns of the partition's files."""

    BLOOM = "BLOOM"
    SIMPLE = "SIMPLE"


def _index_type(text: str) -> IndexType:
    if text.upper() not in IndexType.__members__:
        raise ValueError(f"one of {', '.join(IndexType.__members__)}; other indexes are not supported yet")
    return IndexType(text.upper())


def _level(text: str) -> str:
    name = text.upper()
    if name not in StorageLevel.__members__:
        raise ValueError(f"one of {', '.join(StorageLevel.__members__)}")
    # Python rows are serialised in either case: pyspark has no levels of its own for it.
    return name.removesuffix("_SER")


_nothing: tuple[str, ...] = ()

SMALL_FILE_BYTES = option(
    "hoodie.parquet.small.file.limit", int, 104_857_600, "Inserts fill up base files smaller than this, in bytes"
)
SMALL_GROUPS = option(
    "hoodie.merge.small.file.group.candidates.limit",
    at_least(0),
    1,
    "Merge-on-read: so many small file groups of a partition are rewritten to take inserts",
)
MAX_FILE_BYTES = option("hoodie.parquet.max.file.size", int, 125_829_120, "Base files end at about this size, in bytes")
RECORD_BYTES = option(
    "hoodie.copyonwrite.record.size.estimate", int, 1024, "Bytes of a record, until commits tell better"
)
RECORD_BYTES_THRESHOLD = option(
    "hoodie.record.size.estimation.threshold",
    float,
    1.0,
    "A commit tells the size of records when it wrote more than this share of the small file limit",
)
COMBINE_UPSERT = option("hoodie.combine.before.upsert", boolean, True, "One row a key, by the merge rule")
COMBINE_INSERT = option("hoodie.combine.before.insert", boolean, False, "The same for insert and bulk_insert")
DUPLICATES_DROPPED = option(
    "hoodie.datasource.write.insert.drop.duplicates",
    boolean,
    False,
    "An insert leaves out rows whose key is in the table, or was in the batch before",
)
DUPLICATES = option(
    "hoodie.datasource.insert.dup.policy",
    one_of(Duplicates),
    Duplicates.NONE,
    "What an insert does about keys that are in the table: none (adds rows), drop (leaves them out), fail",
)
ALLOW_DUPLICATE_INSERTS = option(
    "hoodie.merge.allow.duplicate.on.inserts",
    boolean,
    True,
    "An insert that fills up a file adds rows for keys that the file holds; false updates these",
)
PARTITIONS_TO_DELETE = option(
    "hoodie.datasource.write.partitions.to.delete",
    comma_list,
    _nothing,
    "delete_partition: partition paths, * for any text; without it the partitions of the frame's rows",
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
COMMIT_ON_ERRORS = option(
    "skep.write.commit.on.errors", boolean, False, "Commit although rows failed; they are left out and counted"
)
ROWS_PER_BATCH = option(
    "skep.spark.rows.per.batch", int, 0, "Rows of a batch between Spark and Python; 0 chooses by the row size"
)

for key, doc in {
    "hoodie.upsert.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.insert.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.delete.shuffle.parallelism": "tasks are balanced by bytes",
    "hoodie.bulkinsert.shuffle.parallelism": "bulk insert does not shuffle",
    "hoodie.bloom.index.parallelism": "",
    "hoodie.write.markers.type": "markers are direct",
    "hoodie.markers.timeline.server.based.batch.num.threads": "",
    "hoodie.embed.timeline.server": "there is no timeline server",
    "hoodie.combine.before.delete": "a key that is deleted twice counts once",
}.items():
    option(key, str, "", doc, status=Status.NO_EFFECT)

planned(
    "hoodie.bulkinsert.user.defined.partitioner.class",
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    "hoodie.allow.operation.metadata.field",
)
