"""Columns by entries of the metastore: what sync writes comes back; Spark's parameters count over Hive's types."""

from __future__ import annotations

import json

import pytest

from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_catalog.stated_columns import stated_schema
from skep_catalog.type_text import hive_columns, pieces, spark_schema
from skep_format.errors import FormatError, SchemaError
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
)

INNER = StructType((Field("a", IntType()), Field("b", ListType(StructType((Field("c", DecimalType(5, 2)),))))))
FIELDS = tuple(
    Field(f"c{at}", kind)
    for at, kind in enumerate(
        [
            *(BooleanType(), IntType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), DateType()),
            *(TimestampType(), DecimalType(12, 3), ListType(LongType()), MapType(INNER), INNER),
        ]
    )
)
PREFIX = "spark.sql.sources.schema"


def entry(*columns: Column, keys: tuple[Column, ...] = (), **parameters: str) -> TableEntry:
    return TableEntry("shop", "orders", StorageDescriptor(columns), keys, parameters)


def typed(text: str) -> DataType:
    return stated_schema(entry(Column("c", text)))["c"].type


def test_columns_by_types_of_hive() -> None:
    *columns, key = hive_columns(FIELDS)
    found = stated_schema(entry(*columns, keys=(key,)))
    assert (found.fields, found.name, found.namespace) == (FIELDS, "orders", "hoodie.shop")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("TINYINT", IntType(8)),
        ("varchar(20)", StringType()),
        ("char( 3 )", StringType()),
        ("decimal", DecimalType(10, 0)),
        ("decimal(7)", DecimalType(7, 0)),
        ("map<string, array<int>>", MapType(ListType(IntType()))),
        ("struct<a b:int,`c`:decimal(3,1)>", StructType((Field("a b", IntType()), Field("`c`", DecimalType(3, 1))))),
    ],
)
def test_further_types_of_hive(text: str, kind: DataType) -> None:
    assert typed(text) == kind


@pytest.mark.parametrize(
    "text", ["uniontype<int,string>", "map<int,string>", "interval_day_time", "array<", "struct<>", "decimal(50,2)"]
)
def test_types_that_hudi_lacks_are_refused_by_column(text: str) -> None:
    with pytest.raises(SchemaError, match=r"table shop\.orders, column c: Hudi has no type for"):
        typed(text)
    with pytest.raises(SchemaError, match=r"column c\.x: Hudi has no type for"):
        typed(f"struct<x:{text}>")


@pytest.mark.parametrize("length", [10, 4000])
def test_columns_by_the_schema_of_spark(length: int) -> None:
    fields = (
        *(Field(each.name.upper(), each.type, each.nullable, "why") for each in FIELDS),
        Field("small", IntType(16), nullable=False),
        Field("local", TimestampType(utc=False)),
    )
    parts = pieces(spark_schema(fields), length)
    parameters = {f"{PREFIX}.part.{at}": part for at, part in enumerate(parts)}
    table = entry(Column("other", "int"), **parameters, **{f"{PREFIX}.numParts": str(len(parts))})
    assert stated_schema(table).fields == fields
    assert stated_schema(entry(**{PREFIX: spark_schema(fields)})).fields == fields


def test_a_schema_of_spark_that_is_not_whole_is_an_error() -> None:
    for parameters in (
        {f"{PREFIX}.numParts": "2", f"{PREFIX}.part.0": "{}"},
        {f"{PREFIX}.numParts": "x"},
        {PREFIX: "{"},
        {PREFIX: "[]"},
        {PREFIX: json.dumps({"type": "struct", "fields": [{"name": "a"}]})},
    ):
        with pytest.raises(FormatError, match=r"table shop\.orders: the schema of Spark"):
            stated_schema(entry(Column("c", "int"), **parameters))
    variant = {"type": "struct", "fields": [{"name": "a", "type": "variant", "nullable": True, "metadata": {}}]}
    with pytest.raises(SchemaError, match="column a: Hudi has no type for variant"):
        stated_schema(entry(**{PREFIX: json.dumps(variant)}))
    with pytest.raises(SchemaError, match="has no columns"):
        stated_schema(entry())
