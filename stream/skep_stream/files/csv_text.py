"""The text of a CSV file, such that Arrow cuts it into the values that Spark does.

Most text is left as it is: a regular expression decides that for all of it, and else line by line. Other records are
cut by Spark's rules (`csv_cut`) and written anew, with all values quoted and the quotes in them doubled.
"""

from __future__ import annotations

import codecs
import re
import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from skep_stream import options as names
from skep_stream.files.csv_cut import BLANKS, NONE, Dialect
from skep_table.errors import InputError, OptionError
from skep_table.options import Option, Options

_SEPARATORS: Final = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\"}
_LINE_END: Final = re.compile(rb"\r\n?|\n")
_LINE: Final = re.compile(rb"[^\r\n]+")
_BLANK: Final = r"\x00-\x20"


@dataclass(frozen=True)
class CsvForm:
    """How files are decoded, divided into records and cut. With `multiline` a quoted value may hold line ends."""

    dialect: Dialect = field(default_factory=Dialect)
    header: bool = False
    multiline: bool = False
    encoding: str = "UTF-8"

    @classmethod
    def of(cls, options: Options) -> CsvForm:
        """From the keys `hoodie.streamer.csv.…`. OptionError for what is no character, or no encoding."""

        def character(option: Option[str], none: str = NONE) -> str:
            text = options.value(option) or none
            if len(text) == 1:
                return text
            raise OptionError(f"{option.key}: {text!r} is not one character", option=option.key, found=text)

        given = options.value(names.CSV_SEPARATOR)
        separator = _SEPARATORS.get(given, given)
        if len(separator) != 1 or given == "\\":
            raise OptionError(
                f"{names.CSV_SEPARATOR.key}: {given!r} is not one character",
                hint=r"a backslash is \\, a tab \t",
                option=names.CSV_SEPARATOR.key,
                found=given,
            )
        encoding = options.value(names.CSV_ENCODING)
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise OptionError(
                f"{names.CSV_ENCODING.key}: {encoding} is not known", option=names.CSV_ENCODING.key, found=encoding
            ) from error
        quote, escape = character(names.CSV_QUOTE), character(names.CSV_ESCAPE)
        dialect = Dialect(
            separator,
            quote,
            escape,
            character(names.CSV_ESCAPE_OF_ESCAPE, NONE if quote == escape else escape),
            character(names.CSV_COMMENT),
            options.value(names.CSV_NULL),
            options.value(names.CSV_EMPTY),
            options.value(names.CSV_TRIMS_LEFT),
            options.value(names.CSV_TRIMS_RIGHT),
        )
        return cls(dialect, options.value(names.CSV_HEADER), options.value(names.CSV_MULTILINE), encoding)

    @cached_property
    def arrow(self) -> ArrowForm:
        """Which text Arrow cuts alike, and how."""
        return ArrowForm(self.dialect, self.multiline)


@dataclass(frozen=True)
class ArrowForm:
    """Which records Arrow cuts as Spark does, and how others are written for it."""

    dialect: Dialect
    multiline: bool

    def parsing(self, rewritten: bool) -> arrow_csv.ParseOptions:
        """How Arrow cuts what it takes; in text that was written for it an empty line is a row."""
        return arrow_csv.ParseOptions(
            delimiter=self._separator,
            quote_char=False if self._quote == NONE else self._quote,
            escape_char=False,
            newlines_in_values=self.multiline,
            ignore_empty_lines=not rewritten,
        )

    @cached_property
    def null_texts(self) -> list[str]:
        """What is null where it is not quoted; an empty text is."""
        return sorted({"", self.dialect.null})

    @property
    def nulls_are_quoted(self) -> bool:
        """Whether these are null where they are quoted, too."""
        return not self.dialect.null

    def takes(self, text: bytes, start: int) -> bool:
        """Whether all records from `start` on are cut alike; empty lines between them are none."""
        if not self._is_simple or (self._quoted_null and text.find(self._quoted_null, start) >= 0):
            return False
        first, _ = self._records
        end = r"\n" if self.multiline else r"(?:\r\n?|\n)"
        rest = _as_array(pa.py_buffer(text).slice(start))
        return bool(pc.match_substring_regex(rest, rf"\A{first}(?:{end}{first})*\z")[0].as_py())

    def takes_each(self, lines: pa.Array) -> pa.Array:
        """Of each line whether it is cut alike."""
        if not self._is_simple:
            return pa.repeat(False, len(lines))
        found = pc.match_substring_regex(lines, rf"\A{self._records[1]}\z")
        return pc.and_not(found, pc.match_substring(lines, self._quoted_null)) if self._quoted_null else found

    def written(self, values: list[str | None]) -> bytes:
        """A record for Arrow: nothing where a value is missing, else the value in quotes."""
        quote = self._quote.replace(NONE, "")
        texts = ("" if each is None else f"{quote}{each.replace(quote, quote * 2)}{quote}" for each in values)
        return self._separator.join(texts).encode()

    @cached_property
    def _is_simple(self) -> bool:
        """Whether Arrow can be given the characters, each of which has one meaning."""
        form = self.dialect
        marks = [form.separator, *({form.quote, form.comment} - {NONE})]
        specials = {*marks, form.escape, form.escape_of_escape} - {NONE}
        apart = len(set(marks)) == len(marks) and form.separator != form.escape
        return apart and all(each.isascii() and each not in "\r\n" and each not in form.null for each in specials)

    @property
    def _separator(self) -> str:
        return self.dialect.separator if self._is_simple else ","

    @property
    def _quote(self) -> str:
        return self.dialect.quote if self._is_simple else '"'

    @cached_property
    def _quoted_null(self) -> bytes:
        """The text of null where it is quoted, which Arrow would read as text."""
        form = self.dialect
        return f"{form.quote}{form.null}{form.quote}".encode() if form.null and form.quote != NONE else b""

    @cached_property
    def _records(self) -> tuple[str, str]:
        """Regular expressions of a record, or of nothing, which is not blank and no comment, and of any record."""
        form = self.dialect
        separator, quote, escape, other = map(_hex, (form.separator, form.quote, form.escape, form.escape_of_escape))
        end = "" if self.multiline else r"\r\n"
        plain = rf"[^{quote}{escape}{other}{end}]"
        if form.quote == form.escape:
            inside, empty = f"(?:{plain}|{quote}{quote})", not form.empty
        elif form.escape == NONE:
            inside, empty = plain, False  # Spark reads "" as a quote at the end of a line
        else:
            inside, empty = f"(?:{plain}|{escape}{plain})", not form.empty
        quoted = "" if form.quote == NONE else f"{quote}{inside}{'*' if empty else '+'}{quote}|"

        def value(none_of: str) -> str:
            if form.trims_left or form.trims_right:
                return rf"[^{none_of}{quote}{separator}{_BLANK}](?:[^{separator}\r\n]*[^{separator}{_BLANK}])?"
            return rf"[^{none_of}{quote}{separator}\r\n][^{separator}\r\n]*"

        more = f"(?:{separator}(?:{quoted}{value('')})?)*"
        begin = _hex(form.comment) + ("" if self.multiline else _BLANK)
        is_needed = not self.multiline and form.separator in BLANKS  # else a line of separators is blank
        first = f"(?:(?:{quoted}{value(begin)}){'' if is_needed else '?'}{more})?"
        return first, f"(?:{quoted}{value('')})?{more}"


def _hex(characters: str) -> str:
    return "".join(rf"\x{ord(each):02x}" for each in characters)


@dataclass(frozen=True)
class CsvText:
    """A file: the values of its first record, which may be a header, and its rows for Arrow.

    `before` records of the file are not among the rows; a `rewritten` text has one row in each line.
    """

    first: list[str | None]
    rows: pa.Buffer
    rewritten: bool
    before: int
    source: bytes
    form: CsvForm

    @property
    def has_rows(self) -> bool:
        """Whether there is a row; empty lines are none."""
        return bool(self.rows.size) if self.rewritten else _LINE.search(self.rows) is not None

    def parsing(self) -> arrow_csv.ParseOptions:
        """How Arrow cuts the rows."""
        return self.form.arrow.parsing(self.rewritten)

    def place(self, row: int) -> tuple[str, int | None]:
        """Where a row is, in words, and its line; both count from 1."""
        return _place(self.source, self.form, self.before + row)


def csv_text(name: str, data: bytes, form: CsvForm) -> CsvText:
    """The text of a file. InputError, with the line, for what can't be cut or decoded."""
    text = _utf8(name, data, form)
    try:
        first, start, before = _first(text, form)
    except ValueError as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error
    is_alike = form.arrow.takes(text, start)
    rows = pa.py_buffer(text).slice(start) if is_alike else _rewritten(name, text, start, form, before)
    return CsvText(first, rows, not is_alike, before, text, form)


def _utf8(name: str, data: bytes, form: CsvForm) -> bytes:
    """The text as Spark divides it: with `multiline` its first line end is that of all lines, and `\\n` in values."""
    if codecs.lookup(form.encoding).name != "utf-8":
        try:
            data = data.decode(form.encoding).encode()
        except ValueError as error:
            raise InputError(f"{name} is not in {form.encoding}: {error}", path=name) from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if form.multiline and b"\r" in data and (end := _LINE_END.search(data)) and end[0] != b"\n":
        data = data.replace(end[0], b"\n")
    return data


def _first(text: bytes, form: CsvForm) -> tuple[list[str | None], int, int]:
    """The values of the first record, where the rows begin, and how many records are before them."""
    dialect, comments = form.dialect, 0
    if form.multiline:
        whole = text.decode()
        for values, end in dialect.records(whole):
            return values, len(whole[:end].encode()) if form.header else 0, int(form.header)
        return [], len(text), 0
    for found in _LINE.finditer(text):
        line = found[0].decode()
        if not line.strip(BLANKS) or line.startswith(dialect.comment):
            continue
        if form.header and dialect.comment != NONE and line.strip(BLANKS).startswith(dialect.comment):
            comments += 1  # before a header, not elsewhere, blanks may precede the mark of a comment
            continue
        return dialect.record(line)[0], found.end() if form.header else 0, comments + form.header
    return [], len(text), 0


def _rewritten(name: str, text: bytes, start: int, form: CsvForm, before: int) -> pa.Buffer:
    """The records from `start` on for Arrow, one a line. InputError for one that can't be cut."""
    done: list[bytes] = []
    if form.multiline:
        try:
            for values, _ in form.dialect.records(text[start:].decode()):
                done.append(form.arrow.written(values) + b"\n")
        except ValueError as error:
            raise _uncut(name, text, form, before + len(done) + 1, error) from error
        return pa.py_buffer(b"".join(done))
    lines = _lines(text, start)
    lines = lines.filter(_is_record(lines, form.dialect))
    odd = pc.invert(form.arrow.takes_each(lines))
    try:
        for line in lines.filter(odd).to_pylist():
            done.append(form.arrow.written(form.dialect.record(line.decode())[0]))
    except ValueError as error:
        row = int(pc.indices_nonzero(odd)[len(done)].as_py()) + 1
        raise _uncut(name, text, form, before + row, error) from error
    lines = pc.replace_with_mask(lines, odd, pa.array(done, lines.type))
    ended = pc.binary_join_element_wise(lines, *(pa.scalar(each, lines.type) for each in (b"\n", b"")))
    return ended.buffers()[2].slice(0, pc.sum(pc.binary_length(ended)).as_py() or 0)


def _uncut(name: str, text: bytes, form: CsvForm, record: int, error: ValueError) -> InputError:
    where, line = _place(text, form, record)
    return InputError(f"{name}, {where}: {error}", path=name, line=line)


def _place(text: bytes, form: CsvForm, record: int) -> tuple[str, int | None]:
    """Where a record is, in words, and its line; records that may have several lines are counted."""
    if form.multiline:
        return f"row {record}", None
    lines = pc.indices_nonzero(_is_record(_lines(text, 0), form.dialect))
    line = int(lines[record - 1].as_py()) + 1
    return f"line {line}", line


def _is_record(lines: pa.Array, dialect: Dialect) -> pa.Array:
    """Of each line whether it is neither blank nor a comment."""
    return pc.and_not(
        pc.match_substring_regex(lines, f"[^{_BLANK}]"), pc.starts_with(lines, dialect.comment)
    )


def _lines(text: bytes, start: int) -> pa.Array:
    whole = _as_array(pa.py_buffer(text).slice(start))
    parts = pc.split_pattern_regex(whole, r"\r\n?|\n") if b"\r" in text else pc.split_pattern(whole, "\n")
    return pc.list_flatten(parts)


def _as_array(text: pa.Buffer) -> pa.Array:
    """An array with this one value, which is not copied."""
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(struct.pack("=qq", 0, text.size)), text])
