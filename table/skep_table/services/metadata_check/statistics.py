"""The partitions `column_stats` and `partition_stats` against what the files hold, some files at a time."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.arrow import arrow_type
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS
from skep_table.metadata_table.partitions import COLUMN_STATS, PARTITION_STATS, STATS_MEMBER
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged, summaries_of_rows
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.services.metadata_check.bounds import Described, check_bounds
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.slices import latest_slices
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_FILES_AT_ONCE: Final = 256


def check_column_stats(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares those of the files of the latest slices. Records of files that are no longer listed are a note."""
    columns = stats_columns(table)
    every = ((slice_.partition_path, file) for slice_ in latest_slices(table) for file in slice_.files)
    while files := list(itertools.islice(every, _FILES_AT_ONCE)):
        found = list(_described(facts_of_files(table, files, columns, blooms=False), findings))
        names = [(each.path, each.name) for each in found]
        stated = {
            column: stats
            for column, kind in columns.items()
            if (stats := metadata.statistics_of_files(column, arrow_type(kind), names)) is not None
        }
        check_bounds(found, columns, stated, findings)
    listed = metadata.all_files()
    is_file = pc.not_equal(listed["key"], ALL_PARTITIONS)
    _note_stale(metadata, COLUMN_STATS, listed["name"].filter(is_file), findings)


def check_partition_stats(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares those of all partitions with the rows in their latest slices."""
    columns = stats_columns(table)
    for path, slices in itertools.groupby(latest_slices(table), key=lambda slice_: slice_.partition_path):
        stated = {
            column: stats
            for column, kind in columns.items()
            if (stats := metadata.statistics_of_partitions(column, arrow_type(kind), [path])) is not None
        }
        described = _partition(table, path, list(slices), columns, stated, findings)
        if described is not None:
            check_bounds([described], columns, stated, findings)
    _note_stale(metadata, PARTITION_STATS, pa.array(metadata.partitions(), pa.string()), findings)


def _partition(
    table: HudiTable,
    path: str,
    slices: Sequence[FileSlice],
    columns: Columns,
    stated: dict[str, pa.Table],
    findings: Findings,
) -> Described | None:
    """By the facts of its files, or by merged rows, where these hold more than is stated and logs may replace rows."""
    files = ((path, file) for slice_ in slices for file in slice_.files)
    unsure = Findings(findings.partition)
    found = list(_described(facts_of_files(table, files, columns, blooms=False), unsure))
    whole = _together(path, (each.of(column) for each in found for column in columns))
    has_logs = any(slice_.log_files for slice_ in slices)
    if not (unsure.done().notes or (has_logs and _differs(whole, columns, stated))):
        return whole
    known = table.stored_schema().with_meta()
    if all(each in known for each in columns):
        return _by_rows(table, path, slices, columns)
    findings.add(MetadataProblem.LOOSE, path, path, "not compared: it has statistics of members of structs")
    return None


def _differs(described: Described, columns: Columns, stated: dict[str, pa.Table]) -> bool:
    tried = Findings(PARTITION_STATS)
    check_bounds([described], columns, stated, tried)
    return bool(tried.done().differences)


def _by_rows(table: HudiTable, path: str, slices: Sequence[FileSlice], columns: Columns) -> Described:
    def of(slice_: FileSlice) -> list[ColumnSummary]:
        found: list[ColumnSummary] = []
        for rows in read_slice(table, slice_, columns=list(columns)):
            found = merged([*found, *summaries_of_rows(pa.Table.from_batches([rows]), columns)])
        return found

    return _together(path, itertools.chain.from_iterable(table.context.threads.map(of, slices)))


def _together(path: str, summaries: Iterable[ColumnSummary]) -> Described:
    return Described(path, path, {each.column: each for each in merged(summaries)})


def _described(facts: Iterable[FileFacts], findings: Findings) -> Iterator[Described]:
    """Files whose facts are sure."""
    for each in facts:
        if each.summaries:
            yield Described(each.partition_path, each.name, {summary.column: summary for summary in each.summaries})
        else:
            findings.add(
                MetadataProblem.LOOSE, each.partition_path, each.name, "not compared: what readers find is not sure"
            )


def _note_stale(metadata: MetadataTable, partition: str, live: pa.Array | pa.ChunkedArray, findings: Findings) -> None:
    """Names whose records stay although nothing has that name: no query asks for them. Hudi 0.15 leaves such records
    of files that it cleans."""
    stale: Collection[str] = set()
    for group in metadata.group_readers(partition):
        _, records = alive(*latest(group.entries(column=STATS_MEMBER), STATS_MEMBER))
        if len(records):
            names = pc.struct_field(records, "fileName")
            stale = {*stale, *pc.unique(names.filter(pc.invert(pc.is_in(names, value_set=live)))).to_pylist()}
    for name in sorted(stale):
        findings.add(MetadataProblem.STALE, "", name, "statistics of what is no longer listed")
