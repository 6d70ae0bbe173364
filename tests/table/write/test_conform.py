"""What comes in, made into what the table has."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from skep_format.errors import SchemaError
from skep_format.schema.exact import Casts
from skep_table.write.input.conform import conform, lists_with_nulls, plain_schema, plain_type


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.timestamp("ns", "Europe/Paris"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.date64(), pa.date32()),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.list_(pa.int32(), 3), pa.list_(pa.int32())),
        (pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())])),
        (pa.map_(pa.large_string(), pa.timestamp("ns")), pa.map_(pa.string(), pa.timestamp("us"))),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
    ],
)
def test_types_become_plain(given: pa.DataType, plain: pa.DataType) -> None:
    assert plain_type(given) == plain
    assert conform(pa.table({"c": pa.nulls(2, given)}), pa.schema([("c", plain)])).schema.field("c").type == plain


def test_columns_go_by_name_not_by_position() -> None:
    rows = pa.table({"b": [1], "extra": [0], "a": ["x"]})
    target = pa.schema([("a", pa.string()), ("b", pa.int64()), ("new", pa.int32())])
    assert conform(rows, target).to_pylist() == [{"a": "x", "b": 1, "new": None}]


def test_values_that_would_change_are_refused() -> None:
    stamp, target = pa.table({"t": pa.array([0, 1_500], pa.timestamp("ns"))}), pa.schema([("t", pa.timestamp("us"))])
    with pytest.raises(SchemaError, match=r"column t: 1970-01-01 00:00:00.000001500 of type timestamp\[ns\]"):
        conform(stamp, target)
    assert conform(stamp, target, Casts(lossy=True)).column(0).cast(pa.int64()).to_pylist() == [0, 1]
    with pytest.raises(SchemaError, match="column n"):
        conform(pa.table({"n": [2**40]}), pa.schema([("n", pa.int32())]))
    with pytest.raises(SchemaError, match="column n") as caught:
        conform(pa.table({"n": ["one"]}), pa.schema([("n", pa.int32())]))
    assert caught.value.fields["found"] == "string"


def test_a_null_in_a_required_column_is_counted() -> None:
    target = pa.schema([pa.field("k", pa.string(), nullable=False)])
    with pytest.raises(SchemaError, match="column k is required and null in 2 rows"):
        conform(pa.table({"k": ["a", None, None]}), target)


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="column a occurs twice"):
        plain_schema(pa.schema([("a", pa.int32()), ("a", pa.int32())]))


def test_lists_with_null_elements_are_found_at_any_depth() -> None:
    rows = pa.table(
        {
            "fine": [[1, 2], None],
            "flat": [[1, None], []],
            "deep": [{"inner": [["a"], [None]]}, None],
            "values": pa.array([[("k", [None])], None], pa.map_(pa.string(), pa.list_(pa.int32()))),
            "day": [dt.date(2024, 1, 1), None],
        }
    )
    assert list(lists_with_nulls(rows)) == ["flat", "deep.inner.element", "values.value"]


def test_an_element_below_a_null_list_does_not_count() -> None:
    masked = pa.ListArray.from_arrays([0, 1, 2], pa.array([None, 1]), mask=pa.array([True, False]))
    assert list(lists_with_nulls(pa.table({"c": masked}))) == []
