"""What indexes over expressions record of data files: bounds, or Bloom filters, of the values in each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.bloom import BloomFilter
from skep_format.names import BaseFileName, LogFileName
from skep_format.runner import Runner
from skep_format.schema.arrow import arrow_type
from skep_format.storage import FileStatus
from skep_table.metadata_table.records.expression_index import ExpressionIndex, has_empty, texts_of
from skep_table.metadata_table.records.summaries import ColumnSummary, merged, summary_of
from skep_table.metadata_write.facts.files import UNSURE, ColumnReader
from skep_table.metadata_write.making.reading import each_read
from skep_table.query.ahead import in_order
from skep_table.table import HudiTable

log = logging.getLogger("skep.commit")


@dataclass(frozen=True)
class ExpressionFacts:
    """Of one file, by the metadata partition of each index that the values are sure for, and can be in.

    Summaries count values without nulls, as Hudi does in these indexes; those of a file without rows count none.
    """

    partition_path: str
    name: str
    indexes: tuple[ExpressionIndex, ...]
    summaries: Mapping[str, ColumnSummary] = field(default_factory=dict)
    filters: Mapping[str, BloomFilter] = field(default_factory=dict)


def expression_facts(
    table: HudiTable,
    files: Iterable[tuple[str, FileStatus]],
    indexes: Sequence[ExpressionIndex],
    runner: Runner | None = None,
) -> Iterator[ExpressionFacts]:
    """The facts of data files, given as partition path and file, in their order; read ahead, by threads or `runner`.

    Raises what opening a file does, CorruptFileError naming a damaged one.
    """
    schema = table.stored_schema()
    columns = {index.column: schema[index.column].type for index in indexes}
    reader = _Reader(ColumnReader.of(table, columns), tuple(indexes))
    yield from each_read(runner or table.context.threads, reader.read, files, lambda file: file[1].size_bytes)


def texts_of_files(
    table: HudiTable, files: Sequence[tuple[str, FileStatus]], index: ExpressionIndex
) -> Iterator[pa.Array | None]:
    """The distinct values of the expression in each data file, as Bloom filters have them; None where some are not
    sure, or empty."""
    reader = ColumnReader.of(table, {index.column: table.stored_schema()[index.column].type})

    def read(file: tuple[str, FileStatus]) -> Iterator[pa.Array | None]:
        found = [pa.array([], pa.string())]
        try:
            for rows in reader.rows(file[1]):
                values = rows.column(index.column)
                if not index.expression.is_sure(values):
                    yield None
                    return
                texts = texts_of(index.expression.of(values))
                if has_empty(texts):
                    yield None
                    return
                found += pa.chunked_array(texts).chunks
        except UNSURE:
            yield None
            return
        yield pc.unique(pa.concat_arrays(found))

    yield from in_order(files, read, table.context.threads.threads)


@dataclass(frozen=True)
class _Reader:
    columns: ColumnReader
    indexes: tuple[ExpressionIndex, ...]

    def read(self, file: tuple[str, FileStatus]) -> ExpressionFacts:
        path, status = file
        log_file = LogFileName.parse(status.name)
        is_data = BaseFileName.parse(status.name) is not None or (log_file is not None and not log_file.cdc)
        found = [_Values(index) for index in self.indexes] if is_data else []
        try:
            for rows in self.columns.rows(status) if found else ():
                for each in found:
                    each.add(rows)
        except UNSURE as doubt:
            log.debug("%s is in no index over an expression: %s", status.path, doubt)
            found = []
        sure = [each for each in found if each.is_sure]
        return ExpressionFacts(
            path,
            status.name,
            self.indexes,
            {each.index.partition: each.summary(status.size_bytes) for each in sure if not each.index.has_filters},
            {each.index.partition: each.builder.finish() for each in sure if each.index.has_filters and each.rows},
        )


class _Values:
    """The values of one index in one file."""

    def __init__(self, index: ExpressionIndex) -> None:
        self.index, self.builder = index, index.new_filter()
        self.rows, self.is_sure = 0, True
        self._found: list[ColumnSummary] = []

    def add(self, rows: pa.Table) -> None:
        if not self.is_sure:
            return
        expression, values = self.index.expression, rows.column(self.index.column)
        self.rows += len(values)
        self.is_sure = expression.is_sure(values)
        if not self.is_sure:
            return
        results = expression.of(values)
        if self.index.has_filters:
            texts = texts_of(results)
            self.is_sure = not has_empty(texts)
            if self.is_sure:
                self.builder.add(texts)
        else:
            self._found = merged([*self._found, summary_of(self.index.column, expression.result, results)])
            self.is_sure = not self._found[0].has_nan

    def summary(self, size: int) -> ColumnSummary:
        """Hudi states twice a file's size for what its values take."""
        none = ColumnSummary(self.index.column, None, None, None, 0, 0)
        found = self._found[0] if self._found else none
        kind = self.index.expression.result
        return replace(found, kind=kind, values=found.values - found.nulls, stored_bytes=size, plain_bytes=2 * size)


def stored_bounds(values: pa.Array | pa.ChunkedArray, index: ExpressionIndex) -> list[object]:
    """Values of the expression as summaries have them: dates as days."""
    kind = arrow_type(index.expression.result)
    return (values.cast(pa.int32()) if pa.types.is_date(kind) else values).to_pylist()
