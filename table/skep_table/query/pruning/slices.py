"""Which file slices a filter leaves: by the metadata table's indexes where there are some, else by base file footers.

Every step may keep a slice for nothing, none may lose a row. The log files of a slice are never left out by the keys of
its base file: the logs may hold others. Sessions of Spark that wrote an index over an expression had a time zone that
is not known: bounds of times are widened by what zones differ, and Bloom filters of them are not used.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import BaseFileFooter, read_footer
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import arrow_type
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import Storage
from skep_format.table_config import MergeMode, TableConfig
from skep_table.keys.buckets import BUCKET_NAMES, BUCKET_PRUNING, Buckets
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import EXPRESSION, short_name
from skep_table.metadata_table.records.expression_index import ExpressionIndex, known_expressions, texts_of
from skep_table.query.filters.predicate import Bounds, ColumnRef, Predicate
from skep_table.table import HudiTable
from skep_table.view import FileSlice

MOST_KEYS: Final = 10_000
_BEYOND_PLAIN_ORDER: Final = r"[\x{d800}-\x{10ffff}]"
_PLAIN_KEY: Final = frozenset({"SIMPLE", "NON_PARTITION", "TIMESTAMP", "CUSTOM"})
_KNOWN_KEYS: Final = _PLAIN_KEY | {"COMPLEX", "GLOBAL_DELETE", None}


def prune_by_statistics(
    metadata: MetadataTable | None, slices: Sequence[FileSlice], predicate: Predicate, config: TableConfig
) -> list[FileSlice]:
    """The slices that the metadata table's column statistics can't exclude."""
    if metadata is None or not slices:
        return list(slices)
    files = files_of_slices(slices)
    found = ((column.path, _bounds(metadata, column, files, len(slices))) for column in predicate.compared_columns)
    wanted = predicate.may_match({path: known for path, known in found if known is not None}, len(slices))
    # A merger of the user's own may make values that no file has.
    makes_values = config.merge_mode is MergeMode.CUSTOM
    return [
        slice_
        for slice_, may in zip(slices, wanted.tolist(), strict=True)
        if may or (makes_values and slice_.log_files)
    ]


def files_of_slices(slices: Sequence[FileSlice]) -> list[tuple[int, str, str]]:
    """The files of slices as (number of the slice, partition path, file name)."""
    return [(at, slice_.partition_path, file.name) for at, slice_ in enumerate(slices) for file in slice_.files]


def _bounds(
    metadata: MetadataTable, column: ColumnRef, files: Sequence[tuple[int, str, str]], count: int
) -> Bounds | None:
    """Statistics of a column by slice: over all its files, unknown where one of them has none."""
    rows = metadata.statistics_of_files(".".join(column.path), column.type, [(path, name) for _, path, name in files])
    if rows is None:
        return None
    if pa.types.is_string(column.type):
        rows = in_byte_order(rows)
    if pa.types.is_binary(column.type):
        rows = _without_bounds(rows)  # Java compares bytes as signed numbers
    return bounds_of_slices(rows, files, count)


def bounds_of_slices(rows: pa.Table, files: Sequence[tuple[int, str, str]], count: int) -> Bounds:
    """Statistics of `files`, a row for each, over all files of each of `count` slices; unknown where one has none."""
    rows = rows.append_column("slice", pa.array([at for at, _, _ in files], pa.int64()))
    strict = pc.ScalarAggregateOptions(skip_nulls=False)
    merged = rows.group_by("slice").aggregate(
        [
            ("min_value", "min", strict),
            ("max_value", "max", strict),
            ("null_count", "sum", strict),
            ("value_count", "sum", strict),
        ]
    )
    order = pc.index_in(pa.array(range(count), pa.int64()), value_set=merged["slice"].combine_chunks())
    found = (merged[name].combine_chunks().take(order) for name in _AGGREGATED)
    return Bounds(*found)


_AGGREGATED: Final = ("min_value_min", "max_value_max", "null_count_sum", "value_count_sum")


def _without_bounds(stats: pa.Table) -> pa.Table:
    none = pa.nulls(len(stats), stats.schema.field("min_value").type)
    return stats.set_column(stats.schema.get_field_index("min_value"), "min_value", none).set_column(
        stats.schema.get_field_index("max_value"), "max_value", none
    )


def in_byte_order(stats: pa.Table) -> pa.Table:
    """Statistics of text without those that may come from another order than that of the bytes (UTF-16 units)."""
    odd = pc.or_(
        pc.match_substring_regex(stats["min_value"], _BEYOND_PLAIN_ORDER).fill_null(False),
        pc.match_substring_regex(stats["max_value"], _BEYOND_PLAIN_ORDER).fill_null(False),
    )
    for name in ("min_value", "max_value"):
        at = stats.schema.get_field_index(name)
        stats = stats.set_column(at, name, pc.if_else(odd, pa.scalar(None, stats[name].type), stats[name]))
    return stats


def prune_by_keys(
    storage: Storage, slices: Sequence[FileSlice], keys: pa.Array, metadata: MetadataTable | None = None
) -> list[FileSlice]:
    """What may hold one of the record keys, by range and bloom filter of the base files: of a slice whose base file has
    none of them only the logs are left, which may hold others.

    The filters of the metadata table spare the footers.
    """
    names = [_base_name(found) for found in slices if found.base_file is not None]
    filters = (metadata.bloom(names) if metadata is not None else None) or {}
    sought = _Sought(keys)

    def may_hold(found: FileSlice) -> bool:
        if found.base_file is None:
            return True
        bloom = filters.get(_base_name(found))
        if bloom is not None:
            return bool(pc.any(bloom.might_contain(keys)).as_py())
        return sought.may_be_in(read_footer(storage, found.base_file.path))

    kept = ThreadRunner().map(may_hold, slices)
    left = (found if wanted else replace(found, base_file=None) for found, wanted in zip(slices, kept, strict=True))
    return [found for found in left if found.base_file is not None or found.log_files]


def _base_name(found: FileSlice) -> tuple[str, str]:
    return found.partition_path, found.base_file.path.rpartition("/")[2] if found.base_file else ""


class _Sought:
    """The record keys that are looked for, arranged once for the key ranges of many files."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.cast(pa.string()).drop_null()
        self._texts = sorted(self._keys.to_pylist())
        self._plain = _in_plain_order(*self._texts)

    def may_be_in(self, footer: BaseFileFooter) -> bool:
        """Whether one of the keys may be in the file."""
        keys, low, high = self._keys, footer.min_key, footer.max_key
        if low is not None and high is not None and self._plain and _in_plain_order(low, high):
            start, end = bisect_left(self._texts, low), bisect_right(self._texts, high)
            if end - start < len(keys):
                keys = pa.array(self._texts[start:end], pa.string())
        if not len(keys):
            return False
        return footer.bloom is None or bool(pc.any(footer.bloom.might_contain(keys)).as_py())


def _in_plain_order(*texts: str) -> bool:
    # Java writers compare keys by UTF-16 units: beyond U+D7FF that is another order than that of the characters.
    return all(text.isascii() or max(text) < "\ud800" for text in texts)


def record_keys(predicate: Predicate, config: TableConfig) -> pa.Array | None:
    """The record keys that rows can only have where the filter holds; None when it doesn't bind them to a few, or a
    generator that Hudi does not have spells them.
    """
    stated = predicate.equal_values((RECORD_KEY,))
    if stated is not None:
        return stated.cast(pa.string()) if len(stated) <= MOST_KEYS else None
    fields = config.record_key_fields if config.key_generator in _KNOWN_KEYS else ()
    bound = (predicate.equal_values(tuple(field.split("."))) for field in fields)
    columns = [text for values in bound if values is not None and (text := _key_text(values)) is not None]
    if not fields or len(columns) < len(fields) or _product_size(columns) > MOST_KEYS:
        return None
    if len(fields) == 1 and config.key_generator in _PLAIN_KEY:
        return columns[0]
    named = (
        [f"{field}:{value or '__empty__'}" for value in column.to_pylist()]
        for field, column in zip(fields, columns, strict=True)
    )
    keys = [",".join(parts) for parts in itertools.product(*named)]
    # Some releases write the complex key of a single field without the field's name.
    return pa.array(keys + (columns[0].to_pylist() if len(fields) == 1 else []), pa.string())


def prune_by_buckets(
    slices: Sequence[FileSlice], predicate: Predicate, config: TableConfig, options: Mapping[str, str]
) -> list[FileSlice]:
    """The slices of the buckets that rows can be in where the filter holds, in a table that is written by buckets."""
    buckets = Buckets.known(config, options)
    if buckets is None or not Options(options).value(BUCKET_PRUNING):
        return list(slices)
    bound = [predicate.equal_values(tuple(field.split("."))) for field in buckets.fields]
    values = [text for each in bound if each is not None and (text := _key_text(each)) is not None]
    if len(values) < len(bound) or _product_size(values) > MOST_KEYS:
        return list(slices)
    numbers = buckets.numbers(values)
    found = [(slice_, BUCKET_NAMES.number_of(slice_.file_id)) for slice_ in slices]
    if not all(number is not None and number < buckets.count for _, number in found):
        return list(slices)  # a writer used another index, or another number of buckets
    return [slice_ for slice_, number in found if number in numbers]


def _product_size(columns: Sequence[pa.Array]) -> int:
    size = 1
    for column in columns:
        size *= max(1, len(column))
    return size


def _key_text(values: pa.Array) -> pa.Array | None:
    """Values as record keys spell them; None for types whose spelling depends on settings."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return values.cast(pa.string())
    return None


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
