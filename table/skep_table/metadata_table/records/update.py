"""What one action changes in one partition of the metadata table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa


@dataclass(frozen=True)
class PartitionUpdate:
    """Changes of the metadata partition `partition`. A key is in `puts` or in `deletes`, once.

    `puts` has the columns `key` (text) and `record`, a struct of those members of HoodieMetadataRecord that are set.
    `group_set`: the name before number and suffix of the file groups that the keys are spread over, where the
    partition has several sets of them (`keys.group_set`).
    """

    partition: str
    puts: pa.Table
    deletes: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    group_set: str | None = None

    def in_groups(self, group_set: str | None) -> PartitionUpdate:
        """The same changes, in one set of file groups."""
        return replace(self, group_set=group_set)
