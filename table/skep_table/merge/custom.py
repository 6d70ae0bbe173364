"""Custom mergers: Python functions found by entry point, for tables whose merge mode is CUSTOM."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final, Protocol

import pyarrow as pa

from skep_table.errors import UnsupportedError

GROUP: Final = "skep.mergers"


class Merger(Protocol):
    """Merges rows pairwise: row i of `old` and row i of `new` have the same key, `new` arrived later.

    The result has as many rows, in the same order, with the columns of `new`. A row of it whose
    `_hoodie_is_deleted` is true, where that column exists, is a delete.
    """

    def __call__(self, old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch: ...


@lru_cache(maxsize=64)
def find_merger(name: str) -> Merger:
    """The merger registered as `name`: a payload class's simple name, a strategy id, or an option's value.

    UnsupportedError when there is none.
    """
    for entry in entry_points(group=GROUP, name=name):
        merger: Merger = entry.load()
        return merger
    raise UnsupportedError(
        f"rows of this table are merged by {name}, which is not built in",
        hint=f"register a function in entry point group {GROUP!r} as {name!r}, or name one by option skep.merger",
        merger=name,
    )
