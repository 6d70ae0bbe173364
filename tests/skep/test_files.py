"""Files of rows as one table: types of text files, and errors that name file and line."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from skep.base.schemas import schema_text
from skep.files.inputs import inputs_of, read_files
from skep_format.errors import InputError
from skep_format.rowfiles.inferred import TextColumnWarning

UTC = dt.timezone.utc


def files(folder: Path, **contents: str | bytes) -> list[Path]:
    """Files by their names, with `_` for the dot before the ending."""
    paths = []
    for name, content in contents.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        paths.append(path)
    return paths


def read(folder: Path, table: pa.Schema | None = None, schema: str | None = None, **contents: str | bytes) -> pa.Table:
    text_of_schema = schema_text(schema) if schema else None
    return read_files(inputs_of(files(folder, **contents)), table, text_of_schema).table()


def refused(folder: Path, table: pa.Schema | None = None, **contents: str | bytes) -> str:
    with pytest.raises(InputError) as error:
        read(folder, table, **contents)
    return str(error.value)


# -- CSV


@pytest.mark.parametrize("text", ["01234", "-01", "+007", "00.5", "12345678901234567890"])
def test_text_that_a_number_would_change_stays_text_with_a_warning(tmp_path: Path, text: str) -> None:
    with pytest.warns(TextColumnWarning, match=r"column zip is read as text.*--schema 'zip bigint'"):
        rows = read(tmp_path, a_csv=f"zip,n\n{text},1\n2,2\n")
    assert rows.column("zip").to_pylist() == [text, "2"]
    assert rows.column("n").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-0", 0), ("0.5", 0.5), ("10", 10), ("1e5", 1e5), ("9223372036854775807", 9223372036854775807)],
)
def test_plain_numbers_are_numbers(tmp_path: Path, text: str, number: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, a_csv=f"n\n{text}\n").column("n").to_pylist() == [number]


def test_the_schema_that_is_given_is_read(tmp_path: Path) -> None:
    given = "zip string, n double, price decimal(10,2), at timestamp, day date"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = read(
            tmp_path,
            schema=given,
            a_csv="zip,n,price,at,day,more\n01234,1,1.50,2026-01-01 10:00:00,2026-01-01,x\n"
            "1,2,3,2026-01-01T10:00:00+02:00,2026-01-02,y\n,,,,,z\n",
        )
    assert rows.to_pylist() == [
        {
            "zip": "01234",
            "n": 1.0,
            "price": Decimal("1.50"),
            "at": dt.datetime(2026, 1, 1, 10, tzinfo=UTC),
            "day": dt.date(2026, 1, 1),
            "more": "x",
        },
        {
            "zip": "1",
            "n": 2.0,
            "price": Decimal("3.00"),
            "at": dt.datetime(2026, 1, 1, 8, tzinfo=UTC),
            "day": dt.date(2026, 1, 2),
            "more": "y",
        },
        {"zip": "", "n": None, "price": None, "at": None, "day": None, "more": "z"},
    ]


def test_a_schema_may_be_a_file_of_avro(tmp_path: Path) -> None:
    path = tmp_path / "s.avsc"
    path.write_text('{"type": "record", "name": "r", "fields": [{"name": "zip", "type": "string"}]}')
    assert read(tmp_path, schema=str(path), a_csv="zip\n01\n").column("zip").to_pylist() == ["01"]


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("zip strin", "zip STRIN is no column|do not parse"),
        ("zip", "is no column"),
        ("zip string, zip int", "twice"),
        ("zip string not null", "is no column"),
        ("", "names no columns|do not parse"),
        ("nowhere.avsc", "can't be read as an Avro schema"),
    ],
)
def test_schemas_that_mean_nothing(text: str, expected_message: str) -> None:
    with pytest.raises(InputError, match=expected_message):
        schema_text(text)


def test_a_column_of_the_schema_that_no_file_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file has column zipp"):
        read(tmp_path, schema="zipp string", a_csv="zip\n1\n")


def test_the_types_of_a_table_guide_the_reading(tmp_path: Path) -> None:
    at = pa.timestamp("us", "UTC")
    table = pa.schema([("zip", pa.string()), ("n", pa.int32()), ("at", at), ("absent", pa.int32())])
    csv = read(tmp_path, table, a_csv="zip,n,at\n01234,1,2026-01-01\n")
    json = read(tmp_path, table, b_jsonl='{"zip": "2026-01-01", "n": 1, "at": "2026-01-01T00:00:00Z"}\n')
    assert csv.schema == json.schema == pa.schema([table.field(name) for name in ("zip", "n", "at")])
    assert csv.to_pylist() == [{"zip": "01234", "n": 1, "at": dt.datetime(2026, 1, 1, tzinfo=UTC)}]
    assert json.column("zip").to_pylist() == ["2026-01-01"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1", "1.5", [1.0, 1.5]),
        ("1", "x", ["1", "x"]),
        ("1.50", "x", ["1.50", "x"]),
        ("", "3", [None, 3]),
        ("2026-01-01", "n/a or so", ["2026-01-01", "n/a or so"]),
        ("2026-01-01", "2026-01-01 10:00:00", [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 10)]),
        ("2026-01-01", "2026-01-01T10:00:00Z", ["2026-01-01", "2026-01-01T10:00:00Z"]),
        ("true", "7", ["true", "7"]),
        ("9007199254740993", "1.5", ["9007199254740993", "1.5"]),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_files_of_one_call_are_read_with_one_type(
    tmp_path: Path, first: str, second: str, expected: list[Any], swapped: bool
) -> None:
    one, other = (second, first) if swapped else (first, second)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = read(tmp_path, a_csv=f"id,v\n1,{one}\n", b_csv=f"id,v\n2,{other}\n")
    assert rows.column("v").to_pylist() == (expected[::-1] if swapped else expected)


def test_leading_zeros_in_one_file_hold_for_all(tmp_path: Path) -> None:
    with pytest.warns(TextColumnWarning, match="zip"):
        rows = read(tmp_path, a_csv="zip\n1\n", b_csv="zip\n01\n", c_csv="zip\n100\n")
    assert rows.column("zip").to_pylist() == ["1", "01", "100"]


def test_files_with_types_guide_those_without(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"zip": ["00001"]}), tmp_path / "z.parquet")
    given = [*files(tmp_path, a_csv="zip\n01234\n"), tmp_path / "z.parquet", *files(tmp_path, b_jsonl='{"zip": "7"}\n')]
    assert read_files(inputs_of(given)).table().column("zip").to_pylist() == ["01234", "00001", "7"]


@pytest.mark.parametrize(
    ("content", "expected_message"),
    [
        ("a,b\n1,x\n2\n", ", line 3: Expected 2 columns, got 1"),
        ("a,b\n1,x\n2,y,z\n", ", line 3: Expected 2 columns, got 3"),
        ('a,b\n1,"x\n2,y\n', ", line 2: a quoted value is not closed"),
        ('a,b\n1,x\n2,"y\n3,"z\n', ", line 3: a quoted value is not closed, or text follows"),
        ('a,b\n1,"x" z\n', ", line 2: a quoted value is not closed, or text follows"),
        ('"a,b\n1,x\n', ", line 1: a quoted value is not closed"),
        ("a,b\n1,x\n2,caf\xe9\n".encode("latin1"), ", line 3: the file is not in UTF-8"),
        ("a,b\n1,x\n".encode("utf-16"), ", line 1: the file is not in UTF-8"),
        ("a,a\n1,2\n", ", line 1: column a occurs twice"),
        ("", "is empty"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, content: str | bytes, expected_message: str) -> None:
    message = refused(tmp_path, good_csv="a,b\n1,x\n", bad_csv=content)
    assert str(tmp_path / "bad.csv") in message
    assert expected_message in message


def test_a_value_of_another_type_than_the_tables_names_line_and_column(tmp_path: Path) -> None:
    message = refused(tmp_path, pa.schema([("b", pa.int32())]), a_csv="a,b\nx,1\ny,one\n")
    assert "a.csv, line 3: column b: int32: invalid value 'one'" in message
    assert "--schema 'b string'" in message


def test_numbers_with_a_plus_and_times_are_read_in_the_types_of_the_table(tmp_path: Path) -> None:
    table = pa.schema([("n", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    rows = read(tmp_path, table, a_csv="n,at\n+7,2026-01-01 10:00:00\nNA,NA\n")
    assert rows.to_pylist() == [{"n": 7, "at": dt.datetime(2026, 1, 1, 10, tzinfo=UTC)}, {"n": None, "at": None}]
    message = refused(tmp_path, table, a_csv="n,at\n1,2026-01-01\n2,2026-01-02\n+3,soon\n")
    assert "a.csv, line 4: column at: timestamp[us, tz=UTC]: invalid value 'soon'" in message


def test_quotes_that_csv_allows(tmp_path: Path) -> None:
    content = 'a,b\r\n"one, two","read ""hi"""\n"two\nlines",""\n5" pipe,plain\n"",\'\n'
    rows = read(tmp_path, a_csv="﻿" + content)
    assert rows.to_pylist() == [
        {"a": "one, two", "b": 'read "hi"'},
        {"a": "two\nlines", "b": ""},
        {"a": '5" pipe', "b": "plain"},
        {"a": "", "b": "'"},
    ]


def test_lines_within_quotes_cross_the_blocks_of_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import skep_format.rowfiles.csv_read
    import skep_format.rowfiles.inferred

    monkeypatch.setattr(skep_format.rowfiles.csv_read, "_BLOCK_BYTES", 256)
    monkeypatch.setattr(skep_format.rowfiles.inferred, "_SCAN_BYTES", 100)
    content = "a,b\n" + "".join(f'{at},"line\nof {at}"\n' for at in range(200))
    assert read(tmp_path, a_csv=content).column("b").to_pylist() == [f"line\nof {at}" for at in range(200)]


# -- JSON lines


@pytest.mark.parametrize(
    ("content", "expected_message"),
    [
        ('{"a": 1}\n{"a": "x"}\n', ", line 2: column a is text, and a number in line 1"),
        ('{"a": 1}\n{"a": \n', ", line 2: not JSON"),
        ('[{"a": 1}]\n', ", line 1: an object is expected, found a list"),
        ('{"a": 1}\n{"a": "caf\xe9"}\n'.encode("latin1"), ", line 2: the file is not in UTF-8"),
        ('{"a": "} n"}\n{"a": "b"} null\n', ", line 2: not JSON: Extra data"),
        ("null\n", ", line 1: an object is expected, found null"),
        ("", "Empty JSON file"),
    ],
)
def test_json_errors_name_file_and_line(tmp_path: Path, content: str | bytes, expected_message: str) -> None:
    message = refused(tmp_path, good_jsonl='{"a": 1}\n', bad_jsonl=content)
    assert str(tmp_path / "bad.jsonl") in message
    assert expected_message in message


def test_json_files_of_one_call_are_read_with_one_type(tmp_path: Path) -> None:
    rows = read(tmp_path, a_jsonl='{"d": "2026-01-01", "n": 1}\n', b_jsonl='{"d": "unknown", "n": 1.5}\n')
    assert rows.to_pylist() == [{"d": "2026-01-01", "n": 1.0}, {"d": "unknown", "n": 1.5}]
    message = refused(tmp_path, c_jsonl='{"d": 1}\n', d_jsonl='{"d": "x"}\n')
    assert "c.jsonl: column d has int64, and text in other files" in message
    message = refused(tmp_path, c_jsonl='{"d": 9007199254740993}\n', d_jsonl='{"d": 0.5}\n')
    assert "c.jsonl: column d has int64, and doubles, which don't hold 9007199254740993, in other files" in message


def test_json_in_the_types_of_a_table(tmp_path: Path) -> None:
    inner = pa.struct([("s", pa.string()), ("n", pa.int32()), ("not_there", pa.string())])
    price, numbers = pa.decimal128(10, 2), pa.list_(pa.int32())
    table = pa.schema([("day", pa.date32()), ("x", inner), ("price", price), ("l", numbers)])
    line = '{"day": "2026-01-01", "x": {"s": "2026-01-01", "n": 1}, "price": 1.5, "l": [1]}'
    rows = read(tmp_path, table, a_jsonl=line)
    assert rows.schema.field("l").type == numbers
    assert rows.to_pylist() == [
        {"day": dt.date(2026, 1, 1), "x": {"s": "2026-01-01", "n": 1}, "price": Decimal("1.50"), "l": [1]}
    ]


def test_a_line_may_be_long(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    assert read(tmp_path, a_jsonl=f'{{"a": "{text}"}}\n').column("a").to_pylist() == [text]
    assert read(tmp_path, a_csv=f"a,b\n{text},1\n").column("a").to_pylist() == [text]
