"""Records of an index over an expression: statistics or Bloom filters of its values by file (format guide 16.8).

Statistics have the keys of column statistics, by the name of the column that the expression is over; those of whole
partitions lie among them, by a word between column and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.bloom import BloomFilter
from skep_table.instant_time import InstantTime
from skep_table.metadata_table.keys import column_key, partitions_key
from skep_table.metadata_table.partitions import PARTITION_STATS, STATS_MEMBER, record_kind
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, partition_stats_update
from skep_table.metadata_table.records.summaries import ColumnSummary
from skep_table.metadata_table.records.update import PartitionUpdate

File = tuple[str, str]  # partition path, file name


def expression_stats_update(
    partition: str, column: str, written: Mapping[File, ColumnSummary], deleted: Sequence[File], release: str
) -> PartitionUpdate:
    """The summaries of the expression over `column` in files that were written; those of deleted files end."""
    of_files = {file: [summary] for file, summary in written.items()}
    return replace(column_stats_update(of_files, deleted, [column], release), partition=partition)


def expression_partitions_update(
    partition: str, column: str, written: Mapping[str, ColumnSummary], ended: Sequence[str], release: str
) -> PartitionUpdate:
    """The summaries of all files of whole partitions; those of partitions that have none end."""
    of_paths = {path: [summary] for path, summary in written.items()}
    update = partition_stats_update(of_paths, ended, [column], release)
    puts = update.puts.set_column(0, "key", _of_partitions(update.puts["key"].combine_chunks(), column))
    return replace(update, partition=partition, puts=puts, deletes=_of_partitions(update.deletes, column))


def expression_blooms_update(
    partition: str,
    written: Mapping[File, BloomFilter],
    deleted: Sequence[File],
    instant: InstantTime,
    release: str,
) -> PartitionUpdate:
    """The filters over the expression in files that were written, and marks for those that were deleted."""
    return replace(bloom_filters_update(written, deleted, instant, release), partition=partition)


def joined(updates: Iterable[PartitionUpdate]) -> PartitionUpdate:
    """Updates of different keys of one partition as one."""
    listed = list(updates)
    puts = pa.concat_tables([each.puts for each in listed]).combine_chunks()
    deletes = pa.concat_arrays([each.deletes for each in listed])
    return replace(
        listed[0],
        puts=puts.take(pc.sort_indices(puts["key"])),
        deletes=deletes.take(pc.sort_indices(deletes)),
    )


def numbers_of_statistics(keys: pa.Array, number: int) -> pa.Array:
    """The `type` of each record of statistics in such an index: `number`, or that of statistics of partitions."""
    of_partitions = record_kind(PARTITION_STATS)
    assert of_partitions is not None
    assert of_partitions.member == STATS_MEMBER
    word = partitions_key("")[len(column_key("")) :]  # not with the module: tasks have no xxhash
    is_whole = pc.equal(pc.utf8_slice_codeunits(keys, len(word), 2 * len(word)), word)
    return pc.if_else(is_whole, np.int32(of_partitions.number), np.int32(number)).cast(pa.int32())


def _of_partitions(keys: pa.Array, column: str) -> pa.Array:
    return pc.replace_substring(keys, column_key(column), partitions_key(column), max_replacements=1)
