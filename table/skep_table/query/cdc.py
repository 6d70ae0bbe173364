"""Change data capture: one row a change, with operation, instant, and the images before and after as JSON text.

What a commit wrote to a file group says where its changes are (format guide 8.5): in the CDC logs listed beside a base
file, complete or to be completed from the slices before and after; in a base file of inserts only; in the slice before,
where all its rows were deleted or its group was replaced; or, for a log file of a merge-on-read table, in the
difference between the slices without and with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from skep_table.timeline.metadata import WriteOperation
from skep_table.view import FileSlice

SCHEMA: Final = pa.schema(
    [("op", pa.string()), ("ts_ms", pa.string()), ("before", pa.string()), ("after", pa.string())]
)

# Rewrites of rows that other commits changed.
_NO_CHANGES: Final = frozenset(
    {WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.CLUSTER, WriteOperation.INDEX}
)
_DELETES: Final = frozenset({WriteOperation.DELETE, WriteOperation.DELETE_PREPPED})


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """The changes that one commit made to one file group.

    `logs` are CDC logs. Without them, `before` and `after` are slices: rows of `after` alone were inserted, rows of
    `before` alone deleted; with both, rows of the commit in `after` are compared with those in `before`.
    """

    instant: str
    logs: tuple[str, ...] = ()
    before: FileSlice | None = None
    after: FileSlice | None = None
