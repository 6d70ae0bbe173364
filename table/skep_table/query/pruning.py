"""Which file slices a filter leaves: by the metadata table's indexes where there are some, else by base file footers.

A slice with log files is never left out by its base file's keys: the logs may hold others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.basefile import BaseFileFooter, read_footer
from skep_table.query.predicate import Predicate
from skep_table.runner import ThreadRunner
from skep_table.schema.types import RECORD_KEY
from skep_table.storage import Storage
from skep_table.table_config import TableConfig
from skep_table.view import FileSlice

MOST_KEYS: Final = 10_000
_BEYOND_PLAIN_ORDER: Final = r"[\x{d800}-\x{10ffff}]"
_PLAIN_KEY: Final = frozenset({"SIMPLE", "NON_PARTITION", "TIMESTAMP", "CUSTOM"})


def prune_by_keys(storage: Storage, slices: Sequence[FileSlice], keys: pa.Array) -> list[FileSlice]:
    """The slices that may hold one of the record keys, by the range and the bloom filter in their base file's
    footer."""

    def may_hold(found: FileSlice) -> bool:
        if found.base_file is None or found.log_files:
            return True
        return footer_may_hold(read_footer(storage, found.base_file.path), keys)

    kept = ThreadRunner().map(may_hold, slices)
    return [found for found, wanted in zip(slices, kept, strict=True) if wanted]


def footer_may_hold(footer: BaseFileFooter, keys: pa.Array) -> bool:
    """Whether one of the keys may be in the file."""
    low, high = footer.min_key, footer.max_key
    if low is not None and high is not None and _in_plain_order(keys, low, high):
        keys = keys.filter(pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high)))
    if not len(keys):
        return False
    return footer.bloom is None or bool(pc.any(footer.bloom.might_contain(keys)).as_py())


def _in_plain_order(keys: pa.Array, low: str, high: str) -> bool:
    # Java writers compare keys by UTF-16 units: beyond U+D7FF that is another order than that of the bytes.
    texts = pa.concat_arrays([keys.cast(pa.string()), pa.array([low, high])])
    return not pc.any(pc.match_substring_regex(texts, _BEYOND_PLAIN_ORDER)).as_py()


def record_keys(predicate: Predicate, config: TableConfig) -> pa.Array | None:
    """The record keys that rows can only have where the filter holds; None when it doesn't bind them to a few."""
    stated = predicate.equal_values((RECORD_KEY,))
    if stated is not None:
        return stated.cast(pa.string()) if len(stated) <= MOST_KEYS else None
    fields = config.record_key_fields
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
