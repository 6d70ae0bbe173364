"""Statistics of columns, of partitions and of expressions against what the files hold, some files at a time.

Wider ones are loose, narrower wrong. By narrower bounds, and by counts that hide nulls or values, a query leaves out
files whose rows it needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.names import LogFileName
from skep_format.schema.arrow import arrow_type
from skep_format.storage import FileStatus
from skep_table.keys.text import single
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS
from skep_table.metadata_table.partitions import COLUMN_STATS, PARTITION_STATS, STATS_MEMBER
from skep_table.metadata_table.records.expression_index import ExpressionIndex
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged, summaries_of_rows
from skep_table.metadata_write.definitions import expression_indexes, stats_columns
from skep_table.metadata_write.facts.files import (
    ExpressionFacts,
    FileFacts,
    expression_facts,
    facts_of_files,
    texts_of_files,
)
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.slices import latest_slices
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_LONGEST: Final = 1024  # summaries cut texts there, so that longer ones can't be compared with them
# Java orders characters from there on in another way than their bytes are.
_BEYOND_PLAIN_ORDER: Final = r"[\x{d800}-\x{10ffff}]"
_Mask = npt.NDArray[np.bool_]
_FILES_AT_ONCE: Final = 256
_File = tuple[str, FileStatus]


@dataclass(frozen=True)
class Described:
    """A file or partition, with the summaries of its columns by name; a column that is not in it has only nulls.

    `path` is the partition path; the `name` of a partition is its path.
    """

    path: str
    name: str
    summaries: Mapping[str, ColumnSummary]

    def of(self, column: str) -> ColumnSummary:
        """The summary of a column."""
        rows = max((each.values for each in self.summaries.values()), default=0)
        return self.summaries.get(column) or ColumnSummary(column, None, None, None, rows, rows)


def check_bounds(
    described: Sequence[Described], columns: Columns, stated: Mapping[str, pa.Table], findings: Findings
) -> None:
    """Compares what is stated of files or partitions, by column and in their order, as
    `MetadataTable.statistics_of_files` returns it."""
    known = {column: _mask(pc.is_valid(single(stated[column]["value_count"]))) for column in columns}
    any_known = np.zeros(len(described), np.bool_)
    for mask in known.values():
        any_known |= mask
    for each in np.flatnonzero(~any_known).tolist():
        detail = "no statistics: queries look into it"
        findings.add(MetadataProblem.LOOSE, described[each].path, described[each].name, detail)
    for column, kind in columns.items():
        expected = _expected(described, column, arrow_type(kind))
        findings.checked += int(known[column].sum())
        for mask, problem, detail in _problems(expected, stated[column], known[column], any_known):
            for at in np.flatnonzero(mask).tolist():
                one, subject = described[at], f"{described[at].name} {column}"
                found = _text(stated[column], at) if known[column][at] else None
                findings.add(problem, one.path, subject, detail, found=found, expected=_text(expected, at))


def _expected(described: Sequence[Described], column: str, kind: pa.DataType) -> pa.Table:
    found = [each.of(column) for each in described]
    low, high = _typed([each.low for each in found], kind), _typed([each.high for each in found], kind)
    counts = (pa.array(each, pa.int64()) for each in ([s.values for s in found], [s.nulls for s in found]))
    return pa.table([low, high, *counts], ["min_value", "max_value", "value_count", "null_count"])


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Bounds as summaries have them, times and dates as numbers, in the type of the column."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _problems(
    expected: pa.Table, stated: pa.Table, known: _Mask, any_known: _Mask
) -> Iterator[tuple[_Mask, MetadataProblem, str]]:
    low, high = (single(expected[name]) for name in ("min_value", "max_value"))
    least, most = (single(stated[name]) for name in ("min_value", "max_value"))
    values, nulls = (single(expected[name]).to_numpy() for name in ("value_count", "null_count"))
    has_values, has_nulls = nulls < values, nulls > 0
    compared = known & _comparable(low, least) & _comparable(high, most)
    narrow = compared & (_mask(pc.greater(least, low)) | _mask(pc.less(most, high)) | _hides_nan(high, most))
    count = single(stated["null_count"])
    hides_nulls = known & has_nulls & _mask(pc.equal(count, 0))
    hides_values = known & has_values & _mask(pc.equal(count, single(stated["value_count"])))
    without_bounds = known & has_values & (_mask(pc.is_null(least)) | _mask(pc.is_null(most)))
    wide = compared & has_values & (_mask(pc.less(least, low)) | _mask(pc.greater(most, high)))
    other_nulls = _mask(pc.not_equal(count, single(expected["null_count"])))
    other_values = _mask(pc.not_equal(single(stated["value_count"]), single(expected["value_count"])))
    other_counts = known & ~hides_nulls & ~hides_values & (other_nulls | other_values)
    unstated, differs, loose = MetadataProblem.MISSING, MetadataProblem.DIFFERS, MetadataProblem.LOOSE
    yield ~known & any_known & has_values, unstated, "without a record beside others it counts as all null"
    yield narrow, differs, "narrower than the values: queries lose rows"
    yield hides_nulls, differs, "the count of nulls hides nulls: queries for them lose rows"
    yield hides_values, differs, "the counts hide all values: queries lose rows"
    yield without_bounds & ~hides_values, loose, "no bounds: skep reads it, Hudi takes all values to be null"
    yield wide & ~narrow, loose, "wider than the values"
    yield other_counts, loose, "other counts"


def _hides_nan(high: pa.Array, most: pa.Array) -> _Mask:
    """Whether there is a NaN, which Spark orders behind all numbers, and a number is stated as the largest value."""
    if not pa.types.is_floating(high.type):
        return np.zeros(len(high), np.bool_)
    return _mask(pc.is_nan(high)) & _mask(pc.is_valid(most))


def _comparable(ours: pa.Array, theirs: pa.Array) -> _Mask:
    """Without long texts and those beyond the plain order."""
    if not (pa.types.is_string(ours.type) or pa.types.is_binary(ours.type)):
        return np.ones(len(ours), np.bool_)
    length = pc.utf8_length if pa.types.is_string(ours.type) else pc.binary_length
    fits = ~_mask(pc.greater(length(theirs), _LONGEST))
    if pa.types.is_binary(ours.type):
        return fits
    odd = (_mask(pc.match_substring_regex(texts, _BEYOND_PLAIN_ORDER)) for texts in (ours, theirs))
    return fits & ~np.logical_or(*odd)


def _text(table: pa.Table, row: int) -> str:
    names = ("min_value", "max_value", "null_count", "value_count")
    low, high, nulls, values = (table[name][row].as_py() for name in names)
    return f"{low!s} … {high!s}, {nulls} of {values} null"


def _mask(mask: pa.Array) -> _Mask:
    found: _Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def check_column_stats(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares those of the files of the latest slices. Records of files that are no longer listed are a note."""
    columns = stats_columns(table)
    every = itertools.chain.from_iterable(files for _, files in _files_by_partition(table))
    while files := list(itertools.islice(every, _FILES_AT_ONCE)):
        found = list(_described(facts_of_files(table, files, columns, blooms=False), findings))
        names = [(each.path, each.name) for each in found]
        check_bounds(found, columns, _stated(columns, metadata.statistics_of_files, names), findings)
    listed = metadata.all_files()
    is_file = pc.not_equal(listed["key"], ALL_PARTITIONS)
    _note_stale(metadata, COLUMN_STATS, listed["name"].filter(is_file), findings)


def check_partition_stats(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares those of all partitions with the rows in their latest slices."""
    columns = stats_columns(table)
    for path, slices in _by_partition(table):
        stated = _stated(columns, metadata.statistics_of_partitions, [path])
        described = _partition(table, path, slices, columns, stated, findings)
        if described is not None:
            check_bounds([described], columns, stated, findings)
    _note_stale(metadata, PARTITION_STATS, pa.array(metadata.partitions(), pa.string()), findings)


def _by_partition(table: HudiTable) -> Iterator[tuple[str, list[FileSlice]]]:
    for path, slices in itertools.groupby(latest_slices(table), key=lambda slice_: slice_.partition_path):
        yield path, list(slices)


def _files_by_partition(table: HudiTable) -> Iterator[tuple[str, list[_File]]]:
    for path, slices in _by_partition(table):
        yield path, _files(slices)


def _files(slices: Iterable[FileSlice]) -> list[_File]:
    return [(slice_.partition_path, file) for slice_ in slices for file in slice_.files]


def _stated(
    columns: Columns, statistics: Callable[[str, pa.DataType, list[Any]], pa.Table | None], names: list[Any]
) -> dict[str, pa.Table]:
    """What is stated of files or partitions, by column."""
    found = ((column, statistics(column, arrow_type(kind), names)) for column, kind in columns.items())
    return {column: stats for column, stats in found if stats is not None}


def _partition(
    table: HudiTable,
    path: str,
    slices: Sequence[FileSlice],
    columns: Columns,
    stated: dict[str, pa.Table],
    findings: Findings,
) -> Described | None:
    """By the facts of its files, or by merged rows, where these hold more than is stated and logs may replace rows."""
    unsure, tried = Findings(findings.partition), Findings(findings.partition)
    found = list(_described(facts_of_files(table, _files(slices), columns, blooms=False), unsure))
    whole = _together(path, (each.of(column) for each in found for column in columns))
    if not unsure.done().notes and any(slice_.log_files for slice_ in slices):
        check_bounds([whole], columns, stated, tried)
    if not (unsure.done().notes or tried.done().differences):
        return whole
    known = table.stored_schema().with_meta()
    if all(each in known for each in columns):
        return _by_rows(table, path, slices, columns)
    findings.add(MetadataProblem.LOOSE, path, path, "not compared: it has statistics of members of structs")
    return None


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
            detail = "not compared: what readers find is not sure"
            findings.add(MetadataProblem.LOOSE, each.partition_path, each.name, detail)


def _note_stale(metadata: MetadataTable, partition: str, live: pa.Array | pa.ChunkedArray, findings: Findings) -> None:
    """Names whose records stay although nothing has that name: no query asks for them. Hudi 0.15 leaves such records
    of files that it cleans."""
    stale: set[str] = set()
    for group in metadata.group_readers(partition):
        _, records = alive(*latest(group.entries(column=STATS_MEMBER), STATS_MEMBER))
        if len(records):
            names = pc.struct_field(records, "fileName")
            stale.update(pc.unique(names.filter(pc.invert(pc.is_in(names, value_set=live)))).to_pylist())
    for name in sorted(stale):
        findings.add(MetadataProblem.STALE, "", name, "statistics of what is no longer listed")


def check_expression_index(table: HudiTable, metadata: MetadataTable, findings: Findings) -> bool:
    """Compares all of the index: bounds of files and partitions, or Bloom filters of files. Whether the values of its
    expression are known here."""
    index = next((each for each in expression_indexes(table) if each.partition == findings.partition), None)
    if index is None:
        return False
    for path, files in _files_by_partition(table):
        if index.has_filters:
            _check_filters(table, metadata, index, files, findings)
        else:
            _check_statistics(table, metadata, index, path, files, findings)
    return True


def _check_statistics(
    table: HudiTable,
    metadata: MetadataTable,
    index: ExpressionIndex,
    path: str,
    files: Sequence[_File],
    findings: Findings,
) -> None:
    whole: list[ColumnSummary] = []
    sure = True
    kind = arrow_type(index.expression.result)
    for at in range(0, len(files), _FILES_AT_ONCE):
        facts = expression_facts(table, files[at : at + _FILES_AT_ONCE], [index])
        found, unsure = _described_values(facts, index, findings)
        sure = sure and not unsure
        whole = merged([*whole, *(each.of(index.column) for each in found)])
        places = [(each.path, each.name) for each in found]
        stated = metadata.statistics_of_files(index.column, kind, places, index.partition)
        _compare(found, index, stated, findings)
    stated = metadata.statistics_of_partitions(index.column, kind, [path], index.partition)
    if not table.config.partition_fields or not sure or not whole or stated is None:
        return
    if stated["value_count"][0].is_valid:  # without statistics queries look into the partition
        _compare([Described(path, path, {index.column: whole[0]})], index, stated, findings)


def _described_values(
    facts: Iterator[ExpressionFacts], index: ExpressionIndex, findings: Findings
) -> tuple[list[Described], bool]:
    """The files that have rows and whose values are sure, and whether there are others that are not sure."""
    found, unsure = [], False
    for each in facts:
        summary = each.summaries.get(index.partition)
        if summary is None:
            unsure = True
            findings.add(MetadataProblem.LOOSE, each.partition_path, each.name, "not compared: the values are not sure")
        elif summary.values + summary.nulls:
            whole = replace(summary, values=summary.values + summary.nulls)
            found.append(Described(each.partition_path, each.name, {index.column: whole}))
    return found, unsure


def _compare(found: Sequence[Described], index: ExpressionIndex, stated: pa.Table | None, findings: Findings) -> None:
    if not found or stated is None:
        return
    # These indexes count values without nulls.
    at = stated.schema.get_field_index("value_count")
    every = pc.add(stated["value_count"], stated["null_count"])
    columns = {index.column: index.expression.result}
    check_bounds(found, columns, {index.column: stated.set_column(at, "value_count", every)}, findings)


def _check_filters(
    table: HudiTable, metadata: MetadataTable, index: ExpressionIndex, files: Sequence[_File], findings: Findings
) -> None:
    logs = ((file, LogFileName.parse(file[1].name)) for file in files)
    data = [file for file, log_file in logs if log_file is None or not log_file.cdc]
    filters = metadata.bloom([(path, file.name) for path, file in data], index.partition) or {}
    for (path, file), texts in zip(data, texts_of_files(table, data, index), strict=True):
        findings.checked += 1
        stated = filters.get((path, file.name))
        if texts is None:
            findings.add(MetadataProblem.LOOSE, path, file.name, "not compared: a value is empty, or not sure")
        elif stated is None:
            if len(texts):
                findings.add(MetadataProblem.LOOSE, path, file.name, "no filter: queries look into it")
        elif len(lacking := stated.lacking(texts)):
            detail = f"the filter lacks {len(lacking)} values of the file, {lacking[0].as_py()} among them"
            findings.add(MetadataProblem.DIFFERS, path, file.name, detail)
