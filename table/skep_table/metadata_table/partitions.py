"""The partitions of the metadata table, with one description of each of their kinds (guide 7.2, 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from skep_format.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableConfig
from skep_format.versions.metadata import MetadataRules

FILES: Final = "files"
COLUMN_STATS: Final = "column_stats"
PARTITION_STATS: Final = "partition_stats"
BLOOM_FILTERS: Final = "bloom_filters"
RECORD_INDEX: Final = "record_index"

FILES_MEMBER: Final = "filesystemMetadata"
STATS_MEMBER: Final = "ColumnStatsMetadata"
BLOOM_MEMBER: Final = "BloomFilterMetadata"
RECORD_INDEX_MEMBER: Final = "recordIndexMetadata"
SECONDARY_INDEX_MEMBER: Final = "SecondaryIndexMetadata"


@dataclass(frozen=True, slots=True)
class PartitionKind:
    """One kind of partitions of a metadata table, for all that goes through these.

    A table has one partition of that `name`, or with a `prefix` any number, each with a definition. Its records state
    the type `number`, and have the `record` of Hudi in that `member`; indexes over expressions have those of another
    kind. `of_columns`: they state names and values of columns. `of_keys`: they are made of the meta column with record
    keys. `is_defined`: it exists where files of the table define indexes.
    """

    name: str
    number: int = 0
    member: str = ""
    record: str = ""
    prefix: str = ""
    of_columns: bool = False
    of_keys: bool = False
    is_defined: bool = False

    def among(self, partitions: Iterable[str]) -> list[str]:
        """Those of the partitions, in their order, that are of this kind."""
        return [each for each in partitions if kind_of(each) is self]

    def fits(self, config: TableConfig, rules: MetadataRules) -> bool:
        """Whether a table of these settings and this version can have it."""
        return (rules.defines_indexes or not self.is_defined) and (config.populate_meta_fields or not self.of_keys)


_SUMMARIES: Final = "HoodieMetadataColumnStats"
_KINDS: Final = (
    PartitionKind(FILES, 2, FILES_MEMBER, "HoodieMetadataFileInfo"),
    PartitionKind(COLUMN_STATS, 3, STATS_MEMBER, _SUMMARIES, of_columns=True),
    PartitionKind(PARTITION_STATS, 6, STATS_MEMBER, _SUMMARIES, of_columns=True, is_defined=True),
    PartitionKind(BLOOM_FILTERS, 4, BLOOM_MEMBER, "HoodieMetadataBloomFilter"),
    PartitionKind(RECORD_INDEX, 5, RECORD_INDEX_MEMBER, "HoodieRecordIndexInfo", of_keys=True),
)
SINGLE: Final[Mapping[str, PartitionKind]] = {kind.name: kind for kind in _KINDS}
"""The kinds of which a table has one partition, by its name, in the order in which Hudi makes them."""
SECONDARY: Final = PartitionKind(
    "secondary_index", 7, SECONDARY_INDEX_MEMBER, "HoodieSecondaryIndexInfo", "secondary_index_",
    of_columns=True, of_keys=True, is_defined=True,
)  # fmt: skip
EXPRESSION: Final = PartitionKind("expression_index", prefix="expr_index_", of_columns=True, is_defined=True)
_PREFIXES: Final = {kind.prefix: kind for kind in (SECONDARY, EXPRESSION)}

STATISTICS: Final = frozenset({COLUMN_STATS, PARTITION_STATS})
"""The partitions with statistics of the table's columns, which are the same in both."""


def kind_of(partition: str) -> PartitionKind | None:
    """The kind of a partition; None for one that only later releases know."""
    return SINGLE.get(partition) or next((_PREFIXES[each] for each in _PREFIXES if partition.startswith(each)), None)


def is_named(partition: str) -> bool:
    """Whether a table may have several of its kind, each as its definition states."""
    return partition.startswith(tuple(_PREFIXES))


def short_name(partition: str) -> str:
    """The name that a user has given an index, or that of its kind."""
    return partition.removeprefix(SECONDARY.prefix).removeprefix(EXPRESSION.prefix)


def with_led(dropped: Collection[str], there: Iterable[str]) -> list[str]:
    """What is to be dropped, and behind it what is there and useless without: secondary indexes lead to the record
    index.
    """
    led = SECONDARY.among(there) if RECORD_INDEX in dropped else []
    return list(dict.fromkeys((*dropped, *led)))


def record_kind(partition: str, index_type: str | None = None) -> PartitionKind | None:
    """The kind that a partition has its records of; None where it is not known.

    `index_type` is what its definition states: indexes over expressions are statistics or Bloom filters.
    """
    kind = kind_of(partition)
    if kind is EXPRESSION:
        return SINGLE[index_type] if index_type in (COLUMN_STATS, BLOOM_FILTERS) else None
    return kind


def member_of(partition: str, index_type: str | None = None) -> str | None:
    """The member of HoodieMetadataRecord that the records of a partition have; None where they are not known."""
    kind = record_kind(partition, index_type)
    return None if kind is None else kind.member


def unbuilt_partitions(config: TableConfig) -> tuple[str, ...]:
    """The partitions that the settings name as being built, and not as ready."""
    ready, building = (
        [name.strip() for name in config.raw.get(key, "").split(",") if name.strip()]
        for key in (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT)
    )
    return tuple(name for name in building if name not in ready)
