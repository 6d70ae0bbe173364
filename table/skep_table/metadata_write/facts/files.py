"""What the indexes of the metadata table record of data files: summaries of their columns and of expressions over
these, and Bloom filters.

A reader takes a column without a record, beside others of the same file, to have nothing but nulls. So a file has
right summaries of all columns that it holds, or none at all: readers then look into the file. A file with NaN has none,
since no bounds are right for all readers: Hudi takes none to mean that all values are null, and finds nothing by NaN as
a bound either, so that its data skipping would leave the file out both ways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile.footer import BaseFileFooter
from skep_format.basefile.reader import OpenBaseFile, open_base
from skep_format.bloom import BloomFilter, StoredBloom
from skep_format.errors import SchemaError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockRule, LogBlock, read_blocks, valid_blocks
from skep_format.names import BaseFileName, LogFileName
from skep_format.runner import Runner
from skep_format.schema.arrow import arrow_type
from skep_format.schema.evolve import SourceNames, project
from skep_format.schema.history import SchemaVersion
from skep_format.schema.types import NO_DEFAULT, DateType, Field, Schema, TimestampType
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.metadata import WriteStat
from skep_table.merge import Fill, MergeRule
from skep_table.metadata_table.records.column_stats import indexable
from skep_table.metadata_table.records.expression_index import ExpressionIndex, has_empty, texts_of
from skep_table.metadata_table.records.summaries import (
    Columns,
    ColumnSummary,
    merged,
    summaries_of_base_file,
    summaries_of_rows,
    summaries_without_rows,
    summary_of,
)
from skep_table.metadata_write.making.reading import each_read
from skep_table.query.ahead import in_order
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.slices.history import in_files, names_in_file, schema_history
from skep_table.table import HudiTable

log = logging.getLogger("skep.commit")


@dataclass(frozen=True)
class FileFacts:
    """Of one file. Without `summaries` its columns are not known; `bloom` is None where it has no filter."""

    partition_path: str
    name: str
    summaries: Sequence[ColumnSummary]
    bloom: BloomFilter | StoredBloom | None


def facts_of_files(
    table: HudiTable,
    files: Iterable[tuple[str, FileStatus]],
    columns: Columns,
    *,
    blooms: bool,
    written: bool = False,
    runner: Runner | None = None,
) -> Iterator[FileFacts]:
    """The facts of data files, given as partition path and file, in their order; read ahead, by threads or `runner`.

    `columns` as `stats_columns` has them. What is in a log file counts whether its instant has completed or not.
    `written`: a write of this process, or its tasks, have just written the base files; see `ColumnReader`.
    Raises what opening a file does, CorruptFileError naming a damaged one.
    """
    reader = ColumnReader.of(table, columns, blooms=blooms, written=written)
    yield from each_read(runner or table.context.threads, reader.read, files, lambda file: file[1].size_bytes)


def with_absent(columns: Columns, facts: FileFacts) -> Sequence[ColumnSummary] | None:
    """The summaries of a file, with those of `columns` that it has not: they are null in all its rows. None where
    its columns are not known.
    """
    if columns and not facts.summaries:
        return None
    rows = max((each.values for each in facts.summaries), default=0)
    there = {each.column for each in facts.summaries}
    absent = (ColumnSummary(name, None, None, None, rows, rows) for name in columns if name not in there)
    return [*facts.summaries, *absent]


class _DoubtError(Exception):
    """What readers find in a column of a file is not sure."""


def _never(_instant: InstantTime) -> bool:
    return False


UNSURE: Final = (_DoubtError, SchemaError, UnsupportedError)
"""What reading a column of a file raises where readers may find something else in it."""


@dataclass(frozen=True)
class ColumnReader:
    """Reads what files hold of some columns, as `stats_columns` has them. It can be sent to other machines.

    `schema` is that of files, `history` has its versions. `mixes_rows`: a merged row may have values of several rows,
    so that bounds of one file don't hold for it. `is_done`: whether the instant of a file has completed. `written`: the
    base files have just been written by `BaseFileWriter`. Their filters need no look, and a footer states bounds of
    floating-point numbers only where these have no NaN; of other files, a filter is decoded, which shows that it is
    whole.
    """

    storage: Storage
    schema: Schema
    columns: Columns
    blooms: bool = False
    written: bool = False
    mixes_rows: bool = False
    history: tuple[SchemaVersion, ...] = ()
    is_done: Callable[[InstantTime], bool] = _never

    @classmethod
    def of(cls, table: HudiTable, columns: Columns, *, blooms: bool = False, written: bool = False) -> ColumnReader:
        """The reader of the files of a table."""
        return cls(
            table.storage,
            in_files(table, table.stored_schema()),
            columns,
            blooms,
            written,
            _mixes_rows(table),
            schema_history(table),
            table.timeline.is_completed_or_archived,
        )

    @classmethod
    def of_write(cls, table: HudiTable, schema: Schema, columns: Columns) -> ColumnReader | None:
        """The reader of files that a write is making with this schema, for its tasks: a file that lacks a column is
        left to a reader of the table. None where all files are. The types of `columns` are those of the schema.
        """
        if schema_history(table):
            return None
        in_file = in_files(table, schema)
        typed = indexable(in_file, tuple(columns), table.format.metadata.release)
        reader = cls(table.storage, in_file, typed, written=True, mixes_rows=_mixes_rows(table))
        try:
            return reader if reader._chains else None
        except KeyError:  # files of this write lack a column
            return None

    def rows(self, file: FileStatus) -> Iterator[pa.Table]:
        """All rows of a data file, those of a log file not merged with others. Raises `UNSURE`."""
        base = BaseFileName.parse(file.name)
        if base is None:
            yield from self._rows_of_log(file.path)
            return
        with open_base(self.storage, file.path, file.size_bytes or None) as opened:
            names = self._names_of_base(base.instant_time)
            self._paths(names, opened.footer().arrow_schema, base.instant_time)
            for rows in self._rows(opened, self.columns, names):
                yield self._members(rows, self.columns)

    def read(self, file: tuple[str, FileStatus]) -> FileFacts:
        """The facts of a data file, given as partition path and file."""
        partition, status = file
        base, log_file = BaseFileName.parse(status.name), LogFileName.parse(status.name)
        summaries: Sequence[ColumnSummary] = ()
        bloom: BloomFilter | StoredBloom | None = None
        if base is not None and (self.columns or self.blooms):
            with open_base(self.storage, status.path, status.size_bytes or None) as opened:
                footer = opened.footer()
                if self.blooms:
                    bloom = footer.stored_bloom if self.written else footer.bloom
                summaries = self._unless_in_doubt(status, lambda: self._of_base(opened, footer, base.instant_time))
        elif log_file is not None and not log_file.cdc:
            summaries = self._unless_in_doubt(status, lambda: self._of_log(status.path))
        return FileFacts(partition, status.name, summaries, bloom)

    def _unless_in_doubt(
        self, file: FileStatus, summaries: Callable[[], Sequence[ColumnSummary]]
    ) -> Sequence[ColumnSummary]:
        if not self.columns:
            return ()
        try:
            found = summaries()
            if any(summary.has_nan for summary in found):
                raise _DoubtError("it has NaN, which no bounds show")
            return found
        except UNSURE as doubt:
            log.debug("%s has no column statistics: %s", file.path, doubt)
            return ()

    # -- base files

    def _of_base(self, opened: OpenBaseFile, footer: BaseFileFooter, instant: InstantTime) -> Sequence[ColumnSummary]:
        names = self._names_of_base(instant)
        paths = self._paths(names, footer.arrow_schema, instant)
        own = {path: self.columns[column] for column, path in paths.items()}
        column_of = {path: column for column, path in paths.items()}

        def read(wanted: Sequence[str]) -> pa.Table:
            rows = pa.Table.from_batches(self._rows(opened, [column_of[path] for path in wanted], names))
            return self._members(rows, map(column_of.__getitem__, wanted)).rename_columns(list(wanted))

        metadata = opened.column_metadata
        if metadata is None:
            every = (self._of_values(rows, paths) for rows in self._rows(opened, paths, names))
            return merged(chain.from_iterable(every))
        calendar = opened.calendar
        dated = {path for path, kind in own.items() if calendar and isinstance(kind, (DateType, TimestampType))}
        found = summaries_of_base_file(
            metadata, own, read, schema=footer.arrow_schema, by_value=dated.__contains__, minds_nan=self.written
        )
        return [replace(summary, column=column_of[summary.column]) for summary in found]

    def _names_of_base(self, instant: InstantTime) -> SourceNames:
        if instant == METADATA_BOOTSTRAP:
            raise _DoubtError("its data columns lie elsewhere")
        return self._names_at(instant)

    def _rows(self, opened: OpenBaseFile, columns: Iterable[str], names: SourceNames) -> Iterator[pa.RecordBatch]:
        tops = dict.fromkeys(self._chain(column)[0].name for column in columns)
        return opened.rows(schema=self._schema.select(tuple(tops)), names=names)

    # -- log files

    def of_log_rows(self, rows: pa.Table) -> Sequence[ColumnSummary] | None:
        """Of rows as a log file gets them, so that it need not be read. None where a reader of the file decides."""
        types = {field.name: arrow_type(field.type) for field in self._schema.fields}
        held = {field.name: field.type for field in rows.schema}
        if self.mixes_rows or any(held.get(name) != kind for name, kind in types.items()):
            return None
        found = summaries_of_rows(self._members(rows, self.columns), self.columns)
        return None if any(summary.has_nan for summary in found) else found

    def of_log_file(self, stat: WriteStat, blocks: Sequence[Sequence[ColumnSummary] | None]) -> FileFacts | None:
        """The facts of a log file with blocks of which these are the summaries, those of deletes empty; else None."""
        known = [summaries for summaries in blocks if summaries is not None]
        if self.mixes_rows or len(known) < len(blocks):
            return None
        summaries = merged(chain.from_iterable(known)) or summaries_without_rows(self.columns)
        return FileFacts(stat.partition_path, stat.path.rpartition("/")[2], summaries, None)

    def _of_log(self, path: str) -> Sequence[ColumnSummary]:
        found: list[ColumnSummary] = []
        for rows in self._rows_of_log(path):
            found = merged([*found, *summaries_of_rows(rows, self.columns)])
        return found or summaries_without_rows(self.columns)

    def _rows_of_log(self, path: str) -> Iterator[pa.Table]:
        if self.mixes_rows:
            raise _DoubtError("its rows take over values of others")
        with self.storage.open_input(path) as source:
            blocks = valid_blocks(read_blocks(source, path), BlockRule(lambda _instant: True))
            for block in (each for each in blocks if each.type.has_records):
                for rows in self._log_rows(block):
                    yield self._members(rows, self.columns)

    def _log_rows(self, block: LogBlock) -> Iterator[pa.RecordBatch]:
        if block.is_partial:
            raise _DoubtError("its rows have some of the columns only")
        names = self._names_at(block.instant_time)
        tops = {names.get(name, name) for name in self._schema.names()}
        for batch in block.batches({name for name in tops if name is not None}):
            self._paths(names, batch.schema, block.instant_time)
            yield project(batch, self._schema, names)

    # -- columns

    def _of_values(self, rows: pa.RecordBatch, columns: Iterable[str]) -> list[ColumnSummary]:
        wanted = {column: self.columns[column] for column in columns}
        return summaries_of_rows(self._members(rows, wanted), wanted)

    def _members(self, rows: pa.RecordBatch | pa.Table, columns: Iterable[str]) -> pa.Table:
        """The columns by their own names, members of structs out of these."""
        found = {}
        for column in columns:
            top, *below = (field.name for field in self._chain(column))
            found[column] = pc.struct_field(rows.column(top), below) if below else rows.column(top)
        return pa.table(found)

    def _paths(self, names: SourceNames, held: pa.Schema, instant: InstantTime) -> dict[str, str]:
        """Where a file or block has the columns, by dotted path; without those that it has not, which read as nulls."""
        paths = {}
        for column, kind in self.columns.items():
            found = pa.struct(list(held))
            place, path = "", []
            for member in self._chain(column):
                place = f"{place}.{member.name}" if place else member.name
                if not pa.types.is_struct(found):
                    raise _DoubtError(f"column {column} is {found} there")
                name = names.get(place, member.name)
                at = -1 if name is None else found.get_field_index(name)
                if at < 0:
                    self._check_absent(column, member, instant)
                    break
                found = found.field(at).type
                path.append(name)
            else:
                # Engines differ in whether 1.87 is read as that, or as 1.8700000047683716.
                widened = pa.types.is_float32(found) and pa.types.is_float64(arrow_type(kind))
                if pa.types.is_nested(found) or widened:
                    raise _DoubtError(f"column {column} is {found} there")
                paths[column] = ".".join(map(str, path))
        return paths

    def _check_absent(self, column: str, field: Field, instant: InstantTime) -> None:
        """A column that is not in a file must read as nulls: it has no default, and the file is not by newer names."""
        if not field.nullable or field.default not in (NO_DEFAULT, None):
            raise _DoubtError(f"column {column} is not there, and is not null")
        if not self.is_done(instant):
            raise _DoubtError(f"column {column} is not there, and {instant} may have changed the columns")

    def _chain(self, column: str) -> Sequence[Field]:
        return self._chains[column]

    @cached_property
    def _chains(self) -> Mapping[str, Sequence[Field]]:
        """The fields from the top down to each column."""
        return {column: self.schema.fields_to(column) for column in self.columns}

    @cached_property
    def _schema(self) -> Schema:
        """The top-level columns that are wanted, or contain what is."""
        return self.schema.select(tuple(dict.fromkeys(fields[0].name for fields in self._chains.values())))

    def _names_at(self, instant: InstantTime) -> SourceNames:
        return names_in_file(self.history, instant) if self.history else {}


def _mixes_rows(table: HudiTable) -> bool:
    rule = MergeRule.of(table.config, table.options)
    stages = (rule.log, rule.base, rule.of_batch.log)
    return rule.merger is not None or any(stage.fill is not Fill.NOTHING for stage in stages)


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
