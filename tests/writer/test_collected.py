"""Rows of a frame as an Arrow table."""

from __future__ import annotations

import pyarrow as pa

from skep_writer.schemas import null_in_null


def test_members_of_a_null_struct_are_null() -> None:
    """As Spark gives them, also where it states that a member is never null."""
    member = pa.struct([pa.field("sku", pa.string(), nullable=False)])
    places = pa.array([False, True])
    given = pa.table({"s": pa.StructArray.from_arrays([pa.array(["a", None])], fields=list(member), mask=places)})
    assert given.cast(null_in_null(given.schema)).to_pylist() == [{"s": {"sku": "a"}}, {"s": None}]


def test_what_is_never_null_stays_so() -> None:
    inner = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("s", inner, nullable=False), pa.field("k", pa.int64(), nullable=False)])
    assert null_in_null(schema) == schema
    nested = pa.schema([("l", pa.list_(pa.field("element", inner, nullable=False)))])
    assert null_in_null(nested) == nested
