"""A table's entry in the metastore, as Hudi's own sync tool registers it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_catalog.entities import Column
from skep_catalog.entries import View, view_of, wanted_entries
from skep_catalog.entry_options import EntryOptions, Strategy
from skep_catalog.type_text import hive_columns, hive_type, pieces, same_type, spark_schema
from skep_format.errors import SchemaError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    EnumType,
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
    UuidType,
)
from skep_format.table_config import TableConfig, TableType

META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
SCHEMA = Schema(
    (
        Field("Id", LongType(), nullable=False, doc="the key"),
        Field("city", StringType()),
        Field("at", TimestampType()),
        Field("price", DecimalType(10, 2)),
    )
)
COW = TableConfig(name="Trips", record_key_fields=("Id",), partition_fields=("city",))
MOR = replace(COW, type=TableType.MERGE_ON_READ)
PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
PARQUET_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"


def entries(config: TableConfig, **options: object):  # type: ignore[no-untyped-def]
    return wanted_entries(config, SCHEMA, "file:///lake/trips", "Db", "Trips", EntryOptions(**options), owner="me")  # type: ignore[arg-type]


class TestCopyOnWrite:
    def test_the_whole_entry(self) -> None:
        (entry,) = entries(COW).entries
        table = entry.table
        assert entry.view is View.COPY_ON_WRITE
        assert (table.database, table.name, table.table_type, table.owner) == ("db", "trips", "EXTERNAL_TABLE", "me")
        assert table.storage.columns == (
            *(Column(name, "string", "") for name in META),
            Column("id", "bigint", "the key"),
            Column("at", "timestamp", ""),
            Column("price", "decimal(10,2)", ""),
        )
        assert table.partition_keys == (Column("city", "string", ""),)
        assert table.storage.location == "file:///lake/trips"
        assert table.storage.input_format == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
        assert (table.storage.output_format, table.storage.serde_library) == (PARQUET_OUTPUT, PARQUET_SERDE)
        assert table.storage.serde_parameters == {
            "path": "file:///lake/trips",
            "hoodie.query.as.ro.table": "false",
            "serialization.format": "1",
        }
        schema = table.parameters["spark.sql.sources.schema.part.0"]
        assert table.parameters == {
            "EXTERNAL": "TRUE",
            "spark.sql.sources.provider": "hudi",
            "spark.sql.sources.schema.numParts": "1",
            "spark.sql.sources.schema.part.0": schema,
            "spark.sql.sources.schema.numPartCols": "1",
            "spark.sql.sources.schema.partCol.0": "city",
        }
        fields = json.loads(schema)["fields"]
        assert [field["name"] for field in fields] == [*META, "Id", "at", "price", "city"]
        assert fields[5] == {"name": "Id", "type": "long", "nullable": False, "metadata": {"comment": "the key"}}

    def test_options(self) -> None:
        (entry,) = entries(
            COW,
            omit_metadata_fields=True,
            timestamps=False,
            comments=False,
            spark_version="3.5.9",
            table_properties={"a": "b"},
            serde_properties={"c": "d"},
        ).entries
        table = entry.table
        assert table.storage.columns == (
            Column("id", "bigint", ""),
            Column("at", "bigint", ""),
            Column("price", "decimal(10,2)", ""),
        )
        assert table.parameters["spark.sql.create.version"] == "3.5.9"
        assert "comment" not in table.parameters["spark.sql.sources.schema.part.0"]
        assert table.parameters["a"] == "b"
        assert table.storage.serde_parameters["c"] == "d"

    def test_without_the_data_source_only_hive_gets_columns(self) -> None:
        (entry,) = entries(COW, as_datasource=False).entries
        assert entry.table.parameters == {"EXTERNAL": "TRUE"}
        assert entry.table.storage.serde_parameters == {"serialization.format": "1"}

    def test_managed(self) -> None:
        (entry,) = entries(COW, managed=True).entries
        assert entry.table.table_type == "MANAGED_TABLE"
        assert "EXTERNAL" not in entry.table.parameters

    def test_a_partition_field_that_is_no_column_is_a_required_string(self) -> None:
        (entry,) = entries(replace(COW, partition_fields=("Day",))).entries
        assert entry.table.partition_keys == (Column("day", "string", ""),)
        last = json.loads(entry.table.parameters["spark.sql.sources.schema.part.0"])["fields"][-1]
        assert last == {"name": "Day", "type": "string", "nullable": False, "metadata": {}}

    def test_partition_fields_are_found_whatever_their_case(self) -> None:
        (entry,) = entries(replace(COW, partition_fields=("CITY",))).entries
        assert [key.name for key in entry.table.partition_keys] == ["city"]
        assert "city" not in [column.name for column in entry.table.storage.columns]

    @pytest.mark.parametrize("omit", [True, False])
    def test_a_users_own_column_with_hudis_prefix_stays(self, omit: bool) -> None:
        schema = Schema((*SCHEMA.fields, Field("_hoodie_is_deleted", BooleanType()), Field("_hoodie_mine", IntType())))
        options = EntryOptions(omit_metadata_fields=omit)
        (entry,) = wanted_entries(COW, schema, "file:///lake/trips", "Db", "Trips", options).entries
        names = [column.name for column in entry.table.storage.columns]
        assert names == [*([] if omit else META), "id", "at", "price", "_hoodie_is_deleted", "_hoodie_mine"]

    @pytest.mark.parametrize("stated", [(), (Field("_hoodie_operation", StringType()),)])
    def test_the_operation_column_where_the_table_has_it(self, stated: tuple[Field, ...]) -> None:
        config = replace(COW, raw={"hoodie.allow.operation.metadata.field": "true"})
        schema = Schema((*SCHEMA.fields, *stated))
        (entry,) = wanted_entries(config, schema, "file:///lake/trips", "Db", "Trips").entries
        names = [column.name for column in entry.table.storage.columns]
        assert names == [*META, "_hoodie_operation", "id", "at", "price"]

    @pytest.mark.parametrize(
        ("base_format", "kind"),
        [
            (BaseFormat.ORC, "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"),
            (BaseFormat.HFILE, "org.apache.hudi.hadoop.HoodieHFileInputFormat"),
        ],
    )
    def test_other_base_formats(self, base_format: BaseFormat, kind: str) -> None:
        (entry,) = entries(replace(COW, base_format=base_format)).entries
        assert entry.table.storage.input_format == kind

    def test_pre_apache_input_formats(self) -> None:
        (entry,) = entries(COW, pre_apache_input_format=True).entries
        assert entry.table.storage.input_format == "com.uber.hoodie.hadoop.HoodieInputFormat"
        with pytest.raises(UnsupportedError, match="ORC"):
            entries(replace(COW, base_format=BaseFormat.ORC), pre_apache_input_format=True)


REALTIME = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
BASE_ONLY = "org.apache.hudi.hadoop.HoodieParquetInputFormat"


class TestMergeOnRead:
    @pytest.mark.parametrize(
        ("options", "views"),
        [
            ({}, [("trips_ro", BASE_ONLY, "true"), ("trips_rt", REALTIME, "false"), ("trips", REALTIME, "false")]),
            (
                {"snapshot_under_table_name": False},
                [("trips_ro", BASE_ONLY, "true"), ("trips_rt", REALTIME, "false")],
            ),
            (
                {"skip_ro_suffix": True, "snapshot_under_table_name": False},
                [("trips", BASE_ONLY, "true"), ("trips_rt", REALTIME, "false")],
            ),
            ({"strategy": Strategy.RO}, [("trips", BASE_ONLY, "true")]),
            ({"strategy": Strategy.RT}, [("trips", REALTIME, "false")]),
        ],
    )
    def test_views(self, options: dict[str, object], views: list[tuple[str, str, str]]) -> None:
        wanted = entries(MOR, **options)
        assert [
            (e.table.name, e.table.storage.input_format, e.table.storage.serde_parameters["hoodie.query.as.ro.table"])
            for e in wanted.entries
        ] == views
        assert wanted.warnings == ()

    def test_one_name_asked_for_twice_is_resolved_with_a_warning(self) -> None:
        """Hudi's tool writes the entry as both views in turn, in every sync."""
        wanted = entries(MOR, skip_ro_suffix=True)
        assert [(e.table.name, e.view) for e in wanted.entries] == [
            ("trips", View.READ_OPTIMIZED),
            ("trips_rt", View.SNAPSHOT),
        ]
        assert "asked for twice" in wanted.warnings[0]


TYPES: list[tuple[DataType, str, object]] = [
    (BooleanType(), "boolean", "boolean"),
    (IntType(8), "int", "byte"),
    (IntType(16), "int", "short"),
    (IntType(), "int", "integer"),
    (LongType(), "bigint", "long"),
    (FloatType(), "float", "float"),
    (DoubleType(), "double", "double"),
    (StringType(), "string", "string"),
    (EnumType(("A", "B")), "string", "string"),
    (UuidType(), "string", "string"),
    (BinaryType(), "binary", "binary"),
    (FixedType(4), "binary", "binary"),
    (DecimalType(38, 0), "decimal(38,0)", "decimal(38,0)"),
    (DateType(), "date", "date"),
    (TimestampType("ms"), "timestamp", "timestamp"),
    (TimestampType(utc=False), "timestamp", "timestamp_ntz"),
    (
        ListType(IntType(), element_nullable=False),
        "array<int>",
        {"type": "array", "elementType": "integer", "containsNull": False},
    ),
    (
        MapType(ListType(DateType())),
        "map<string,array<date>>",
        {
            "type": "map",
            "keyType": "string",
            "valueType": {"type": "array", "elementType": "date", "containsNull": True},
            "valueContainsNull": True,
        },
    ),
    (
        StructType((Field("a-b", LongType(), nullable=False, doc="it's"), Field("c", DecimalType(3, 1)))),
        "struct<a_b:bigint,c:decimal(3,1)>",
        {
            "type": "struct",
            "fields": [
                {"name": "a-b", "type": "long", "nullable": False, "metadata": {"comment": "it's"}},
                {"name": "c", "type": "decimal(3,1)", "nullable": True, "metadata": {}},
            ],
        },
    ),
]


STRATEGIES = [
    {},
    {"strategy": Strategy.RO},
    {"strategy": Strategy.RT},
    {"skip_ro_suffix": True},
    {"pre_apache_input_format": True},
]


class TestViews:
    @pytest.mark.parametrize("as_datasource", [True, False])
    @pytest.mark.parametrize("options", STRATEGIES, ids=str)
    @pytest.mark.parametrize("config", [COW, MOR], ids=["cow", "mor"])
    def test_an_entry_shows_its_view(self, config: TableConfig, options: dict[str, Any], as_datasource: bool) -> None:
        for entry in entries(config, as_datasource=as_datasource, **options).entries:
            assert view_of(entry.table, config) is entry.view


class TestTypes:
    @pytest.mark.parametrize(("kind", "hive", "spark"), TYPES, ids=lambda value: str(value)[:30])
    def test_text(self, kind: DataType, hive: str, spark: object) -> None:
        assert hive_type(kind) == hive
        assert json.loads(spark_schema([Field("x", kind)]))["fields"][0]["type"] == spark

    def test_times_of_day(self) -> None:
        assert hive_type(TimeType("ms")) == "int"
        assert hive_type(TimeType("us")) == "bigint"
        (field,) = json.loads(spark_schema([Field("a", ListType(StructType((Field("b", TimeType("us")),))))]))["fields"]
        assert field["type"]["elementType"]["fields"][0]["type"] == "long", "as Hudi's reader of Avro for Spark has it"
        assert json.loads(spark_schema([Field("a", TimeType("ms"))]))["fields"][0]["type"] == "integer"

    def test_timestamps_as_numbers(self) -> None:
        assert hive_type(ListType(TimestampType()), timestamps=False) == "array<bigint>"

    def test_columns_that_differ_only_in_case(self) -> None:
        with pytest.raises(SchemaError, match="columns Id and iD differ only in case"):
            hive_columns([Field("Id", LongType()), Field("x", LongType()), Field("iD", LongType())])

    @pytest.mark.parametrize(("one", "other"), [("id", "Id"), ("a-b", "a_b")])
    def test_fields_within_a_column_that_differ_only_in_case(self, one: str, other: str) -> None:
        inner = ListType(StructType((Field(one, LongType()), Field(other, LongType()))))
        with pytest.raises(SchemaError, match=r"in column s\.inner: fields .* differ only in case"):
            hive_columns([Field("s", StructType((Field("inner", inner),)))])

    @given(st.text(min_size=1, max_size=300), st.integers(1, 50))
    def test_pieces_make_up_the_text(self, text: str, length: int) -> None:
        cut = pieces(text, length)
        assert "".join(cut) == text
        assert all(len(piece) == length for piece in cut[:-1])
        assert 0 < len(cut[-1]) <= length

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_spark_json_holds_any_name_and_comment(self, name: str, doc: str) -> None:
        (field,) = json.loads(spark_schema([Field(name, StringType(), doc=doc or None)]))["fields"]
        assert (field["name"], field["metadata"].get("comment", "")) == (name, doc)

    def test_same_type(self) -> None:
        assert same_type("Struct< a : INT >", "struct<a:int>")
        assert not same_type("decimal(10,2)", "decimal(10,3)")
