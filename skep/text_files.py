"""Files of text as Arrow tables: CSV and JSON lines, whose columns have no types of their own.

All files of one call are read with one type for a column: a first look lets Arrow guess, and where the guesses differ,
or would lose what the text holds, the files are read again with the type that fits them all.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from skep_table.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Types = Mapping[str, "pa.DataType"]

_BLOCK_BYTES: Final = 16 << 20  # a row has to fit
_SCAN_BYTES: Final = 64 << 20
_ZONE: Final = r"([zZ]|[+-]\d\d:?\d\d)$"
_LOSSY_INTEGERS: Final = r"^[+-]?0\d"
_LOSSY_DOUBLES: Final = r"^[+-]?(0\d|\d{16,}$)"
"""Texts that numbers do not give back: leading zeros are lost, and digits that a double can't hold."""


class TextColumnWarning(UserWarning):
    """A column that looks like numbers is read as text, for numbers would lose some of it."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file, or what came from standard input. `name` is what messages call it."""

    name: str
    format: str
    content: Path | bytes

    def open(self) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self.content) if isinstance(self.content, bytes) else pa.memory_map(str(self.content))

    def text(self) -> io.TextIOWrapper:
        """For looks at a few lines, and for finding the line of an error. A byte order mark is skipped."""
        file: IO[bytes] = io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")
        return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")

    def check_encoding(self) -> None:
        """InputError, with the line, for what is not UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        lines = 0
        with self.open() as file:
            while True:
                block = file.read(_SCAN_BYTES)
                try:
                    lines += decoder.decode(block, final=not block).count("\n")
                except UnicodeDecodeError as error:
                    line = lines + error.object.count(b"\n", 0, error.start) + 1
                    raise InputError(
                        f"{self.name}, line {line}: the file is not in UTF-8",
                        hint="convert it: iconv -f LATIN1 -t UTF-8, or whatever its encoding is",
                        path=self.name,
                        line=line,
                    ) from error
                if not block:
                    return


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds the values of both without loss; text where there is no other."""
    import pyarrow as pa

    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)]
    if all(numbers):
        return pa.float64()
    times = [pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in (one, other)]
    if all(times) and getattr(one, "tz", None) == getattr(other, "tz", None):
        return pa.timestamp("us", getattr(one, "tz", None))
    return pa.string()


def _common_types(tables: Sequence[pa.Table], known: Types) -> dict[str, pa.DataType]:
    """One type for each column that is not known, of all tables."""
    kinds: dict[str, list[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            if field.name not in known:
                kinds.setdefault(field.name, []).append(field.type)
    return {name: reduce(_common, found) for name, found in kinds.items()}


def _lossy_as_doubles(tables: Sequence[pa.Table], types: Types) -> dict[str, str]:
    """Columns that are doubles in one table and whole numbers in another that a double can't hold, each with one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {}
    for table in tables:
        for field, column in zip(table.schema, table.columns, strict=True):
            if pa.types.is_integer(field.type) and types.get(field.name) == pa.float64():
                large = column.filter(pc.greater(pc.abs(column.cast(pa.int64())), 1 << 53))
                if len(large):
                    found[field.name] = str(large[0])
    return found


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


def read_csv_files(inputs: Sequence[Input], known: Types, done: Callable[[str], object]) -> list[pa.Table]:
    """One table for each file. InputError names file and line."""
    import pyarrow as pa

    tables = []
    files = [_CsvFile.of(each) for each in inputs]
    for file in files:
        tables.append(file.read(known))
        done(file.source.name)
    texts: dict[str, str] = {}
    for file, table in zip(files, tables, strict=True):
        texts.update(file.lossy_as_numbers(table.schema, {*known, *texts}))
    types = _common_types(tables, known)
    texts.update(_lossy_as_doubles(tables, types))
    for name, example in texts.items():
        warnings.warn(
            f"column {name} is read as text: as a number {example} would become another text (leading zeros, or more"
            f" digits than numbers hold); --schema '{name} bigint' reads numbers",
            TextColumnWarning,
            stacklevel=4,
        )
    types.update(dict.fromkeys(texts, pa.string()))
    return [
        same if (same := _cast_or_none(table, types)) is not None else file.read({**types, **known})
        for file, table in zip(files, tables, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _CsvFile:
    source: Input
    header: tuple[str, ...]
    quoted: bool

    @classmethod
    def of(cls, source: Input) -> _CsvFile:
        source.check_encoding()
        quoted = _check_quotes(source)
        with source.text() as text:
            header = tuple(next(csv.reader(text), ()))
        if not header:
            raise InputError(f"{source.name} is empty: there is no header", path=source.name)
        for name in header:
            if header.count(name) > 1:
                raise InputError(
                    f"{source.name}, line 1: column {name} is there twice", path=source.name, line=1, column=name
                )
        return cls(source, header, quoted)

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
            self.source.open(),
            read_options=arrow_csv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=self.quoted),
            convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=list(only or ())),
        )

    def _error(self, types: Types, only: Sequence[str] | None, error: Exception) -> InputError:
        """The same error with the line, which only a reader with one thread knows."""
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
        where = f", {'row' if self.quoted else 'line'} {row[1]}" if row else ""
        where += f": column {name}" if name else ""
        hint = f"--schema '{name} string' reads it as another type" if name in types else None
        return InputError(
            f"{self.source.name}{where}: {reason}",
            hint=hint,
            path=self.source.name,
            line=int(row[1]) if row else None,
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
                f"{self.source.name}: column {name}: {error}", path=self.source.name, column=name
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


def _check_quotes(source: Input) -> bool:
    """Whether there are quotes at all. InputError, with the line, for a quoted value that is not closed as it should.

    Each quote is looked at with its neighbours: one that opens follows a comma or begins a line, one that closes is
    followed by either. Only a file with another quote is read record by record, which tells stray quotes within plain
    values, which are allowed, from values that are not closed.
    """
    import numpy as np

    with source.open() as file:
        data = np.frombuffer(file.read_buffer(), np.uint8)
    count = 0
    beside = np.isin(np.arange(256), [*b',\n\r"'])
    for start in range(0, len(data), _SCAN_BYTES):
        quotes = np.flatnonzero(data[start : start + _SCAN_BYTES] == ord('"')) + start
        opens = quotes[count % 2 :: 2]
        closes = quotes[1 - count % 2 :: 2]
        count += len(quotes)
        begins = (opens == 0) | ((opens == 3) & (data[:3].tobytes() == codecs.BOM_UTF8)) | beside[data[opens - 1]]
        ends = (closes == len(data) - 1) | beside[data[np.minimum(closes + 1, len(data) - 1)]]
        if not (begins.all() and ends.all()):
            _check_records(source, len(data))
            return True
    if count % 2:
        _check_records(source, len(data))
    return bool(count)


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


def read_json_files(inputs: Sequence[Input], known: Types, done: Callable[[str], object]) -> list[pa.Table]:
    """One table for each file of JSON lines. InputError names file and line."""
    import pyarrow as pa

    tables = []
    for each in inputs:
        each.check_encoding()
        tables.append(_json_table(each, known))
        done(each.name)
    types = _common_types(tables, known)
    lossy = _lossy_as_doubles(tables, types)
    for each, table in zip(inputs, tables, strict=True):
        for field in table.schema:
            wanted = types.get(field.name, field.type)
            if field.name in lossy or (pa.types.is_string(wanted) and not _is_text(field.type)):
                others = f"doubles, which don't hold {lossy[field.name]}," if field.name in lossy else "text"
                raise InputError(
                    f"{each.name}: column {field.name} has {field.type}, and {others} in other files",
                    path=each.name,
                    column=field.name,
                )
    return [
        same if (same := _cast_or_none(table, types)) is not None else _json_table(each, {**types, **known})
        for each, table in zip(inputs, tables, strict=True)
    ]


def _is_text(kind: pa.DataType) -> bool:
    """Whether JSON holds these values as text, or holds none."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind))


def _json_table(source: Input, known: Types) -> pa.Table:
    """Columns that `known` names in these types, as far as JSON tells them apart; the others as they look."""
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
                    f"{source.name}: column {field.name}: {error}", path=source.name, column=field.name
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


def _parsed_json(source: Input, schema: pa.Schema | None = None) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    try:
        return arrow_json.read_json(
            source.open(),
            read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema),
        )
    except pa.ArrowException as error:
        raise _json_error(source, str(error)) from error


def _json_error(source: Input, reason: str) -> InputError:
    """The same error with its line; only a file that could not be read is looked at line by line."""
    reason = re.sub(r"^JSON parse error: | in row \d+$", "", reason)
    kinds: dict[str, tuple[str, int]] = {}
    with source.text() as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError as error:
                return _at(source, number, f"this is no JSON: {error}", "each line holds one JSON object")
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
