"""The rows of one read of a table: in this process, or as a frame of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import skep_writer
from skep.base.display import ROWS_SHOWN, first_rows, print_table, rows_html
from skep.query.spark import SparkHolder
from skep_format.basefile.row_groups import share_of_columns
from skep_format.options import at_least, option
from skep_table.keys.text import single
from skep_table.query.filters.among import OneOf
from skep_table.query.filters.predicate import Predicate
from skep_table.query.options import QueryType
from skep_table.query.plan import plan, scan_of
from skep_table.query.pruning.slices import PruningStep, Steps
from skep_table.query.read import Explanation, explain, read
from skep_table.query.request import ReadRequest
from skep_table.query.result import ReadResult, needed
from skep_table.table import HudiTable

if TYPE_CHECKING:
    import polars
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame

EMBEDDED_BYTES: Final = option(
    "skep.sql.embedded.max.bytes",
    at_least(0),
    4 << 30,
    doc="Queries that read more bytes of files than this, in the columns that they need, are left to Spark.",
    accepts="a number of bytes",
)

SHARED_BYTES: Final = option(
    "skep.sql.shared.max.bytes",
    at_least(0),
    8 << 20,
    doc="The rows of tables whose files have at most this many bytes are kept for the next queries of the snapshot.",
    accepts="a number of bytes",
)


@dataclass(frozen=True, slots=True)
class FilesChosen:
    """Of a read: the file slices that may hold rows of the answer, among those of the table that the query sees.

    `steps` are those of planning: the first has all file slices, the last those that are read.
    """

    table: str
    where: str | None
    steps: tuple[PruningStep, ...]

    @property
    def read(self) -> int:
        """How many file slices are read."""
        return self.steps[-1].slices

    @property
    def of(self) -> int:
        """How many file slices there are."""
        return self.steps[0].slices

    def __str__(self) -> str:
        found = f"{self.table}: {self.read} of {self.of} file slices are read"
        head = found if self.where is None else f"{found}, by {self.where}"
        fewer = [f"  {step.by}: {step.slices}" for before, step in pairwise(self.steps) if step.slices < before.slices]
        return "\n".join([head, *fewer])


def columns_among(listed: Sequence[str], names: frozenset[str]) -> tuple[str, ...]:
    """The columns that are among `names` (in lower case), one at least: a read has some."""
    return tuple(name for name in listed if name.lower() in names) or tuple(listed[:1])


class Rows(ReadResult):
    """The rows of one read. Each `to_…` reads again; nothing is read before.

    A notebook shows the first rows, which it reads; so does `show`.
    """

    def __init__(
        self,
        table: HudiTable,
        request: ReadRequest,
        spark: SparkHolder,
        *,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: of a snapshot that other reads have, too."""
        inner = read(table, request)
        super().__init__(inner.schema, inner.to_batches, inner.count)
        self._table, self._request, self._spark, self._is_shared = table, request, spark, is_shared

    def __repr__(self) -> str:
        return f"Rows({', '.join(self.schema.names)})"

    def _repr_html_(self) -> str:
        return rows_html(*first_rows(self.to_reader(), ROWS_SHOWN))

    def show(self, limit: int = ROWS_SHOWN) -> None:
        """Prints the first rows."""
        print_table(first_rows(self.to_reader(), limit)[0])

    @property
    def snapshot(self) -> HudiTable:
        """The table that is read."""
        return self._table

    def whole_of(self) -> tuple[object, ...] | None:
        """What reads of the same rows of a snapshot have in common: its path, the kind of query and options.

        None for reads of a part of a table, of changes, and of a snapshot that no other read has.
        """
        request, table = self._request, self._table
        plain = ReadRequest(query=request.query)
        if not self._is_shared or request.query not in (QueryType.SNAPSHOT, QueryType.READ_OPTIMIZED):
            return None
        return (table.storage.root, request.query, table.options) if request == plain else None

    @property
    def where(self) -> str | None:
        """The filter of the read."""
        return None if self._request.where is None else str(self._request.where)

    def files_chosen(self) -> FilesChosen:
        """How many file slices the read needs, and how many it would need without its filter. Lists the table."""
        steps = Steps()
        plan(self._table, self._request, steps)
        return FilesChosen(self._table.config.name, self.where, tuple(steps.found))

    def explain(self) -> Explanation:
        """What the read would open, and by what each part of the table is left out; `print` shows it as a table.

        Lists the table, and opens the footers of the files left. UnsupportedError for CDC queries.
        """
        return explain(self._table, self._request)

    def bytes_read(self) -> int:
        """About how many bytes of files the read needs. Lists the table.

        The share of the columns is that in the largest of the Parquet files; logs count in full.
        """
        if self._request.query is QueryType.CDC:
            return 0
        slices = [task.slice for task in plan(self._table, self._request)]
        logs = sum(log.size_bytes for found in slices for log in found.log_files)
        bases = [found.base_file for found in slices if found.base_file is not None]
        size = sum(base.size_bytes for base in bases)
        if self._request.columns is None or not bases:
            return logs + size
        largest = max(bases, key=lambda base: base.size_bytes)
        needed = {name.lower() for name in self._request.columns}
        return logs + int(size * share_of_columns(self._table.storage, largest.path, needed))

    def narrowed(self, names: frozenset[str] | None) -> Rows:
        """With the columns among `names` (in lower case) only, one at least; None keeps all."""
        if names is None or self._request.query is QueryType.CDC:
            return self
        columns = columns_among(self.schema.names, names)
        return Rows(self._table, replace(self._request, columns=columns), self._spark)

    def filtered(self, where: Predicate | None) -> Rows:
        """With a filter, of the same snapshot of the table. None keeps all; a filter that is there stays.

        Of changes as such (CDC) all rows are kept.
        """
        if where is None or self._request.query is QueryType.CDC:
            return self
        own = scan_of(self._table, self._request).predicate
        request = replace(self._request, where=where if own is None else own.also(where))
        return Rows(self._table, request, self._spark)

    def joined_by(self, column: str, values: pa.ChunkedArray) -> Rows:
        """For a join that needs only rows with one of the values, of the column's type, in a column that it reads:
        batches come without the others.
        """
        return Rows(self._table, replace(self._request, only=OneOf(column, single(values))), self._spark)

    def to_pyarrow_dataset(self) -> ds.Dataset:
        """A dataset of pyarrow: its scans read the columns that they name, and the files that their filter leaves."""
        from skep.query.dataset import RowsDataset

        return RowsDataset(self)

    def scan_polars(self) -> polars.LazyFrame:
        """A lazy frame of Polars. It reads the columns that a query needs, and the files that its filters leave."""
        return needed("polars", "polars").scan_pyarrow_dataset(self.to_pyarrow_dataset())

    def to_spark(self) -> DataFrame:
        """A lazy frame of the lake's session; files are read by its tasks."""
        request = replace(self._request, only=None)  # its values would be sent with each task
        return skep_writer.to_spark(self._table, request, self._spark.session)
