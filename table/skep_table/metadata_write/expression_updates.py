"""What an action on the data table changes in the indexes over expressions (format guide 16.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.expressions import ExpressionIndex
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.expression_index import (
    expression_blooms_update,
    expression_partitions_update,
    expression_stats_update,
    joined,
)
from skep_table.metadata_table.records.summaries import ColumnSummary, merged
from skep_table.metadata_write.expression_facts import ExpressionFacts, expression_facts, stored_bounds
from skep_table.metadata_write.expressions import expression_indexes
from skep_table.metadata_write.overtaken import is_beside_earlier
from skep_table.preview import Preview
from skep_table.schema.arrow import arrow_type
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import CommitMetadata
from skep_table.view import FileView

File = tuple[str, str]  # partition path, file name
Facts = Mapping[File, ExpressionFacts]

_MOST_READ: Final = 100


def facts_of_commit(table: HudiTable, written: Mapping[File, FileStatus], known: Facts) -> Facts:
    """The facts of the files that a commit wrote; `table` is the one with the commit. What is `known` is not read
    again."""
    indexes = tuple(expression_indexes(table))
    if not indexes:
        return {}
    found = {file: known[file] for file in written if file in known and known[file].indexes == indexes}
    missing = [(path, status) for (path, name), status in written.items() if (path, name) not in found]
    read = expression_facts(table, missing, indexes)
    return {**found, **{(each.partition_path, each.name): each for each in read}}


def expressions_of_commit(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, facts: Facts
) -> list[PartitionUpdate]:
    """The updates of a write, or of a service that writes files. `table` is the snapshot under the lock."""
    return [
        _of_filters(table, instant, index, facts)
        if index.has_filters
        else joined(
            [
                expression_stats_update(
                    index.partition, index.column, with_rows(index, facts), (), table.format.metadata.release
                ),
                *_of_partitions(table, instant, metadata, index, facts),
            ]
        )
        for index in expression_indexes(table)
    ]


def expressions_of_clean(
    table: HudiTable, instant: Instant, deleted: Sequence[File], dropped: Sequence[str]
) -> list[PartitionUpdate]:
    """The updates of a clean: the entries of the files and partitions that it deleted end."""
    release, found = table.format.metadata.release, []
    for index in expression_indexes(table):
        if index.has_filters:
            time = instant.requested_time
            found.append(expression_blooms_update(index.partition, {}, deleted, time, release))
            continue
        of_files = expression_stats_update(index.partition, index.column, {}, deleted, release)
        of_paths = expression_partitions_update(index.partition, index.column, {}, dropped, release)
        found.append(joined([of_files, of_paths]))
    return found


def with_rows(index: ExpressionIndex, facts: Facts) -> dict[File, ColumnSummary]:
    """The summaries of those files that have rows: Hudi has no record of others."""
    found = {file: each.summaries.get(index.partition) for file, each in facts.items()}
    return {file: each for file, each in found.items() if each is not None and _has_rows(each)}


def _has_rows(summary: ColumnSummary) -> bool:
    return summary.values + summary.nulls > 0


def _of_filters(table: HudiTable, instant: Instant, index: ExpressionIndex, facts: Facts) -> PartitionUpdate:
    filters = {file: each.filters[index.partition] for file, each in facts.items() if index.partition in each.filters}
    time, release = instant.requested_time, table.format.metadata.release
    return expression_blooms_update(index.partition, filters, (), time, release)


# -- statistics of partitions ------------------------------------------------------------------------------------------


def _of_partitions(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, index: ExpressionIndex, facts: Facts
) -> list[PartitionUpdate]:
    """Of the files of each partition that the commit touched, by what the index has of those that it did not write.

    A partition with a file whose values are not sure has none: they would leave its rows out. So would those of one to
    which a pending write adds files, whose entries will count as older.
    """
    if not table.config.partition_fields:
        return []
    after = Preview(table, instant, metadata)
    stated, view, beside = table.metadata_table(), after.view(), is_beside_earlier(table, instant)
    written: dict[str, ColumnSummary] = {}
    ended = []
    for path in metadata.partitions:
        whole = None if beside else _whole(after, stated, view, path, index, facts)
        if whole is not None and _has_rows(whole):
            written[path] = whole
        else:
            ended.append(path)
    release = table.format.metadata.release
    return [expression_partitions_update(index.partition, index.column, written, ended, release)]


def _whole(
    after: HudiTable, metadata: MetadataTable | None, view: FileView, path: str, index: ExpressionIndex, facts: Facts
) -> ColumnSummary | None:
    files = {file.name: file for file in latest_files(view, path)}
    own = [facts[path, name].summaries.get(index.partition) for name in files if (path, name) in facts]
    others = [name for name in files if (path, name) not in facts]
    known = _stated(metadata, path, others, index)
    lacking = [(path, files[name]) for name in others if name not in known]
    if len(lacking) > _MOST_READ:
        return None
    read = expression_facts(after, lacking, [index]) if lacking else ()
    every = [*own, *known.values(), *(each.summaries.get(index.partition) for each in read)]
    sure = [each for each in every if each is not None]
    if len(sure) < len(every) or not sure:
        return None
    (whole,) = merged(sure)
    return whole


def _stated(
    metadata: MetadataTable | None, path: str, names: Sequence[str], index: ExpressionIndex
) -> dict[str, ColumnSummary]:
    """What the index has of files, without those that it has nothing of."""
    if metadata is None or not names or index.partition not in metadata.indexes:
        return {}
    kind = index.expression.result
    rows = metadata.statistics_of_files(
        index.column, arrow_type(kind), [(path, name) for name in names], index.partition
    )
    if rows is None:
        return {}
    lows, highs = (stored_bounds(rows[name], index) for name in ("min_value", "max_value"))
    counts = zip(rows["value_count"].to_pylist(), rows["null_count"].to_pylist(), strict=True)
    found = {}
    for name, low, high, (values, nulls) in zip(names, lows, highs, counts, strict=True):
        if values is not None and nulls is not None and (values == 0 or (low is not None and high is not None)):
            found[name] = ColumnSummary(index.column, kind, low, high, values, nulls)
    return found


def latest_files(view: FileView, path: str) -> list[FileStatus]:
    """The files of the slices that a snapshot query reads."""
    slices = view.slices(path)
    bases = [FileStatus(s.base_file.path, s.base_file.size_bytes, 0) for s in slices if s.base_file is not None]
    return bases + [FileStatus(log.path, log.size_bytes, 0) for s in slices for log in s.log_files]
