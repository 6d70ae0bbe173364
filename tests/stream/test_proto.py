"""Protobuf messages as columns: names, types and defaults are Hudi's, values are those of a plain Python model."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proto_files import class_of, file_of, written

from skep_format.errors import InputError, OptionError, SchemaError
from skep_format.options import Options
from skep_format.schema.avro import parse_avro, to_avro
from skep_stream.proto.columns import Shape, message_rows
from skep_stream.proto.types import Types, indexes_of, types_of_file

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ORDER = {
    **{kind: kind for kind in ("string", "int64", "sint32", "sfixed64", "fixed32", "fixed64", "uint32", "uint64")},
    **{kind: kind for kind in ("bool", "float", "double", "bytes")},
    "color": "enum .shop.Color",
    "tags": "repeated string",
    "colors": "repeated enum .shop.Color",
    "point": ".shop.Point",
    "points": "repeated .shop.Point",
    "amounts": "map<string, uint64>",
    "places": "map<int32, .shop.Point>",
    "name": ".google.protobuf.StringValue",
    "count": ".google.protobuf.UInt64Value",
    "counts": "repeated .google.protobuf.Int32Value",
    "at": ".google.protobuf.Timestamp",
    "text": "choice/string",
    "number": "choice/int32",
    "where": "choice/.shop.Point",
    "note": "optional string",
}
FILE = file_of(
    {"Point": {"x": "int32", "y": "int32"}, "Order": ORDER, "Node": {"id": "string", "next": ".shop.Node"}},
    {"Color": {"RED": 0, "BLUE": 5}},
)
MESSAGE = class_of(FILE, "shop.Order")


def rows_of(name: str, shape: Shape | None = None, file: Any = FILE) -> Any:
    return message_rows(Types.of("here", [file]).named(name), shape or Shape())


def whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
POINT = st.fixed_dictionaries({}, optional={"x": whole(32), "y": whole(32)})
VALUES = {
    "string": TEXT,
    "int64": whole(64),
    "sint32": whole(32),
    "sfixed64": whole(64),
    "fixed32": whole(31, signed=False),
    "fixed64": whole(63, signed=False),
    "uint32": whole(32, signed=False),
    "uint64": whole(64, signed=False),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "color": st.sampled_from(["RED", "BLUE"]),
    "tags": st.lists(TEXT, max_size=3),
    "colors": st.lists(st.sampled_from(["RED", "BLUE"]), max_size=3),
    "point": POINT,
    "points": st.lists(POINT, max_size=3),
    "amounts": st.dictionaries(TEXT, whole(64, signed=False), max_size=3),
    "places": st.dictionaries(whole(32), POINT, max_size=3),
    "name": TEXT,
    "count": whole(64, signed=False),
    "counts": st.lists(whole(32), max_size=3),
    "at": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    "note": TEXT,
}
CHOICE = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"text": TEXT}),
    st.fixed_dictionaries({"number": whole(32)}),
    st.fixed_dictionaries({"where": POINT}),
)
ORDERS = st.lists(st.builds(dict.__or__, st.fixed_dictionaries({}, optional=VALUES), CHOICE), max_size=4)


def message_of(values: dict[str, Any]) -> Any:
    """The message by Google's own classes."""
    made = MESSAGE(**{name: value for name, value in values.items() if name not in ("name", "count", "at", "counts")})
    for name in ("name", "count"):
        if name in values:
            getattr(made, name).SetInParent()
            getattr(made, name).value = values[name]
    for value in values.get("counts", ()):
        made.counts.add(value=value)
    if "at" in values:
        made.at.SetInParent()
        made.at.FromDatetime(values["at"])
    return made


def model(values: dict[str, Any]) -> dict[str, Any]:
    """The row of a message, in plain Python."""

    def point(given: dict[str, int] | None) -> dict[str, int] | None:
        return None if given is None else {"x": 0, "y": 0, **given}

    zeros: dict[str, Any] = dict.fromkeys(("int64", "sint32", "sfixed64", "fixed32", "fixed64", "uint32", "uint64"), 0)
    empty = {"string": "", "bool": False, "float": 0.0, "double": 0.0, "bytes": b"", "color": "RED"}
    row = dict.fromkeys(ORDER) | zeros | empty | {"tags": [], "colors": [], "counts": []} | values
    row["uint64"] = Decimal(row["uint64"])
    row["count"] = None if row["count"] is None else Decimal(row["count"])
    row["at"] = None if row["at"] is None else row["at"].replace(tzinfo=timezone.utc)
    row["points"] = [point(each) for each in values.get("points", ())]
    row["point"], row["where"] = point(row["point"]), point(row["where"])
    row["amounts"] = [{"key": key, "value": Decimal(each)} for key, each in sorted(values.get("amounts", {}).items())]
    row["places"] = [{"key": key, "value": point(each)} for key, each in sorted(values.get("places", {}).items())]
    return row


@given(ORDERS)
def test_rows_are_those_of_a_plain_model(orders: list[dict[str, Any]]) -> None:
    sent = [message_of(each).SerializeToString() for each in orders]
    found = rows_of("shop.Order")(sent)
    assert found.to_pylist() == [model(each) for each in orders]
    found.validate(full=True)


def test_columns_are_those_of_hudi() -> None:
    schema = rows_of("shop.Order").schema
    assert parse_avro(to_avro(schema)) == schema
    fields = {each["name"]: each for each in to_avro(schema)["fields"]}
    point = {
        "type": "record",
        "name": "Point",
        "fields": [{"name": name, "type": "int", "default": 0} for name in ("x", "y")],
    }
    unsigned = {"type": "fixed", "name": "unsigned_long", "namespace": "org.apache.hudi.protos", "size": 9}
    expected = {
        "uint32": {"type": "long", "default": 0},
        "fixed32": {"type": "int", "default": 0},
        "uint64": {"type": {**unsigned, "logicalType": "decimal", "precision": 20, "scale": 0}, "default": "\0" * 9},
        "color": {"type": "string", "default": "RED"},  # an enum in Hudi
        "tags": {"type": {"type": "array", "items": "string"}, "default": []},
        "point": {"type": ["null", {**point, "namespace": "shop.point"}], "default": None},
        "points": {"type": {"type": "array", "items": {**point, "namespace": "shop.points"}}, "default": []},
        "name": {"type": ["null", "string"], "default": None},
        "count": {"type": ["null", "org.apache.hudi.protos.unsigned_long"], "default": None},
        "counts": {"type": {"type": "array", "items": ["null", "int"]}, "default": []},
        "at": {"type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        "number": {"type": ["null", "int"], "default": None},
        "note": {"type": ["null", "string"], "default": None},
    }
    assert {name: fields[name] for name in expected} == {
        name: {"name": name, **each} for name, each in expected.items()
    }
    places = fields["places"]["type"]["items"]
    assert (places["namespace"], places["name"]) == ("shop.places", "PlacesEntry")
    assert places["fields"][1] == {
        "name": "value",
        "type": ["null", {**point, "namespace": "shop.places.value"}],
        "default": None,
    }


def test_wrappers_and_timestamps_may_be_records() -> None:
    at = EPOCH + timedelta(seconds=5, microseconds=7)
    sent = message_of({"name": "x", "counts": [3], "at": at.replace(tzinfo=None)}).SerializeToString()
    [row] = rows_of("shop.Order", Shape(wrappers_as_records=True, timestamps_as_records=True))([sent]).to_pylist()
    assert (row["name"], row["counts"], row["count"]) == ({"value": "x"}, [{"value": 3}], None)
    assert row["at"] == {"seconds": 5, "nanos": 7000}


def test_a_message_within_itself_ends_as_bytes() -> None:
    node = class_of(FILE, "shop.Node")
    sent = node(id="a", next=node(id="b", next=node(id="c", next=node(id="d"))))
    rows = rows_of("shop.Node", Shape(depth=2))([sent.SerializeToString(), node(id="z").SerializeToString()])
    rest = {"descriptor_full_name": "shop.Node", "proto_bytes": sent.next.next.SerializeToString()}
    assert rows.to_pylist() == [
        {"id": "a", "next": {"id": "b", "next": rest}},
        {"id": "z", "next": None},
    ]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"fixed32": 1 << 31}, "column fixed32: .*"),
        ({"fixed64": 1 << 63}, "column fixed64: .*"),
        ({"color": 3}, r"column color: 3 is no value of shop\.Color"),
        ({"colors": [0, 9]}, r"column colors: 9 is no value of shop\.Color"),
    ],
)
def test_values_that_do_not_fit_name_their_column(values: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        rows_of("shop.Order")([MESSAGE(**values).SerializeToString()])


def test_what_is_no_message_or_no_time_is_an_error() -> None:
    with pytest.raises(InputError, match="not a message of Order"):
        rows_of("shop.Order")([b"\x0a\x05ab"])
    late = MESSAGE()
    late.at.seconds = 1 << 40
    with pytest.raises(InputError, match="column at: 1099511627776 s and 0 ns are no time"):
        rows_of("shop.Order")([late.SerializeToString()])


def test_a_required_field_that_is_missing_is_an_error() -> None:
    file = file_of({"Old": {"id": "string"}}, imports=())
    file.syntax, file.message_type[0].field[0].label = "proto2", 2
    with pytest.raises(InputError, match="a required field of Old is missing"):
        rows_of("shop.Old", file=file)([b""])


def test_types_that_no_column_holds_are_refused() -> None:
    empty = file_of({"None": {}, "Order": {"id": "string", "nothing": ".shop.None"}})
    with pytest.raises(SchemaError, match="column nothing: a record without fields"):
        rows_of("shop.Order", file=empty)
    with pytest.raises(SchemaError, match=r"shop\.None: a record without fields"):
        rows_of("shop.None", file=empty)


@pytest.mark.parametrize(
    ("options", "name", "found"),
    [
        ({"java_package": "com.x", "java_multiple_files": True}, "com.x.Order", "shop.Order"),
        ({"java_package": "com.x", "java_multiple_files": True}, "com.x.Order$Line", "shop.Order.Line"),
        ({"java_package": "com.x"}, "com.x.Shop$Order", "shop.Order"),
        ({"java_outer_classname": "Messages"}, "shop.Messages$Order$Line", "shop.Order.Line"),
        ({"java_package": "com.x", "name": "of/order.proto"}, "com.x.OrderOuterClass$Order", "shop.Order"),
        ({"name": "my_shop2go-now.proto"}, "shop.MyShop2GoNow$Order", "shop.Order"),
        ({}, "shop.Order.Line", "shop.Order.Line"),
    ],
)
def test_a_message_has_the_name_of_its_java_class_too(options: dict[str, Any], name: str, found: str) -> None:
    file = file_of({"Other": {"id": "string"}, "Order": {"id": "string"}, "Order.Line": {"id": "string"}}, **options)
    types = Types.of("here", [file])
    assert types.named(name).full_name == found
    assert types.at(file.name, indexes_of(types.named(name))).full_name == found
    with pytest.raises(OptionError, match=r"here has no message com\.x\.None"):
        types.named("com.x.None")


def test_a_file_of_descriptors_is_checked(tmp_path: Path) -> None:
    def read(path: Path) -> Types | None:
        return types_of_file(Options({"skep.stream.proto.descriptor.file": str(path)}))

    items = file_of({"Item": {"id": "string"}}, name="item.proto", imports=())
    order = file_of({"Order": {"item": ".shop.Item"}}, imports=("item.proto",))
    found = read(written(tmp_path / "all.desc", order, items))  # whatever their order
    assert found is not None
    assert found.named("shop.Order").fields[0].message_type.full_name == "shop.Item"
    with pytest.raises(SchemaError, match=r"one\.desc: .*item\.proto"):
        read(written(tmp_path / "one.desc", order))
    with pytest.raises(OptionError, match="none is not there"):
        read(tmp_path / "none")
    for content in (b"", b"\x00\x01"):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(OptionError, match="bad is no file of Protobuf descriptors"):
            read(tmp_path / "bad")
