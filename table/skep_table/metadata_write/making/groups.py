"""How many file groups the partitions of a new metadata table have (format guide 7.2 and 16.2).

Keys are spread by the number of groups, so it never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skep_format.options import Options
from skep_table.metadata_write.options import (
    LEAST_RECORD_GROUPS,
    LEAST_RECORD_GROUPS_OF_PARTITION,
    MOST_RECORD_GROUPS,
    MOST_RECORD_GROUPS_OF_PARTITION,
    RECORD_GROUP_BYTES,
    RECORD_GROWTH,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_RECORD_BYTES: Final = 48  # what Hudi reckons an entry of the record index takes


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
