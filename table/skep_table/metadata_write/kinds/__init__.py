"""The kinds of partitions that writes keep in step with the data table, a module each.

What differs by kind on the way of an action into the metadata table is here; those who go through all of them are
`updates` for actions and `making.create` for new partitions.
"""

from typing import Final

from skep_table.metadata_write.kinds import (
    bloom_filters,
    column_stats,
    expression,
    files,
    partition_stats,
    record_index,
    secondary,
)

_MODULES: Final = (files, column_stats, bloom_filters, partition_stats, record_index, secondary, expression)
KEPT: Final = tuple(module.KEPT for module in _MODULES)
"""All of them, in the order in which an action records them."""
