"""Writing rows as ORC: by pyarrow's writer, whose footer gets the entries that Hudi keeps in it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile.options import BaseFileOptions
from skep_format.basefile.orc_file import LONGEST_POSTSCRIPT, MOST_MILLIS, far_time, with_user_metadata
from skep_format.schema.arrow import rebuilt, without_metadata
from skep_format.schema.evolve import around

if TYPE_CHECKING:  # imported where a file is written
    from pyarrow.orc import ORCWriter

log = logging.getLogger("skep.write")

_LARGEST_WRITE: Final = 1 << 20
# Rows after which pyarrow's writer looks whether a stripe is full.
_ROWS_AT_ONCE: Final = 8192
_SAMPLED_ROWS: Final = 8192
# A column with fewer different texts than this part of its rows has a dictionary, as in the files of Java's writer.
_DICTIONARY_SHARE: Final = 0.8


class _HeldEnd:
    """A sink that keeps its last bytes back, so that they may become others."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self._held = bytearray()
        self._passed = 0
        self.closed = False
        self.dropped = False
        """What is written from now on is not kept."""
        self.failure: BaseException | None = None
        """Of the sink, which pyarrow's ORC writer raises as another one."""

    def write(self, data: bytes) -> int:
        """As files have it, like what follows."""
        if not self.dropped:
            self._held += data
            if len(self._held) > _LARGEST_WRITE:
                self._pass(len(self._held) - LONGEST_POSTSCRIPT - 1)
        return len(data)

    def _pass(self, count: int) -> None:
        try:
            self._passed += self._sink.write(bytes(self._held[:count]))
        except BaseException as error:
            self.failure = error
            raise
        del self._held[:count]

    def tell(self) -> int:
        """Where the next byte is written."""
        return self._passed + len(self._held)

    def flush(self) -> None:
        """Nothing: the last bytes are kept back."""

    def end(self, entries: Mapping[str, str]) -> None:
        """Writes the bytes that were kept back, with entries in their footer."""
        self._sink.write(with_user_metadata(bytes(self._held), entries))
        self._held.clear()


class OrcOutput:
    """The rows of one ORC file. `schema`: that of its columns, as `orc_schema` has it."""

    def __init__(self, sink: IO[bytes], path: str, schema: pa.Schema, options: BaseFileOptions) -> None:
        self._path, self._schema, self._options = path, schema, options
        self._end = _HeldEnd(sink)
        self._file: ORCWriter | None = None
        self._given_bytes = 0
        self._striped_bytes = 0
        self._sample: pa.Table | None = None
        self._sample_ratio = 0.0

    @property
    def size(self) -> int:
        """About what the file has with all rows given so far, of which the last ones are in no stripe yet."""
        held = self._given_bytes - self._striped_bytes
        if not held:
            return self._end.tell()
        if self._striped_bytes:
            return self._end.tell() + held * self._end.tell() // self._striped_bytes
        if not self._sample_ratio and self._sample is not None:
            written = len(orc_bytes(self._schema, self._sample, self._options, {}))
            self._sample_ratio = written / max(1, self._sample.nbytes)
        return self._end.tell() + int(held * self._sample_ratio)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Appends rows. UnsupportedError for timestamps that are not read again."""
        rows = pa.Table.from_batches(map(_with_plain_structs, batches), self._schema)
        _check_times(rows, self._path)
        if not self._given_bytes:
            self._sample = rows.slice(0, _SAMPLED_ROWS)
        file, before = self._writer(), self._end.tell()
        with self._errors_of_sink():
            file.write(rows)
        self._given_bytes += rows.nbytes
        if self._end.tell() > before:
            self._striped_bytes, self._sample = self._given_bytes, None

    def close(self, entries: Mapping[str, str]) -> None:
        """Writes the rest, and the footer with these entries."""
        with self._errors_of_sink():
            self._writer().close()
        self._end.end(entries)

    def drop(self) -> None:
        """Gives the file up: pyarrow's writer writes a footer even when it is only forgotten."""
        self._end.dropped = True
        if self._file is not None:
            self._file.close()

    @contextmanager
    def _errors_of_sink(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            if self._end.failure is not None:
                raise self._end.failure from None
            raise

    def _writer(self) -> ORCWriter:
        from pyarrow import orc

        if self._file is None:
            self._file = orc.ORCWriter(
                self._end,
                batch_size=_ROWS_AT_ONCE,
                stripe_size=self._options.stripe_bytes,
                compression=self._options.orc_codec,
                dictionary_key_size_threshold=_DICTIONARY_SHARE if self._options.dictionary else 0,
            )
            if not self._given_bytes:
                self._file.write(self._schema.empty_table())
        return self._file


def orc_bytes(schema: pa.Schema, rows: pa.Table, options: BaseFileOptions, entries: Mapping[str, str]) -> bytes:
    """Rows as an ORC file."""
    data = io.BytesIO()
    file = OrcOutput(data, "", schema, options)
    file.write(rows.to_batches())
    file.close(entries)
    return data.getvalue()


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """The types in which Hudi keeps those of a table in ORC: what ORC has no type for is a number there."""
    return pa.schema([rebuilt(field, _in_orc, without_metadata) for field in schema])


def _in_orc(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(kind):
        return pa.int64() if kind.tz is None else pa.timestamp(kind.unit)
    if t.is_int8(kind) or t.is_int16(kind) or t.is_time32(kind):
        return pa.int32()
    if t.is_time64(kind):
        return pa.int64()
    if t.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _with_plain_structs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Structs as pyarrow's ORC writer takes them: it writes other values where one has an offset, and where members of
    one that is null are not null as well.
    """
    columns = [
        _with_plain(pa.concat_arrays([column, column.slice(0, 0)])) if pa.types.is_nested(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_plain(values: pa.Array) -> pa.Array:
    kind, t = values.type, pa.types
    if t.is_struct(kind):
        members = [_with_plain(member) for member in values.flatten()]  # with the nulls of the struct
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=values.is_null())
    if t.is_list(kind) and t.is_nested(kind.value_type):
        return around(values, kind, _with_plain(values.values))
    if t.is_map(kind) and t.is_nested(kind.item_type):
        entries = pa.StructArray.from_arrays(
            [values.keys, _with_plain(values.items)], fields=[kind.key_field, kind.item_field]
        )
        return around(values, kind, entries)
    return values


def _check_times(rows: pa.Table, path: str) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks:
            _check_time(chunk, field.name, path)


def _check_time(values: pa.Array, column: str, path: str) -> None:
    t = pa.types
    if t.is_struct(values.type):
        for at in range(values.type.num_fields):
            _check_time(values.field(at), column, path)
    elif t.is_map(values.type):
        _check_time(values.items, column, path)
    elif t.is_list(values.type):
        _check_time(values.flatten(), column, path)
    elif t.is_timestamp(values.type):
        scale = {"ms": 1, "us": 1000}[values.type.unit]
        for bound in pc.min_max(values.cast(pa.int64())).values():
            if bound.is_valid and abs(millis := bound.as_py() // scale) >= MOST_MILLIS:
                raise far_time(path, column, millis)
