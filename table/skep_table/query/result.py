"""What a read gives back: a schema and batches, once through or as a whole in the forms that people use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skep_format.errors import needs

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


class ReadResult:
    """The rows of one read, which starts again with each call below. Nothing is read before one is made.

    `to_batches` and `to_reader` stream with bounded memory; the others hold all rows.
    """

    def __init__(
        self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], count: Callable[[], int]
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._count = count

    def __repr__(self) -> str:
        return f"ReadResult({', '.join(self.schema.names)})"

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # whether there are rows would take a read

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of batches of `schema`. StorageError when a clean deletes files meanwhile."""
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a streaming Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for consumers of Arrow's C stream interface: pa.table(…), polars.DataFrame(…)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All rows; `options` as for `pyarrow.Table.to_pandas`. EnvironmentMissingError without pandas."""
        needed("pandas", "spark")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """All rows. EnvironmentMissingError without polars."""
        return needed("polars", "polars").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A relation over the rows, in `connection` or in DuckDB's default one."""
        return (connection or needed("duckdb", "duckdb")).from_arrow(self.to_arrow())

    def count(self) -> int:
        """The number of rows; from file footers alone where that is possible."""
        return self._count()


def needed(module: str, extra: str) -> Any:
    """An optional package. EnvironmentMissingError names the extra that brings it."""
    import importlib

    with needs(extra, f"{module} is not installed", package=module):
        return importlib.import_module(module)
