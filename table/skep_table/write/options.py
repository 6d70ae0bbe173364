"""Options of the write path, by Hudi's names and with Hudi's defaults unless the docs give a reason."""

from __future__ import annotations

from enum import Enum

from skep_table.options import Status, boolean, option, planned


class StorageLevel(str, Enum):
    """Where Spark keeps tagged rows until the commit."""

    MEMORY_ONLY = "MEMORY_ONLY"
    MEMORY_AND_DISK = "MEMORY_AND_DISK"
    MEMORY_AND_DISK_SER = "MEMORY_AND_DISK_SER"
    DISK_ONLY = "DISK_ONLY"


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


SMALL_FILE_BYTES = option(
    "hoodie.parquet.small.file.limit", int, 104_857_600, "Inserts fill up base files smaller than this, in bytes"
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
}.items():
    option(key, str, "", doc, status=Status.NO_EFFECT)

planned(
    "hoodie.datasource.write.insert.drop.duplicates",
    "hoodie.datasource.write.partitions.to.delete",
    "hoodie.bulkinsert.user.defined.partitioner.class",
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    "hoodie.allow.operation.metadata.field",
)
