"""Partition columns that base files leave out, and rows of log files keep."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from skep_format.errors import FormatError
from skep_format.table_config import TableConfig
from skep_table.keys.partition_path import split_path


@dataclass(frozen=True, slots=True)
class DroppedColumns:
    """The partition columns of a table that drops them from its base files; empty for other tables.

    Rows of log files keep them: Hudi 0.15 writes them there, and reads null where they are missing. They are text
    whatever their type in the written rows, because values parsed from a path are (`HudiTable.with_dropped`).
    """

    names: tuple[str, ...] = ()
    hive_style: bool = False
    url_encode: bool = False

    @classmethod
    def of(cls, config: TableConfig) -> DroppedColumns:
        """From the table's settings."""
        return cls(config.dropped_columns, config.names_columns is not False, config.url_encode)

    def filled(self, rows: pa.Table, partition_path: str) -> pa.Table:
        """Rows of one partition with its values; null where the path can't be split into values."""
        try:
            texts = split_path(partition_path, self.names, hive_style=self.hive_style, url_encode=self.url_encode)
        except FormatError:
            texts = {}
        for name in self.names:
            rows = rows.append_column(name, pa.repeat(pa.scalar(texts.get(name), pa.string()), rows.num_rows))
        return rows
