"""A block of a log file: its kind, its headers, and its content, which is read when asked for (format guide 6)."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.avro import decode_batches, decode_values, parse_record
from skep_format.avro.types import arrow_field
from skep_format.errors import CorruptFileError, FormatError, SchemaError, UnsupportedError
from skep_format.hfile import HFile
from skep_format.instant_time import InstantTime
from skep_format.logfile.deletes import read_deletes
from skep_format.logfile.kryo_deletes import read_kryo_deletes
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import OPERATION, RECORD_KEY, Schema, StructType

T = TypeVar("T")

MAGIC: Final = b"#HUDI#"
_INT: Final = struct.Struct(">i")
_CONTENT_HEADER: Final = struct.Struct(">ii")  # version and count (data) or size (deletes)
CONTENT_VERSION: Final = 3


class BlockType(IntEnum):
    """By the ordinal in the file. CORRUPT is never written: the reader makes it of bytes that are no block."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6

    @property
    def has_records(self) -> bool:
        """Whether a block of this type holds data."""
        return self >= BlockType.AVRO_DATA


class HeaderKey(IntEnum):
    """By the ordinal in the file. From RECORD_POSITIONS on they belong to table versions 8 and 9."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True)
class LogBlock:
    """One block. `offset` is where it begins in the file `path`, `size` how far it reaches, framing included."""

    type: BlockType
    headers: Mapping[HeaderKey, str]
    path: str
    offset: int
    size: int
    content_offset: int
    content_size: int
    _file: Any = field(repr=False, compare=False)

    @property
    def instant_time(self) -> InstantTime:
        """The instant that wrote the block. Raises FormatError for a block without one; corrupt blocks have none."""
        return InstantTime(self._required(HeaderKey.INSTANT_TIME))

    @property
    def target_instant_time(self) -> InstantTime:
        """The instant that a command block rolls back."""
        return InstantTime(self._required(HeaderKey.TARGET_INSTANT_TIME))

    @property
    def compacted_times(self) -> tuple[InstantTime, ...]:
        """The instants whose blocks this one replaces: a log compaction's result. Empty for all other blocks."""
        text = self.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(InstantTime(time.strip()) for time in text.split(",") if time.strip())

    @property
    def is_partial(self) -> bool:
        """Whether the rows have only the columns that an update sets."""
        return self.headers.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    @property
    def is_rollback(self) -> bool:
        """Whether it is a command block that rolls back an instant."""
        return self.type is BlockType.COMMAND and self.headers.get(HeaderKey.COMMAND_BLOCK_TYPE, "0") == "0"

    @property
    def schema_text(self) -> str:
        """The Avro schema that the records were written with, meta columns included."""
        return self._required(HeaderKey.SCHEMA)

    @property
    def schema(self) -> Schema:
        """The schema that the records were written with. FormatError where it does not parse."""
        return self._parsed(parse_avro)

    @property
    def holds_operations(self) -> bool:
        """Whether each record states by which operation it came, `_hoodie_operation`."""
        if not self.type.has_records or OPERATION not in self.headers.get(HeaderKey.SCHEMA, ""):
            return False
        return OPERATION in self._record().names()

    def _record(self) -> StructType:
        """The type of the records; Hudi's own records (archived timelines) have unions that no table has."""
        return self._parsed(_record_type)

    def _parsed(self, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.schema_text)
        except SchemaError as error:
            raise FormatError(f"{self._place}: {error.message}", path=self.path, offset=self.offset) from error

    @cached_property
    def record_positions(self) -> npt.NDArray[np.uint64] | None:
        """Row numbers in the base file that the records or deletes belong to, ascending; None without that header."""
        text = self.headers.get(HeaderKey.RECORD_POSITIONS)
        return None if text is None else read_positions(text, self._place, self.path, self.offset)

    def content(self) -> pa.Buffer:
        """The content's bytes, read now."""
        return pa.py_buffer(read_exactly(self._file, self.content_offset, self.content_size, self.path))

    def records(self, columns: Collection[str] | None = None) -> pa.Table:
        """The rows of a data or CDC block in the SCHEMA header's Arrow form; `columns` keeps only these."""
        return pa.Table.from_batches(self.batches(columns))

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """As `records`, in batches; at least one, which may be empty."""
        match self.type:
            case BlockType.AVRO_DATA | BlockType.CDC_DATA:
                yield from self._avro_batches(columns)
            case BlockType.PARQUET_DATA:
                yield from self._parquet_batches(columns)
            case BlockType.HFILE_DATA:
                yield from self._hfile_batches(columns)
            case _:
                raise UnsupportedError(
                    f"{self._place}: a {self.type.name} block has no rows of the table",
                    path=self.path,
                    offset=self.offset,
                )

    def deletes(self) -> pa.Table:
        """The entries of a delete block: `record_key`, `partition_path`, `ordering_value`.

        The ordering value has the type of its wrapper, null where the delete applies whatever the order (the whole
        column is of type null where no entry has one); with several ordering fields it is a struct.
        """
        if self.type is not BlockType.DELETE:
            raise UnsupportedError(f"{self._place}: not a delete block", path=self.path, found=self.type.name)
        content = self.content()
        version, size = self._content_header(content, "delete block")
        start = _CONTENT_HEADER.size
        if size < 0 or size != len(content) - start:
            raise self._corrupt("deletes of a wrong length", size, len(content) - start)
        rest, at = content.slice(start), self.content_offset + start
        if version < CONTENT_VERSION:
            return read_kryo_deletes(rest, version, self.path, at)
        return read_deletes(rest, self.path, at)

    def _avro_batches(self, columns: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        content = self.content()
        _, count = self._content_header(content, "Avro data")
        starts, lengths = self._walk(content, count)
        yield from decode_batches(
            self._record(), content, starts, lengths, columns=columns, path=self.path, offset=self.content_offset
        )

    def _walk(self, content: pa.Buffer, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where each record begins and how long it is, by the lengths in front of them."""
        at = _CONTENT_HEADER.size
        size = len(content)
        if not 0 <= count <= (size - at) // _INT.size:
            raise self._corrupt("a record count that does not fit", count, (size - at) // _INT.size)
        starts: list[int] = []
        add, unpack, view = starts.append, _INT.unpack_from, memoryview(content)
        try:
            for _ in range(count):
                (length,) = unpack(view, at)
                at += 4
                add(at)
                at += length
        except struct.error as error:
            raise self._corrupt("record lengths that leave the block", at, size) from error
        if at != size:
            raise self._corrupt("records that don't fill the block", at, size)
        begin = np.array(starts, np.int64)
        lengths = np.diff(begin, append=size + _INT.size) - _INT.size
        if (lengths < 0).any():
            raise self._corrupt("a negative record length", int(lengths.min()), 0)
        return begin, lengths

    def _parquet_batches(self, columns: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = [f for f in self._record().fields if columns is None or f.name in columns]
        target = pa.schema([arrow_field(field) for field in wanted])
        try:
            file = pq.ParquetFile(pa.BufferReader(self.content()), coerce_int96_timestamp_unit="us")
            rows = file.read(columns=[field.name for field in wanted])
            table = pa.table([rows[field.name].cast(field.type) for field in target], schema=target)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise CorruptFileError(
                f"{self._place}: unreadable Parquet data: {error}", path=self.path, offset=self.content_offset
            ) from error
        yield from table.to_batches() or [pa.RecordBatch.from_pylist([], schema=target)]

    def _hfile_batches(self, columns: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their keys. Their own key column is blank: the HFile's key stands for it."""
        content = self.content().to_pybytes()
        nothing = pa.RecordBatch.from_pydict({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
        entries = HFile(content, self.path, self.content_offset).scan() if content else iter([nothing])
        for part in entries:
            value = part.column("value")
            rows = decode_values(self._record(), value, columns=columns, path=self.path, offset=self.content_offset)
            at = rows.schema.get_field_index(RECORD_KEY)
            if at >= 0:
                held = rows.column(at)
                try:
                    keys = part.column("key").cast(pa.string())
                except pa.ArrowInvalid as error:
                    raise self._corrupt("a key that is not UTF-8", str(error), "text") from error
                named = pc.if_else(pc.equal(held, "").fill_null(True), keys, held)
                rows = rows.set_column(at, rows.schema.field(at), named)
            yield rows

    @property
    def _place(self) -> str:
        return f"{self.path}: block at byte {self.offset}"

    def _required(self, key: HeaderKey) -> str:
        value = self.headers.get(key)
        if value is None:
            raise FormatError(
                f"{self._place}: {self.type.name} block without header {key.name}", path=self.path, offset=self.offset,
                expected=key.name,
            )  # fmt: skip
        return value

    def _content_header(self, content: pa.Buffer, what: str) -> tuple[int, int]:
        """Its version, and a number."""
        if len(content) < _CONTENT_HEADER.size:
            raise self._corrupt("content too short", len(content), _CONTENT_HEADER.size)
        version, number = _CONTENT_HEADER.unpack_from(content)
        if not 1 <= version <= CONTENT_VERSION:
            raise UnsupportedError(
                f"{self._place}: {what} of content version {version}; skep reads 1 to {CONTENT_VERSION}",
                path=self.path, offset=self.offset, found=version,
            )  # fmt: skip
        return version, number

    def _corrupt(self, what: str, found: object, expected: object) -> CorruptFileError:
        return CorruptFileError(
            f"{self._place}: {what}: found {found}, expected {expected}", path=self.path, offset=self.content_offset,
            found=found, expected=expected,
        )  # fmt: skip


_record_type = lru_cache(maxsize=64)(parse_record)


def read_exactly(file: Any, offset: int, size: int, path: str) -> bytes:
    """`size` bytes from `offset`. CorruptFileError, naming `path`, where the file ends before."""
    data: bytes = file.read_at(size, offset)
    if len(data) != size:
        problem = f"cut short: {size} bytes expected at byte {offset}, found {len(data)}"
        raise CorruptFileError.of_file(path, problem, offset=offset, found=len(data), expected=size)
    return data


def read_positions(text: str, place: str, path: str, offset: int) -> npt.NDArray[np.uint64]:
    """The base64 text of a 64-bit roaring bitmap in its portable form."""
    import pyroaring

    try:
        bitmap = pyroaring.BitMap64.deserialize(base64.b64decode(text, validate=True))
        return np.asarray(bitmap.to_array(), np.uint64)
    except (binascii.Error, ValueError) as error:
        raise CorruptFileError(f"{place}: unreadable record positions: {error}", path=path, offset=offset) from error


def format_positions(positions: npt.NDArray[np.uint64]) -> str:
    """Row numbers as the header stores them: a portable 64-bit Roaring bitmap in base64."""
    import pyroaring

    bitmap = pyroaring.BitMap64(positions)
    bitmap.run_optimize()
    return base64.b64encode(bitmap.serialize()).decode("ascii")
