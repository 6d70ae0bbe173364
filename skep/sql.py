"""Results of SQL: rows as an Arrow table, and in the forms that are made of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from skep_table.errors import StorageError
from skep_table.query.cleaned import DELETED

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from skep.rows import Rows


class Result(ABC):
    """Rows as an Arrow table, and in the forms that are made of one."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """As a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """As a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())


class SqlResult(Result):
    """The answer of a query, run each time one of these is called: by DuckDB in this process, or by Spark."""

    def __repr__(self) -> str:
        return f"SqlResult({', '.join(self.columns)})"

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the answer's columns."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """Who answers: `duckdb` or `spark`."""

    @abstractmethod
    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame."""

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a streaming Arrow reader."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @abstractmethod
    def explain(self) -> str:
        """How many files are read of each table, by which filter, and the engine's plan. Lists the tables."""

    @abstractmethod
    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""


class SparkResult(SqlResult):
    """The answer of a query as Spark gives it."""

    def __init__(self, frame: DataFrame, scans: Sequence[Rows] = ()) -> None:
        self._frame = frame
        self._scans = tuple(scans)

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._frame.columns)

    @property
    def engine(self) -> str:
        """`spark`."""
        return "spark"

    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame."""
        return self._frame

    def to_arrow(self) -> pa.Table:
        """As an Arrow table; intervals of years and months as texts. StorageError when files were cleaned meanwhile."""
        from skep_writer import collect_answer

        with _files_there():
            return collect_answer(self._frame)

    def to_reader(self) -> pa.RecordBatchReader:
        """All rows, which Spark hands over as a whole, as an Arrow reader."""
        return self.to_arrow().to_reader()

    def explain(self) -> str:
        """How many files are read of each table, the filter that chose them, and Spark's plan. Lists the tables."""
        lines = [str(rows.files_chosen()) for rows in self._scans]
        return "\n".join([*lines, "", str(self._frame._jdf.queryExecution().toString())])

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        with _files_there():
            self._frame.show(limit, truncate=False)


def print_table(rows: pa.Table) -> None:
    """Rows as a table on a terminal."""
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(*rows.schema.names)
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        grid.add_row(*("NULL" if value is None else str(value) for value in row))
    Console().print(grid)


@contextmanager
def _files_there() -> Iterator[None]:
    """StorageError where files of the result were cleaned after the query was planned."""
    try:
        yield
    except Exception as error:
        if not any(sign in str(error) for sign in _MISSING_FILE):
            raise
        raise StorageError(
            f"a file that the query reads was {DELETED}",
            hint="run the query again; hoodie.cleaner.commits.retained has to outlast the longest query",
        ) from error


# Part of the errors of Spark's reader and of skep's tasks for a deleted file.
_MISSING_FILE: Final = ("FileNotFoundException", "FILE_NOT_EXIST", DELETED)
