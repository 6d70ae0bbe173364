"""CSV of any quotes, escapes, blanks and line ends is cut into the values that Spark's reader finds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skep_format.errors import InputError
from skep_format.options import Options
from skep_format.rowfiles.csv_rows import csv_rows
from skep_format.schema.avro import parse_avro
from skep_stream.files.csv_options import csv_form

pytestmark = pytest.mark.spark
DIALECTS: tuple[Mapping[str, str], ...] = (
    {},
    {"escape": '"'},
    {"escape": ""},
    {"quote": "'", "sep": ";"},
    {"quote": "'", "sep": ";", "escape": "'"},
    {"quote": ""},
    {"sep": r"\t"},
    {"sep": "é"},
    {"escape": "!", "charToEscapeQuoteEscaping": "#"},
    {"escape": '"', "charToEscapeQuoteEscaping": "!"},
    {"comment": "#"},
    {"nullValue": "a"},
    {"nullValue": r"\N"},
    {"nullValue": "a", "escape": '"'},
    {"nullValue": "a", "emptyValue": "E"},
    {"emptyValue": "E"},
    {"ignoreLeadingWhiteSpace": "true"},
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"},
    {"ignoreLeadingWhiteSpace": "true", "escape": '"', "comment": "#"},
)
COLUMNS = ("c0", "c1")
SCHEMA = parse_avro(
    {"type": "record", "name": "r", "fields": [{"name": name, "type": ["null", "string"]} for name in COLUMNS]}
)
FIRST = "first{sep}line"  # has both columns; Spark does not find the line ends of a file of four characters
LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
LINE_END = re.compile(r"\r\n?|\n")
JOINS_VALUES = "follows the closing quote"


def by_spark(spark: Any, file: Path, dialect: Mapping[str, str]) -> list[tuple[str | None, ...]]:
    """The values of each record, and its text where it does not have two."""
    reader = spark.read.schema("c0 string, c1 string, bad string").option("columnNameOfCorruptRecord", "bad")
    return [tuple(row) for row in reader.options(**dialect).csv(str(file)).collect()]


def by_skep(file: Path, dialect: Mapping[str, str]) -> list[tuple[str | None, ...]] | InputError:
    form = csv_form(Options({f"hoodie.streamer.csv.{key}": value for key, value in dialect.items()}))
    try:
        rows = csv_rows("f", file.read_bytes(), SCHEMA, form)
    except InputError as error:
        return error
    return list(zip(*(rows.column(name).to_pylist() for name in COLUMNS), strict=True))


def separator(dialect: Mapping[str, str]) -> str:
    return dialect.get("sep", ",").replace(r"\t", "\t")


def records(dialect: Mapping[str, str], *more: str) -> st.SearchStrategy[str]:
    """Records of about two values: plain ones, quoted ones whose quotes are escaped, and any texts in quotes."""
    sep, quote, escape = separator(dialect), dialect.get("quote") or '"', dialect.get("escape") or "\\"
    marks = {sep, quote, escape, escape + quote, escape * 2, dialect.get("charToEscapeQuoteEscaping", "b"), "\\"}
    text = st.lists(st.sampled_from(sorted({"a", "b", " ", "#", "é", r"\N", *marks, *more})), max_size=5).map("".join)
    plain = st.sampled_from(["a", "b c", "", " ", "a#", r"C:\new", r"\N", f"5{quote}", f"a{escape}{quote}"])
    bare = text if escape == quote else text.map(lambda inside: inside.replace(escape, escape * 2))
    escaped = bare.map(lambda inside: f"{quote}{inside.replace(quote, escape + quote)}{quote}")
    value = st.one_of(plain, escaped, text.map(lambda inside: f"{quote}{inside}{quote}"), text)
    return st.lists(value, min_size=2, max_size=2).map(sep.join)


@st.composite
def files_of_lines(draw: st.DrawFn) -> tuple[Mapping[str, str], list[str]]:
    """A dialect, and lines with their ends."""
    dialect = draw(st.sampled_from(DIALECTS))
    lines = draw(st.lists(st.one_of(records(dialect), st.sampled_from(["", "  ", "\t"])), min_size=5, max_size=30))
    ends = draw(st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=len(lines), max_size=len(lines)))
    text = "".join(
        line + end for line, end in zip([FIRST.format(sep=separator(dialect)), *lines], ["\n", *ends], strict=True)
    )
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    return dialect, LINES.findall(text)


@st.composite
def files_of_records(draw: st.DrawFn) -> tuple[Mapping[str, str], str]:
    """A dialect, and a text of records whose quoted values have the line ends of the file."""
    dialect, end = draw(st.sampled_from(DIALECTS)), draw(st.sampled_from(["\n", "\r\n", "\r"]))
    found = draw(st.lists(records(dialect, end), max_size=4))
    return dialect, end.join([FIRST.format(sep=separator(dialect)), *found, *([""] if draw(st.booleans()) else [])])


@given(files_of_lines())
@example(({"escape": '"'}, ["id,n\n", 'a,"x ""q"" y"\n', "b,z\n", 'c,""\n', "d,\n"]))
@example(({}, ["a,b\n", 'C:\\new,"say \\"x\\""\n', '"C:\\new\\\\",\\"\n']))
@example(({"nullValue": "a"}, ["x,y\n", '"",']))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_cut_alike(spark: Any, tmp_path: Path, case: tuple[Mapping[str, str], list[str]]) -> None:
    """A line that Spark does not cut into two values is refused by its number; then another is in its place."""
    dialect, lines = case[0], list(case[1])
    file = tmp_path / "lines.csv"
    file.write_text("".join(lines), newline="")
    expected = dict(zip(numbers_of_records(lines, dialect), by_spark(spark, file, dialect), strict=True))
    while isinstance(found := by_skep(file, dialect), InputError):
        line = found.fields["line"]
        assert isinstance(line, int)
        assert expected[line][2] is not None or JOINS_VALUES in str(found)
        expected[line] = ("first", "line", None)
        lines[line - 1] = re.sub(r"^[^\r\n]+", FIRST.format(sep=separator(dialect)), lines[line - 1])
        file.write_text("".join(lines), newline="")
    assert found == [values[:2] for values in expected.values()]


def numbers_of_records(lines: Sequence[str], dialect: Mapping[str, str]) -> list[int]:
    """Of the lines that are neither blank nor comments."""
    comment = dialect.get("comment", "\0")
    return [number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith(comment)]


@given(files_of_records())
@example(({"escape": '"'}, 'x,y\r\n"a\r\nb","x ""y""\r\n"\r\n'))
@example(({"escape": '"'}, 'first,line\r"\r",,'))  # Spark has the line end of the file in the text of a bad record
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_of_several_lines_are_cut_alike(spark: Any, tmp_path: Path, case: tuple[Mapping[str, str], str]) -> None:
    dialect, text = case
    dialect = {**dialect, "multiLine": "true"}
    file = tmp_path / "records.csv"
    file.write_text(text, newline="")
    expected, found = by_spark(spark, file, dialect), by_skep(file, dialect)
    if isinstance(found, InputError):
        place, row = (re.search(rf"{word} (\d+)", str(found)) for word in ("line", "row"))
        if place is None:  # records behind it are not to be divided as Spark does
            assert row is not None
            assert JOINS_VALUES in str(found) or expected[int(row[1]) - 1][2] is not None
        else:
            named = LINE_END.split(text)[int(place[1]) - 1]
            bad = [LINE_END.split(values[2])[0].strip() for values in expected if values[2] is not None]
            assert any(first in named for first in bad)
    else:
        assert found == [values[:2] for values in expected]
        assert all(values[2] is None for values in expected)
