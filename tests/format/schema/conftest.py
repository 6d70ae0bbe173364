"""Schemas of any shape, as hypothesis strategies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FixedType,
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

NAMES = st.text("abcxyz_", min_size=1, max_size=6).filter(lambda name: not name.startswith("__"))


def decimals():
    return st.integers(1, 38).flatmap(
        lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
    )


LEAVES = st.one_of(
    st.sampled_from(
        [
            BooleanType(), IntType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), DateType(),
            TimeType("ms"), TimeType("us"), TimestampType("ms"), TimestampType("us"),
            TimestampType("ms", utc=False), TimestampType("us", utc=False),
        ]
    ),
    decimals(),
    st.builds(FixedType, st.integers(1, 20)),
)  # fmt: skip


def struct_of(kinds):
    fields = st.lists(
        st.builds(Field, NAMES, kinds, st.booleans(), st.sampled_from([None, "", "a comment"])),
        min_size=1,
        max_size=4,
        unique_by=lambda field: field.name,
    )
    return fields.map(lambda found: StructType(tuple(found)))


TYPES = st.recursive(
    LEAVES,
    lambda kinds: st.one_of(
        st.builds(ListType, kinds, st.booleans()), st.builds(MapType, kinds, st.booleans()), struct_of(kinds)
    ),
    max_leaves=8,
)
SCHEMAS = struct_of(TYPES).map(lambda struct: Schema(struct.fields, "t_record", "hoodie.t"))


@pytest.fixture
def shapes() -> SimpleNamespace:
    return SimpleNamespace(schemas=SCHEMAS, types=TYPES)
