"""How many file groups the partitions of a new metadata table have (format guide 7.2 and 16.2).

Keys are spread by the number of groups, so it never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skep_format.options import Options
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, EXPRESSION, PARTITION_STATS, kind_of
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

if TYPE_CHECKING:
    from typing_extensions import Self

_RECORD_BYTES: Final = 48  # what Hudi reckons an entry of the record index takes


def group_count(partition: str, options: Options) -> int:
    """How many groups a new partition has whose size does not count."""
    counts = {
        COLUMN_STATS: COLUMN_STATS_GROUPS,
        PARTITION_STATS: PARTITION_STATS_GROUPS,
        BLOOM_FILTERS: BLOOM_FILTER_GROUPS,
        EXPRESSION.name: EXPRESSION_GROUPS,
    }
    kind = kind_of(partition)
    return options.value(counts[kind.name]) if kind is not None and kind.name in counts else 1


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
