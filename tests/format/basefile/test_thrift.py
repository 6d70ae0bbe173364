"""Thrift's compact protocol: what is read is written back byte by byte, and nothing but a struct is read."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.basefile.parquet_metadata import footer_bytes, footer_of
from skep_format.basefile.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    ThriftError,
    parse_struct,
    required,
    struct_bytes,
    value_of,
)

LEAVES = {
    I16: st.integers(-(2**15), 2**15 - 1),
    I32: st.integers(-(2**31), 2**31 - 1),
    I64: st.integers(-(2**63), 2**63 - 1),
    BINARY: st.binary(max_size=300),
    DOUBLE: st.binary(min_size=8, max_size=8),
    BYTE: st.integers(0, 255),
}


def lists(elements):
    kinds = [st.tuples(st.just(kind), st.lists(values, max_size=20)) for kind, values in LEAVES.items()]
    booleans = st.tuples(st.just(TRUE), st.lists(st.sampled_from([TRUE, FALSE]), max_size=20))
    return st.one_of(*kinds, booleans, st.tuples(st.just(STRUCT), st.lists(elements, max_size=3)))


def fields(elements):
    leaves = [st.tuples(st.just(kind), values) for kind, values in LEAVES.items()]
    booleans = st.sampled_from([(TRUE, True), (FALSE, False)])
    nested = [st.tuples(st.sampled_from([LIST, SET]), lists(elements)), st.tuples(st.just(STRUCT), elements)]
    return st.one_of(*leaves, booleans, *nested)


STRUCTS = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.integers(-(2**15), 2**15 - 1), fields(inner), max_size=6),
    max_leaves=8,
)


@given(struct=STRUCTS, before=st.binary(max_size=5), behind=st.binary(max_size=5))
def test_a_struct_comes_back_as_it_was(struct, before, behind):
    data = struct_bytes(struct)
    found, end = parse_struct(before + data + behind, len(before))
    assert (found, end) == (struct, len(before) + len(data))
    assert parse_struct(memoryview(data)) == (struct, len(data))


@given(struct=STRUCTS.filter(bool), data=st.data())
def test_a_struct_that_is_cut_is_an_error(struct, data):
    whole = struct_bytes(struct)
    with pytest.raises(ThriftError):
        parse_struct(whole[: data.draw(st.integers(0, len(whole) - 1))])


@settings(max_examples=300)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_struct_or_an_error(data):
    try:
        struct, end = parse_struct(data)
    except ThriftError:
        return
    assert end <= len(data)
    assert parse_struct(struct_bytes(struct))[0] == struct


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x15\x02\x05\x02\x04\x00", "occurs twice"),  # field 1, and field 1 again by its number
        (b"\x1b\x00\x00", "type 11"),  # a map, which Parquet has none of
        (b"\x16" + b"\xff" * 10 + b"\x01\x00", "more than 64 bits"),
        (b"\x1c" * 40 + b"\x00" * 41, "nested more than"),
        (b"\x18\xff\xff\x03ab", "cut"),
        (b"\x19\xfc\xff\xff\xff\x0f\x00", "cut"),
    ],
    ids=["twice", "map", "integer", "depth", "binary", "list"],
)
def test_what_is_wrong_is_named(data, message):
    with pytest.raises(ThriftError, match=message):
        parse_struct(data)


def test_a_field_that_is_missing():
    assert value_of({1: (I32, 5)}, 1) == required({1: (I32, 5)}, 1, I32) == 5
    assert value_of({}, 1) is None
    for struct in ({}, {1: (I64, 5)}):
        with pytest.raises(ThriftError, match="field 1 of a Thrift struct is missing"):
            required(struct, 1, I32)


def test_footers_of_other_writers_come_back_byte_by_byte(golden: Path):
    files = [
        file for version in ("0.15.0", "1.1.1") for file in (golden / version / "cow_types_edge").rglob("*.parquet")
    ]
    assert len(files) > 5
    for file in files:
        footer, size = footer_of(file.read_bytes())
        assert footer_bytes(footer) == file.read_bytes()[-size:]
        assert value_of(footer, 3) == pq.read_metadata(file).num_rows
