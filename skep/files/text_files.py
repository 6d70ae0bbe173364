"""Files of text as Arrow tables: CSV and JSON lines, whose columns have no types of their own.

All files of one call are read with one type for a column: a first pass lets Arrow infer it, and where the inferred
types differ, or would lose what the text holds, the type is one that fits all files. Files are cut into pieces of whole
records, so that a piece at a time is in memory; a second pass reads them in these types.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from skep_format.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Types = Mapping[str, "pa.DataType"]

_BLOCK_BYTES: Final = 16 << 20  # a row has to fit
_SCAN_BYTES: Final = 32 << 20  # a piece of a file
_KEPT_BYTES: Final = 64 << 20  # files up to this size in all stay in memory after the first pass
_ZONE: Final = r"([zZ]|[+-]\d\d:?\d\d)$"
_LOSSY_INTEGERS: Final = r"^[+-]?0\d"
_LOSSY_DOUBLES: Final = r"^[+-]?(0\d|\d{16,}$)"
"""Texts that numbers do not give back: leading zeros are lost, and digits that a double can't hold."""


class TextColumnWarning(UserWarning):
    """A column of digits is read as text, because numbers would lose some of it."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file, or what came from standard input. `name` is what messages call it; `copy` keeps a temporary file.

    `folders` are names and values of those that it is in, below the one that was named.
    """

    name: str
    format: str
    content: Path | bytes
    copy: IO[bytes] | None = dataclasses.field(default=None, compare=False, repr=False)
    folders: tuple[tuple[str, str | None], ...] = ()

    def open(self) -> pa.NativeFile:
        """The content as a file of bytes, from its start. The caller closes it."""
        import pyarrow as pa

        # (not mapped: pages of a mapped file count as memory of the process)
        return pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.OSFile(str(self.content))

    def text(self) -> io.TextIOWrapper:
        """For reading a few lines, and for finding the line of an error. A byte order mark is skipped."""
        file: IO[bytes] = io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")
        return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")

    def blocks(self) -> Iterator[bytes]:
        """The content, so many bytes at a time."""
        with self.open() as file:
            while block := file.read(_SCAN_BYTES):
                yield block


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records of a file: bytes from `start` to `end`. `line` is the number of its first line, from 1."""

    source: Input
    start: int
    end: int
    line: int

    @property
    def is_first(self) -> bool:
        """Whether it starts the file, and so may hold a header line."""
        return self.start == 0

    def open(self) -> pa.NativeFile:
        """Its bytes in memory."""
        import pyarrow as pa

        with self.source.open() as file:
            file.seek(self.start)
            return pa.BufferReader(file.read_buffer(self.end - self.start))


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of one file: their columns, and a call that reads them from the start, some at a time."""

    source: Input
    schema: pa.Schema
    tables: Callable[[], Iterable[pa.Table]]


class _Decoder:
    """Checks that blocks are UTF-8."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._lines = 0

    def check(self, block: bytes) -> None:
        """InputError, with the line, for what is not; an empty block ends the file."""
        try:
            self._lines += self._decoder.decode(block, final=not block).count("\n")
        except UnicodeDecodeError as error:
            line = self._lines + error.object.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{self._source.name}, line {line}: the file is not in UTF-8",
                hint="convert it: iconv -f LATIN1 -t UTF-8, or whatever its encoding is",
                path=self._source.name,
                line=line,
            ) from error


def _kept(inputs: Sequence[Input]) -> bool:
    """Whether the tables of the first pass are kept for the second."""
    sizes = (len(each.content) if isinstance(each.content, bytes) else each.content.stat().st_size for each in inputs)
    return sum(sizes) <= _KEPT_BYTES


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds the values of both without loss; text where there is no other."""
    import pyarrow as pa

    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        members = {field.name: field.type for field in one}
        for field in other:
            members[field.name] = _common(members.get(field.name, field.type), field.type)
        return pa.struct(list(members.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_common(one.value_type, other.value_type))
    numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)]
    if all(numbers):
        return pa.float64()
    times = [pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in (one, other)]
    if all(times) and getattr(one, "tz", None) == getattr(other, "tz", None):
        return pa.timestamp("us", getattr(one, "tz", None))
    return pa.string()


def _common_types(schemas: Sequence[pa.Schema], known: Types) -> dict[str, pa.DataType]:
    """One type for each column that is not known, of all files."""
    kinds: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            if field.name not in known:
                kinds.setdefault(field.name, []).append(field.type)
    return {name: reduce(_common, found) for name, found in kinds.items()}


def _large_integers(table: pa.Table) -> dict[str, str]:
    """Columns of whole numbers of which a double can't hold all, each with one of these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_integer(field.type):
            large = column.filter(pc.greater(pc.abs(column.cast(pa.int64())), 1 << 53))
            if len(large):
                found[field.name] = str(large[0])
    return found


def _lossy_as_doubles(large: Mapping[str, str], types: Types) -> dict[str, str]:
    """Columns that are doubles in one file, and in another whole numbers that a double can't hold, each with one."""
    import pyarrow as pa

    return {name: text for name, text in large.items() if types.get(name) == pa.float64()}


def _cast_or_none(table: pa.Table, types: Types) -> pa.Table | None:
    """The columns in these types; None when their texts have to be read again."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        wanted = types.get(field.name, field.type)
        if field.type != wanted:
            if pa.types.is_string(wanted) and not pa.types.is_null(field.type):
                return None
            try:
                table = table.set_column(at, pa.field(field.name, wanted), table.column(at).cast(wanted))
            except pa.ArrowException:
                return None
    return table


# -- CSV


def read_csv_files(inputs: Sequence[Input], known: Types, done: Callable[[str], object]) -> list[FileRows]:
    """The rows of each file. InputError names file and line."""
    import pyarrow as pa

    files = [_csv_pieces(each) for each in inputs]
    keep = _kept(inputs)
    tables: dict[_CsvPiece, pa.Table] = {}
    schemas: list[pa.Schema] = []
    texts: dict[str, str] = {}
    large: dict[str, str] = {}
    for pieces in files:
        for piece in pieces:
            table = piece.read(known)
            schemas.append(table.schema)
            texts.update(piece.lossy_as_numbers(table.schema, {*known, *texts}))
            large = {**_large_integers(table), **large}
            if keep:
                tables[piece] = table
        done(pieces[0].piece.source.name)
    types = _common_types(schemas, known)
    texts.update(_lossy_as_doubles({name: text for name, text in large.items() if name not in known}, types))
    for name, example in texts.items():
        warnings.warn(
            f"column {name} is read as text: as a number {example} would become another text (leading zeros, or more"
            f" digits than numbers hold); --schema '{name} bigint' reads numbers",
            TextColumnWarning,
            stacklevel=4,
        )
    types.update(dict.fromkeys(texts, pa.string()))
    every = {**types, **known}

    def read(pieces: Sequence[_CsvPiece]) -> Iterator[pa.Table]:
        for piece in pieces:
            same = _cast_or_none(tables[piece], types) if piece in tables else None
            yield piece.read(every) if same is None else same

    return [
        FileRows(
            pieces[0].piece.source,
            pa.schema([(name, _type_read(every[name])) for name in pieces[0].header]),
            partial(read, pieces),
        )
        for pieces in files
    ]


def _csv_pieces(source: Input) -> list[_CsvPiece]:
    pieces, quoted = _scanned(source)
    with source.text() as text:
        header = tuple(next(csv.reader(text), ()))
    if not header:
        raise InputError(f"{source.name} is empty: there is no header", path=source.name)
    for name in header:
        if header.count(name) > 1:
            raise InputError(
                f"{source.name}, line 1: column {name} occurs twice", path=source.name, line=1, column=name
            )
    return [_CsvPiece(piece, header, quoted) for piece in pieces]


@dataclass(frozen=True, slots=True)
class _CsvPiece:
    piece: Piece
    header: tuple[str, ...]
    quoted: bool

    def read(self, types: Types, only: Sequence[str] | None = None) -> pa.Table:
        """The columns that `types` names in these types, the others in types that fit their texts."""
        import pyarrow as pa

        here = {name: kind for name, kind in types.items() if name in self.header}
        try:
            table = self._parsed({name: _csv_type(kind) for name, kind in here.items()}, only)
        except pa.ArrowException as error:
            raise self._error(here, only, error) from error
        for at, name in enumerate(table.column_names):
            if name in here and _has_zone(here[name]):
                table = table.set_column(at, name, self._instants(name, table.column(at), here[name]))
        return table

    def lossy_as_numbers(self, schema: pa.Schema, known: Set[str]) -> dict[str, str]:
        """Columns of numbers, but for those known, with a text that a number does not give back, each with that."""
        import pyarrow as pa
        import pyarrow.compute as pc

        patterns = {
            field.name: _LOSSY_INTEGERS if pa.types.is_integer(field.type) else _LOSSY_DOUBLES
            for field in schema
            if field.name not in known and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        }
        if not patterns:
            return {}
        found = {}
        texts = self.read(dict.fromkeys(patterns, pa.string()), list(patterns))
        for name, pattern in patterns.items():
            lossy = texts.column(name).filter(pc.match_substring_regex(texts.column(name), pattern))
            if len(lossy):
                found[name] = str(lossy[0])
        return found

    def _parsed(self, types: Types, only: Sequence[str] | None, threads: bool = True) -> pa.Table:
        from pyarrow import csv as arrow_csv

        return arrow_csv.read_csv(
            self.piece.open(),
            read_options=arrow_csv.ReadOptions(
                use_threads=threads,
                block_size=_BLOCK_BYTES,
                column_names=None if self.piece.is_first else self.header,
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=self.quoted),
            convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=list(only or ())),
        )

    def _error(self, types: Types, only: Sequence[str] | None, error: Exception) -> InputError:
        """The same error with the line, which only a reader with one thread reports."""
        import pyarrow as pa

        try:
            self._parsed({name: _csv_type(kind) for name, kind in types.items()}, only, threads=False)
        except pa.ArrowException as again:
            error = again
        reason = re.sub(r"^CSV parse error: ", "", str(error))
        row = re.search(r"Row #(\d+): ", reason)
        column = re.match(r"In CSV column #(\d+): ", reason)
        name = self.header[int(column[1])] if column else None
        reason = re.sub(r"^In CSV column #\d+: |Row #\d+: |CSV conversion error to ", "", reason)
        first = self.piece.line
        line = first + int(row[1]) - 1 if row else None
        where = f", line {line}" if row else ""
        if row and self.quoted:  # a row may have several lines
            where = f", row {row[1]}" if self.piece.is_first else f", row {row[1]} from line {first} on"
        where += f": column {name}" if name else ""
        hint = f"--schema '{name} string' reads it as another type" if name in types else None
        return InputError(
            f"{self.piece.source.name}{where}: {reason}",
            hint=hint,
            path=self.piece.source.name,
            line=line,
            column=name,
        )

    def _instants(self, name: str, texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Times with a zone as they are, those without in UTC."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.if_else(pc.equal(texts, ""), None, texts)
        zoned = pc.match_substring_regex(texts, _ZONE)
        try:
            plain = pc.if_else(zoned, None, texts).cast(pa.timestamp("us"))
            return pc.coalesce(pc.if_else(zoned, texts, None).cast(kind), pc.assume_timezone(plain, "UTC").cast(kind))
        except pa.ArrowException as error:
            raise InputError(
                f"{self.piece.source.name}: column {name}: {error}", path=self.piece.source.name, column=name
            ) from error


def _has_zone(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    """What a reader of CSV can make of text; the rest is left as text."""
    import pyarrow as pa

    plain = (
        *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_binary),
    )
    return kind if any(is_kind(kind) for is_kind in plain) and not _has_zone(kind) else pa.string()


def _type_read(kind: pa.DataType) -> pa.DataType:
    """The type of a column that is read as `kind`."""
    return kind if _has_zone(kind) else _csv_type(kind)


def _scanned(source: Input) -> tuple[list[Piece], bool]:
    """The pieces of a CSV file, and whether there are quotes. InputError, with the line, for what can't be read.

    That is text in another encoding, and a quoted value that is not closed as it should be. Each quote is compared with
    its neighbours: one that opens follows a comma or begins a line, one that closes is followed by either. Only a file
    with another quote is read record by record, to distinguish stray quotes within plain values, which are allowed,
    from values that are not closed; such a file is one piece.
    """
    import numpy as np

    decoder = _Decoder(source)
    beside = np.isin(np.arange(256), [*b',\n\r"'])
    cuts: list[tuple[int, int]] = [(0, 1)]  # offset and line at which a piece begins
    start, lines, count, regular = 0, 1, 0, True
    before = b"\n"  # the last byte of the block before; a file begins like a line
    closing = False  # whether that was a quote that closes
    for block in source.blocks():
        decoder.check(block)
        data = np.frombuffer(before + block, np.uint8)
        if closing:
            regular &= bool(beside[data[1]])
        quotes = np.flatnonzero(data[1:] == ord('"')) + 1
        opens, closes = quotes[count % 2 :: 2], quotes[1 - count % 2 :: 2]
        begins = beside[data[opens - 1]]
        if start == 0:
            begins |= (opens == 4) & (block[:3] == codecs.BOM_UTF8)
        inside = closes[closes + 1 < len(data)]
        regular &= bool(begins.all() and beside[data[inside + 1]].all())
        closing = len(inside) < len(closes)
        newlines = np.flatnonzero(data[1:] == ord("\n")) + 1
        outside = (np.searchsorted(quotes, newlines) + count) % 2 == 0
        if outside.any():
            last = int(np.flatnonzero(outside)[-1])
            cuts.append((start + int(newlines[last]), lines + last + 1))
        start, lines, count = start + len(block), lines + len(newlines), count + len(quotes)
        before = block[-1:]
    decoder.check(b"")
    if not regular or count % 2:
        _check_records(source, start)
        cuts = cuts[:1]
    if len(cuts) > 1 and cuts[-1][0] >= start:
        cuts.pop()
    ends = [*(offset for offset, _ in cuts[1:]), start]
    return [Piece(source, at, end, line) for (at, line), end in zip(cuts, ends, strict=True)], bool(count)


def _check_records(source: Input, size: int) -> None:
    limit = csv.field_size_limit(max(size, csv.field_size_limit()))
    line = 1
    try:
        with source.text() as text:
            records = csv.reader(text, strict=True)
            for _ in records:
                line = records.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{source.name}, line {line}: a quoted value is not closed, or text follows its closing quote",
            hint='a quote within a quoted value is doubled: ""',
            path=source.name,
            line=line,
        ) from error
    finally:
        csv.field_size_limit(limit)


# -- JSON lines


def read_json_files(inputs: Sequence[Input], known: Types, done: Callable[[str], object]) -> list[FileRows]:
    """The rows of each file of JSON lines. InputError names file and line."""
    import pyarrow as pa

    files = [_json_pieces(each) for each in inputs]
    keep = _kept(inputs)
    tables: dict[Piece, pa.Table] = {}
    schemas: dict[Piece, pa.Schema] = {}
    large: dict[str, str] = {}
    for pieces in files:
        for piece in pieces:
            table = _json_table(piece, known)
            schemas[piece] = table.schema
            large = {**_large_integers(table), **large}
            if keep:
                tables[piece] = table
        done(pieces[0].source.name)
    types = _common_types(list(schemas.values()), known)
    lossy = _lossy_as_doubles(large, types)
    for piece, schema in schemas.items():
        for field in schema:
            wanted = types.get(field.name, field.type)
            if field.name in lossy or (pa.types.is_string(wanted) and not _is_text(field.type)):
                others = f"doubles, which don't hold {lossy[field.name]}," if field.name in lossy else "text"
                where = (
                    f"{piece.source.name}: " if piece.is_first else f"{piece.source.name}, from line {piece.line} on: "
                )
                raise InputError(
                    f"{where}column {field.name} has {field.type}, and {others} in other files",
                    path=piece.source.name,
                    column=field.name,
                )

    def read(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        for piece in pieces:
            same = _cast_or_none(tables[piece], types) if piece in tables else None
            yield _json_table(piece, {**types, **known}) if same is None else same

    return [
        FileRows(pieces[0].source, _united([schemas[piece] for piece in pieces], types), partial(read, pieces))
        for pieces in files
    ]


def _united(schemas: Sequence[pa.Schema], types: Types) -> pa.Schema:
    """All columns, in the types in which they are read."""
    import pyarrow as pa

    typed = [pa.schema([(field.name, types.get(field.name, field.type)) for field in schema]) for schema in schemas]
    return pa.unify_schemas(typed, promote_options="permissive")


def _json_pieces(source: Input) -> list[Piece]:
    decoder = _Decoder(source)
    cuts = [(0, 1)]
    start, lines = 0, 1
    for block in source.blocks():
        decoder.check(block)
        count = block.count(b"\n")
        if count:
            cuts.append((start + block.rindex(b"\n") + 1, lines + count))
        start, lines = start + len(block), lines + count
    decoder.check(b"")
    if len(cuts) > 1 and cuts[-1][0] >= start:
        cuts.pop()
    ends = [*(offset for offset, _ in cuts[1:]), start]
    return [Piece(source, at, end, line) for (at, line), end in zip(cuts, ends, strict=True)]


def _is_text(kind: pa.DataType) -> bool:
    """Whether JSON holds these values as text, or holds none."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind))


def _json_table(source: Piece, known: Types) -> pa.Table:
    """Columns that `known` names in these types, as far as JSON distinguishes them; the others as Arrow infers them."""
    import pyarrow as pa

    table = _parsed_json(source)
    guided = {
        field.name: kind
        for field in table.schema
        if (kind := _guided(field.type, known.get(field.name, field.type))) != field.type
    }
    if not guided:
        return table
    table = _parsed_json(source, pa.schema(list(guided.items())))
    for at, field in enumerate(table.schema):
        wanted = known.get(field.name, field.type)
        if pa.types.is_string(field.type) and (pa.types.is_date(wanted) or pa.types.is_time(wanted)):
            try:
                table = table.set_column(at, field.name, table.column(at).cast(wanted))
            except pa.ArrowException as error:
                raise InputError(
                    f"{source.source.name}: column {field.name}: {error}", path=source.source.name, column=field.name
                ) from error
    return table


def _guided(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type to read a column of JSON as: `wanted` where its values are of that kind, else as they are."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(found) and types.is_struct(wanted):
        members = (found.field(at) for at in range(found.num_fields))
        return pa.struct(
            [
                each.with_type(_guided(each.type, wanted.field(at).type))
                if (at := wanted.get_field_index(each.name)) >= 0
                else each
                for each in members
            ]
        )
    if types.is_list(found) and types.is_list(wanted):
        return pa.list_(_guided(found.value_type, wanted.value_type))
    is_text = _is_text(found)
    if is_text and (types.is_string(wanted) or types.is_date(wanted) or types.is_time(wanted)):
        return pa.string()  # Arrow reads dates and times of day from numbers only
    if types.is_null(found) and not types.is_nested(wanted):
        return wanted
    if is_text and (types.is_timestamp(wanted) or types.is_decimal(wanted) or types.is_binary(wanted)):
        return wanted
    is_number = types.is_integer(found) or types.is_floating(found)
    if is_number and (types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted)):
        return wanted
    return found


def _parsed_json(source: Piece, schema: pa.Schema | None = None) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    try:
        return arrow_json.read_json(
            source.open(),
            read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema),
        )
    except pa.ArrowException as error:
        raise _json_error(source.source, str(error)) from error


def _json_error(source: Input, reason: str) -> InputError:
    """The same error with its line; only a file that could not be read is looked at line by line."""
    reason = re.sub(r"^JSON parse error: | in row \d+$", "", reason)
    kinds: dict[str, tuple[str, int]] = {}
    with source.text() as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError as error:
                return _at(source, number, f"not JSON: {error}", "each line holds one JSON object")
            if not isinstance(row, dict):
                hint = "each line holds one JSON object: jq -c '.[]' makes lines of an array"
                return _at(source, number, f"an object is expected, found {_kind(row)}", hint)
            for name, value in row.items():
                before, first = kinds.setdefault(name, (_kind(value), number)) if value is not None else ("", 0)
                if before and before != _kind(value):
                    return _at(source, number, f"column {name} is {_kind(value)}, and {before} in line {first}", None)
    return InputError(f"{source.name} can't be read: {reason}", path=source.name)


def _at(source: Input, line: int, reason: str, hint: str | None) -> InputError:
    return InputError(f"{source.name}, line {line}: {reason}", hint=hint, path=source.name, line=line)


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")
