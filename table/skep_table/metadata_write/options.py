"""Options of the metadata table."""

from __future__ import annotations

from skep_table.options import at_least, option

COMPACT_DELTA_COMMITS = option(
    "hoodie.metadata.compact.max.delta.commits",
    at_least(1),
    10,
    "The metadata table is compacted after so many of its delta commits",
)
