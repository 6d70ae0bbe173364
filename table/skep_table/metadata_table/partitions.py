"""The partitions of the metadata table, and the members of HoodieMetadataRecord that they use (guide 7.2, 7.4)."""

from __future__ import annotations

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


def unbuilt_partitions(config: TableConfig) -> tuple[str, ...]:
    """The partitions that the settings name as being built, and not as ready."""
    ready, building = (
        [name.strip() for name in config.raw.get(key, "").split(",") if name.strip()]
        for key in (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT)
    )
    return tuple(name for name in building if name not in ready)
