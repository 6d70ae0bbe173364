"""Indexes over expressions: bounds or Bloom filters of the values of an expression in each file (format guide 16.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import arrow_type
from skep_format.storage import FileStatus
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import EXPRESSION
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update
from skep_table.metadata_table.records.expression_index import (
    ExpressionIndex,
    expression_partitions_update,
    joined,
)
from skep_table.metadata_table.records.summaries import ColumnSummary, merged
from skep_table.metadata_write.definitions import expression_indexes
from skep_table.metadata_write.facts.files import ExpressionFacts, expression_facts, stored_bounds
from skep_table.metadata_write.facts.overtaken import is_beside_earlier
from skep_table.metadata_write.kinds.contract import CleanedFiles, CommittedWrite, File, KeptKind
from skep_table.metadata_write.making.spreading import Build, Groups, OfPartitions, spread_updates, updates_by_file
from skep_table.preview import Preview
from skep_table.table import HudiTable
from skep_table.view import FileView

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


def _of_files(table: HudiTable, index: ExpressionIndex, facts: Facts, time: InstantTime) -> PartitionUpdate:
    name, release = index.partition, table.format.metadata.release
    if index.has_filters:
        filters = {file: each.filters[name] for file, each in facts.items() if name in each.filters}
        return replace(bloom_filters_update(filters, (), time, release), partition=name)
    found = {file: each.summaries.get(name) for file, each in facts.items()}
    with_rows = {file: [each] for file, each in found.items() if each is not None and _has_rows(each)}  # as Hudi does
    return replace(column_stats_update(with_rows, (), (), release), partition=name)


def _contents(build: Build) -> Mapping[str, Groups]:
    table, indexes = build.table, build.wanted.expressions
    if not indexes:
        return {}
    summed = [index for index in indexes if table.config.partition_fields and not index.has_filters]

    def updates(some: Sequence[ExpressionFacts]) -> Iterator[PartitionUpdate]:
        facts = {(each.partition_path, each.name): each for each in some}
        return (_of_files(table, index, facts, build.last_time) for index in indexes)

    def of_file(index: ExpressionIndex, facts: ExpressionFacts) -> Sequence[ColumnSummary] | None:
        found = facts.summaries.get(index.partition)
        return None if found is None else [found]

    def of_partitions(index: ExpressionIndex, known: Mapping[str, Sequence[ColumnSummary]]) -> PartitionUpdate:
        whole = {path: found[0] for path, found in known.items() if found and _has_rows(found[0])}
        return expression_partitions_update(index, whole, (), table.format.metadata.release)

    facts = expression_facts(table, build.statuses(), indexes, table.context.runner)
    wholes = [OfPartitions(partial(of_file, index), partial(of_partitions, index)) for index in summed]
    puts = updates_by_file(build, "metadata_table.expressions", facts, updates, wholes)
    return spread_updates(build, [index.partition for index in indexes], puts)


def _of_commit(write: CommittedWrite) -> Iterator[PartitionUpdate]:
    facts = write.prepared.expressions
    for index in expression_indexes(write.table):
        update = _of_files(write.table, index, facts, write.instant.requested_time)
        yield update if index.has_filters else joined([update, *_of_partitions(write, index, facts)])


def _of_clean(cleaned: CleanedFiles) -> Iterator[PartitionUpdate]:
    table, deleted = cleaned.table, cleaned.deleted
    release = table.format.metadata.release
    for index in expression_indexes(table):
        if index.has_filters:
            update = bloom_filters_update({}, deleted, cleaned.instant.requested_time, release)
        else:
            of_files = column_stats_update({}, deleted, [index.column], release)
            update = joined([of_files, expression_partitions_update(index, {}, cleaned.dropped, release)])
        yield replace(update, partition=index.partition)


def _has_rows(summary: ColumnSummary) -> bool:
    return summary.values + summary.nulls > 0


def _of_partitions(write: CommittedWrite, index: ExpressionIndex, facts: Facts) -> list[PartitionUpdate]:
    """Of the files of each partition that the commit touched, by what the index has of those that it did not write.

    A partition with a file whose values are not sure has none: they would leave its rows out. So would those of one to
    which a pending write adds files, whose entries will count as older.
    """
    table, instant, metadata = write.table, write.instant, write.metadata
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
    return [expression_partitions_update(index, written, ended, release)]


def _whole(
    after: HudiTable, metadata: MetadataTable | None, view: FileView, path: str, index: ExpressionIndex, facts: Facts
) -> ColumnSummary | None:
    files = {file.name: file for slice_ in view.slices(path) for file in slice_.files}
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


KEPT = KeptKind(EXPRESSION, of_commit=_of_commit, of_clean=_of_clean, contents=_contents)
