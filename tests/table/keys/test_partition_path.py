"""Partition path text, format guide 9.2."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError, KeyFieldError
from skep_format.escaping import escape, unescape
from skep_table.keys.partition_path import escape_column, join_values, split_path


def test_the_escaped_characters_are_hudis() -> None:
    assert escape("a/b=c %:x") == "a%2Fb%3Dc %25%3Ax"
    assert escape("é ü+}") == "é ü+}"
    assert escape("\x01\x1f\x7f\"#'*?\\{[]^") == "%01%1F%7F%22%23%27%2A%3F%5C%7B%5B%5D%5E"


@given(st.text())
def test_unescape_undoes_escape(value: str) -> None:
    assert unescape(escape(value)) == value


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_a_column_is_escaped_as_each_value_is(values: list[str]) -> None:
    assert escape_column(pa.array(values, pa.string())).to_pylist() == [escape(value) for value in values]


def paths(*columns: list[str | None], hive: bool = False, encode: bool = False) -> list[str]:
    fields = ["f", "g"][: len(columns)]
    arrays = [pa.array(column, pa.string()) for column in columns]
    rows = len(columns[0]) if columns else 1
    return join_values(arrays, fields, hive_style=hive, url_encode=encode, rows=rows).to_pylist()


def test_levels_are_joined_and_hive_style_is_a_prefix() -> None:
    assert paths(["a"], ["b"]) == ["a/b"]
    assert paths(["a"], ["b"], hive=True) == ["f=a/g=b"]
    assert paths(["a/b"], hive=True, encode=True) == ["f=a%2Fb"]
    assert paths(["2024/01"]) == ["2024/01"]
    assert paths() == [""]


def test_null_and_empty_are_the_default_partition() -> None:
    assert paths([None, ""], hive=True) == ["f=__HIVE_DEFAULT_PARTITION__"] * 2
    assert paths([None], ["x"]) == ["__HIVE_DEFAULT_PARTITION__/x"]


@pytest.mark.parametrize(
    "value", ["../up", "a/../../b", "/abs", "a//b", "end/", ".", ".hoodie", ".hoodie/x", "nul\x00"]
)
def test_a_value_that_would_leave_the_table_is_refused(value: str) -> None:
    with pytest.raises(KeyFieldError, match="partition column f") as caught:
        paths(["fine", value])
    assert caught.value.fields["rows"] == 1


@pytest.mark.parametrize(("hive", "encode"), [(False, True), (True, True)])
@given(
    values=st.tuples(*[st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1)] * 2)
)
def test_a_path_splits_back_into_its_values(values: tuple[str | None, str | None], hive: bool, encode: bool) -> None:
    if not hive and any(value in (".", "..", ".hoodie") for value in values):
        return
    (path,) = paths([values[0]], [values[1]], hive=hive, encode=encode)
    assert tuple(split_path(path, ["f", "g"], hive_style=hive, url_encode=encode).values()) == values


def test_a_single_field_takes_the_whole_path() -> None:
    assert split_path("2024/01/02", ["day"], hive_style=False, url_encode=False) == {"day": "2024/01/02"}
    assert split_path("", [], hive_style=False, url_encode=False) == {}


def test_a_path_with_other_levels_than_fields_is_an_error() -> None:
    with pytest.raises(FormatError, match="3 levels"):
        split_path("a/b/c", ["f", "g"], hive_style=False, url_encode=False)


@pytest.mark.parametrize(
    ("value", "url_encode", "helps"),
    [("../x", False, True), ("..", False, False), ("..", True, False), (".hoodie", True, False), ("a//b", False, True)],
)
def test_encoding_is_advised_only_where_it_helps(value: str, url_encode: bool, helps: bool) -> None:
    with pytest.raises(KeyFieldError, match="can't be a folder") as error:
        join_values([pa.array([value])], ["day"], hive_style=False, url_encode=url_encode, rows=1)
    assert ("urlencode=true" in str(error.value)) == helps
    if helps:
        join_values([pa.array([value])], ["day"], hive_style=False, url_encode=True, rows=1)


def test_all_rows_are_counted_whose_path_would_leave_the_table() -> None:
    with pytest.raises(KeyFieldError) as refused:
        join_values([pa.array(["..", "a", "..", "."])], ["day"], hive_style=False, url_encode=False, rows=4)
    assert refused.value.fields["rows"] == 3
