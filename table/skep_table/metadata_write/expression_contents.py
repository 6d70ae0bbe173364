"""What new indexes over expressions hold, worked out from the files of a table, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from skep_table.instant_time import BEFORE_ALL
from skep_table.metadata_table.expressions import ExpressionIndex
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.expression_index import (
    expression_blooms_update,
    expression_partitions_update,
    expression_stats_update,
)
from skep_table.metadata_table.records.summaries import ColumnSummary, merged
from skep_table.metadata_write.expression_facts import ExpressionFacts, expression_facts
from skep_table.metadata_write.expression_updates import with_rows
from skep_table.storage import FileStatus
from skep_table.table import HudiTable

_FILES_AT_ONCE: Final = 256


def expression_updates(
    table: HudiTable,
    files: Iterable[tuple[str, FileStatus]],
    indexes: Sequence[ExpressionIndex],
    report: Callable[[int], None],
) -> Iterator[PartitionUpdate]:
    """The puts of the indexes for committed files, given as partition path and file, partition by partition.

    `report` is called with the number of files that are done.
    """
    done, view = 0, table.view(metadata=False)
    release, is_partitioned = table.format.metadata.release, bool(table.config.partition_fields)
    facts = expression_facts(table, files, indexes, table.context.runner)
    summed = [index for index in indexes if is_partitioned and not index.has_filters]
    open_: dict[str, list[_Whole]] = {}  # as many as `summed`

    def ended(last: str | None) -> Iterator[PartitionUpdate]:
        for number, index in enumerate(summed):
            found = {path: wholes[number].summary for path, wholes in open_.items() if path != last}
            known = {path: summary for path, summary in found.items() if summary is not None}
            yield expression_partitions_update(index.partition, index.column, known, (), release)

    while some := list(islice(facts, _FILES_AT_ONCE)):
        yield from (_of_files(table, index, some) for index in indexes)
        for path, of_partition in groupby(some, lambda each: each.partition_path):
            if path not in open_:
                latest = frozenset(name for slice_ in view.slices(path) for name in slice_.file_names)
                open_[path] = [_Whole(index, latest) for index in summed]
            of_files = list(of_partition)
            for whole in open_[path]:
                whole.add(of_files)
        last = some[-1].partition_path  # which may go on
        yield from ended(last)
        open_ = {last: open_[last]}
        done += len(some)
        report(done)
    yield from ended(None)


def _of_files(table: HudiTable, index: ExpressionIndex, some: Sequence[ExpressionFacts]) -> PartitionUpdate:
    facts, release = {(each.partition_path, each.name): each for each in some}, table.format.metadata.release
    if not index.has_filters:
        return expression_stats_update(index.partition, index.column, with_rows(index, facts), (), release)
    filters = {file: each.filters[index.partition] for file, each in facts.items() if index.partition in each.filters}
    last = table.timeline.completed().last()
    return expression_blooms_update(index.partition, filters, (), last.requested_time if last else BEFORE_ALL, release)


class _Whole:
    """The merged summaries of the files of a partition that are read."""

    def __init__(self, index: ExpressionIndex, files: frozenset[str]) -> None:
        self._index, self._files = index, files
        self._found: list[ColumnSummary] = []
        self._known = bool(files)

    @property
    def summary(self) -> ColumnSummary | None:
        """None where the values of a file are not sure: readers then look into the partition; and without rows."""
        whole = self._found[0] if self._known and self._found else None
        return whole if whole is not None and whole.values + whole.nulls else None

    def add(self, facts: Iterable[ExpressionFacts]) -> None:
        for each in facts:
            if self._known and each.name in self._files:
                found = each.summaries.get(self._index.partition)
                self._known = found is not None
                self._found = merged([*self._found, *((found,) if found is not None else ())])
