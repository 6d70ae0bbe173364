"""Which file slices the indexes over expressions leave: where a filter compares an expression with constants.

Sessions of Spark that wrote an index had a time zone that is not known: bounds of times are widened by what zones
differ, and Bloom filters of them are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.arrow import arrow_type
from skep_format.table_config import MergeMode
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import EXPRESSION, short_name
from skep_table.metadata_table.records.expression_index import ExpressionIndex, known_expressions, texts_of
from skep_table.query.filters.predicate import Bounds, Predicate
from skep_table.query.pruning.slices import bounds_of_slices, files_of_slices, in_byte_order
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def prune_by_expressions(
    table: HudiTable, metadata: MetadataTable, slices: Sequence[FileSlice], predicate: Predicate
) -> Iterator[tuple[str, list[FileSlice]]]:
    """The slices that are left after each index that the filter is about, with how explanations name the index."""
    if table.config.merge_mode is MergeMode.CUSTOM and table.config.is_mor:
        return  # a merger of the user's own may make values that no file has
    columns = {column.path: column for column in predicate.compared_columns}
    left = list(slices)
    for index in _indexes(table, metadata):
        column = columns.get((index.column,))
        if column is None or column.type != arrow_type(index.expression.source):
            continue
        wanted = predicate.of_expression(index.expression, column, index.partition)
        kept = None if wanted is None or not left else _kept(metadata, index, wanted, left)
        if kept is not None:
            left = [slice_ for slice_, may in zip(left, kept, strict=True) if may]
            yield f"by the expression index {short_name(index.partition)}", left


def _indexes(table: HudiTable, metadata: MetadataTable) -> list[ExpressionIndex]:
    if not EXPRESSION.among(metadata.indexes):
        return []
    version = table.format.metadata.column_stats_version
    return list(known_expressions(metadata.definitions, sorted(metadata.indexes), table.stored_schema(), version))


def _kept(
    metadata: MetadataTable, index: ExpressionIndex, predicate: Predicate, slices: Sequence[FileSlice]
) -> Sequence[bool] | None:
    """Which slices can have a row that matches; None where the index does not serve the filter."""
    if index.has_filters:
        return _by_filters(metadata, index, predicate, slices)
    files = files_of_slices(slices)
    kind = arrow_type(index.expression.result)
    rows = metadata.statistics_of_files(index.column, kind, [(path, name) for _, path, name in files], index.partition)
    if rows is None:
        return None
    found = bounds_of_slices(in_byte_order(rows) if pa.types.is_string(kind) else rows, files, len(slices))
    bounds = index.expression.widened(found.lowest, found.highest)
    if bounds is None:
        return None
    # Hudi counts the values without nulls here: their number does not show whether there are any.
    known = Bounds(*bounds, found.nulls, pa.nulls(len(slices), pa.int64()))
    return [bool(may) for may in predicate.may_match({(index.partition,): known}, len(slices))]


def _by_filters(
    metadata: MetadataTable, index: ExpressionIndex, predicate: Predicate, slices: Sequence[FileSlice]
) -> Sequence[bool] | None:
    values = None if index.expression.zoned else predicate.equal_values((index.partition,))
    if values is None:
        return None
    texts = texts_of(values)
    files = files_of_slices(slices)
    filters = metadata.bloom([(path, name) for _, path, name in files], index.partition) or {}
    kept = [False] * len(slices)
    for at, path, name in files:
        stated = filters.get((path, name))
        kept[at] = kept[at] or stated is None or bool(pc.any(stated.might_contain(texts)).as_py())
    return kept
