"""ORC base files as Hudi writes them: what pyarrow does not show of their footers, and their values in a table's types.

Hudi keeps an instant as ORC's timestamp, which is a wall clock in the time zone of the JVM that wrote the stripe, and
times of day and timestamps without zone as the numbers that they are in Avro. Files of others, which a bootstrap leaves
where they are, have no Avro schema: in those, too, a timestamp is an instant, as Spark writes it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import keys
from skep_format.errors import CorruptFileError, SchemaError, SkepError, UnsupportedError
from skep_format.protobuf import format_message, read_message, read_varint
from skep_format.schema.arrow import rebuilt, to_arrow
from skep_format.schema.avro import parse_avro
from skep_format.schema.evolve import around

if TYPE_CHECKING:  # imported where an ORC file is opened
    from pyarrow.orc import ORCFile

# Fields of the messages in an ORC file, by their numbers.
_TAIL_POSTSCRIPT, _TAIL_FOOTER = 1, 2
_STRIPES, _TYPES, _USER_METADATA, _COLUMN_STATISTICS = 3, 4, 5, 7
_KIND, _CHILDREN, _NAMES = 1, 2, 3
_VALUES, _OF_INTEGERS, _OF_TEXTS, _OF_TIMES = 1, 2, 4, 9
_LOW, _HIGH, _SUM, _LOW_UTC, _HIGH_UTC = 1, 2, 3, 3, 4
_STRIPE_START, _INDEX_BYTES, _DATA_BYTES, _FOOTER_BYTES, _STRIPE_ROWS = 1, 2, 3, 4, 5
_STREAMS, _WRITER_ZONE = 1, 3
_STREAM_TYPE, _STREAM_BYTES = 2, 3
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_BYTES = 1, 2, 3

_TIMESTAMP, _INSTANT = 9, 18
_NONE, _ZLIB, _ZSTD = 0, 1, 5
_CODECS: Final = {2: "snappy", 4: "lz4_raw"}
_UTC: Final = ("", "UTC", "GMT", "Etc/UTC", "Z")
# Arrow reads timestamps of ORC in nanoseconds, which end in 1677 and 2262.
MOST_MILLIS: Final = (2**63 - 1) // 1_000_000
# A chunk of a compressed stream has its length and whether it is as it was in three bytes.
_CHUNK_HEAD: Final = 3
LONGEST_POSTSCRIPT: Final = 255


def with_user_metadata(end: bytes, entries: Mapping[str, str]) -> bytes:
    """The end of an ORC file, its postscript at least, with entries added to its footer.

    The footer goes on with chunks that are not compressed: messages that follow each other are one.
    """
    length = end[-1]
    behind = len(end) - 1 - length
    postscript = list(read_message(end[behind:-1]))
    known = dict(postscript)
    items = [(_USER_METADATA, format_message([(1, k.encode()), (2, v.encode())])) for k, v in entries.items()]
    added = format_message(list(items))
    if known.get(_COMPRESSION, _NONE) != _NONE:
        most = int(known[_BLOCK_BYTES])
        chunks = (added[at : at + most] for at in range(0, len(added), most))
        added = b"".join((len(chunk) << 1 | 1).to_bytes(_CHUNK_HEAD, "little") + chunk for chunk in chunks)
    length = int(known[_FOOTER_LENGTH]) + len(added)
    # The fields as they are, in their order, but for the first.
    changed = b"".join(
        format_message([(number, length if number == _FOOTER_LENGTH else value)]) for number, value in postscript
    )
    return end[:behind] + added + changed + bytes([len(changed)])


@dataclass(frozen=True, slots=True)
class _Stripe:
    """Where the footer of a stripe is, and the rows that are stated for it."""

    footer_start: int
    footer_bytes: int
    rows: int


class OrcRows:
    """The rows of an opened ORC file, with types as its Avro schema states them where it has one."""

    def __init__(self, file: ORCFile, source: pa.NativeFile, path: str) -> None:
        self._file, self._source, self._path = file, source, path
        tail = dict(read_message(file.reader.serialized_file_tail()))
        self._postscript = dict(read_message(_bytes(tail[_TAIL_POSTSCRIPT])))
        self._footer = list(read_message(_bytes(tail[_TAIL_FOOTER])))
        self._stripes = [_stripe(_bytes(value)) for number, value in self._footer if number == _STRIPES]
        if (found := sum(stripe.rows for stripe in self._stripes)) != file.nrows:
            problem = f"{found} rows in {self.count} stripes, the footer states {file.nrows}"
            raise CorruptFileError.of_file(path, problem, found=found, expected=file.nrows)

    @property
    def count(self) -> int:
        """How many stripes it has."""
        return len(self._stripes)

    def _stripe(self, number: int, wanted: Sequence[str]) -> pa.RecordBatch:
        """The rows of a stripe as ORC has them."""
        stripe = self._stripes[number]
        if not wanted:  # its rows still count, which pyarrow does not give without a column
            return pa.RecordBatch.from_arrays([pa.nulls(stripe.rows)], names=[""]).select([])
        batch = self._file.read_stripe(number, columns=wanted)
        if batch.num_rows != stripe.rows:
            problem = f"{batch.num_rows} rows in stripe {number}, {stripe.rows} are stated"
            raise CorruptFileError.of_file(self._path, problem, found=batch.num_rows, expected=stripe.rows)
        # ORC gives columns in the file's order whatever was asked for.
        return batch.select(wanted)

    def _wanted(self, columns: Sequence[str] | None) -> Sequence[str]:
        present = self._file.schema.names
        return present if columns is None else [name for name in columns if name in present]

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """One batch a stripe, of the columns that the file has among these; a batch without rows where there is none.

        CorruptFileError for a stripe with another number of rows than is stated; UnsupportedError for timestamps that
        can't be read exactly.
        """
        wanted = self._wanted(columns)
        self.check_times(wanted)
        for number in range(self.count):
            yield self._typed(self._stripe(number, wanted), self._stripes[number])
        if not self._stripes:
            schema = pa.schema([self._file.schema.field(name) for name in wanted])
            yield self._typed(pa.RecordBatch.from_pylist([], schema=schema), None)

    def instants(self) -> str | None:
        """A column with values of ORC's type of instants, which Spark and Hudi don't know; None without any."""
        return next((field.name for field in self._file.schema if _has_times(field.type, zoned=True)), None)

    def damage(self) -> Iterator[str]:
        """What can't be read of the stripes, or is otherwise than the footer's statistics state: ORC has no checksums.

        One stripe is in memory at a time.
        """
        names = self._file.schema.names
        found = {name: _Measure() for name in names}
        broken = False
        for number in range(self.count):
            try:
                batch = self._stripe(number, names)
                batch.validate(full=True)
            except (SkepError, pa.ArrowException, OSError, ValueError, zlib.error) as error:
                broken = True
                message = error.message if isinstance(error, SkepError) else str(error)
                yield f"stripe {number}: {message.removeprefix(f'{self._path}: ')}"
                continue
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                found[name].add(column)
        for name, top in zip(names, self._kinds[0][1], strict=True):
            if not broken and top < len(self._statistics) and found[name].differs(self._statistics[top]):
                yield f"column {name}: values that its statistics do not state"

    @cached_property
    def _statistics(self) -> list[bytes]:
        """Of all columns, those of nested ones included."""
        return [_bytes(value) for number, value in self._footer if number == _COLUMN_STATISTICS]

    @cached_property
    def _kinds(self) -> list[tuple[int, list[int], list[str]]]:
        return [_type_of(_bytes(value)) for number, value in self._footer if number == _TYPES]

    @cached_property
    def _stated(self) -> Mapping[str, pa.DataType]:
        text = (self._file.metadata or {}).get(keys.ORC_AVRO_SCHEMA.encode())
        try:
            schema = without_avro(self._file.schema) if text is None else to_arrow(parse_avro(text.decode()))
            return {field.name: field.type for field in schema}
        except SchemaError as error:
            raise SchemaError.of_file(self._path, error.message) from error

    def _typed(self, batch: pa.RecordBatch, stripe: _Stripe | None) -> pa.RecordBatch:
        batch = batch.replace_schema_metadata(None)
        kinds = [(self._stated.get(field.name), field.type) for field in batch.schema]
        zone = "UTC"
        if stripe is not None and any(kind is not None and _has_times(found) for kind, found in kinds):
            zone = self._zone(stripe)
        columns, fields = [], []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            kind = self._stated.get(field.name)
            try:
                column = column if kind is None else _as_stated(column, kind, zone)
            except pa.ArrowInvalid as error:
                raise UnsupportedError(
                    f"{self._path}, column {field.name}: timestamps in the time zone {zone} are not exact: {error}",
                    hint="write the file again in microseconds, with a JVM whose time zone is UTC",
                    path=self._path,
                    column=field.name,
                ) from error
            columns.append(column)
            fields.append(pa.field(field.name, column.type))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if columns else batch

    def _zone(self, stripe: _Stripe) -> str:
        zone = _bytes(dict(self._footer_of(stripe)).get(_WRITER_ZONE, b"")).decode()
        return "UTC" if zone in _UTC else zone

    def _footer_of(self, stripe: _Stripe) -> Iterator[tuple[int, int | bytes]]:
        return read_message(self._plain(self._source.read_at(stripe.footer_bytes, stripe.footer_start)))

    def _types(self, wanted: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """The types within columns: the column's name, the type's number and its kind."""
        types = self._kinds
        names, tops = types[0][2], types[0][1]
        for name, first in zip(names, tops, strict=True):
            end = next((top for top in tops if top > first), len(types))
            yield from ((name, number, types[number][0]) for number in range(first, end) if name in wanted)

    def about_bytes(self, columns: Sequence[str]) -> int:
        """What columns take in the file, where all of its stripes are like the first."""
        if not self._stripes:
            return 0
        first, numbers = self._stripes[0], {number for _, number, _ in self._types(columns)}
        streams = [dict(read_message(_bytes(value))) for field, value in self._footer_of(first) if field == _STREAMS]
        taken = sum(int(each.get(_STREAM_BYTES, 0)) for each in streams if each.get(_STREAM_TYPE, 0) in numbers)
        return taken * int(self._file.nrows) // max(1, first.rows)

    def _plain(self, stream: bytes) -> bytes:
        """A stream without its compression."""
        kind, most = int(self._postscript.get(_COMPRESSION, _NONE)), int(self._postscript.get(_BLOCK_BYTES, 0))
        if kind == _NONE:
            return stream
        out, at = bytearray(), 0
        while at < len(stream):
            head = int.from_bytes(stream[at : at + _CHUNK_HEAD], "little")
            chunk = stream[at + _CHUNK_HEAD : at + _CHUNK_HEAD + (head >> 1)]
            at += _CHUNK_HEAD + (head >> 1)
            out += chunk if head & 1 else _decompressed(chunk, kind, most)
        return bytes(out)

    def check_times(self, columns: Sequence[str] | None = None) -> None:
        """UnsupportedError where the footer states timestamps in these columns that don't fit nanoseconds."""
        wanted = self._wanted(columns)
        for name, number, kind in self._types(wanted):
            if kind not in (_TIMESTAMP, _INSTANT) or number >= len(self._statistics):
                continue
            bounds = dict(read_message(_bytes(dict(read_message(self._statistics[number])).get(_OF_TIMES, b""))))
            for field in (_LOW, _HIGH, _LOW_UTC, _HIGH_UTC):
                if abs(millis := _signed(int(bounds.get(field, 0)))) >= MOST_MILLIS:
                    raise far_time(self._path, name, millis)


def without_avro(schema: pa.Schema) -> pa.Schema:
    """The types of an ORC file that has no Avro schema: timestamps are instants in microseconds, as Spark has them."""

    def instant(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind

    return pa.schema([rebuilt(field, instant) for field in schema])


def far_time(path: str, column: str, millis: int) -> UnsupportedError:
    """The error for a timestamp that ORC files can hold, and that is not read from them."""
    where = f"{path}, column {column}" if path else f"column {column}"
    return UnsupportedError(
        f"{where}: timestamps before 1677 or after 2262 are not read from ORC files, and not written",
        hint="use a table with base files in Parquet",
        path=path,
        column=column,
        found=f"{millis} milliseconds from 1970",
    )


class _Measure:
    """What the statistics of a column have to be by its values: their number, and of whole numbers and texts bounds and
    a sum, of texts in bytes.
    """

    def __init__(self) -> None:
        self._values = self._sum = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, column: pa.Array) -> None:
        """Further values."""
        self._values += len(column) - column.null_count
        is_text = pa.types.is_string(column.type)
        if not is_text and not pa.types.is_integer(column.type):
            return
        self._sum += pc.sum(pc.binary_length(column) if is_text else column).as_py() or 0
        low, high = (bound.as_py() for bound in pc.min_max(column).values())
        if low is not None:
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def differs(self, statistics: bytes) -> bool:
        """Whether what is stated is otherwise; what is not stated is not."""
        stated = dict(read_message(statistics))
        if stated.get(_VALUES, 0) != self._values:
            return True
        for kind in (_OF_INTEGERS, _OF_TEXTS):
            bounds = dict(read_message(_bytes(stated.get(kind, b""))))
            ends = {_LOW: self._low, _HIGH: self._high}
            for field, found in ends.items() if self._low is not None else ():
                value = bounds.get(field)
                if value is not None and (_signed(value) if isinstance(value, int) else value.decode()) != found:
                    return True
            # Java and Arrow wrap sums that are too large
            if _SUM in bounds and (_signed(int(bounds[_SUM])) - self._sum) % (1 << 64):
                return True
        return False


def _signed(zigzag: int) -> int:
    """A signed number as protobuf writes it."""
    return zigzag >> 1 ^ -(zigzag & 1)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number in place of a message")
    return value


def _stripe(message: bytes) -> _Stripe:
    facts = {number: int(value) for number, value in read_message(message) if isinstance(value, int)}
    start = facts.get(_STRIPE_START, 0) + facts.get(_INDEX_BYTES, 0) + facts.get(_DATA_BYTES, 0)
    return _Stripe(start, facts.get(_FOOTER_BYTES, 0), facts.get(_STRIPE_ROWS, 0))


def _type_of(message: bytes) -> tuple[int, list[int], list[str]]:
    """The kind of a type, the numbers of its children, and their names."""
    kind, children, names = 0, list[int](), list[str]()
    for number, value in read_message(message):
        if number == _KIND:
            kind = int(value)
        elif number == _CHILDREN and isinstance(value, int):
            children.append(value)
        elif number == _CHILDREN:
            packed, at = _bytes(value), 0
            while at < len(packed):
                child, at = read_varint(packed, at)
                children.append(child)
        elif number == _NAMES:
            names.append(_bytes(value).decode())
    return kind, children, names


def _decompressed(chunk: bytes, kind: int, most: int) -> bytes:
    if kind == _ZLIB:
        return zlib.decompress(chunk, wbits=-zlib.MAX_WBITS)
    if kind == _ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
            found: bytes = stream.read()
            return found
    codec = pa.Codec(_CODECS[kind])

    def fits(size: int) -> bool:
        try:
            codec.decompress(chunk, decompressed_size=size)
        except (OSError, pa.ArrowException):
            return False
        return True

    # Arrow takes the size of what comes out, which no such chunk states.
    size = bisect_left(range(most + 1), True, key=fits)
    data: bytes = codec.decompress(chunk, decompressed_size=size, asbytes=True)
    return data


def _has_times(kind: pa.DataType, *, zoned: bool = False) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(at).type, zoned=zoned) for at in range(kind.num_fields))
    return pa.types.is_timestamp(kind) and (kind.tz is not None) is zoned


def _as_stated(values: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Values as ORC has them in the type that the Avro schema states, where ORC has another for it."""
    found, t = values.type, pa.types
    if t.is_timestamp(kind) and t.is_timestamp(found):
        if found.tz is None:
            values = values.cast(pa.timestamp("ns", "UTC")) if zone == "UTC" else pc.assume_timezone(values, zone)
        return values.cast(pa.timestamp("ns", kind.tz)).cast(kind)
    if (t.is_timestamp(kind) or t.is_time(kind)) and t.is_integer(found):
        return values.cast(kind)
    if t.is_struct(found) and t.is_struct(kind):
        members = {member.name: member.type for member in kind}
        columns = [
            _as_stated(values.field(at), members.get(member.name, member.type), zone) for at, member in enumerate(found)
        ]
        fields = [pa.field(member.name, column.type) for member, column in zip(found, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())
    if t.is_list(found) and t.is_list(kind):
        elements = _as_stated(values.values, kind.value_type, zone)
        made = pa.list_(found.value_field.with_type(elements.type))
        return around(values, made, elements)
    if t.is_map(found) and t.is_map(kind):
        items = _as_stated(values.items, kind.item_type, zone)
        made = pa.map_(found.key_type, found.item_field.with_type(items.type))
        return around(
            values, made, pa.StructArray.from_arrays([values.keys, items], fields=[made.key_field, made.item_field])
        )
    return values
