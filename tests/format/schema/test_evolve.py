"""Rows of an older schema as a newer one reads them, and what a write makes of a table's schema."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import FormatError, SchemaError
from skep_format.schema.arrow import arrow_type, from_arrow, to_arrow
from skep_format.schema.evolve import floats_widened_exactly, project
from skep_format.schema.history import SchemaVersion, parse_history, source_names, version_at
from skep_format.schema.java_text import java_float
from skep_format.schema.policy import Missing, SchemaPolicy
from skep_format.schema.reconcile import reconcile
from skep_format.schema.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    Schema,
    StringType,
    StructType,
    TimestampType,
)


def schema(**kinds):
    return Schema(tuple(Field(name, kind) for name, kind in kinds.items()))


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def projected(column, kind):
    return project(batch(x=column), schema(x=kind)).column("x")


@pytest.mark.parametrize(
    ("values", "found", "kind", "expected"),
    [
        ([1, None], pa.int32(), LongType(), [1, None]),
        ([16777217], pa.int32(), FloatType(), [16777216.0]),
        ([1], pa.int64(), DoubleType(), [1.0]),
        ([1.87, None], pa.float32(), DoubleType(), [1.87, None]),  # by way of its text, as Hudi does
        ([1.87], pa.float32(), StringType(), ["1.87"]),
        ([1e10, 1e-5, 100.0], pa.float64(), StringType(), ["1.0E10", "1.0E-5", "100.0"]),
        ([7], pa.int64(), StringType(), ["7"]),
        ([0], pa.date32(), StringType(), ["1970-01-01"]),
        ([Decimal("1.50")], pa.decimal128(5, 2), StringType(), ["1.50"]),
        ([Decimal("1.50")], pa.decimal128(5, 2), DecimalType(9, 4), [Decimal("1.5000")]),
        ([12], pa.int32(), DecimalType(12, 2), [Decimal("12.00")]),
        (["2024-02-29"], pa.string(), DateType(), [19782]),
        ([b"ab"], pa.binary(), StringType(), ["ab"]),
        (["é"], pa.string(), BinaryType(), ["é".encode()]),
        ([1_000], pa.timestamp("ms", "UTC"), TimestampType("us"), [1_000_000]),
        ([1_000], pa.timestamp("us"), TimestampType("us"), [1_000]),  # without zone: the number stays
    ],
)
def test_promotions(values, found, kind, expected):
    column = projected(pa.array(values, found), kind)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    assert column.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "found", "kind"),
    [
        ([2**40], pa.int64(), IntType()),
        (["x"], pa.string(), IntType()),
        ([1.5], pa.float64(), LongType()),
        ([True], pa.bool_(), IntType()),
        (["no date"], pa.string(), DateType()),
        ([[1]], pa.list_(pa.int32()), StringType()),
        ([b"\xff"], pa.binary(), StringType()),
        ([1_500_500_500], pa.timestamp("ns"), TimestampType("us")),
        ([Decimal("123.45")], pa.decimal128(5, 2), DecimalType(3, 2)),
    ],
)
def test_what_does_not_fit_is_an_error_by_column(values, found, kind):
    with pytest.raises(SchemaError) as refused:
        project(pa.RecordBatch.from_arrays([pa.array(values, found)], ["x"]), schema(x=kind))
    assert refused.value.fields["column"] == "x"
    assert refused.value.fields["expected"] == str(arrow_type(kind))


def test_columns_by_name_missing_ones_null_others_left_out():
    rows = project(batch(b=[1, 2], z=["q", "q"], a=["x", "y"]), schema(a=StringType(), new=DoubleType(), b=LongType()))
    assert rows.to_pydict() == {"a": ["x", "y"], "new": [None, None], "b": [1, 2]}


def test_missing_columns_take_their_default():
    target = Schema(
        (
            Field("n", IntType(), default=5),
            Field("t", StringType(), default="x"),
            Field("b", BinaryType(), default="ÿ"),
            Field("d", DateType(), default=1),
            Field("p", DecimalType(5, 2, 0), default="\xff\x38"),
        )
    )
    rows = project(batch(a=[1, 2]), target)
    assert rows.column("n").to_pylist() == [5, 5]
    assert rows.column("b").to_pylist() == [b"\xff"] * 2
    assert rows.column("d").cast(pa.int32()).to_pylist() == [1, 1]
    assert rows.column("p").to_pylist() == [Decimal("-2.00")] * 2


def test_a_required_column_that_is_missing_is_an_error():
    with pytest.raises(SchemaError, match="column n is required"):
        project(batch(a=[1]), Schema((Field("n", IntType(), nullable=False),)))


def test_nested_types_grow_and_widen_at_every_depth():
    old = pa.schema(
        [
            ("s", pa.struct([("a", pa.int32()), ("gone", pa.string())])),
            ("l", pa.list_(pa.field("array", pa.struct([("q", pa.float32())]), False))),
            ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ]
    )
    rows = [
        {"s": {"a": 1, "gone": "x"}, "l": [{"q": 1.87}, {"q": None}], "m": {"k": [1, 2]}},
        {"s": None, "l": None, "m": None},
        {"s": {"a": None, "gone": None}, "l": [], "m": {}},
        {"s": {"a": 4, "gone": "y"}, "l": [{"q": 0.1}], "m": {"x": None, "y": []}},
    ]
    target = schema(
        s=StructType((Field("new", StringType()), Field("a", LongType()))),
        l=ListType(StructType((Field("q", DoubleType()), Field("r", IntType())))),
        m=MapType(ListType(LongType())),
    )
    expected = [
        {"s": {"new": None, "a": 1}, "l": [{"q": 1.87, "r": None}, {"q": None, "r": None}], "m": [("k", [1, 2])]},
        {"s": None, "l": None, "m": None},
        {"s": {"new": None, "a": None}, "l": [], "m": []},
        {"s": {"new": None, "a": 4}, "l": [{"q": 0.1, "r": None}], "m": [("x", None), ("y", [])]},
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema=old)
    for start in range(4):  # slices too: offsets count in children
        for length in range(5 - start):
            part = project(whole.slice(start, length), target)
            part.validate(full=True)
            assert part.to_pylist() == expected[start : start + length]


def test_rows_that_fit_are_passed_on_as_they_are():
    rows = batch(a=[1])
    assert project(rows, from_arrow(rows.schema)) is rows


@given(st.lists(st.floats(width=32) | st.none()))
def test_floats_that_avro_widens_keep_their_values(values):
    rows = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.float32()), pa.array(values, pa.float32())], ["wide", "as_is"]
    )
    target = from_arrow(pa.schema([("wide", pa.float64()), ("as_is", pa.float32()), ("other", pa.int32())]))
    widened = floats_widened_exactly(rows, target)
    assert widened.schema.types == [pa.float64(), pa.float32()]
    assert str(widened.column("wide").to_pylist()) == str(rows.column("wide").to_pylist())


@given(st.lists(st.floats(width=32) | st.none()))
def test_floats_become_the_doubles_that_their_shortest_text_shows(values):
    column = pa.array(values, pa.float32())
    widened = projected(column, DoubleType())
    assert widened.cast(pa.float32(), safe=False).to_pylist().__repr__() == column.to_pylist().__repr__()
    assert widened.cast(pa.string()).to_pylist() == column.cast(pa.string()).to_pylist() or any(
        value is not None and (value != 0 and (abs(value) >= 1e7 or abs(value) < 1e-3)) for value in values
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.001, "0.001"), (0.00099, "9.9E-4"), (9999999.0, "9999999.0"),
        (1e7, "1.0E7"), (-1.25e20, "-1.25E20"), (123456789.5, "1.234567895E8"), (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"), (float("nan"), "NaN"), (None, None),
    ],
)  # fmt: skip
def test_numbers_as_java_prints_them(value, text):
    assert java_float(pa.array([value], pa.float64())).to_pylist() == [text]


# -- renamed columns ---------------------------------------------------------------------------------------------------

HISTORY = """{"schemas":[
 {"max_column_id":5,"version_id":20240102000000000,"type":"record","fields":[
  {"id":0,"name":"key","optional":true,"type":"string"},
  {"id":4,"name":"a","optional":true,"type":"int"},
  {"id":2,"name":"s","optional":true,"type":{"type":"record","fields":[{"id":3,"name":"y","optional":true,"type":"int"}]}},
  {"id":5,"name":"l","optional":true,"type":{"type":"array","element_id":6,"element_optional":true,"element":"int"}}]},
 {"max_column_id":3,"version-id":0,"type":"record","fields":[
  {"id":0,"name":"id","optional":true,"type":"string"},
  {"id":1,"name":"a","optional":true,"type":"int"},
  {"id":2,"name":"s","optional":true,"type":{"type":"record","fields":[{"id":3,"name":"x","optional":true,"type":"int"}]}}]}]}"""


def test_renamed_columns_are_found_by_their_ids():
    first, second = parse_history(HISTORY)
    names = source_names(first, second)
    assert names == {"key": "id", "a": None, "s.y": "x", "l": None, "l.element": None}
    target = schema(key=StringType(), a=IntType(), s=StructType((Field("y", IntType()),)), l=ListType(IntType()))
    rows = project(batch(id=["k"], a=[1], s=[{"x": 7}]), target, names)
    # `a` was dropped and another column took its name: the old values are not its own
    assert rows.to_pylist() == [{"key": "k", "a": None, "s": {"y": 7}, "l": None}]


def test_the_version_of_a_file_is_the_one_in_force_at_its_instant():
    history = parse_history(HISTORY)
    assert version_at(history, "20240101999999999").version_id == 0
    assert version_at(history, "20240102000000000").version_id == 20240102000000000
    assert version_at(history[1:], "20200101000000000") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schemas":{}}', '{"schemas":[{"version_id":1}]}', '{"schemas":[3]}'])
def test_a_broken_history_names_its_file(text):
    with pytest.raises(FormatError, match=r"x\.schemacommit"):
        parse_history(text, "x.schemacommit")
    with pytest.raises(FormatError):
        SchemaVersion.parse(text)


# -- writes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("existing", "incoming", "result"),
    [
        (LongType(), IntType(), LongType()),
        (IntType(), LongType(), LongType()),
        (IntType(), IntType(8), IntType()),
        (FloatType(), DoubleType(), DoubleType()),
        (IntType(), StringType(), StringType()),
        (StringType(), LongType(), StringType()),
        (DecimalType(10, 2), DecimalType(5, 2), DecimalType(10, 2)),
        (DecimalType(5, 2), DecimalType(12, 4), DecimalType(12, 4)),
        (TimestampType("us"), TimestampType("ms"), TimestampType("us")),
        (ListType(IntType()), ListType(LongType()), ListType(LongType())),
        (MapType(IntType()), MapType(DoubleType()), MapType(DoubleType())),
    ],
)
def test_a_write_widens_the_table_or_is_widened(existing, incoming, result):
    assert reconcile(schema(x=existing), schema(x=incoming))["x"].type == result


@pytest.mark.parametrize(
    ("existing", "incoming"),
    [
        (IntType(), DateType()),
        (StringType(), BinaryType()),
        (TimestampType("us"), TimestampType("us", utc=False)),
        (DecimalType(5, 0), DecimalType(5, 4)),
        (ListType(IntType()), IntType()),
        (IntType(), DecimalType(5, 2)),
    ],
)
def test_types_that_do_not_meet_are_refused(existing, incoming):
    with pytest.raises(SchemaError) as refused:
        reconcile(schema(x=existing), schema(x=incoming))
    assert set(refused.value.fields) >= {"column", "found", "expected"}


def test_new_columns_follow_nullable_and_the_order_is_the_tables():
    table = Schema((Field("a", IntType(), False), Field("s", StructType((Field("x", IntType()),)))), "n", "ns")
    rows = Schema(
        (
            Field("b", StringType(), False),
            Field("s", StructType((Field("y", IntType(), False),))),
            Field("a", IntType()),
        )
    )
    merged = reconcile(table, rows)
    assert (merged.name, merged.namespace, merged.names()) == ("n", "ns", ("a", "s", "b"))
    assert not merged["a"].nullable
    assert merged["b"].nullable
    assert merged["s"].type == StructType((Field("x", IntType()), Field("y", IntType(), True)))


def test_missing_columns_are_null_or_refused():
    table, rows = schema(a=IntType(), b=IntType()), schema(a=IntType())
    assert reconcile(table, rows) == table
    with pytest.raises(SchemaError, match="column b of the table is missing"):
        reconcile(table, rows, SchemaPolicy(Missing.REFUSED))
    assert reconcile(table, rows, SchemaPolicy(Missing.DROPPED)) == rows
    with pytest.raises(SchemaError, match="column b"):
        reconcile(Schema((Field("a", IntType()), Field("b", IntType(), False))), rows)


@pytest.mark.parametrize(("stored", "arriving"), [("Name", "name"), ("name", "Name")])
def test_a_column_that_differs_in_case_only_is_refused(stored, arriving):
    with pytest.raises(SchemaError, match=f"differs from column {stored} of the table only in case"):
        reconcile(schema(**{stored: StringType()}), schema(**{stored: StringType(), arriving: StringType()}))


@pytest.mark.parametrize("kind", [IntType(), LongType(), FloatType(), DoubleType(), StringType(), DecimalType(9, 2)])
def test_rows_of_either_side_can_be_read_with_the_reconciled_schema(kind):
    for other in (IntType(), LongType(), DoubleType(), StringType()):
        try:
            merged = reconcile(schema(x=kind), schema(x=other))
        except SchemaError:
            continue
        for side in (kind, other):
            rows = pa.RecordBatch.from_arrays(
                [
                    pa.array([1]).cast(pa.decimal128(19, 0)).cast(arrow_type(side))
                    if isinstance(side, DecimalType)
                    else pa.array([1]).cast(arrow_type(side))
                ],
                ["x"],
            )
            assert project(rows, merged).schema == to_arrow(merged)
