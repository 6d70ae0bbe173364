"""Statistics of whole partitions: the merged summaries of the columns in their files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from skep_format.storage import FileStatus
from skep_table.metadata_table.partitions import PARTITION_STATS, SINGLE
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.column_stats import holds_bounds_of, partition_stats_update
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files, with_absent
from skep_table.metadata_write.facts.overtaken import is_beside_earlier
from skep_table.metadata_write.kinds.contract import CleanedFiles, CommittedWrite, KeptKind, Prepared
from skep_table.metadata_write.making.spreading import Build, OfPartitions
from skep_table.preview import Preview
from skep_table.table import HudiTable
from skep_table.view import FileView

# Of larger partitions the statistics are widened: computing them as a whole takes a look-up for each file.
_RECOMPUTED_FILES: Final = 100


def _of_partitions(build: Build) -> OfPartitions[FileFacts]:
    """What a new index records."""
    release = build.table.format.metadata.release
    return OfPartitions(
        partial(with_absent, build.wanted.columns), lambda known: partition_stats_update(known, (), (), release)
    )


def _of_clean(cleaned: CleanedFiles) -> Iterator[PartitionUpdate]:
    if cleaned.dropped:
        yield partition_stats_update({}, cleaned.dropped, cleaned.columns, cleaned.table.format.metadata.release)


def _of_commit(write: CommittedWrite) -> Iterator[PartitionUpdate]:
    """Of small partitions all files count. The statistics of larger ones, of those that lose no file, and of all where
    entries of a pending write will count as older than these, are widened by the files that were written.

    A partition with a file of which the columns are not known has no statistics: they would leave its rows out.
    """
    table, instant, metadata, prepared = write.table, write.instant, write.metadata, write.prepared
    before, view = table.view(), Preview(table, instant, metadata).view()
    release = table.format.metadata.release
    tight: dict[str, Sequence[ColumnSummary]] = {}
    loose: dict[str, Sequence[ColumnSummary]] = {}
    ended = []
    view.listing.prefetch(metadata.partitions)
    own: dict[str, list[FileFacts]] = defaultdict(list)
    for (path, _), facts in prepared.facts.items():
        own[path].append(facts)
    beside = is_beside_earlier(table, instant)
    for path in metadata.partitions:
        there, files = _latest(before, path), _latest(view, path)
        stay = beside or (there and {file.path for file in there} <= {file.path for file in files})
        if len(files) <= max(_RECOMPUTED_FILES, len(own[path])) and not stay:
            found = _of_files(prepared.columns, _facts(table, path, files, prepared))
            chosen = tight
        else:
            found = _of_files(prepared.columns, own[path])
            chosen = loose
        if files and found is not None:
            chosen[path] = found
        else:
            ended.append(path)
    loose, retyped = _with_statistics(table, loose, prepared.columns)
    for path in retyped:
        every = _facts(table, path, _latest(view, path), prepared)
        found = None if beside else _of_files(prepared.columns, every)
        if found is None:
            ended.append(path)
        else:
            tight[path] = found
    yield partition_stats_update(tight, ended, prepared.columns, release, loose)


def _latest(view: FileView, path: str) -> list[FileStatus]:
    return [file for slice_ in view.slices(path) for file in slice_.files]


def _facts(table: HudiTable, path: str, files: Iterable[FileStatus], prepared: Prepared) -> Iterator[FileFacts]:
    others = []
    for file in files:
        facts = prepared.facts.get((path, file.name))
        if facts is None:
            others.append((path, file))
        else:
            yield facts
    yield from facts_of_files(table, others, prepared.columns, blooms=False)


def _of_files(columns: Columns, files: Iterable[FileFacts]) -> Sequence[ColumnSummary] | None:
    """The merged summaries of files; None where those of one are not known."""
    found: list[ColumnSummary] = []
    for facts in files:
        summaries = with_absent(columns, facts)
        if summaries is None:
            return None
        found += summaries
    return merged(found)


def _with_statistics(
    table: HudiTable, summaries: Mapping[str, Sequence[ColumnSummary]], columns: Columns
) -> tuple[dict[str, Sequence[ColumnSummary]], list[str]]:
    """Those for which there is a record to be widened: a partition without one may hold any value. Beside them, the
    partitions with bounds of the types that columns had before: Hudi 1.0 compares the bounds of one type only, and
    later releases state those of all files in the new type.
    """
    index, release = table.metadata_table(), table.format.metadata.release
    if index is None or not summaries:
        return {}, []
    pairs = [(each.column, path) for path, found in summaries.items() for each in found]
    numbers, records = index.partition_stats_records(pairs)
    held = [pairs[number] for number in numbers.tolist()]
    fits = holds_bounds_of(records, [columns[column] for column, _ in held], release)
    retyped = {held[at][1] for at in np.flatnonzero(~fits).tolist()}
    known = frozenset(held)
    widened: dict[str, Sequence[ColumnSummary]] = {
        path: [_typed(each, columns) for each in found if (each.column, path) in known]
        for path, found in summaries.items()
        if path not in retyped
    }
    return widened, sorted(retyped)


def _typed(summary: ColumnSummary, columns: Columns) -> ColumnSummary:
    """Also without values of the column's type: Hudi takes the type of merged records from the later one."""
    return replace(summary, kind=columns[summary.column])


KEPT = KeptKind(SINGLE[PARTITION_STATS], of_partitions=_of_partitions, of_commit=_of_commit, of_clean=_of_clean)
