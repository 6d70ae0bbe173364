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
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from skep_format.errors import InputError
from skep_format.rowfiles.csv_read import UnreadError, read_csv
from skep_format.rowfiles.json_rows import may_have_null_rows, read_json
from skep_format.schema.arrow import is_number

Types = Mapping[str, pa.DataType]

_SCAN_BYTES: Final = 32 << 20  # a piece of a file
_KEPT_BYTES: Final = 64 << 20  # files up to this size in all stay in memory after the first pass
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
        # (not mapped: pages of a mapped file count as memory of the process)
        return pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.OSFile(str(self.content))

    def text(self) -> io.TextIOWrapper:
        """For reading a few lines, and for finding the line of an error. A byte order mark is skipped."""
        file: IO[bytes] = io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")
        return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")

    def blocks(self) -> Iterator[bytes]:
        """The content, so many bytes at a time. InputError, with the line, for what is not UTF-8."""
        decoder, lines = codecs.getincrementaldecoder("utf-8")(), 0
        with self.open() as file:
            while True:
                block = file.read(_SCAN_BYTES)
                try:
                    lines += decoder.decode(block, final=not block).count("\n")
                except UnicodeDecodeError as error:
                    line = lines + error.object.count(b"\n", 0, error.start) + 1
                    hint = "convert it: iconv -f LATIN1 -t UTF-8, or whatever its encoding is"
                    raise self.error(line, "the file is not in UTF-8", hint) from error
                if not block:
                    return
                yield block

    def error(self, line: int, reason: str, hint: str | None = None, column: str | None = None) -> InputError:
        """What is wrong in a line."""
        where = {"path": self.name, "line": line, **({"column": column} if column else {})}
        return InputError(f"{self.name}, line {line}: {reason}", hint=hint, **where)


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records of a file: bytes from `start` to `end`. `line` is the number of its first line, from 1.

    Of CSV the names of the columns, and whether there are quotes in the file.
    """

    source: Input
    start: int
    end: int
    line: int
    header: tuple[str, ...] = ()
    quoted: bool = False

    @property
    def is_first(self) -> bool:
        """Whether it starts the file, and so may hold a header line."""
        return self.start == 0

    def bytes(self) -> pa.Buffer:
        """What it holds."""
        with self.source.open() as file:
            file.seek(self.start)
            return file.read_buffer(self.end - self.start)


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of one file: their columns, and a call that reads them from the start, some at a time."""

    source: Input
    schema: pa.Schema
    tables: Callable[[], Iterable[pa.Table]]


def read_text_files(inputs: Sequence[Input], known: Types, done: Callable[[str], object]) -> list[FileRows]:
    """The rows of each of the files, which are all CSV, or all JSON lines. InputError names file and line."""
    is_csv = inputs[0].format == "csv"
    read = _csv_table if is_csv else _json_table
    files = [_pieces(each) for each in inputs]
    sizes = (len(each.content) if isinstance(each.content, bytes) else each.content.stat().st_size for each in inputs)
    keep = sum(sizes) <= _KEPT_BYTES
    tables: dict[Piece, pa.Table] = {}
    schemas: dict[Piece, pa.Schema] = {}
    texts: dict[str, str] = {}
    large: dict[str, str] = {}
    for pieces in files:
        for piece in pieces:
            table = read(piece, known)
            schemas[piece] = table.schema
            if is_csv:
                texts.update(_lossy_as_numbers(piece, table.schema, {*known, *texts}))
            large = {**_large_integers(table), **large}
            if keep:
                tables[piece] = table
        done(pieces[0].source.name)
    types = _common_types(schemas.values(), known)
    lossy = {name: text for name, text in large.items() if types.get(name) == pa.float64()}
    if is_csv:
        types = _with_texts(types, {**texts, **lossy})
    else:
        _check_numbers(schemas, types, lossy)

    def tables_of(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        for piece in pieces:
            same = _cast_or_none(tables[piece], types) if piece in tables else None
            yield read(piece, {**types, **known}) if same is None else same

    return [
        FileRows(pieces[0].source, _united([schemas[piece] for piece in pieces], types), partial(tables_of, pieces))
        for pieces in files
    ]


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds the values of both without loss; text where there is no other."""
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
    if all(map(is_number, (one, other))):
        return pa.float64()
    times = [pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in (one, other)]
    if all(times) and getattr(one, "tz", None) == getattr(other, "tz", None):
        return pa.timestamp("us", getattr(one, "tz", None))
    return pa.string()


def _common_types(schemas: Iterable[pa.Schema], known: Types) -> dict[str, pa.DataType]:
    """One type for each column that is not known, of all files."""
    kinds: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            if field.name not in known:
                kinds.setdefault(field.name, []).append(field.type)
    return {name: reduce(_common, found) for name, found in kinds.items()}


def _united(schemas: Sequence[pa.Schema], types: Types) -> pa.Schema:
    """All columns, in the types in which they are read."""
    typed = [pa.schema([(field.name, types.get(field.name, field.type)) for field in schema]) for schema in schemas]
    return pa.unify_schemas(typed, promote_options="permissive")


def _large_integers(table: pa.Table) -> dict[str, str]:
    """Columns of whole numbers of which a double can't hold all, each with one of these."""
    found = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_integer(field.type):
            large = column.filter(pc.greater(pc.abs(column.cast(pa.int64())), 1 << 53))
            if len(large):
                found[field.name] = str(large[0])
    return found


def _cast_or_none(table: pa.Table, types: Types) -> pa.Table | None:
    """The columns in these types; None when their texts have to be read again."""
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


def _pieces(source: Input) -> list[Piece]:
    """The pieces of a file. InputError, with the line, for what can't be read.

    That is text in another encoding, and of CSV a quoted value that is not closed as it should be. Each quote is
    compared with its neighbours: one that opens follows a comma or begins a line, one that closes is followed by
    either. Only a file with another quote is read record by record, to distinguish stray quotes within plain values,
    which are allowed, from values that are not closed; such a file is one piece.
    """
    is_csv = source.format == "csv"
    beside = np.isin(np.arange(256), [*b',\n\r"'])
    cuts: list[tuple[int, int]] = [(0, 1)]  # offset and line at which a piece begins
    start, lines, count, regular = 0, 1, 0, True
    before = b"\n"  # the last byte of the block before; a file begins like a line
    closing = False  # whether that was a quote that closes
    for block in source.blocks():
        data = np.frombuffer(before + block, np.uint8)
        if closing:
            regular &= bool(beside[data[1]])
        quotes = np.flatnonzero(data[1:] == ord('"') if is_csv else np.empty(0)) + 1
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
    if not regular or count % 2:
        _check_records(source, start)
        cuts = cuts[:1]
    if len(cuts) > 1 and cuts[-1][0] >= start:
        cuts.pop()
    header = _header(source) if is_csv else ()
    return [Piece(source, at, end, line, header, bool(count)) for (at, line), (end, _) in pairwise([*cuts, (start, 0)])]


def _check_records(source: Input, size: int) -> None:
    limit = csv.field_size_limit(max(size, csv.field_size_limit()))
    line = 1
    try:
        with source.text() as text:
            records = csv.reader(text, strict=True)
            for _ in records:
                line = records.line_num + 1
    except csv.Error as error:
        hint = 'a quote within a quoted value is doubled: ""'
        raise source.error(line, "a quoted value is not closed, or text follows its closing quote", hint) from error
    finally:
        csv.field_size_limit(limit)


def _header(source: Input) -> tuple[str, ...]:
    with source.text() as text:
        header = tuple(next(csv.reader(text), ()))
    if not header:
        raise InputError(f"{source.name} is empty: there is no header", path=source.name)
    for name in header:
        if header.count(name) > 1:
            raise source.error(1, f"column {name} occurs twice", column=name)
    return header


def _with_texts(types: Types, texts: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The types with text for these columns, each with a warning, and for those without values."""
    for name, example in texts.items():
        warnings.warn(
            f"column {name} is read as text: as a number {example} would become another text (leading zeros, or more"
            f" digits than numbers hold); --schema '{name} bigint' reads numbers",
            TextColumnWarning,
            stacklevel=5,
        )
    return {name: pa.string() if name in texts or pa.types.is_null(kind) else kind for name, kind in types.items()}


def _lossy_as_numbers(piece: Piece, schema: pa.Schema, known: Set[str]) -> dict[str, str]:
    """Columns of numbers, but for those known, with a text that a number does not give back, each with that."""
    patterns = {
        field.name: _LOSSY_INTEGERS if pa.types.is_integer(field.type) else _LOSSY_DOUBLES
        for field in schema
        if field.name not in known and is_number(field.type)
    }
    if not patterns:
        return {}
    found = {}
    texts = _csv_table(piece, dict.fromkeys(patterns, pa.string()), list(patterns))
    for name, pattern in patterns.items():
        lossy = texts.column(name).filter(pc.match_substring_regex(texts.column(name), pattern))
        if len(lossy):
            found[name] = str(lossy[0])
    return found


def _csv_table(piece: Piece, types: Types, only: Sequence[str] = ()) -> pa.Table:
    """The columns that `types` names in these types, the others in types that fit their texts."""
    here = {name: kind for name, kind in types.items() if name in piece.header}
    columns, kinds = None if piece.is_first else piece.header, {name: _csv_type(kind) for name, kind in here.items()}
    parsing = arrow_csv.ParseOptions(newlines_in_values=piece.quoted)
    try:
        return read_csv(piece.bytes(), columns, kinds, parsing, include_columns=list(only))
    except UnreadError as error:
        raise _csv_error(piece, here, error) from error


def _csv_error(piece: Piece, types: Types, unread: UnreadError) -> InputError:
    """The same error with the line."""
    name = None if unread.column is None else piece.header[unread.column]
    line = piece.line + unread.row - 1 if unread.row else None
    where = f", line {line}" if line else ""
    if line and piece.quoted:  # a row may have several lines
        where = f", row {unread.row}" if piece.is_first else f", row {unread.row} from line {piece.line} on"
    where += f": column {name}" if name else ""
    hint = f"--schema '{name} string' reads it as another type" if name in types else None
    source = piece.source.name
    return InputError(f"{source}{where}: {unread.reason}", hint=hint, path=source, line=line, column=name)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    """What a reader of CSV can make of text; the rest is left as text."""
    plain = (
        *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_binary),
    )
    return kind if any(is_kind(kind) for is_kind in plain) else pa.string()


def _check_numbers(schemas: Mapping[Piece, pa.Schema], types: Types, lossy: Mapping[str, str]) -> None:
    """InputError where numbers would be texts, or doubles that don't hold them, because of other files."""
    for piece, schema in schemas.items():
        for field in schema:
            wanted = types.get(field.name, field.type)
            if field.name in lossy or (pa.types.is_string(wanted) and not _is_text(field.type)):
                others = f"doubles, which don't hold {lossy[field.name]}," if field.name in lossy else "text"
                path, from_line = piece.source.name, "" if piece.is_first else f", from line {piece.line} on"
                reason = f"column {field.name} has {field.type}, and {others} in other files"
                raise InputError(f"{path}{from_line}: {reason}", path=path, column=field.name)


def _is_text(kind: pa.DataType) -> bool:
    """Whether JSON holds these values as text, or holds none."""
    return bool(pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind))


def _json_table(piece: Piece, known: Types) -> pa.Table:
    """Columns that `known` names in these types, as far as JSON distinguishes them; the others as Arrow infers them."""
    table = _parsed_json(piece)
    guided = {
        field.name: kind
        for field in table.schema
        if (kind := _guided(field.type, known.get(field.name, field.type))) != field.type
    }
    if not guided:
        return table
    table = _parsed_json(piece, pa.schema(list(guided.items())))
    for at, field in enumerate(table.schema):
        wanted = known.get(field.name, field.type)
        if pa.types.is_string(field.type) and (pa.types.is_date(wanted) or pa.types.is_time(wanted)):
            try:
                table = table.set_column(at, field.name, table.column(at).cast(wanted))
            except pa.ArrowException as error:
                source = piece.source.name
                message = f"{source}: column {field.name}: {error}"
                raise InputError(message, path=source, column=field.name) from error
    return table


def _guided(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type to read a column of JSON as: `wanted` where its values are of that kind, else as they are."""
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
    if is_number(found) and is_number(wanted):
        return wanted
    return found


def _parsed_json(piece: Piece, schema: pa.Schema | None = None) -> pa.Table:
    data = piece.bytes()
    if may_have_null_rows(data) and (wrong := _json_error(piece)):
        raise wrong
    try:
        return read_json(data, schema)
    except pa.ArrowException as error:
        name, reason = piece.source.name, re.sub(r"^JSON parse error: | in row \d+$", "", str(error))
        raise _json_error(piece) or InputError(f"{name} can't be read: {reason}", path=name) from error


def _json_error(piece: Piece) -> InputError | None:
    """What is wrong in the first line that does not fit; only a piece that may have one is looked at line by line."""
    kinds: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(io.BytesIO(piece.bytes()), piece.line):
        try:
            row = json.loads(line) if line.strip() else {}
        except ValueError as error:
            return piece.source.error(number, f"not JSON: {error}", "each line holds one JSON object")
        if not isinstance(row, dict):
            hint = "each line holds one JSON object: jq -c '.[]' makes lines of an array"
            return piece.source.error(number, f"an object is expected, found {_kind(row)}", hint)
        for name, value in row.items():
            before, first = kinds.setdefault(name, (_kind(value), number)) if value is not None else ("", 0)
            if before and before != _kind(value):
                return piece.source.error(number, f"column {name} is {_kind(value)}, and {before} in line {first}")
    return None


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")
