"""Partition columns: where a query takes their values from, and which partitions a filter needs.

Hudi's releases differ, and a table is answered as the release that writes its version answers. Snapshots (time travel
and read-optimized queries too) take the value from the folder's name; from table version 8 on not for fields that are
formatted times. Incremental queries take it from the data file in version 6; from 8 on from the folder, without
decoding what URL encoding escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from skep_table.errors import FormatError
from skep_table.keys.partition_path import split_path
from skep_table.query.options import QueryType
from skep_table.query.predicate import Predicate
from skep_table.table_config import TableConfig

_CHANGES = (QueryType.INCREMENTAL, QueryType.CDC)
_TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """How partition paths become column values. `columns` are those that the path gives; the file gives the others."""

    fields: tuple[str, ...]
    columns: tuple[pa.Field, ...]
    hive_style: bool
    decode: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    def of(self, path: str) -> dict[str, pa.Scalar]:
        """The columns' values in one partition. A column is missing where its text is no value of its type."""
        try:
            texts = split_path(path, self.fields, hive_style=self.hive_style, url_encode=self.decode)
        except FormatError:
            return {}  # values with slashes in them, more than one field: nobody can tell, the file has to
        values = {}
        for column in self.columns:
            try:
                values[column.name] = pa.scalar(texts[column.name], pa.string()).cast(column.type)
            except pa.ArrowException:
                continue
        return values

    def select(self, paths: Sequence[str], predicate: Predicate | None) -> list[str]:
        """The partitions in which a row can match."""
        weaker = predicate.weakened(self.names) if predicate is not None and self.columns else None
        if weaker is None or not paths:
            return list(paths)
        names = [column for column in self.columns if column.name in weaker.columns]
        known = [self.of(path) for path in paths]
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
    typed_by_path = tuple(name for name in fields if from_path or _in_path(name, config, query))
    columns = tuple(_column(name, config, schema) for name in typed_by_path if name in schema.names)
    undecoded = query in _CHANGES and config.version >= 8
    rule = PartitionValues(fields, columns, config.hive_style, config.url_encode and not undecoded)
    return rule if all(name in schema.names for name in fields) else replace(rule, columns=())


def _in_path(name: str, config: TableConfig, query: QueryType) -> bool:
    if config.version < 8:
        return query not in _CHANGES
    return name not in _formatted_times(config)


def _formatted_times(config: TableConfig) -> frozenset[str]:
    """Partition fields whose folder names are times formatted by the key generator."""
    if config.key_generator == _TIMESTAMP:
        return frozenset(config.partition_fields)
    declared = config.raw.get("hoodie.table.partition.fields", "").split(",")
    pairs = (field.strip().partition(":") for field in declared)
    return frozenset(name for name, _, kind in pairs if kind.upper() == _TIMESTAMP)


def _column(name: str, config: TableConfig, schema: pa.Schema) -> pa.Field:
    # A formatted time need not be a value of the column's type: Hudi makes the column text then.
    kind = pa.string() if config.key_generator == _TIMESTAMP else schema.field(name).type
    return pa.field(name, kind)
