"""Writes that complete in another order than they were requested in, by which readers apply entries of an index.

That is so where log files are named by the delta commits that write them, in versions 8 and 9 (format guide 16.3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Instant
from skep_table.metadata_table.entries import GroupReader
from skep_table.metadata_table.keys import column_key, partitions_key, path_key
from skep_table.metadata_table.partitions import PARTITION_STATS, STATS_MEMBER
from skep_table.metadata_write.definitions import expression_indexes, stats_columns
from skep_table.metadata_write.own import open_own
from skep_table.table import HudiTable


def is_beside_earlier(table: HudiTable, instant: Instant) -> bool:
    """Whether a write with an earlier requested time is pending: its entries will count as older than these.

    Statistics of a whole partition would hide those of the files that it adds.
    """
    if not table.format.logs.of_delta_commit:
        return False
    return any(other.requested_time.is_before(instant.requested_time) for other in table.timeline.pending().data())


def indexes_that_hide(table: HudiTable, paths: Collection[str], later: Collection[InstantTime]) -> set[str]:
    """The indexes of statistics in which one of the delta commits `later` states one of the partitions as a whole.

    So may one whose entries a compaction has merged. Statistics that widen others hide nothing.
    """
    if not paths:
        return set()
    places = [path_key(path) for path in paths]
    keys = {
        each.partition: [partitions_key(each.column) + place for place in places]
        for each in expression_indexes(table)
        if not each.has_filters
    }
    if PARTITION_STATS in table.config.metadata_partitions:
        keys[PARTITION_STATS] = [column_key(column) + place for column in stats_columns(table) for place in places]
    own = open_own(table)
    return {index for index, of_index in keys.items() if _hides(own, index, of_index, later)}


def _hides(own: HudiTable, index: str, keys: Collection[str], later: Collection[InstantTime]) -> bool:
    wanted = pa.array(list(keys), pa.string())
    for slice_ in own.view(metadata=False).slices(index):
        if slice_.base_instant.is_after(min(later)):
            return True
        logs = GroupReader(own.storage, replace(slice_, base_file=None), later.__contains__)
        for entries in logs.entries(wanted, column=STATS_MEMBER):
            if entries.records is not None and entries.records.num_rows:
                tight = pc.struct_field(entries.records.column(STATS_MEMBER), "isTightBound")
                if pc.any(tight).as_py():
                    return True
    return False
