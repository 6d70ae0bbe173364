"""The partitions of the metadata table, and the members of HoodieMetadataRecord that they use (guide 7.2, 7.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep_table.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableConfig

FILES: Final = "files"
COLUMN_STATS: Final = "column_stats"
PARTITION_STATS: Final = "partition_stats"
BLOOM_FILTERS: Final = "bloom_filters"
RECORD_INDEX: Final = "record_index"
SECONDARY_INDEX_PREFIX: Final = "secondary_index_"
EXPRESSION_INDEX_PREFIX: Final = "expr_index_"

FILES_MEMBER: Final = "filesystemMetadata"
STATS_MEMBER: Final = "ColumnStatsMetadata"
BLOOM_MEMBER: Final = "BloomFilterMetadata"
RECORD_INDEX_MEMBER: Final = "recordIndexMetadata"
SECONDARY_INDEX_MEMBER: Final = "SecondaryIndexMetadata"


@dataclass(frozen=True, slots=True)
class RecordKind:
    """What the records of a partition state: their `type`, and in which member of theirs which of Hudi's records is."""

    number: int
    member: str
    record: str


_KINDS: Final[Mapping[str, RecordKind]] = {
    COLUMN_STATS: RecordKind(3, STATS_MEMBER, "HoodieMetadataColumnStats"),
    BLOOM_FILTERS: RecordKind(4, BLOOM_MEMBER, "HoodieMetadataBloomFilter"),
    RECORD_INDEX: RecordKind(5, RECORD_INDEX_MEMBER, "HoodieRecordIndexInfo"),
    PARTITION_STATS: RecordKind(6, STATS_MEMBER, "HoodieMetadataColumnStats"),
}
_OF_SECONDARY: Final = RecordKind(7, SECONDARY_INDEX_MEMBER, "HoodieSecondaryIndexInfo")


def record_kind(partition: str, index_type: str | None = None) -> RecordKind | None:
    """The kind of the records of an index; None for `files`, whose records are of two kinds, and for unknown ones.

    `index_type` is what its definition states: indexes over expressions are statistics or Bloom filters.
    """
    if partition.startswith(EXPRESSION_INDEX_PREFIX):
        return _KINDS.get(index_type) if index_type in (COLUMN_STATS, BLOOM_FILTERS) else None
    return _OF_SECONDARY if partition.startswith(SECONDARY_INDEX_PREFIX) else _KINDS.get(partition)


def member_of(partition: str, index_type: str | None = None) -> str | None:
    """The member of HoodieMetadataRecord that the records of a partition have; None where they are not known."""
    kind = record_kind(partition, index_type)
    if kind is None:
        return FILES_MEMBER if partition == FILES else None
    return kind.member


def unbuilt_partitions(config: TableConfig) -> tuple[str, ...]:
    """The partitions that the settings name as being built, and not as ready."""
    ready, building = (
        [name.strip() for name in config.raw.get(key, "").split(",") if name.strip()]
        for key in (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT)
    )
    return tuple(name for name in building if name not in ready)
