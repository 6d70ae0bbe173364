"""Partition columns: where a query takes their values from, and which partitions a filter needs.

Hudi's releases differ, and a table is answered as the release that writes its version answers. From version 8 on the
value is the folder's name, but for fields that are formatted times; incremental queries do not decode what URL encoding
escaped. In version 6 snapshots (time travel too) of copy-on-write tables and read-optimized queries take it from the
folder; incremental queries, and snapshots of merge-on-read tables unless their files lack the column, from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_table.keys.partition_path import TIMESTAMP, folder_values, formatted_times
from skep_table.query.options import QueryType
from skep_table.query.predicate import Predicate
from skep_table.table_config import TableConfig, TableType

_CHANGES = (QueryType.INCREMENTAL, QueryType.CDC)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """How partition paths become column values. `columns` are those that the path gives; the file gives the others.

    `pruned_by` are the columns by which a filter leaves out partitions. `as_text` are columns of the file that are
    answered as text whatever their type.
    """

    fields: tuple[str, ...]
    columns: tuple[pa.Field, ...]
    hive_style: bool
    decode: bool
    pruned_by: tuple[pa.Field, ...] = ()
    as_text: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    def of(self, path: str) -> dict[str, pa.Scalar]:
        """The columns' values in one partition. A column is missing where its text is no value of its type."""
        return self._values(path, self.columns)

    def _values(self, path: str, columns: tuple[pa.Field, ...]) -> dict[str, pa.Scalar]:
        return folder_values(path, self.fields, columns, hive_style=self.hive_style, url_encode=self.decode)

    def select(self, paths: Sequence[str], predicate: Predicate | None) -> list[str]:
        """The partitions in which a row can match."""
        names_known = frozenset(column.name for column in self.pruned_by)
        weaker = predicate.weakened(names_known) if predicate is not None and names_known else None
        if weaker is None or not paths:
            return list(paths)
        names = tuple(column for column in self.pruned_by if column.name in weaker.columns)
        known = [self._values(path, names) for path in paths]
        table = pa.table(
            {
                column.name: pa.array([_python(values.get(column.name)) for values in known], column.type)
                for column in names
            }
        )
        matches = np.asarray(weaker.mask(table).fill_null(False))
        complete = np.array([all(column.name in values for column in names) for values in known])
        return [path for path, wanted in zip(paths, matches | ~complete, strict=True) if wanted]


def _python(value: pa.Scalar | None) -> object:
    return None if value is None else value.as_py()


def partition_values(
    config: TableConfig, schema: pa.Schema, query: QueryType, from_path: bool | None = None
) -> PartitionValues:
    """The rule for a query on a table; `from_path` True takes all values from the path, whatever the key generator."""
    fields = config.partition_fields
    undecoded = query in _CHANGES and config.version >= 8
    decode = config.url_encode and not undecoded
    if not all(name in schema.names for name in fields):
        return PartitionValues(fields, (), config.hive_style, decode)
    taken = [name for name in fields if from_path or _in_path(name, config, query)]
    told = [name for name in fields if name in taken or name not in formatted_times(config)]
    text = config.version >= 8 and config.key_generator == TIMESTAMP
    return PartitionValues(
        fields,
        tuple(_column(name, config, schema) for name in taken),
        config.hive_style,
        decode,
        tuple(_column(name, config, schema) for name in told) if query not in _CHANGES or taken else (),
        tuple(n for n in fields if text and n not in taken and not pa.types.is_string(schema.field(n).type)),
    )


def _in_path(name: str, config: TableConfig, query: QueryType) -> bool:
    if config.version >= 8:
        return name not in formatted_times(config)
    if config.type is TableType.MERGE_ON_READ and query is not QueryType.READ_OPTIMIZED:
        return config.drop_partition_columns
    return query not in _CHANGES


def _column(name: str, config: TableConfig, schema: pa.Schema) -> pa.Field:
    # A formatted time need not be a value of the column's type: Hudi makes the column text then.
    kind = pa.string() if config.key_generator == TIMESTAMP else schema.field(name).type
    return pa.field(name, kind)
