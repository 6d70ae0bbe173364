"""Types as text: what is printed is read as the same type, in Spark's words and in those of metastores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import InputError, SchemaError
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    parse_columns,
    parse_type,
    type_text,
)

PLAIN = [
    *(BooleanType(), IntType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), DateType()),
    *(TimestampType(), TimestampType(utc=False), DecimalType(12, 3), DecimalType(38, 38)),
]
TYPES = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        st.builds(ListType, inner),
        st.builds(MapType, inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: StructType(tuple(Field(f"m{at}", kind) for at, kind in enumerate(kinds)))
        ),
    ),
    max_leaves=6,
)


@given(TYPES)
def test_printed_types_are_read_as_they_were(kind: DataType) -> None:
    text = type_text(kind)
    assert parse_type(text, "c") == parse_type(text, "c", of_hive=True) == kind
    assert parse_columns(f"`a, b` {text.replace(':', ' ')}, c {text.replace(',', ' , ')}") == (
        Field("a, b", kind),
        Field("c", kind),
    )


@pytest.mark.parametrize("text", ["char(3)", "map<int,string>", "decimal(39,1)", "decimal(3,4)", "array<", "variant"])
def test_types_that_tables_do_not_have(text: str) -> None:
    with pytest.raises(SchemaError, match=r"column c\.x"):
        parse_type(f"struct<x:{text}>", "c")
    with pytest.raises(InputError, match="do not parse"):
        parse_columns(f"id int, c {text}")


def test_members_may_have_comments() -> None:
    assert parse_type("struct<a: int not null comment 'x, y>', `b c` bigint>", "c") == StructType(
        (Field("a", IntType()), Field("b c", LongType()))
    )
