"""Writing a base file, Parquet or ORC: rows with meta columns in, bloom filter and key range in the footer."""

from __future__ import annotations

import io
import logging
import posixpath
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import IO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile import keys
from skep_format.basefile import parquet_metadata as parquet
from skep_format.basefile.encoding import (
    ENCODED_TEXT,
    NEVER_FILTERED,
    constant,
    dictionary_columns,
    leaves,
    row_group,
)
from skep_format.basefile.encryption import ParquetKeys, encryption_of, keys_of
from skep_format.basefile.footer import BaseFileFooter, damage_named
from skep_format.basefile.options import CODECS, BaseFileOptions
from skep_format.basefile.orc_output import OrcOutput, orc_bytes, orc_schema
from skep_format.basefile.output import ParquetOutput, correct_statistics, corrected_statistics
from skep_format.basefile.reader import OpenBaseFile
from skep_format.basefile.row_groups import ColumnPages, FileInMemory, RowGroup, RowGroups, without_level_sizes
from skep_format.basefile.thrift import Struct
from skep_format.basefile.value_filters import ENABLED as FILTERS
from skep_format.basefile.value_filters import ValueFilters
from skep_format.bloom import BloomBuilder
from skep_format.errors import UnsupportedError
from skep_format.names import BaseFormat
from skep_format.schema.arrow import rebuilt, to_arrow, without_metadata
from skep_format.schema.avro import avro_text
from skep_format.schema.types import FILE_NAME, META_FIELDS, RECORD_KEY, Schema, cached_by_schema
from skep_format.storage import Storage

R = TypeVar("R", pa.RecordBatch, pa.Table)
# File bytes per byte of Arrow data until the first row group is measured: a high guess, so that it is written early.
_FIRST_RATIO = 1.0
# What Arrow writes comes together in memory: for each write, of which a page takes two, it waits for Python.
_BUFFER_BYTES = 1 << 20
# A table is one row group.
_ALL_ROWS = 2**31 - 1
# A row group is at most so many times as large as asked for, rather than a small one beside it.
_MOST_BLOCKS = 1.5
# A filter over more keys than so many times the rows of its file is built from the keys of these.
_MOST_KEYS = 1.25
# Arrow looks each value of a text with a dictionary up for its statistics, which takes longer than to encode it: of so
# many values that is worth correcting the footer of a file that is written.
_MANY_TEXTS = 50_000
# Values of a column that are encoded together. Arrow's own number is the least.
_LEAST_AT_ONCE, _MOST_AT_ONCE = 1024, 16_384

log = logging.getLogger("skep.write")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished base file. The keys are None when it has no rows."""

    num_rows: int
    size_bytes: int
    min_key: str | None
    max_key: str | None


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The lowest and highest value of a column of one file, and how many are null; None where that is not known.

    Parquet's statistics: values in Python's types; of floats, NaN is not counted.
    """

    low: object = None
    high: object = None
    nulls: int | None = None


class BaseFileWriter(AbstractContextManager["BaseFileWriter"]):
    """Streams rows into one base file. `schema` is the table's, meta columns included.

    Leaving the block by an error deletes the file; leaving it without one closes it unless `close` was called.
    Holds at most `options.block_bytes` of Arrow data, and the bits of the bloom filter.
    """

    def __init__(self, storage: Storage, path: str, schema: Schema, options: BaseFileOptions | None = None) -> None:
        self._storage, self._path = storage, path
        keys = keys_of(storage)
        self._keys = keys if keys is not None and keys.encrypt else None
        self._options = options or BaseFileOptions()
        self._schema = schema
        self._is_orc = self._options.format is BaseFormat.ORC
        self._arrow = _orc_file_schema(schema) if self._is_orc else _file_schema(schema)
        self._keyed = RECORD_KEY in schema and self._options.key_filter
        self._bloom = BloomBuilder(
            self._options.bloom_type,
            self._options.bloom_entries,
            self._options.bloom_fpp,
            self._options.bloom_max_entries,
            self._options.filter_fits,
        )
        self._range: tuple[str, str] | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._flushed_bytes = 0
        self._copied_bytes = 0
        self._rows = 0
        self._names: dict[tuple[int, bool], Mapping[str, ColumnPages]] = {}
        self._stack = ExitStack()
        self._file: pq.ParquetWriter | None = None
        self._orc: OrcOutput | None = None
        self._written: WrittenFile | None = None

    def __enter__(self) -> BaseFileWriter:
        # The sink is the outer of the two: it drops the file when closing the Parquet writer fails.
        self._sink: IO[bytes] = self._stack.enter_context(self._storage.open_write(self._path))
        self._output = ParquetOutput(self._sink, encrypted=self._keys is not None)
        if self._is_orc:
            self._orc = OrcOutput(self._sink, self._path, self._arrow, self._options)
        return self

    def __exit__(self, *problem: object) -> None:
        if problem[0] is not None:
            self._give_up(problem)
            return
        try:
            self.close()
        except BaseException:
            self._give_up(sys.exc_info())
            raise

    def _give_up(self, problem: tuple[object, ...]) -> None:
        try:
            if self._orc is not None:
                self._orc.drop()
            elif self._file is not None:
                self._file.close()
        except Exception:  # the cause of the failure, such as a full disk, makes the footer fail as well
            log.debug("%s is given up", self._path, exc_info=True)
        finally:
            self._output.close()
            self._stack.__exit__(*problem)  # type: ignore[arg-type]

    @property
    def block_bytes(self) -> int:
        """How much Arrow data a row group has at least, but for the last of rows that follow one another."""
        return self._options.block_bytes

    def continue_keys(self, footer: BaseFileFooter) -> bool:
        """Starts from the filter and key range of a file whose rows come again, before any row is written.

        True: those rows may be written with `new_keys=False`, or copied. Keys that were deleted are then still in the
        filter, which costs a read of the file and never hides a key; where that are many, the answer is False.
        """
        stored = footer.stored_bloom
        if not self._keyed or stored is None or footer.min_key is None or footer.max_key is None:
            return False
        bloom = stored.without_bits()
        if bloom.keys > _MOST_KEYS * footer.num_rows or not self._bloom.resume(bloom, stored):
            return False
        self._range = footer.min_key, footer.max_key
        return True

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._rows

    @property
    def held_bytes(self) -> int:
        """Arrow data that is in no row group yet."""
        return self._held_bytes

    @property
    def record_bytes(self) -> int:
        """About what the rows so far take in the file."""
        flushed = self._sink.tell() if self._orc is None else self._orc.size
        ratio = (flushed - self._copied_bytes) / self._flushed_bytes if self._flushed_bytes else _FIRST_RATIO
        return flushed + int(self._held_bytes * ratio)

    def reaches(self, size: int) -> bool:
        """Whether the file would have that size if it were closed now: not guessed before a row group is written."""
        room = self._options.room(size, self._rows)
        if self.record_bytes < room:
            return False
        if not self._flushed_bytes:
            self.flush()
        return self.record_bytes >= room

    def write(self, rows: pa.RecordBatch | pa.Table, *, new_keys: bool = True) -> None:
        """Appends rows; their columns are the schema's, in its order, in types that cast to it without loss.

        Text may come as `encoding.ENCODED_TEXT`, all but record keys. `new_keys`: see `continue_keys`.
        """
        given = rows if self._options.meta else without_meta_values(rows)
        if self._keyed and new_keys and given.num_rows:
            self._add_keys(given.column(RECORD_KEY))
        for batch in given.to_batches() if isinstance(given, pa.Table) else (given,):
            if batch.num_rows == 0:
                continue
            self._rows += batch.num_rows
            for part in _parts(self._typed(batch), self._options):
                if self._held_bytes + part.nbytes > _MOST_BLOCKS * self._options.block_bytes:
                    self.flush()
                self._held.append(part)
                self._held_bytes += part.nbytes
                if self._held_bytes >= self._options.block_bytes:
                    self.flush()

    def takes(self, held: OpenBaseFile) -> bool:
        """Whether `copy` may be called with that file. CorruptFileError where its footer is wrong."""
        return can_copy(held, self._schema, self._options)

    def copy(
        self,
        held: OpenBaseFile,
        number: int,
        *,
        new_keys: bool = True,
        changed: pa.RecordBatch | None = None,
        are_few: bool = False,
    ) -> None:
        """Appends the rows of a row group as the bytes that they are in another file, but for the column of file names
        and the `changed` columns, of which all values are given, as for `write`; keys are not among them.

        `new_keys`: see `continue_keys`. `are_few`: of the values few are new, for which no column gets a dictionary
        that has none. Raises CorruptFileError before anything is written.
        """
        pages = None
        if changed is not None and changed.num_columns:
            pages = self._changed_pages(_groups_of(held), number, changed, are_few=are_few)
        self._append(held, number, self._read(held, number, pages), new_keys=new_keys)

    def copy_all(self, held: OpenBaseFile, numbers: Sequence[int], *, new_keys: bool = True) -> None:
        """The same for some row groups, of which one is read while the one before it is written.

        Raises CorruptFileError before anything is written of a row group that is damaged.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="skep-copy") as pool:
            ahead = [pool.submit(self._read, held, number) for number in numbers[:1]]
            for at, number in enumerate(numbers):
                group = ahead.pop().result()
                ahead = [pool.submit(self._read, held, following) for following in numbers[at + 1 : at + 2]]
                self._append(held, number, group, new_keys=new_keys)

    def _read(self, held: OpenBaseFile, number: int, pages: Mapping[str, ColumnPages] | None = None) -> RowGroup:
        """A row group as it is to be written: with the `pages` of some columns, at least of file names."""
        groups = _groups_of(held)
        if pages is None:
            pages = self._name_pages(groups, number) if self._is_named else {}
        # Hudi 0.15 takes a column for null in row groups that lack its statistics, where others have them.
        return groups.read(number, pages).without_statistics(NEVER_FILTERED)

    def _append(self, held: OpenBaseFile, number: int, group: RowGroup, *, new_keys: bool) -> None:
        if self._keyed and new_keys:
            for batch in held.rows(columns=[RECORD_KEY], groups=(number,)):
                self._add_keys(batch.column(0))
        self.flush()
        before = self._sink.tell()
        self._output.copy(group)
        self._copied_bytes += self._sink.tell() - before
        self._rows += group.rows

    @property
    def _is_named(self) -> bool:
        return self._options.meta and FILE_NAME in self._schema

    def _changed_pages(
        self, groups: RowGroups, number: int, changed: pa.RecordBatch, *, are_few: bool
    ) -> Mapping[str, ColumnPages]:
        given = changed if self._options.meta else without_meta_values(changed)
        if self._is_named:
            given = given.append_column(FILE_NAME, constant(posixpath.basename(self._path), groups.rows[number]))
        plain, has_index = groups.plain_columns(number) if are_few else (), groups.has_page_index(number)
        (pages,) = _column_pages(
            [self._typed(given)], self._options, self._path, write_page_index=has_index, plain=plain
        )
        return pages

    def _name_pages(self, groups: RowGroups, number: int) -> Mapping[str, ColumnPages]:
        """The column of file names in a row group: one name, in so many rows.

        Encoded together for all row groups: to begin a file takes longer than what is written into it.
        """
        key = groups.rows[number], groups.has_page_index(number)
        if key not in self._names:
            name, has_index = posixpath.basename(self._path), key[1]
            alike = {rows for at, rows in enumerate(groups.rows) if groups.has_page_index(at) == has_index}
            counts = sorted(alike, reverse=True)  # the first decides whether there is a dictionary
            columns = [pa.record_batch({FILE_NAME: constant(name, rows)}) for rows in counts]
            options = replace(self._options, value_filters=ValueFilters())
            made = _column_pages(columns, options, self._path, write_page_index=has_index)
            self._names |= {(rows, has_index): pages for rows, pages in zip(counts, made, strict=True)}
        return self._names[key]

    def close(self) -> WrittenFile:
        """Writes what is held and the footer. The answer of a second call is the first one's."""
        if self._written is None:
            self.flush()
            entries, key_filter = self._entries()
            apart = self._orc is None and self._keys is None
            if key_filter is not None:
                entries[keys.BLOOM_FILTER] = "" if apart else key_filter.decode()
            if self._orc is not None:
                self._orc.close(entries)
            else:
                file = self._file or self._start(self._arrow.empty_table())
                file.add_key_value_metadata(entries)
                self._output.hold(key_filter if apart else None)
                file.close()
                self._buffer.flush()
                self._output.release()
            size = self._sink.tell()
            self._stack.close()
            low, high = self._range or (None, None)
            self._written = WrittenFile(self._rows, size, low, high)
        return self._written

    def column_statistics(self) -> dict[str, ColumnRange]:
        """Of each column that holds values, by dotted name, after `close`; none of an ORC file."""
        footer = self._output.footer
        if footer is not None:
            properties = None if self._keys is None else self._keys.reading()
            if properties is None:  # copied row groups may state sizes of levels at which Arrow ends the process
                footer = without_level_sizes(parquet.footer_of(footer)[0])
            with damage_named(self._path):
                metadata = pq.read_metadata(pa.BufferReader(footer), decryption_properties=properties)
                hidden = encryption_of(lambda length: footer[-length:], metadata, self._keys, self._path)
                if hidden is not None:
                    hidden.check(None, self._path)
        else:
            metadata = self._file.writer.metadata if self._file is not None else None
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)] if metadata is not None else []
        if not groups:
            return {}
        return {
            groups[0].column(at).path_in_schema: _statistics([group.column(at).statistics for group in groups])
            for at in range(groups[0].num_columns)
        }

    def flush(self) -> None:
        """Writes the rows that are held as a row group."""
        if self._held and self._orc is not None:
            self._orc.write(self._held)
        elif self._held:
            rows = row_group(self._held, self._arrow, self._file.schema if self._file else None)
            file = self._file or self._start(rows)
            file.write_table(rows, row_group_size=_ALL_ROWS)
            self._buffer.flush()
            self._output.add(rows)
        self._flushed_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, of some of the columns, in the file's types, with the dictionaries of its text columns where they
        can be written.
        """
        if batch.schema == self._arrow:
            return batch
        kept = self._options.dictionary and not self._options.value_filters.wanted and not self._is_orc
        fields = [
            field.with_type(found.type) if kept and found.type == ENCODED_TEXT and field.type == pa.string() else field
            for found, field in zip(batch.schema, map(self._arrow.field, batch.schema.names), strict=True)
        ]
        wanted = pa.schema(fields)
        return batch if batch.schema == wanted else batch.cast(wanted)

    def _start(self, rows: pa.Table) -> pq.ParquetWriter:
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._output, "w"), _BUFFER_BYTES)
        self._output.states_texts = self._keys is None and _texts_looked_up(rows) >= _MANY_TEXTS
        texts = not self._output.states_texts
        self._file = _parquet_writer(self._buffer, rows, self._options, keys=self._keys, texts=texts)
        self._buffer.flush()
        return self._file

    def _add_keys(self, column: pa.Array | pa.ChunkedArray) -> None:
        self._bloom.add(column)
        found = key_range(column)
        if found is not None:
            ends = (*found, *(self._range or ()))
            self._range = min(ends, key=_java_order), max(ends, key=_java_order)

    def _entries(self) -> tuple[dict[str, str], bytes | None]:
        """Those of the footer, and the text of the filter, which belongs to them."""
        entries = _orc_entries(self._schema) if self._is_orc else _schema_entries(self._schema)
        if not self._keyed:
            return entries, None
        bloom = self._bloom.finished()
        if bloom.type_code is not None:
            entries[keys.BLOOM_TYPE] = bloom.type_code
        if self._range is not None:
            entries[keys.MIN_RECORD_KEY], entries[keys.MAX_RECORD_KEY] = self._range
        return entries, bloom.to_base64()


def _statistics(groups: Sequence[pq.Statistics | None]) -> ColumnRange:
    """Those of all row groups together."""
    known = [group for group in groups if group is not None]
    if len(known) < len(groups):
        return ColumnRange()
    nulls = sum(group.null_count for group in known) if all(group.has_null_count for group in known) else None
    valued = [group for group in known if group.num_values]
    if not valued or not all(group.has_min_max for group in valued):
        return ColumnRange(nulls=nulls)
    return ColumnRange(min(group.min for group in valued), max(group.max for group in valued), nulls)


def without_meta_values(rows: R) -> R:
    """Rows whose meta columns are null."""
    for at, field in enumerate(rows.schema):
        if field.name in META_FIELDS:
            rows = rows.set_column(at, field, pa.nulls(rows.num_rows, field.type))
    return rows


def parquet_bytes(schema: Schema, rows: pa.Table, options: BaseFileOptions) -> bytes:
    """Rows as a Parquet file without filter and key range: what the Parquet blocks of log files hold."""
    return _in_memory(rows.cast(_file_schema(schema)), options, _schema_entries(schema))


def bytes_of(schema: Schema, rows: pa.Table, options: BaseFileOptions) -> int:
    """What rows take in a base file, without filter and key range."""
    if options.format is BaseFormat.ORC:
        arrow = _orc_file_schema(schema)
        return len(orc_bytes(arrow, rows.cast(arrow), options, _orc_entries(schema)))
    return len(parquet_bytes(schema, rows, options))


def _column_pages(
    groups: Sequence[pa.RecordBatch],
    options: BaseFileOptions,
    path: str,
    *,
    write_page_index: bool,
    plain: Collection[str] = (),
) -> list[dict[str, ColumnPages]]:
    """The pages of the same columns in some row groups of the file at `path`, by their dotted names. The `plain` ones
    have no dictionary.
    """
    fields = (f.with_type(f.type.value_type) if f.type == ENCODED_TEXT else f for f in groups[0].schema)
    schema, data = pa.schema(fields), pa.BufferOutputStream()
    first = row_group(groups[:1], schema, None)
    tables = [first, *(row_group([rows], schema, first.schema) for rows in groups[1:])]
    texts = write_page_index  # which has them, too
    with _parquet_writer(data, first, options, write_page_index=write_page_index, texts=texts, plain=plain) as file:
        for rows in tables:
            file.write_table(rows, row_group_size=_ALL_ROWS)
    written, found = RowGroups(FileInMemory(data.getvalue()), path), []
    for number, rows in enumerate(tables):
        columns = written.read(number).columns
        correct_statistics([each.chunk for each in columns], corrected_statistics(rows, texts=not texts))
        found.append({parquet.name_of(each.chunk): each for each in columns})
    return found


def _in_memory(rows: pa.Table, options: BaseFileOptions, entries: Mapping[str, str]) -> bytes:
    """A Parquet file of one row group."""
    data = io.BytesIO()
    sink = ParquetOutput(data)
    with _parquet_writer(sink, rows, options) as file:
        file.write_table(rows, row_group_size=_ALL_ROWS)
        file.add_key_value_metadata(entries)
        sink.add(rows)
        sink.hold()
    sink.release()
    return data.getvalue()


def _parquet_writer(
    sink: ParquetOutput | pa.NativeFile,
    rows: pa.Table,
    options: BaseFileOptions,
    *,
    write_page_index: bool = False,
    keys: ParquetKeys | None = None,
    texts: bool = True,
    plain: Collection[str] = (),
) -> pq.ParquetWriter:
    """`rows`: the first row group, from which the encoding of each column is chosen, but of the `plain` ones. `texts`:
    with statistics of text with a dictionary.
    """
    if keys is not None and options.value_filters.wanted:
        raise UnsupportedError(
            f"{FILTERS.key}: Arrow writes no filters into encrypted files",
            option=FILTERS.key,
            found="an encrypted file",
        )
    return pq.ParquetWriter(
        sink,
        rows.schema,
        compression=options.codec,
        use_dictionary=dictionary_columns(rows, plain) if options.dictionary else False,
        data_page_size=options.page_bytes,
        write_batch_size=_rows_at_once(rows, options.page_bytes),
        write_statistics=_with_statistics(rows.schema, floats=keys is None, texts=texts),
        write_page_checksum=True,  # as JVM Hudi's files have them: nothing else shows a flipped bit in most pages
        store_schema=False,  # the Avro schema is the one that counts
        write_page_index=write_page_index,
        encryption_properties=None if keys is None else keys.writing(rows.schema),
        **options.value_filters.arguments(rows),
    )


def _with_statistics(schema: pa.Schema, *, floats: bool, texts: bool) -> list[str]:
    """All that readers select by. Without `floats` where the footer can't be corrected for NaN: see `ParquetOutput`."""
    fields = (field for field in schema if field.name not in NEVER_FILTERED and (texts or field.type != ENCODED_TEXT))
    columns = (each for field in fields for each in leaves(field.name, field.type))
    return [path for path, kind in columns if floats or not pa.types.is_floating(kind)]


def _texts_looked_up(rows: pa.Table) -> int:
    columns = (column.chunk(0).dictionary for column in rows.columns if column.type == ENCODED_TEXT)
    return rows.num_rows * sum(len(dictionary) > 1 for dictionary in columns)


def _rows_at_once(rows: pa.Table, page_bytes: int) -> int:
    """Values that are encoded together, after which the size of a page is looked at: fewer where values are large."""
    widest = max((column.nbytes for column in rows.columns), default=0) // max(1, rows.num_rows)
    return max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, page_bytes // max(1, widest)))


def _groups_of(held: OpenBaseFile) -> RowGroups:
    """Of a file that `can_copy`."""
    assert held.row_groups is not None
    return held.row_groups


def can_copy(held: OpenBaseFile, schema: Schema, options: BaseFileOptions) -> bool:
    """Whether row groups of a file can be copied into one with this schema, meta columns included, and these options;
    no stripes of ORC.

    They can't where either file is encrypted. CorruptFileError where its footer is wrong.
    """
    if held.keys is not None and held.keys.encrypt:
        return False
    filters = options.value_filters.names(_file_schema(schema))
    groups = held.row_groups
    return (
        options.format is BaseFormat.PARQUET
        and groups is not None
        and groups.can_be_copied(_empty_footer(schema), CODECS[options.codec], filters)
    )


@cached_by_schema
def _empty_footer(schema: Schema) -> Struct:
    """The footer of a file without rows."""
    data = io.BytesIO()
    with pq.ParquetWriter(data, _file_schema(schema), store_schema=False):
        pass
    return parquet.footer_of(data.getvalue())[0]


@cached_by_schema
def _file_schema(schema: Schema) -> pa.Schema:
    """As Hudi stores it: bytes and shorts are plain INT32."""

    def physical(kind: pa.DataType) -> pa.DataType:
        return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind

    return pa.schema([rebuilt(field, physical, without_metadata) for field in to_arrow(schema)])


@cached_by_schema
def _orc_file_schema(schema: Schema) -> pa.Schema:
    return orc_schema(to_arrow(schema))


def _orc_entries(schema: Schema) -> dict[str, str]:
    return {keys.ORC_AVRO_SCHEMA: avro_text(schema)}


def _schema_entries(schema: Schema) -> dict[str, str]:
    return {keys.AVRO_SCHEMA: avro_text(schema), keys.WRITER_MODEL: "avro", **keys.PROLEPTIC_CALENDAR}


def _parts(batch: pa.RecordBatch, options: BaseFileOptions) -> Iterator[pa.RecordBatch]:
    """A batch larger than a row group in pieces, so that the caller's batches don't decide about the file's layout."""
    count = min(-(-max(batch.nbytes, 1) // options.block_bytes), batch.num_rows)
    step = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def key_range(column: pa.Array | pa.ChunkedArray) -> tuple[str, str] | None:
    """Smallest and largest key in Java's order of strings (UTF-16 units); None when there is none."""
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return None
    # UTF-8 has the same order, but for characters beyond U+FFFF (bytes from 0xF0 on) beside ones from U+E000 on.
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if any(_has_bytes_from(0xF0, chunk.buffers()[2]) for chunk in chunks):
        texts = [text for text in pc.unique(column).to_pylist() if text is not None]
        return min(texts, key=_java_order), max(texts, key=_java_order)
    return ends["min"], ends["max"]


def _has_bytes_from(least: int, data: pa.Buffer | None) -> bool:
    return data is not None and len(data) > 0 and int(np.frombuffer(data, np.uint8).max()) >= least


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
