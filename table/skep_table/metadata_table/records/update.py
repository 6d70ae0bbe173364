"""What one action changes in one partition of the metadata table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class PartitionUpdate:
    """Changes of the metadata partition `partition`. A key is in `puts` or in `deletes`, once.

    `puts` has the columns `key` (text) and `record`, a struct of those members of HoodieMetadataRecord that are set.
    """

    partition: str
    puts: pa.Table
    deletes: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
