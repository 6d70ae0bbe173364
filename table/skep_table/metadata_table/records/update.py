"""What one action changes in one partition of the metadata table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.metadata_table.keys import group_numbers


@dataclass(frozen=True)
class PartitionUpdate:
    """Changes of the metadata partition `partition`. A key is in `puts` or in `deletes`, once.

    `puts` has the columns `key` (text) and `record`, a struct of those members of HoodieMetadataRecord that are set.
    `group_set`: the name before number and suffix of the file groups that the keys are spread over, where the
    partition has several sets of them (`keys.group_set`). `sharded_by` returns what the file group of each key is
    chosen by; without it that is the key.
    """

    partition: str
    puts: pa.Table
    deletes: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    group_set: str | None = None
    sharded_by: Callable[[pa.Array], pa.Array] | None = None

    def groups_of(self, keys: pa.Array, groups: int) -> npt.NDArray[np.int64]:
        """The number of the file group of each key, of so many."""
        return group_numbers(keys if self.sharded_by is None else self.sharded_by(keys), groups)

    def in_groups(self, group_set: str | None) -> PartitionUpdate:
        """The same changes, in one set of file groups."""
        return replace(self, group_set=group_set)
