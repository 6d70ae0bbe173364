"""`spark.read.format("skep")` on Spark 4: a Python data source over skep's reader, with Hudi's read keys as options.

Only Spark 4 has what this module builds on: import it by way of `register_source`. From 4.1 on such a source gets the
filters of a query, where the session allows it; no release passes the columns that a query needs.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from skep_table.errors import OptionError
from skep_table.options import Options
from skep_table.query import cdc
from skep_table.query.options import QueryType
from skep_table.query.plan import plan
from skep_table.query.read import read_schema
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_writer.schemas import spark_arrow, spark_type
from skep_writer.shares import rows_of_share, task_shares

_SHARES_FOR_CORES = 8  # a data source can't query how many there are


# The setting without which Spark refuses readers that take filters.
PUSHES_FILTERS: Final = "spark.sql.python.filterPushdown.enabled"

_COMPARISONS: Final = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_PLAIN_TEXT: Final = re.compile(r"[^'\"\\\x00-\x1f]*")


class SkepSource(DataSource):
    """`path`, which `load` sets, is the table's; the others are Hudi's read keys, `columns`, `where` and `limit`."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "skep"

    def schema(self) -> StructType:
        """The columns of the result. Raises what opening the table and checking the options raise."""
        return spark_type(self._asked.target)

    def reader(self, schema: StructType) -> SkepReader:  # noqa: ARG002 - it is the one above
        """The reader that Spark plans and runs the scan with."""
        return SkepReader(self._asked)

    @cached_property
    def _asked(self) -> Asked:
        return Asked.of(dict(self.options))


class FilteredSource(SkepSource):
    """The source of sessions that push filters to Python."""

    def reader(self, schema: StructType) -> FilteredReader:  # noqa: ARG002 - it is the one above
        return FilteredReader(self._asked)


@dataclass(frozen=True)
class Asked:
    """A table, what is read of it, and the answer's columns as Spark has them."""

    table: HudiTable
    request: ReadRequest
    target: pa.Schema

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Asked:
        """Opens the table of option `path` and parses the other options.

        OptionError: `path` is missing, or `limit` is no whole number. Raises what opening a table raises.
        """
        path = options.get("path")
        if not path:
            raise OptionError('format("skep") needs the path of a table: load(path)', option="path")
        given = {key: value for key, value in options.items() if key not in ("path", "columns", "where", "limit")}
        names = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
        table = HudiTable.open(path, given)
        try:
            limit = int(options["limit"]) if "limit" in options else None
        except ValueError as error:
            raise OptionError(
                f"option limit: {options['limit']!r} is not a whole number", option="limit", found=options["limit"]
            ) from error
        request = ReadRequest.of(Options(given), columns=tuple(names) or None, where=options.get("where"), limit=limit)
        return cls(table, request, spark_arrow(read_schema(table, request)))


@dataclass
class Share(InputPartition):
    """Some tasks of a read, pickled."""

    tasks: bytes


class SkepReader(DataSourceReader):
    """Plans where the driver is; its tasks run on the executors."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def partitions(self) -> list[InputPartition]:
        """Plans the read; each partition holds some of its tasks."""
        asked = self._asked
        is_cdc = asked.request.query is QueryType.CDC
        tasks = (cdc.plan_changes if is_cdc else plan)(asked.table, asked.request)
        return [Share(share) for share in task_shares(tasks, _SHARES_FOR_CORES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Arrow batches in the types of the scan's schema; runs on executors."""
        assert isinstance(partition, Share)
        yield from rows_of_share(partition.tasks, self._asked.target)


class FilteredReader(SkepReader):
    """Leaves out what Spark's filters leave out, as far as skep takes them as Spark does. Spark checks each row too."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        request = self._asked.request
        known = [] if request.limit is not None else [_text(each, self._asked.target) for each in filters]
        texts = [f"({text})" for text in (request.where, *known) if text is not None]
        if texts and request.query is not QueryType.CDC:
            self._asked = replace(self._asked, request=replace(request, where=" AND ".join(texts)))
        return filters


def _text(found: Any, schema: pa.Schema) -> str | None:
    """A filter of Spark's as SQL; None for one that skep may take in another way."""
    kind = type(found).__name__
    path: tuple[str, ...] = getattr(found, "attribute", ())
    at = schema.get_field_index(path[0]) if len(path) == 1 else -1
    if at < 0 or "`" in path[0]:
        return None
    name, column = f"`{path[0]}`", schema.field(at).type
    if kind in _COMPARISONS:
        value = _constant(found.value, column)
        return None if value is None else f"{name} {_COMPARISONS[kind]} {value}"
    if kind == "In":
        values = [_constant(value, column) for value in found.value]
        return None if not values or None in values else f"{name} IN ({', '.join(map(str, values))})"
    return f"{name} IS NOT NULL" if kind == "IsNotNull" else f"{name} IS NULL" if kind == "IsNull" else None


def _constant(value: object, kind: pa.DataType) -> str | None:
    """A constant of a column's type. Floats are Spark's: it counts NaN as a great number."""
    if pa.types.is_string(kind) and isinstance(value, str) and _PLAIN_TEXT.fullmatch(value):
        return f"'{value}'"
    if (pa.types.is_int32(kind) or pa.types.is_int64(kind)) and isinstance(value, int):
        return str(value)
    if pa.types.is_date32(kind) and isinstance(value, dt.date):
        return f"'{value.isoformat()}'"
    return None
