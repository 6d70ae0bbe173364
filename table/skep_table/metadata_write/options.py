"""Options of the metadata table."""

from __future__ import annotations

from skep_table.options import at_least, comma_list, option

COMPACT_DELTA_COMMITS = option(
    "hoodie.metadata.compact.max.delta.commits",
    at_least(1),
    10,
    "The metadata table is compacted after so many of its delta commits",
)
_NO_NAMES: tuple[str, ...] = ()

COLUMN_STATS_COLUMNS = option(
    "hoodie.metadata.index.column.stats.column.list",
    comma_list,
    _NO_NAMES,
    "The columns of a new index of column statistics; one that is there keeps its own",
)
COLUMN_STATS_MOST_COLUMNS = option(
    "hoodie.metadata.index.column.stats.max.columns.to.index",
    at_least(1),
    32,
    "So many columns a new index of column statistics has where none are named, from table version 8 on",
)
