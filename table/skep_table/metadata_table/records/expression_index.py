"""Indexes over expressions by their definitions, and their records: statistics or Bloom filters (format guide 16.8).

Statistics have the keys of column statistics, by the name of the column that the expression is over; those of whole
partitions lie among them, by a word between column and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.bloom import BloomBuilder, BloomKind
from skep_format.errors import InputError, SchemaError, UnsupportedError
from skep_format.expressions import Expression, expression_of
from skep_format.schema.types import Schema
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.keys import column_key, partitions_key
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, EXPRESSION, PARTITION_STATS, SINGLE
from skep_table.metadata_table.records.build import PartitionUpdate
from skep_table.metadata_table.records.column_stats import partition_stats_update
from skep_table.metadata_table.records.summaries import ColumnSummary

FUNCTION: Final = "expr"
"""The option of a definition that has the name of the function, as CREATE INDEX was given it."""

_TYPE, _ENTRIES, _RATE, _MOST_ENTRIES = "filtertype", "numentries", "fpp", "maxentries"
FILTER_OPTIONS: Final = (_TYPE, _ENTRIES, _RATE, _MOST_ENTRIES)
"""The options of Bloom filters that a definition may have."""


@dataclass(frozen=True)
class ExpressionIndex:
    """An index of the values of an expression over a column: of their bounds, or of Bloom filters of them."""

    definition: IndexDefinition
    expression: Expression

    @property
    def partition(self) -> str:
        """The partition of the metadata table."""
        return self.definition.name

    @property
    def column(self) -> str:
        """The column that the expression is over."""
        return self.definition.source_fields[0]

    @property
    def has_filters(self) -> bool:
        """Whether it has Bloom filters."""
        return self.definition.index_type == BLOOM_FILTERS

    def new_filter(self) -> BloomBuilder:
        """An empty Bloom filter. OptionError for a size that none can have."""
        given, usual = self.definition.options, BloomBuilder()
        return BloomBuilder(
            BloomKind(given.get(_TYPE, usual.kind.value)),
            int(given.get(_ENTRIES, usual.entries)),
            float(given.get(_RATE, usual.fpp)),
            int(given.get(_MOST_ENTRIES, usual.max_entries)),
        )


def known_expressions(
    definitions: Mapping[str, IndexDefinition], partitions: Iterable[str], schema: Schema, version: str | None
) -> Iterator[ExpressionIndex]:
    """Those among the partitions of a metadata table whose entries can be computed as Spark does.

    `version` is that of the table's indexes: others have another layout.
    """
    for name in EXPRESSION.among(partitions):
        definition = definitions.get(name)
        if definition is not None and definition.version == version:
            # Some have a function, or are of a type, of which the values of Spark are not known here.
            with suppress(InputError, SchemaError, UnsupportedError):
                yield expression_index(replace(definition, name=name), schema)


def expression_index(definition: IndexDefinition, schema: Schema) -> ExpressionIndex:
    """The index that a definition states, over columns of `schema`.

    SchemaError without the column, InputError for options that do not fit, UnsupportedError for functions, types and
    options of which the values of Spark are not known here.
    """
    if len(definition.source_fields) != 1:
        found = ", ".join(definition.source_fields) or "none"
        raise InputError(f"an index over an expression is of one column, found {found}", found=found)
    (column,) = definition.source_fields
    if column not in schema:
        known = ", ".join(field.name for field in schema.fields)
        raise SchemaError(f"no column {column} for an index", column=column, found=column, expected=known)
    given = {name: value for name, value in definition.options.items() if name != FUNCTION}
    if definition.index_type == BLOOM_FILTERS:
        _check_filter({name: given.pop(name) for name in FILTER_OPTIONS if name in given})
    elif definition.index_type != COLUMN_STATS:
        kind = definition.index_type
        raise UnsupportedError(
            f"indexes over expressions by {kind} are not supported",
            found=kind,
            expected=f"{COLUMN_STATS}, {BLOOM_FILTERS}",
        )
    return ExpressionIndex(definition, expression_of(definition.function.lower(), given, schema[column].type))


def _check_filter(options: Mapping[str, str]) -> None:
    kinds = [each.value for each in BloomKind]
    if options.get(_TYPE, kinds[0]) not in kinds:
        raise InputError(
            f"{options[_TYPE]} is no kind of Bloom filter", found=options[_TYPE], expected=", ".join(kinds)
        )
    for name in (_ENTRIES, _RATE, _MOST_ENTRIES):
        value = options.get(name, "1")
        try:
            fits = 0 < float(value) < 1 if name == _RATE and name in options else int(value) > 0
        except ValueError:
            fits = False
        if not fits:
            raise InputError(f"{name}={value} is no option of a Bloom filter", found=value)


def has_empty(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether an empty text is among them, which no Bloom filter can have."""
    return pc.any(pc.equal(texts, "")).as_py() is True


def texts_of(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as Bloom filters have them: as Java writes them as text."""
    return values.drop_null().cast(pa.string())


# -- records -----------------------------------------------------------------------------------------------------------


def expression_partitions_update(
    index: ExpressionIndex, written: Mapping[str, ColumnSummary], ended: Sequence[str], release: str
) -> PartitionUpdate:
    """The summaries of all files of whole partitions; those of partitions that have none end."""
    of_paths = {path: [summary] for path, summary in written.items()}
    column = index.column
    update = partition_stats_update(of_paths, ended, [column], release)
    puts = update.puts.set_column(0, "key", _of_partitions(update.puts["key"].combine_chunks(), column))
    return replace(update, partition=index.partition, puts=puts, deletes=_of_partitions(update.deletes, column))


def joined(updates: Iterable[PartitionUpdate]) -> PartitionUpdate:
    """Updates of different keys of one partition as one."""
    listed = list(updates)
    puts = pa.concat_tables([each.puts for each in listed]).combine_chunks()
    deletes = pa.concat_arrays([each.deletes for each in listed])
    return replace(
        listed[0],
        puts=puts.take(pc.sort_indices(puts["key"])),
        deletes=deletes.take(pc.sort_indices(deletes)),
    )


def numbers_of_statistics(keys: pa.Array, number: int) -> pa.Array:
    """The `type` of each record of statistics in such an index: `number`, or that of statistics of partitions."""
    of_partitions = SINGLE[PARTITION_STATS]
    word = partitions_key("")[len(column_key("")) :]  # not with the module: tasks have no xxhash
    is_whole = pc.equal(pc.utf8_slice_codeunits(keys, len(word), 2 * len(word)), word)
    return pc.if_else(is_whole, np.int32(of_partitions.number), np.int32(number)).cast(pa.int32())


def _of_partitions(keys: pa.Array, column: str) -> pa.Array:
    return pc.replace_substring(keys, column_key(column), partitions_key(column), max_replacements=1)
