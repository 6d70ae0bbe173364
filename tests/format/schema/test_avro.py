"""Avro schemas (format guide 5.2, 5.3): names as Hudi gives them, exact round trips, refusals that name the column."""

import io
import json
from dataclasses import replace

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_format.errors import SchemaError
from skep_format.schema.avro import avro_text, decimal_size, parse_avro, to_avro
from skep_format.schema.types import (
    NO_DEFAULT,
    DecimalType,
    Field,
    FixedType,
    IntType,
    ListType,
    MapType,
    Schema,
    StringType,
    StructType,
    UuidType,
)

EXAMPLE = """{"type":"record","name":"mor_record","namespace":"hoodie.mor","fields":[
 {"name":"id","type":"string"},
 {"name":"ts","type":["null","long"],"default":null},
 {"name":"price","type":["null",{"type":"fixed","name":"fixed","namespace":"hoodie.mor.mor_record.price","size":5,
   "logicalType":"decimal","precision":10,"scale":2}],"default":null},
 {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null},
 {"name":"d","type":["null",{"type":"int","logicalType":"date"}],"default":null},
 {"name":"st","type":["null",{"type":"record","name":"st","namespace":"hoodie.mor.mor_record","fields":[
    {"name":"a","type":["null","int"],"default":null},
    {"name":"c","type":["null",{"type":"fixed","name":"fixed","namespace":"hoodie.mor.mor_record.st.c","size":9,
      "logicalType":"decimal","precision":20,"scale":3}],"default":null},
    {"name":"b","type":["null",{"type":"array","items":["null","string"]}],"default":null}]}],"default":null},
 {"name":"items","type":["null",{"type":"array","items":["null",{"type":"record","name":"items",
    "namespace":"hoodie.mor.mor_record","fields":[{"name":"sku","type":["null","string"],"default":null}]}]}],"default":null},
 {"name":"m","type":["null",{"type":"map","values":["null","double"]}],"default":null},
 {"name":"bin","type":["null","bytes"],"default":null},
 {"name":"ok","type":["null","boolean"],"default":null}]}"""


def nameless(kind):
    """The type without Avro names, as a frame brings it."""
    match kind:
        case StructType():
            return StructType(tuple(replace(field, type=nameless(field.type)) for field in kind.fields))
        case DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case FixedType():
            return FixedType(kind.size)
        case ListType():
            return replace(kind, element=nameless(kind.element))
        case MapType():
            return replace(kind, value=nameless(kind.value))
    return kind


def test_the_guides_example_is_read_and_printed_to_the_letter():
    assert to_avro(parse_avro(EXAMPLE)) == json.loads(EXAMPLE)


def test_nested_types_without_names_get_hudis():
    schema = parse_avro(EXAMPLE)
    fresh = replace(schema, fields=nameless(StructType(schema.fields)).fields)
    assert to_avro(fresh) == json.loads(EXAMPLE)


def test_meta_columns_come_first():
    names = [field["name"] for field in to_avro(parse_avro(EXAMPLE).with_meta())["fields"]]
    assert names[:5] == [
        "_hoodie_commit_time",
        "_hoodie_commit_seqno",
        "_hoodie_record_key",
        "_hoodie_partition_path",
        "_hoodie_file_name",
    ]
    assert to_avro(parse_avro(EXAMPLE).with_meta())["fields"][0] == {
        "name": "_hoodie_commit_time", "type": ["null", "string"], "doc": "", "default": None,
    }  # fmt: skip


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)])
def test_a_decimal_takes_the_smallest_number_of_bytes(precision, size):
    assert decimal_size(precision) == size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_print_and_parse_are_each_others_reverse(shapes, data):
    schema = data.draw(shapes.schemas)
    printed = to_avro(schema)
    fastavro.parse_schema(json.loads(json.dumps(printed)))  # Avro's own rules: names, defaults, references
    again = parse_avro(json.dumps(printed))
    assert to_avro(again) == printed
    assert [field.name for field in again.fields] == [field.name for field in schema.fields]
    assert nameless(StructType(again.fields)) == _with_null_defaults(nameless(StructType(schema.fields)))


def _with_null_defaults(kind):
    """A nullable field without default has the default null in Avro; decimals are fixed of their smallest size."""
    match kind:
        case StructType():
            return StructType(
                tuple(
                    replace(
                        field,
                        type=_with_null_defaults(field.type),
                        default=None if field.nullable and field.default is NO_DEFAULT else field.default,
                    )
                    for field in kind.fields
                ),
                kind.full_name,
            )
        case ListType():
            return replace(kind, element=_with_null_defaults(kind.element))
        case MapType():
            return replace(kind, value=_with_null_defaults(kind.value))
    return kind


def test_attributes_that_change_no_byte_are_tolerated():
    text = """{"type":"record","name":"r","doc":"x","fields":[
      {"name":"a","type":{"type":"string","avro.java.string":"String"}, "aliases":["z"]},
      {"name":"b","type":["null",{"type":"map","values":"long","avro.java.string":"String"}]},
      {"name":"c","type":{"type":"int","logicalType":"nobody-knows"}}]}"""
    schema = parse_avro(text)
    assert [type(field.type).__name__ for field in schema.fields] == ["StringType", "MapType", "IntType"]


def test_null_may_be_the_second_branch_and_stays_there():
    """Bytes of log records depend on the order of branches."""
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":["string","null"]}]}'
    schema = parse_avro(text)
    assert schema["a"].nullable
    assert to_avro(schema)["fields"][0]["type"] == ["string", "null"]


def test_a_default_value_puts_its_type_first():
    schema = Schema((Field("a", IntType(), True, default=5),))
    assert to_avro(schema)["fields"][0] == {"name": "a", "type": ["int", "null"], "default": 5}


def test_a_type_may_be_referred_to_by_name():
    text = """{"type":"record","name":"r","namespace":"n","fields":[
      {"name":"a","type":{"type":"record","name":"p","fields":[{"name":"x","type":"int"}]}},
      {"name":"b","type":["null","p"],"default":null}, {"name":"c","type":"n.p"}]}"""
    schema = parse_avro(text)
    assert schema["a"].type == schema["b"].type == schema["c"].type
    printed = to_avro(schema)
    assert printed["fields"][1]["type"] == ["null", "n.p"]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(printed), {"a": {"x": 1}, "b": None, "c": {"x": 2}})


def test_uuid_and_bytes_decimal():
    text = """{"type":"record","name":"r","fields":[{"name":"u","type":{"type":"string","logicalType":"uuid"}},
      {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":1}}]}"""
    schema = parse_avro(text)
    assert schema["u"].type == UuidType()
    assert schema["d"].type == DecimalType(4, 1, 0)
    assert to_avro(schema)["fields"] == json.loads(text)["fields"]


def test_the_text_is_compact_and_keeps_other_alphabets():
    assert avro_text(Schema((Field("größe", StringType(), False),), "r", "")) == (
        '{"type":"record","name":"r","fields":[{"name":"größe","type":"string"}]}'
    )


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ('{"name":"x","type":["int","string"]}', "x"),
        ('{"name":"x","type":["null","int","string"]}', "x"),
        ('{"name":"x","type":{"type":"long","logicalType":"timestamp-nanos"}}', "x"),
        ('{"name":"x","type":"nobody"}', "x"),
        ('{"name":"x","type":["null","r"]}', "x"),
        ('{"name":"x","type":{"type":"array","items":["int","long"]}}', "x"),
        ('{"name":"x","type":{"type":"record","name":"q","fields":[{"name":"y","type":"null"}]}}', "x.y"),
        ('{"name":"x","type":{"type":"fixed","name":"f","size":2,"logicalType":"decimal","precision":10}}', "x"),
        ('{"name":"x","type":{"type":"bytes","logicalType":"decimal","precision":50}}', "x"),
        ('{"name":"x","type":{"type":"bytes","logicalType":"decimal","precision":3,"scale":9}}', "x"),
        ('{"name":"x","type":{"type":"fixed","name":"f","size":-1}}', "x"),
        ('{"name":"x","type":"int"},{"name":"x","type":"int"}', "x"),
    ],
)
def test_what_no_table_has_is_refused_by_column(field, column):
    with pytest.raises(SchemaError) as refused:
        parse_avro('{"type":"record","name":"r","fields":[' + field + "]}")
    assert refused.value.fields["column"] == column


@pytest.mark.parametrize("text", ["", "{", "[]", '"int"', '{"type":"array","items":"int"}', "null", "[" * 100_000])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(SchemaError):
        parse_avro(text)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_is_a_schema_or_a_schema_error(document):
    with pytest.raises(SchemaError):
        parse_avro(json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": document}]}))
