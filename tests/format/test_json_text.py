"""Rows as JSON text: the golden answers' spelling, Avro's, and the compact one."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.json_text import AVRO, COMPACT, ROWS, Spelling, json_lines, json_values, plain_texts

NESTED = pa.struct([("a", pa.int32()), ("b", pa.string())])


def lines(array: pa.Array, spelling: Spelling = ROWS) -> list[str]:
    text = bytes(json_lines(pa.record_batch({"v": array}), spelling)).decode()
    return [line[len('{"v": ') : -1] for line in text.splitlines()]


SPELT = [
    (pa.array(["a", 'q"\\', "tab\t\x01", "Ω😀", None]), ['"a"', '"q\\"\\\\"', '"tab\\t\\u0001"', '"Ω😀"', "null"]),
    (pa.array([1, -3, None], pa.int8()), ["1", "-3", "null"]),
    (pa.array([True, False, None]), ["true", "false", "null"]),
    (pa.array([46.062, 1.5, -0.0], pa.float32()), ["46.0620002746582", "1.5", "-0.0"]),
    (pa.array([0.1, 5.0, math.inf, -math.inf, math.nan]), ["0.1", "5.0", '"Infinity"', '"-Infinity"', '"NaN"']),
    (
        pa.array([Decimal("1.20"), Decimal("-0.01"), Decimal("0"), None], pa.decimal128(10, 2)),
        ['"1.20"', '"-0.01"', '"0.00"', "null"],
    ),
    (pa.array([Decimal(0), Decimal("-1E-18")], pa.decimal128(38, 18)), [f'"0.{"0" * 18}"', f'"-0.{"0" * 17}1"']),
    (pa.array([Decimal(99999)], pa.decimal128(5, 0)), ['"99999"']),
    (
        pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
        ['"0001-01-01"', '"1969-12-31"', '"9999-12-31"'],
    ),
    (
        pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
        ['"1969-12-31T23:59:59.999999Z"', '"2024-01-01T00:00:00.000000Z"'],
    ),
    (pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ms", "UTC")), ['"2024-01-01T00:00:00.000000Z"']),
    (pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us")), ['"2024-01-01T00:00:00.000000"']),
    (pa.array([b"", b"a", b"ab", b"abc", None]), ['""', '"YQ=="', '"YWI="', '"YWJj"', "null"]),
    (pa.array([{"a": 1, "b": "x"}, {}, None], NESTED), ['{"a": 1, "b": "x"}', '{"a": null, "b": null}', "null"]),
    (pa.array([[1, None], [], None], pa.list_(pa.int64())), ["[1, null]", "[]", "null"]),
    (pa.array([[["x"], None, []]], pa.list_(pa.list_(pa.string()))), ['[["x"], null, []]']),
    (
        pa.array([[("b", 1), ("a", None)], [], None], pa.map_(pa.string(), pa.int32())),
        ['{"a": null, "b": 1}', "{}", "null"],
    ),
    (pa.array(["x", "y", "x"]).dictionary_encode(), ['"x"', '"y"', '"x"']),
]


@pytest.mark.parametrize(("array", "expected"), SPELT, ids=[str(array.type) for array, _ in SPELT])
def test_rows_are_spelt_as_the_golden_answers(array: pa.Array, expected: list[str]) -> None:
    assert lines(array) == expected
    padded = pa.concat_arrays([array, array, array])
    assert lines(padded.slice(len(array), len(array))) == expected  # views into a longer array


def test_avro_spelling_is_javas() -> None:
    assert lines(pa.array([1e7, 1e-4, 123456.75, 1e22, 0.001]), AVRO) == [
        "1.0E7",
        "1.0E-4",
        "123456.75",
        "1.0E22",
        "0.001",
    ]
    assert lines(pa.array([2.974, 46.062], pa.float32()), AVRO) == ["2.974", "46.062"]
    assert lines(pa.array([Decimal("9344.06"), Decimal("-0.01")], pa.decimal128(10, 2)), AVRO) == [
        "[0, 0, 14, 66, 6]",
        "[-1, -1, -1, -1, -1]",
    ]
    assert lines(pa.array([b"\x91\xfby\n", b""]), AVRO) == ['"\\u0091ûy\\n"', '""']
    assert lines(pa.array([dt.date(1970, 1, 3)]), AVRO) == ["2"]
    assert lines(pa.array([[("b", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())), AVRO) == ['{"b": 1, "a": 2}']


def test_compact_spelling_leaves_nulls_out() -> None:
    rows = pa.record_batch(
        {
            "n": pa.array([None, 1]),
            "s": pa.array([{"a": None, "b": "x"}, None], NESTED),
            "t": pa.array([dt.datetime(1970, 1, 1, 0, 0, 1), None], pa.timestamp("ms", "UTC")),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "m": pa.array([[("b", None), ("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        }
    )
    text = bytes(json_lines(rows, COMPACT)).decode().splitlines()
    assert text == ['{"s":{"b":"x"},"t":1000000,"d":"1.50","m":{"a":1}}', '{"n":1}']


def test_no_rows_and_no_columns() -> None:
    assert bytes(json_lines(pa.record_batch({"a": pa.array([], pa.int32())}))) == b""
    assert json_values(pa.array([], pa.map_(pa.string(), pa.string())), ROWS).to_pylist() == []


def test_plain_texts_have_no_quotes() -> None:
    batch = pa.record_batch({"s": ['"x"', None], "d": [dt.date(2024, 1, 1), None], "l": [["a"], None]})
    assert [text.to_pylist() for text in plain_texts(batch)] == [['"x"', None], ["2024-01-01", None], ['["a"]', None]]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.fixed_dictionaries(
    {
        "text": st.none() | texts,
        "double": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "bytes": st.none() | st.binary(max_size=9),
        "list": st.none() | st.lists(st.none() | texts, max_size=3),
        "map": st.none() | st.dictionaries(texts, st.none() | st.integers(-9, 9), max_size=3),
        "struct": st.none() | st.fixed_dictionaries({"x": st.none() | texts}),
    }
)
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("x", pa.string())])),
    ]
)


@given(rows=st.lists(values, max_size=6), skip=st.integers(0, 3))
def test_json_reads_back(rows: list[dict[str, Any]], skip: int) -> None:
    spelt = [row | {"map": None if row["map"] is None else list(row["map"].items())} for row in rows]
    batch = pa.RecordBatch.from_pylist(spelt, SCHEMA).slice(min(skip, len(rows)))
    read = [json.loads(line) for line in bytes(json_lines(batch)).decode().split("\n")[:-1]]
    for row in rows:
        row["bytes"] = None if row["bytes"] is None else base64.b64encode(row["bytes"]).decode()
    assert read == rows[skip:]
    assert all(
        np.signbit(a["double"]) == np.signbit(b["double"])
        for a, b in zip(read, rows[skip:], strict=True)
        if a["double"] == 0
    )


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**10), max_value=10**10), max_size=5
    )
)
def test_decimals_keep_every_digit(numbers: list[Decimal]) -> None:
    spelt = lines(pa.array(numbers, pa.decimal128(20, 4)))
    assert spelt == [f'"{number:.4f}"'.replace('"-0.0000"', '"0.0000"') for number in numbers]


@given(st.lists(st.binary(max_size=5), max_size=5))
def test_avro_bytes_are_latin_1(rows: list[bytes]) -> None:
    assert [json.loads(line).encode("latin-1") for line in lines(pa.array(rows, pa.binary()), AVRO)] == rows
