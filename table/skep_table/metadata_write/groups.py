"""The file groups of the partitions of a metadata table: how many, and their ids (format guide 7.2 and 16.2).

Keys are spread by the number of groups, so it never changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
)
from skep_table.metadata_write.options import (
    BLOOM_FILTER_GROUPS,
    COLUMN_STATS_GROUPS,
    EXPRESSION_GROUPS,
    LEAST_RECORD_GROUPS,
    LEAST_RECORD_GROUPS_OF_PARTITION,
    MOST_RECORD_GROUPS,
    MOST_RECORD_GROUPS_OF_PARTITION,
    PARTITION_STATS_GROUPS,
    RECORD_GROUP_BYTES,
    RECORD_GROWTH,
)
from skep_table.options import Options

if TYPE_CHECKING:
    from typing_extensions import Self

GROUP_SETS: Final[Mapping[str, str]] = {
    FILES: "files",
    COLUMN_STATS: "col-stats",
    PARTITION_STATS: "partition-stats",
    BLOOM_FILTERS: "bloom-filters",
    RECORD_INDEX: "record-index",
}
"""What the ids of a partition's file groups begin with, before their number. Others: `group_set_of`."""

_RECORD_BYTES: Final = 48  # what Hudi reckons an entry of the record index takes


def group_set_of(partition: str) -> str:
    """What the ids of the file groups of a partition begin with."""
    return GROUP_SETS.get(partition) or partition.replace("_", "-")


def group_id(group_set: str, number: int) -> str:
    """The id of one file group of a set (`metadata_table.keys.group_set`)."""
    return f"{group_set}-{number:04d}-0"


def group_count(partition: str, options: Options) -> int:
    """How many groups a new partition has whose size does not count."""
    counts = {
        COLUMN_STATS: COLUMN_STATS_GROUPS,
        PARTITION_STATS: PARTITION_STATS_GROUPS,
        BLOOM_FILTERS: BLOOM_FILTER_GROUPS,
    }
    if partition.startswith(EXPRESSION_INDEX_PREFIX):
        return options.value(EXPRESSION_GROUPS)
    return options.value(counts[partition]) if partition in counts else 1


@dataclass(frozen=True)
class RecordGroups:
    """How many file groups a new record index has, or in a partitioned one each partition of the table."""

    least: int
    most: int
    growth: float
    group_bytes: int

    @classmethod
    def of(cls, options: Options, *, partitioned: bool) -> Self:
        """By the options of a writer."""
        least, most = (
            (LEAST_RECORD_GROUPS_OF_PARTITION, MOST_RECORD_GROUPS_OF_PARTITION)
            if partitioned
            else (LEAST_RECORD_GROUPS, MOST_RECORD_GROUPS)
        )
        return cls(
            options.value(least), options.value(most), options.value(RECORD_GROWTH), options.value(RECORD_GROUP_BYTES)
        )

    def count(self, records: int) -> int:
        """For so many records now."""
        expected = math.ceil(records * self.growth)
        wanted = expected // max(1, self.group_bytes // _RECORD_BYTES)
        return max(self.least, min(wanted, self.most))
