"""An index over an expression against the values that it has in the files of the latest slices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.names import LogFileName
from skep_format.schema.arrow import arrow_type
from skep_format.storage import FileStatus
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.records.expression_index import ExpressionIndex
from skep_table.metadata_table.records.summaries import ColumnSummary, merged
from skep_table.metadata_write.definitions import expression_indexes
from skep_table.metadata_write.facts.files import ExpressionFacts, expression_facts, texts_of_files
from skep_table.services.metadata_check.bounds import Described, check_bounds
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.slices import latest_slices
from skep_table.table import HudiTable

_FILES_AT_ONCE: Final = 256
_File = tuple[str, FileStatus]


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


def _files_by_partition(table: HudiTable) -> Iterator[tuple[str, list[_File]]]:
    for path, slices in itertools.groupby(latest_slices(table), key=lambda slice_: slice_.partition_path):
        yield path, [(path, file) for slice_ in slices for file in slice_.files]


# -- statistics --------------------------------------------------------------------------------------------------------


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
        found, unsure = _described(expression_facts(table, files[at : at + _FILES_AT_ONCE], [index]), index, findings)
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


def _described(
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


# -- Bloom filters -----------------------------------------------------------------------------------------------------


def _check_filters(
    table: HudiTable, metadata: MetadataTable, index: ExpressionIndex, files: Sequence[_File], findings: Findings
) -> None:
    data = [file for file in files if not _is_cdc(file[1].name)]
    filters = metadata.bloom([(path, file.name) for path, file in data], index.partition) or {}
    for (path, file), texts in zip(data, texts_of_files(table, data, index), strict=True):
        findings.checked += 1
        stated = filters.get((path, file.name))
        if texts is None:
            findings.add(MetadataProblem.LOOSE, path, file.name, "not compared: a value is empty, or not sure")
        elif stated is None:
            if len(texts):
                findings.add(MetadataProblem.LOOSE, path, file.name, "no filter: queries look into it")
        else:
            lacking = pc.invert(stated.might_contain(texts))
            if pc.any(lacking).as_py():
                first = texts.filter(lacking)[0].as_py()
                detail = f"the filter lacks {pc.sum(lacking).as_py()} values of the file, {first} among them"
                findings.add(MetadataProblem.DIFFERS, path, file.name, detail)


def _is_cdc(name: str) -> bool:
    log_file = LogFileName.parse(name)
    return log_file is not None and log_file.cdc
