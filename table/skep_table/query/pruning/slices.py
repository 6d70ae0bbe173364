"""Which file slices a filter leaves: by the metadata table's indexes where there are some, else by base file footers.

Every step may keep a slice for nothing, none may lose a row. The log files of a slice are never left out by the keys of
its base file: the logs may hold others. Sessions of Spark that wrote an index over an expression had a time zone that
is not known: bounds of times are widened by what zones differ, and Bloom filters of them are not used.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_footer
from skep_format.names import FileGroupId
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
_AGGREGATED: Final = ("min_value_min", "max_value_max", "null_count_sum", "value_count_sum")


@dataclass(frozen=True, slots=True)
class PruningStep:
    """After the step `by`: how many file slices are left, of how many partitions.

    `logs_only` is the number of slices among them of which only the log files are left.
    """

    by: str
    slices: int
    partitions: int
    logs_only: int = 0


@dataclass(slots=True)
class Steps:
    """Collects the steps of one plan. `all_slices` are the slices of the query without its filter, by partition."""

    all_slices: Mapping[str, Sequence[FileSlice]] = field(default_factory=dict)
    found: list[PruningStep] = field(default_factory=list)

    def begin(self, all_slices: Mapping[str, Sequence[FileSlice]]) -> None:
        """Begins again: a plan is rebuilt where files were cleaned meanwhile."""
        self.all_slices = all_slices
        self.found = []
        self.left_partitions("in the table", all_slices)

    def left_partitions(self, by: str, partitions: Collection[str]) -> None:
        """A step that left these partitions, before their files were listed."""
        slices = sum(len(self.all_slices.get(path, ())) for path in partitions)
        self.found.append(PruningStep(by, slices, len(partitions)))

    def left_groups(self, by: str, groups: Collection[FileGroupId]) -> None:
        """A step that left these file groups, before files were listed."""
        slices = sum(slice_.group in groups for each in self.all_slices.values() for slice_ in each)
        self.found.append(PruningStep(by, slices, len({group.partition_path for group in groups})))

    def left_slices(self, by: str, slices: Sequence[FileSlice]) -> None:
        """A step that left these file slices."""
        logs_only = sum(slice_.base_file is None for slice_ in slices)
        self.found.append(PruningStep(by, len(slices), len({each.partition_path for each in slices}), logs_only))


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
        rows = _without_bounds(rows, pa.scalar(True))  # Java compares bytes as signed numbers
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


def in_byte_order(stats: pa.Table) -> pa.Table:
    """Statistics of text without those that may come from another order than that of the bytes (UTF-16 units)."""
    low, high = (
        pc.match_substring_regex(stats[name], _BEYOND_PLAIN_ORDER).fill_null(False)
        for name in ("min_value", "max_value")
    )
    return _without_bounds(stats, pc.or_(low, high))


def _without_bounds(stats: pa.Table, where: pa.Scalar | pa.ChunkedArray) -> pa.Table:
    for name in ("min_value", "max_value"):
        known = pc.if_else(where, pa.nulls(len(stats), stats[name].type), stats[name])
        stats = stats.set_column(stats.schema.get_field_index(name), name, known)
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
    sought = keys.cast(pa.string()).drop_null()
    texts = sorted(sought.to_pylist())  # arranged once for the key ranges of many files
    is_plain = _in_plain_order(*texts)

    def may_hold(found: FileSlice) -> bool:
        if found.base_file is None:
            return True
        bloom = filters.get(_base_name(found))
        if bloom is not None:
            return bool(pc.any(bloom.might_contain(keys)).as_py())
        footer = read_footer(storage, found.base_file.path)
        within, low, high = sought, footer.min_key, footer.max_key
        if low is not None and high is not None and is_plain and _in_plain_order(low, high):
            start, end = bisect_left(texts, low), bisect_right(texts, high)
            if end - start < len(sought):
                within = pa.array(texts[start:end], pa.string())
        if not len(within):
            return False
        return footer.bloom is None or bool(pc.any(footer.bloom.might_contain(within)).as_py())

    kept = ThreadRunner().map(may_hold, slices)
    left = (found if wanted else replace(found, base_file=None) for found, wanted in zip(slices, kept, strict=True))
    return [found for found in left if found.base_file is not None or found.log_files]


def _base_name(found: FileSlice) -> tuple[str, str]:
    return found.partition_path, found.base_file.path.rpartition("/")[2] if found.base_file else ""


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
    if not fields or len(columns) < len(fields) or prod(max(1, len(column)) for column in columns) > MOST_KEYS:
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
    if len(values) < len(bound) or prod(max(1, len(value)) for value in values) > MOST_KEYS:
        return list(slices)
    numbers = buckets.numbers(values)
    found = [(slice_, BUCKET_NAMES.number_of(slice_.file_id)) for slice_ in slices]
    if not all(number is not None and number < buckets.count for _, number in found):
        return list(slices)  # a writer used another index, or another number of buckets
    return [slice_ for slice_, number in found if number in numbers]


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
