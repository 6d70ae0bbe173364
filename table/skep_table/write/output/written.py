"""What a task reports to an index about a base file that it has finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from skep_format.basefile import ColumnRange
from skep_format.instant_time import InstantTime


@dataclass(frozen=True, slots=True)
class WrittenKeys:
    """The new keys of one base file, and the statistics of all of its columns.

    `keys` are those that the file group did not hold before, not null. `columns` are by dotted name, as the file's own
    metadata has them. `path` is relative to the table. `size_bytes` and `num_rows` are the whole file's.
    """

    instant_time: InstantTime
    partition_path: str
    file_id: str
    path: str
    size_bytes: int
    num_rows: int
    keys: pa.ChunkedArray
    columns: Mapping[str, ColumnRange]
