"""Arrow schemas: every type of ours has one of Arrow's; Arrow's many spellings are named losslessly or refused."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_format.errors import SchemaError
from skep_format.schema.arrow import from_arrow, from_arrow_type, to_arrow
from skep_format.schema.types import (
    BinaryType,
    DateType,
    DecimalType,
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
    TimeType,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_there_and_back(shapes, data):
    schema = data.draw(shapes.schemas)
    arrow = to_arrow(schema)
    assert to_arrow(from_arrow(arrow)).equals(arrow, check_metadata=True)
    assert from_arrow(arrow).names() == schema.names()


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.int8(), IntType(8)),
        (pa.uint8(), IntType(16)),
        (pa.uint16(), IntType()),
        (pa.uint32(), LongType()),
        (pa.float16(), FloatType()),
        (pa.large_string(), StringType()),
        (pa.string_view(), StringType()),
        (pa.large_binary(), BinaryType()),
        (pa.binary_view(), BinaryType()),
        (pa.dictionary(pa.int32(), pa.string()), StringType()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), LongType()),
        (pa.date64(), DateType()),
        (pa.time32("s"), TimeType("ms")),
        (pa.time64("ns"), TimeType("us")),
        (pa.timestamp("s"), TimestampType("us", utc=False)),
        (pa.timestamp("ns", "Europe/Amsterdam"), TimestampType("us")),
        (pa.timestamp("ms", "+02:00"), TimestampType("ms")),
        (pa.decimal256(20, 2), DecimalType(20, 2)),
        (pa.large_list(pa.int32()), ListType(IntType())),
        (pa.list_(pa.int32(), 3), ListType(IntType())),
        (pa.map_(pa.large_string(), pa.int64()), MapType(LongType())),
        (pa.struct([pa.field("a", pa.int32(), False)]), StructType((Field("a", IntType(), False),))),
    ],
)
def test_spellings_that_lose_nothing(found, kind):
    assert from_arrow_type(found, "x") == kind


@pytest.mark.parametrize(
    ("found", "column"),
    [
        (pa.uint64(), "x"),
        (pa.null(), "x"),
        (pa.duration("s"), "x"),
        (pa.month_day_nano_interval(), "x"),
        (pa.decimal256(50, 2), "x"),
        (pa.decimal128(5, -2), "x"),
        (pa.struct([]), "x"),
        (pa.map_(pa.int32(), pa.string()), "x"),
        (pa.dense_union([pa.field("a", pa.int32())]), "x"),
        (pa.struct([("a", pa.list_(pa.uint64()))]), "x.a.element"),
    ],
)
def test_what_no_table_holds_is_refused_by_column(found, column):
    with pytest.raises(SchemaError) as refused:
        from_arrow(pa.schema([("x", found)]))
    assert refused.value.fields["column"] == column


def test_a_column_given_twice_is_refused():
    with pytest.raises(SchemaError, match="x occurs twice"):
        from_arrow(pa.schema([("x", pa.int32()), ("x", pa.int64())]))


def test_comments_travel_in_field_metadata():
    schema = Schema((Field("a", IntType(), False, "the first"),))
    arrow = to_arrow(schema)
    assert arrow.field("a").metadata == {b"comment": b"the first"}
    assert from_arrow(arrow)["a"].doc == "the first"
    assert not arrow.field("a").nullable
