"""Rows of base files as a stream of Arrow batches: only the wanted columns, and of rows what a condition leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile.calendars import LegacyCalendar
from skep_format.basefile.encryption import Encrypted, ParquetKeys, encryption_of, keys_of
from skep_format.basefile.footer import BaseFileFooter, damage_named, opened_footer, read_end
from skep_format.basefile.matching import RowCondition, RowPositions, Statistics, matching_rows, parquet_file
from skep_format.basefile.orc_file import OrcRows
from skep_format.basefile.row_groups import RowGroups
from skep_format.batching import in_groups
from skep_format.names import BaseFormat
from skep_format.schema.arrow import to_arrow
from skep_format.schema.evolve import SourceNames, project
from skep_format.schema.types import Schema
from skep_format.storage import Storage

BATCH_ROWS = 65_536
# Of the pages of row groups that are read together, before they are compressed.
_TOGETHER_BYTES = 32 << 20
# Rows of one column that are compared at a time.
_COMPARED_ROWS = 1 << 20


class OpenBaseFile:
    """A base file that is open: its footer and its rows, of which a small remote file takes one request for both.

    `keys` are those of the storage that it is in.
    """

    def __init__(self, source: pa.NativeFile, path: str, keys: ParquetKeys | None = None) -> None:
        self._source, self._path, self.keys = source, path, keys
        self._metadata: pq.FileMetaData | None = None
        self._encrypted: Encrypted | None = None
        self._files: dict[tuple[str, ...], pq.ParquetFile] = {}
        self._tail: bytes | None = None
        self._calendar: tuple[LegacyCalendar | None] | None = None

    def footer(self) -> BaseFileFooter:
        """Reads the footer, which `rows` then does not read again. CorruptFileError when it can't be read."""
        footer, self._metadata, self._tail = opened_footer(self._source, self._path, self.keys)
        self._encrypted = footer.encrypted
        return footer

    @property
    def metadata(self) -> pq.FileMetaData | None:
        """The Parquet metadata that `footer` has read; None before that, and of other formats.

        EncryptedFileError where a column of it is hidden.
        """
        if self._encrypted is not None:
            self._encrypted.check(None, self._path)
        return self._metadata

    @property
    def column_metadata(self) -> pq.FileMetaData | None:
        """The same for what it states of columns, without its entries; None where it has more than is known here.

        CorruptFileError where it contradicts itself: of `metadata` Arrow would end the process.
        """
        if self.metadata is None or self._encrypted is not None:
            return self._metadata
        return RowGroups(self._source, self._path, self._tail).metadata()

    @property
    def calendar(self) -> LegacyCalendar | None:
        """The calendar of its dates and times, once `footer` was read; None where it is the one of today.

        EncryptedFileError as `metadata`.
        """
        metadata = self.metadata
        return None if metadata is None else self._calendar_of(metadata)

    @cached_property
    def row_groups(self) -> RowGroups | None:
        """Its row groups as bytes, for another file; None of an encrypted file, and of one whose values are read as
        others than they are.
        """
        if BaseFormat.of(self._path) is BaseFormat.ORC:
            return None
        if self._metadata is None:
            self.footer()
        if self._encrypted is not None or self._calendar_of(self._metadata) is not None:
            return None
        return RowGroups(self._source, self._path, self._tail)

    def rows(
        self,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        names: SourceNames | None = None,
        condition: RowCondition | None = None,
        batch_rows: int = BATCH_ROWS,
        encoded: Collection[str] = (),
        groups: Sequence[int] | None = None,
        number_as: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Streams the file, one row group in memory at a time; only some row groups of a Parquet file, by number.

        `columns` picks columns of the file as it is; `schema` instead gives batches of that schema, older types
        promoted and missing columns filled (SchemaError where that can't be); `names` are the file's names for renamed
        columns. `condition` spares row groups whose statistics exclude it, and the other columns of rows that fail it,
        in files without renamed columns: rows that fail it may still come. Text columns that are `encoded` by name come
        with their dictionaries where the file has some. `number_as` names a column for the numbers of the rows of a
        Parquet file, which `schema` has, too; without a schema it comes last.

        Raises CorruptFileError for a damaged file, EncryptedFileError
        for one whose keys are missing.
        """
        wanted = _wanted(columns, schema, names)
        if BaseFormat.of(self._path) is BaseFormat.ORC:
            batches = self._orc_batches(wanted)
        else:
            target = None if names else schema
            kept = () if names else self._encoded(encoded, groups)
            # The condition names the columns of today, of which the file may have others by the same names.
            known = None if names else condition
            batches = self._parquet_batches(wanted, known, batch_rows, target, kept, groups, number_as)
        for batch in batches:
            yield batch if schema is None else project(batch, schema, names or {}, encoded=bool(encoded))

    def _orc_batches(self, wanted: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with damage_named(self._path):
            yield from self.orc.batches(wanted)

    @cached_property
    def orc(self) -> OrcRows:
        """An ORC file as such. CorruptFileError when it can't be read."""
        from pyarrow import orc

        with damage_named(self._path):
            return OrcRows(orc.ORCFile(self._source), self._source, self._path)

    def text_among(self, column: str, wanted: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """The values of a text column, part by part, with the position of the first one of each part.

        Without row groups whose statistics exclude all `wanted` values.
        """
        start = 0
        groups = self.row_groups if self._has_several_groups() else None
        if groups is None:
            for batch in self.rows(columns=[column], batch_rows=_COMPARED_ROWS):
                yield start, batch.column(0)
                start += batch.num_rows
            return
        texts = wanted.cast(pa.binary())  # compared by the order of their bytes
        for number, (rows, bounds) in enumerate(zip(groups.rows, groups.text_bounds(column), strict=True)):
            at, start = start, start + rows
            low, high = bounds or (b"", b"")
            if bounds is None or pc.any(pc.and_(pc.greater_equal(texts, low), pc.less_equal(texts, high))).as_py():
                for batch in self.rows(columns=[column], batch_rows=_COMPARED_ROWS, groups=(number,)):
                    yield at, batch.column(0)
                    at += batch.num_rows

    def groups_left(self, condition: RowCondition | None, schema: Schema) -> tuple[int, int]:
        """How many row groups statistics leave `rows` with this condition and schema, and how many there are; none of
        an ORC file.
        """
        if BaseFormat.of(self._path) is BaseFormat.ORC:
            return 0, 0
        with damage_named(self._path):
            self._look_ahead()
            file = self._parquet(())
            self._look(file.metadata)
            if self._encrypted is not None and self._encrypted.hidden:
                return file.num_row_groups, file.num_row_groups
            statistics = Statistics.of(self._source, condition, self.keys)
            calendar = self._calendar_of(file.metadata)
            return len(_groups_to_read(file, calendar, statistics, schema)), file.num_row_groups

    def _parquet_batches(
        self,
        wanted: Sequence[str] | None,
        condition: RowCondition | None,
        batch_rows: int,
        target: Schema | None,
        encoded: Sequence[str],
        groups: Sequence[int] | None,
        number_as: str | None,
    ) -> Iterator[pa.RecordBatch]:
        source, path = self._source, self._path
        with damage_named(path):
            self._look_ahead()
            hides = self._encrypted is not None and bool(self._encrypted.hidden)
            statistics = None if hides else Statistics.of(source, condition, self.keys)
            if statistics is not None:
                self._look(statistics.metadata)
                self._metadata = statistics.metadata  # read once for both
            file = self._parquet(tuple(encoded))
            self._look(file.metadata)
            if self._encrypted is not None and any(LegacyCalendar.stated(file.metadata)):
                self._encrypted.check(None, path)  # the types of all columns are looked at
            calendar = self._calendar_of(file.metadata)
            columns = wanted
            if wanted is not None:
                present = set(file.schema_arrow.names)
                columns = [name for name in wanted if name in present]
            if self._encrypted is not None:
                self._encrypted.check(columns, path)
            # values are in the file's calendar, and statistics, too
            sought = None
            if condition is not None and columns is not None and calendar is None:
                sought = condition if _fits(condition, file.schema_arrow, columns, target) else None
            seen = False
            left = groups if groups is not None else _groups_to_read(file, calendar, statistics, target)
            runs: Iterable[Sequence[int]] = [[group] for group in left]
            if sought is None:  # Arrow fetches what is read together in few requests, and keeps its bytes to the end
                sizes = file.metadata.row_group
                runs = in_groups(left, lambda group: sizes(group).total_byte_size, _TOGETHER_BYTES)
            numbers = None if number_as is None else RowPositions.of_file(number_as, file.metadata)
            for run in runs:
                batches = None
                if sought is not None and columns is not None:
                    batches = matching_rows(file, run[0], sought, columns, batch_rows, self._with_dictionaries, numbers)
                if batches is None:
                    batches = file.iter_batches(batch_size=batch_rows, row_groups=run, columns=columns)
                    batches = batches if numbers is None else numbers.added(batches, run)
                for batch in batches:
                    seen = True
                    plain = _without_metadata(batch)
                    yield plain if calendar is None else calendar.proleptic(plain)
            if not seen:
                schema = file.schema_arrow.remove_metadata()
                held = schema if columns is None else pa.schema([schema.field(name) for name in columns])
                held = held if numbers is None else held.append(numbers.field)
                yield pa.RecordBatch.from_pylist([], schema=held)

    def _has_several_groups(self) -> bool:
        """Of a file with one there is nothing to leave out, and no footer to be read for it."""
        if self._metadata is None:
            self.footer()
        return self._metadata is not None and self._metadata.num_row_groups > 1

    def _parquet(self, encoded: tuple[str, ...]) -> pq.ParquetFile:
        """Made once: Arrow looks at all columns for it."""
        if encoded not in self._files:
            self._files[encoded] = parquet_file(self._source, self._metadata, encoded, self.keys)
        return self._files[encoded]

    def _calendar_of(self, metadata: pq.FileMetaData) -> LegacyCalendar | None:
        """Made once: Arrow copies all entries of the footer for it."""
        if self._calendar is None:
            self._calendar = (LegacyCalendar.of(metadata, self._path),)
        return self._calendar[0]

    def _look_ahead(self) -> None:
        """With keys, reads the footer first, which shows the columns that are hidden."""
        if self.keys is not None and self._metadata is None:
            self.footer()

    def _look(self, metadata: pq.FileMetaData) -> None:
        """EncryptedFileError for an encrypted file without keys: Arrow would end the process at some of its columns."""
        if self.keys is None and self._metadata is None:
            encryption_of(partial(read_end, self._source), metadata, None, self._path)

    def _with_dictionaries(self, columns: Sequence[str]) -> pq.ParquetFile:
        return self._parquet(tuple(self._encoded(columns)))

    def _encoded(self, among: Collection[str], numbers: Sequence[int] | None = None) -> Sequence[str]:
        groups = self.row_groups if among else None
        return groups.encoded_columns(among, numbers) if groups is not None else ()


@contextmanager
def open_base(storage: Storage, path: str, size: int | None = None) -> Iterator[OpenBaseFile]:
    """Opens a base file. `size` in bytes, where a listing or commit metadata states it, spares the request for it."""
    with storage.open_input(path, size=size) as source:
        yield OpenBaseFile(source, path, keys_of(storage))


def read_base(
    storage: Storage,
    path: str,
    *,
    size: int | None = None,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    names: SourceNames | None = None,
    condition: RowCondition | None = None,
    batch_rows: int = BATCH_ROWS,
    number_as: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Opens a base file and streams its rows, as `OpenBaseFile.rows`."""
    with open_base(storage, path, size) as file:
        yield from file.rows(
            columns=columns,
            schema=schema,
            names=names,
            condition=condition,
            batch_rows=batch_rows,
            number_as=number_as,
        )


def _wanted(columns: Sequence[str] | None, schema: Schema | None, names: SourceNames | None) -> Sequence[str] | None:
    if schema is None:
        return columns
    sources = (names.get(name, name) if names else name for name in schema.names())
    return [source for source in sources if source is not None]


def _groups_to_read(
    file: pq.ParquetFile, calendar: LegacyCalendar | None, statistics: Statistics | None, target: Schema | None
) -> Sequence[int]:
    every = range(file.num_row_groups)
    if statistics is None or calendar is not None:
        return every
    return statistics.groups_left() if target is None or _same_types(file.schema_arrow, target) else every


def _same_types(held: pa.Schema, target: Schema) -> bool:
    """Whether the file's statistics mean what the filter means. A column that was widened may compare otherwise."""
    for field in to_arrow(target):
        at = held.get_field_index(field.name)
        if at >= 0 and not pa.types.is_nested(field.type) and held.field(at).type != field.type:
            return False
    return True


def _fits(condition: RowCondition, held: pa.Schema, columns: Sequence[str], target: Schema | None) -> bool:
    """Whether the columns of a file as it holds them show which rows fulfil the condition."""
    if not set(condition.columns) <= set(columns):
        return False
    wanted = held if target is None else to_arrow(target)
    return all(held.field(name).type == wanted.field(name).type for name in condition.columns)


def _without_metadata(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.replace_schema_metadata(None) if batch.schema.metadata else batch
