"""Results of SQL: rows as an Arrow table, and in the forms that are made of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import skep_writer
from skep.base.display import ROWS_SHOWN, first_rows, print_table, rows_html

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from skep.query.rows import Rows


class Result(ABC):
    """Rows as an Arrow table, and in the forms that are made of one."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a streaming Arrow reader."""
        return self.to_arrow().to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """The first rows, which notebooks show."""
        return rows_html(*self._first_rows(ROWS_SHOWN))

    def _first_rows(self, limit: int) -> tuple[pa.Table, bool]:
        return first_rows(self.to_reader(), limit)

    def show(self, limit: int = ROWS_SHOWN) -> None:
        """Prints the first rows."""
        print_table(self._first_rows(limit)[0])

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """As a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """As a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())


class SqlResult(Result):
    """The answer of a query, run each time one of these is called: by Sail in this process, or by Spark."""

    def __repr__(self) -> str:
        return f"SqlResult({', '.join(self.columns)})"

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the answer's columns."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """Who answers: `sail` or `spark`."""

    @property
    @abstractmethod
    def why(self) -> str | None:
        """Why Spark answers: the part of the query, or the setting, that may mean something else to Sail."""

    @abstractmethod
    def to_spark(self) -> DataFrame:
        """As a Spark DataFrame."""

    @abstractmethod
    def explain(self) -> str:
        """Who answers and why, how many files are read of each table, by which filter, and the engine's plan. Lists the
        tables."""


class SparkResult(SqlResult):
    """The answer of a query as Spark gives it."""

    def __init__(
        self,
        frame: DataFrame,
        scans: Sequence[Rows],
        why: str,
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._frame = frame
        self._scans = tuple(scans)
        self._why = why
        self._errors = errors

    @property
    def columns(self) -> list[str]:
        return list(self._frame.columns)

    @property
    def engine(self) -> str:
        return "spark"

    @property
    def why(self) -> str:
        return self._why

    def to_spark(self) -> DataFrame:
        return self._frame

    def to_arrow(self) -> pa.Table:
        """As an Arrow table; intervals of years and months as texts. StorageError when files were cleaned meanwhile,
        InputError and EngineError where Spark fails."""
        with self._errors():
            return skep_writer.collect_answer(self._frame)

    def explain(self) -> str:
        lines = [engine_line("spark", self._why), *(str(rows.files_chosen()) for rows in self._scans)]
        with self._errors():
            return "\n".join([*lines, "", str(self._frame._jdf.queryExecution().toString())])

    def _first_rows(self, limit: int) -> tuple[pa.Table, bool]:
        some = SparkResult(self._frame.limit(limit + 1), (), self._why, self._errors)
        return first_rows(some.to_reader(), limit)

    def show(self, limit: int = ROWS_SHOWN) -> None:
        with self._errors():
            self._frame.show(limit, truncate=False)


def engine_line(engine: str, why: str | None) -> str:
    """Who answers a query, as plans and the command line show it."""
    return f"engine: {engine}" if why is None else f"engine: {engine} ({why})"
