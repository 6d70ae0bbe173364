"""The text of a CSV file, such that Arrow cuts it into the values that Spark does.

Regular expressions decide that for the whole text, and else line by line: most is left as it is, and where all escapes
are in quoted values, they give way to doubled quotes. Other records are cut by Spark's rules (`csv_cut`) and written
for Arrow, with all values quoted.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from skep_format.buffers import as_array, joined_lines
from skep_format.errors import InputError
from skep_format.rowfiles.csv_cut import BLANKS, NONE, Dialect

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
        separator, quote = self._marks(rewritten)
        return arrow_csv.ParseOptions(
            delimiter=separator,
            quote_char=False if quote == NONE else quote,
            escape_char=False,
            newlines_in_values=self.multiline,
            ignore_empty_lines=not rewritten,
        )

    @cached_property
    def nulls(self) -> dict[str, Any]:
        """Arrow's options for what is null: an empty text, and that of null, which is none where it is quoted."""
        null = self.dialect.null
        return {
            "null_values": sorted({"", null}),
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": not null,
        }

    def takes(self, text: bytes, start: int, escaped: bool = False) -> bool:
        """Whether all records from `start` on are cut alike, or would be `unescaped`; empty lines are no records."""
        if not self._is_simple(escaped) or (self._quoted_null and text.find(self._quoted_null, start) >= 0):
            return False
        first, _ = self._patterns(escaped)
        end = r"\n" if self.multiline else r"(?:\r\n?|\n)"
        whole = pc.match_substring_regex(as_array(text, start), rf"\A{first}(?:{end}{first})*\z")
        return bool(whole[0].as_py())

    def takes_each(self, lines: pa.Array, escaped: bool = False) -> pa.Array:
        """Of each line whether it is cut alike, or would be `unescaped`."""
        if not self._is_simple(escaped):
            return pa.repeat(False, len(lines))
        found = pc.match_substring_regex(lines, rf"\A{self._patterns(escaped)[1]}\z")
        return pc.and_not(found, pc.match_substring(lines, self._quoted_null)) if self._quoted_null else found

    def unescaped(self, texts: pa.Array) -> pa.Array:
        """Texts whose escapes are all in quoted values, with doubled quotes instead."""
        escape, quote = _hex(self.dialect.escape), _hex(self.dialect.quote)
        return pc.replace_substring_regex(texts, f"{escape}({escape})|{escape}({quote})", r"\1\2\2")

    def written(self, values: list[str | None]) -> bytes:
        """A record for Arrow: nothing where a value is missing, else the value in quotes."""
        separator, quote = self._written_marks
        texts = ("" if each is None else f"{quote}{each.replace(quote, quote * 2)}{quote}" for each in values)
        return separator.join(texts).encode()

    def _is_simple(self, escaped: bool = False) -> bool:
        """Whether Arrow can be given the characters, each of which has one meaning, also where escapes give way."""
        form = self.dialect
        marks = [form.separator, *({form.quote, form.comment} - {NONE})]
        if len(set(marks)) < len(marks) or form.separator == form.escape or form.quote in form.null:
            return False
        if escaped and (form.escape in (form.quote, NONE, *form.null) or form.escape_of_escape != form.escape):
            return False
        return all(each.isascii() and each not in "\r\n" for each in (*marks, form.escape, form.escape_of_escape))

    def _marks(self, rewritten: bool) -> tuple[str, str]:
        """Separator and quote: those of the file where its lines stay among those that are rewritten."""
        is_own = self._is_simple() and not (rewritten and self.multiline)
        return (self.dialect.separator, self.dialect.quote) if is_own else (",", '"')

    @cached_property
    def _written_marks(self) -> tuple[str, str]:
        separator, quote = self._marks(rewritten=True)
        return separator, quote.replace(NONE, "")

    @cached_property
    def _quoted_null(self) -> bytes:
        """The text of null where it is quoted, which Arrow would read as text."""
        form = self.dialect
        return f"{form.quote}{form.null}{form.quote}".encode() if form.null and form.quote != NONE else b""

    def _patterns(self, escaped: bool) -> tuple[str, str]:
        """Regular expressions of a record, or of nothing, which is not blank and no comment, and of any record."""
        form = self.dialect
        separator, quote, escape, other = map(_hex, (form.separator, form.quote, form.escape, form.escape_of_escape))
        end = "" if self.multiline else r"\r\n"
        plain = rf"[^{quote}{escape}{other}{end}]"
        if form.quote == form.escape:
            inside = f"{plain}|{quote}{quote}"
        elif form.escape == NONE:
            inside = plain
        else:
            inside = f"{plain}|{escape}{plain}" + (f"|{escape}[{escape}{quote}]" if escaped else "")
        count = (
            "+" if form.empty or form.escape == NONE else "*"
        )  # without escapes Spark reads "" as ", at a line's end
        quoted = "" if form.quote == NONE else f"{quote}(?:{inside}){count}{quote}|"
        never = rf"{separator}\r\n" + (escape if escaped else "")

        def value(begin: str = "") -> str:
            if form.trims_left or form.trims_right:
                return rf"[^{begin}{quote}{never}{_BLANK}](?:[^{never}]*[^{never}{_BLANK}])?"
            return rf"[^{begin}{quote}{never}][^{never}]*"

        more = f"(?:{separator}(?:{quoted}{value()})?)*"
        begin = value(_hex(form.comment) + ("" if self.multiline else _BLANK))
        is_needed = not self.multiline and form.separator in BLANKS  # else a line of separators is blank
        return f"(?:(?:{quoted}{begin}){'' if is_needed else '?'}{more})?", f"(?:{quoted}{value()})?{more}"


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

    def place(self, row: int) -> tuple[str, dict[str, Any]]:
        """Where a row is, in words and as the field of an error: its line, or where rows may have several lines its
        number; both count from 1."""
        record = self.before + row
        if self.form.multiline:
            return f"row {record}", {"row": record}
        lines = pc.indices_nonzero(is_record(lines_of(self.source), self.form.dialect))
        line = int(lines[record - 1].as_py()) + 1
        return f"line {line}", {"line": line}


def csv_text(name: str, data: bytes, form: CsvForm) -> CsvText:
    """The text of a file. InputError, with the line, for what can't be cut or decoded."""
    text, form = divided(utf8(name, data, form), form)
    try:
        first, start, before = _first(text, form)
    except ValueError as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error
    found = CsvText(first, pa.py_buffer(text).slice(start), False, before, text, form)
    if form.arrow.takes(text, start):
        if text.endswith((b"\n", b"\r")):
            return found
        return replace(found, rows=pa.py_buffer(text[start:] + b"\n"))  # else a last empty value counts as quoted
    if form.arrow.takes(text, start, escaped=True):
        return replace(found, rows=joined_lines(form.arrow.unescaped(as_array(text, start))))
    return replace(found, rows=_rewritten(name, found, start), rewritten=True)


def utf8(name: str, data: bytes, form: CsvForm) -> bytes:
    """The bytes of a file in UTF-8. InputError where they are not in the form's encoding."""
    if codecs.lookup(form.encoding).name != "utf-8":
        try:
            data = data.decode(form.encoding).encode()
        except ValueError as error:
            raise InputError(f"{name} is not in {form.encoding}: {error}", path=name) from error
    return data.removeprefix(codecs.BOM_UTF8)


def divided(text: bytes, form: CsvForm) -> tuple[bytes, CsvForm]:
    """With `multiline` the first line end is that of all lines, and quoted values have `\\n` for it."""
    end = _LINE_END.search(text) if form.multiline and b"\r" in text else None
    if end is None or end[0] == b"\n":
        return text, form
    return text.replace(end[0], b"\n"), replace(form, dialect=replace(form.dialect, line_end=end[0].decode()))


def _first(text: bytes, form: CsvForm) -> tuple[list[str | None], int, int]:
    """The values of the first record, where the rows begin, and how many records are before them."""
    dialect, comments = form.dialect, 0
    if form.multiline:
        whole = text.decode()
        for values, _, end in dialect.records(whole):
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


def _rewritten(name: str, text: CsvText, start: int) -> pa.Buffer:
    """The records from `start` on for Arrow, one a line. InputError for one that can't be cut."""
    form, done = text.form, list[bytes]()

    def write(values: list[str | None]) -> None:
        if len(values) != len(text.first):
            raise ValueError(f"Expected {len(text.first)} columns, got {len(values)}")
        done.append(form.arrow.written(values))

    if form.multiline:
        try:
            for values, _, _ in form.dialect.records(text.source[start:].decode()):
                write(values)
        except ValueError as error:
            raise _uncut(name, text, len(done) + 1, error) from error
        return pa.py_buffer(b"".join(each + b"\n" for each in done))
    lines = lines_of(text.source, start)
    lines = lines.filter(is_record(lines, form.dialect))
    odd = pc.invert(form.arrow.takes_each(lines))
    escaped = pc.and_(odd, form.arrow.takes_each(lines, escaped=True))
    lines = pc.replace_with_mask(lines, escaped, form.arrow.unescaped(lines.filter(escaped)))
    odd = pc.and_not(odd, escaped)
    try:
        for line in lines.filter(odd).to_pylist():
            write(form.dialect.record(line.decode())[0])
    except ValueError as error:
        raise _uncut(name, text, int(pc.indices_nonzero(odd)[len(done)].as_py()) + 1, error) from error
    return joined_lines(pc.replace_with_mask(lines, odd, pa.array(done, lines.type)))


def _uncut(name: str, text: CsvText, row: int, error: ValueError) -> InputError:
    where, at = text.place(row)
    return InputError(f"{name}, {where}: {error}", path=name, **at)


def is_record(lines: pa.Array, dialect: Dialect) -> pa.Array:
    """Of each line whether it is neither blank nor a comment."""
    return pc.and_not(pc.match_substring_regex(lines, f"[^{_BLANK}]"), pc.starts_with(lines, dialect.comment))


def lines_of(text: bytes, start: int = 0) -> pa.Array:
    """The lines from `start` on, without their ends."""
    whole = as_array(text, start)
    parts = pc.split_pattern_regex(whole, r"\r\n?|\n") if b"\r" in text else pc.split_pattern(whole, "\n")
    return pc.list_flatten(parts)
