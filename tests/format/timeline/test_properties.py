"""Java properties text (format guide 1.3): what `Properties.load` reads, and text that it reads back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError
from skep_format.properties import format_properties, parse_properties

TEXT = st.text(st.characters(codec="utf-8")) | st.text("\\ :=#!\n\r\t\fau0041é😀")


@given(st.dictionaries(TEXT, TEXT), st.lists(TEXT))
def test_what_is_written_is_read_back_in_order(properties: dict[str, str], comments: list[str]) -> None:
    found = parse_properties(format_properties(properties, comments))
    assert list(found.items()) == list(properties.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb"hoodie.table.partition.fields=part\:simple,at\:timestamp", "part:simple,at:timestamp"),
        (b"k=a:b=c", "a:b=c"),
        (b"k: v", "v"),
        (b"k v", "v"),
        (b"  k  =  v  ", "v  "),
        (b"k=a\\\n   b", "ab"),
        (b"k=a\\\r\n\t#b", "a#b"),
        (b"k=a\\\\\nother=x", "a\\"),
        (rb"k=\u00e9\uD83D\uDE00\t\q", "é😀\tq"),
        (b"k=\xe9", "é"),
        (b"k", ""),
        (b"k=first\nk=last", "last"),
        (b"# k=no\n! k=no\n\n   \nk=yes", "yes"),
    ],
)
def test_java_syntax(text: bytes, expected: str) -> None:
    found = parse_properties(text)
    assert next(iter(found.values())) == expected


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("k", "a:b", b"k=a:b"),  # not all readers undo escapes: none where Java needs none
        ("k", '{"a":"b#!"}', b'k={"a":"b#!"}'),
        ("a b:c=d", "v", rb"a\ b\:c\=d=v"),
        ("k", " v", rb"k=\ v"),
        ("k", "é😀", rb"k=\u00E9\uD83D\uDE00"),
        ("k", "\\n\n", rb"k=\\n\n"),
    ],
)
def test_escapes_only_what_must_be(key: str, value: str, line: bytes) -> None:
    assert format_properties({key: value}) == line + b"\n"


def test_comments_come_first() -> None:
    assert format_properties({"k": "v"}, ["made by\nskep"]) == b"#made by\\nskep\nk=v\n"


@pytest.mark.parametrize("text", [rb"k=\u12", rb"k=\uXYZW", rb"\u=v"])
def test_a_broken_escape_names_the_file(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"table/hoodie\.properties"):
        parse_properties(text, "table/hoodie.properties")


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_properties(data)
