"""`spark.read.format("skep")` on Spark 4: a Python data source over skep's reader, with Hudi's read keys as options.

Only Spark 4 has what this module builds on: import it by way of `register_source`. No release passes the columns that a
query needs. From 4.1 on Spark can push filters to such a source, but keeps the filtered plan with the loaded source: in
4.3.0 a later query of the same frame lacks the rows that the filters of an earlier one left out. So none are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_table.query import cdc
from skep_table.query.options import QueryType
from skep_table.query.plan import plan
from skep_table.query.read import read_schema
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_writer.reading.shares import rows_of_share, task_shares
from skep_writer.schemas import spark_arrow, spark_type

_SHARES_FOR_CORES = 8  # a data source can't query how many there are


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
    def _asked(self) -> SourceRead:
        return SourceRead.of(dict(self.options))


@dataclass(frozen=True)
class SourceRead:
    """A table, what is read of it, and the answer's columns as Spark has them."""

    table: HudiTable
    request: ReadRequest
    target: pa.Schema

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceRead:
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

    def __init__(self, asked: SourceRead) -> None:
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
