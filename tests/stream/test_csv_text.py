"""The options of CSV sources, and what is lost where text is cut otherwise than Spark does."""

from __future__ import annotations

from typing import Any

import pytest

from skep_format.errors import InputError, OptionError, UnsupportedError
from skep_format.options import REGISTRY, IneffectiveOptionWarning, Options
from skep_format.rowfiles.csv_rows import csv_rows
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_stream.files.csv_options import csv_form


def options(**values: str) -> Options:
    return Options({f"hoodie.streamer.csv.{name}": value for name, value in values.items()})


def texts(*names: str) -> Schema:
    fields = [{"name": name, "type": ["null", "string"]} for name in names]
    return parse_avro({"type": "record", "name": "r", "fields": fields})


def rows(text: str | bytes, schema: Schema | None = None, **values: str) -> list[tuple[Any, ...]]:
    data = text if isinstance(text, bytes) else text.encode()
    return [tuple(row.values()) for row in csv_rows("f", data, schema, csv_form(options(**values))).to_pylist()]


def test_doubled_quotes_with_the_quote_as_escape_end_no_row_late() -> None:
    text = 'id,v,n\na,1,"x ""q"" y"\nb,2,z\nc,3,""\nd,4,e\n'
    assert rows(text, texts("id", "v", "n"), header="true", escape='"') == [
        ("a", "1", 'x "q" y'),
        ("b", "2", "z"),
        ("c", "3", None),
        ("d", "4", "e"),
    ]


@pytest.mark.parametrize("multiline", ["false", "true"])
@pytest.mark.parametrize("path", ["C:\\new", '"C:\\new"', '"C:\\\\new"'])
def test_an_escaped_quote_takes_no_backslash_from_other_values(path: str, multiline: str) -> None:
    text = f'{path},"say \\"x\\""\n{path},b\n'
    assert rows(text, texts("a", "b"), multiLine=multiline) == [("C:\\new", 'say "x"'), ("C:\\new", "b")]


def test_without_an_escape_a_backslash_before_a_closing_quote_is_text() -> None:
    assert rows('"C:\\",b\n', texts("a", "b"), escape="") == [("C:\\", "b")]


def test_an_escape_after_a_closing_quote_is_refused() -> None:
    """Spark takes the separator behind it for a part of the value, and loses it."""
    with pytest.raises(InputError, match=r"f, line 2: .* follows the closing quote"):
        rows('a,b\n"x"\\,y\n', texts("a", "b"))


def test_a_quoted_value_ends_with_its_line_unless_values_may_have_several() -> None:
    text = 'a,"x\n1,2\n'
    assert rows(text, texts("a", "b")) == [("a", "x"), ("1", "2")]
    assert rows(text, texts("a", "b"), multiLine="true") == [("a", "x\n1,2\n")]


def test_lines_in_values_may_end_otherwise_than_records() -> None:
    """As spreadsheets write them."""
    for inside in ("\n", "\r\n"):
        text = f'a,b\r\n1,"x{inside}y"\r\n2,z\r\n'
        assert rows(text, texts("a", "b"), multiLine="true", header="true") == [("1", "x\ny"), ("2", "z")]


def test_the_first_line_end_is_that_of_all_but_no_row_is_a_part_of_another() -> None:
    assert rows("a,b\r\nc,d\ne,f\n", texts("a", "b"), multiLine="true") == [("a", "b"), ("c", "d"), ("e", "f")]


def test_null_and_empty_texts() -> None:
    text = 'NA,"NA"\n"",\n'
    assert rows(text, texts("a", "b")) == [("NA", "NA"), (None, None)]
    assert rows(text, texts("a", "b"), nullValue="NA") == [(None, None), ("", None)]
    assert rows(text, texts("a", "b"), emptyValue="E") == [("NA", "NA"), ("E", None)]
    assert rows('"",', texts("a", "b"), nullValue="NA") == [("", None)]
    assert rows('\\N,"\\N"\n"\\\\N",N\n', texts("a", "b"), nullValue="\\N") == [(None, None), (None, "N")]
    assert rows('a\n""\nb\n', texts("a")) == [("a",), (None,), ("b",)]


def test_blanks_and_comments() -> None:
    text = '#c\n a, "b" \n  \n"c" ,d\n'
    assert rows(text, texts("a", "b"), comment="#") == [(" a", ' "b" '), ("c", "d")]
    trimmed = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}
    assert rows(text, texts("a", "b"), comment="#", **trimmed) == [("a", "b"), ("c", "d")]
    assert rows(" # c\nx,y\n#z\na,b\n", texts("x", "y"), comment="#", header="true") == [("a", "b")]


def test_headers() -> None:
    found = csv_rows("f", b'\n"a ""b""",\n1,2\n', None, csv_form(options(header="true", escape='"')))
    assert found.to_pydict() == {'a "b"': [1], "_c1": [2]}
    for text in ("a,b", "a,b\n", "\n \n"):
        assert rows(text, texts("a", "b"), header="true") == []


def test_errors_count_lines_as_they_are_in_the_file() -> None:
    with pytest.raises(InputError, match="f, line 5: Expected 2 columns, got 1"):
        rows("a,b\n\n  \r\n1,2\n3\n", texts("a", "b"), header="true")
    with pytest.raises(InputError, match="f, line 4: Expected 2 columns, got 1"):
        rows('a,b\n\n1,"2\n"3 \n', texts("a", "b"), header="true")
    with pytest.raises(InputError, match="f, line 4: Expected 2 columns, got 1"):
        rows('a,b\n1,"2\n"\n3\n', texts("a", "b"), header="true", multiLine="true")


def test_encodings_and_separators() -> None:
    assert rows("é\ta\\b\n".encode("latin-1"), texts("a", "b"), encoding="ISO-8859-1", sep="\\t") == [("é", "a\\b")]
    assert rows('é¦"a\\"¦"\n', texts("a", "b"), sep="¦") == [("é", 'a"¦')]
    assert rows("é,b\n".encode("utf-16"), texts("a", "b"), encoding="UTF-16") == [("é", "b")]
    assert rows("é,b\n".encode("utf-8-sig"), texts("a", "b")) == [("é", "b")]
    with pytest.raises(InputError, match="f is not in ascii"):
        rows("é", texts("a"), encoding="ascii")
    with pytest.raises(InputError, match="f, line 2: 'utf-8' codec can't decode byte 0xff"):
        rows(b'a,b\n"\xff" ,b\n', texts("a", "b"))


@pytest.mark.parametrize(
    "given",
    [{"sep": "||"}, {"sep": "\\"}, {"quote": "''"}, {"escape": "\\\\"}, {"comment": "//"}, {"encoding": "none"}],
)
def test_what_is_no_character_or_encoding_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=f"hoodie.streamer.csv.{next(iter(given))}"):
        csv_form(options(**given))


OF_HUDI = (
    *("sep", "encoding", "quote", "escape", "charToEscapeQuoteEscaping", "comment", "header", "enforceSchema"),
    *("inferSchema", "samplingRatio", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "emptyValue"),
    *("nanValue", "positiveInf", "negativeInf", "dateFormat", "timestampFormat", "maxColumns", "maxCharsPerColumn"),
    *("mode", "columnNameOfCorruptRecord", "multiLine"),
)


def test_all_options_of_hudi_are_known() -> None:
    """HoodieStreamer hands these to Spark's reader."""
    assert [name for name in OF_HUDI if REGISTRY.find(f"hoodie.streamer.csv.{name}") is None] == []


@pytest.mark.parametrize(
    "given",
    [{"mode": "PERMISSIVE"}, {"mode": "DROPMALFORMED"}, {"dateFormat": "dd.MM.yyyy"}, {"nanValue": "-"},
     {"enforceSchema": "false"}],
)  # fmt: skip
def test_options_that_ask_for_something_else_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match=f"hoodie.streamer.csv.{next(iter(given))}"):
        options(**given).check()


def test_options_that_ask_for_what_is_done_are_taken_and_limits_are_warned_of() -> None:
    options(mode="FAILFAST", positiveInf="Inf", enforceSchema="true", maxColumns="20480").check()
    with pytest.warns(IneffectiveOptionWarning, match="maxColumns has no effect"):
        options(maxColumns="3").check()
