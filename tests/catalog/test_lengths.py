"""What fits into a metastore's database: comments are cut, all else is named with its length."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_catalog.entries import wanted_entries
from skep_catalog.entry_options import EntryOptions
from skep_catalog.lengths import (
    COMMENT,
    is_shortened,
    length,
    may_be_too_long,
    partition_too_long,
    shortened,
    too_long,
)
from skep_format.schema.types import Field, LongType, Schema, StringType
from skep_format.table_config import TableConfig

TABLE = TableEntry("d", "t", StorageDescriptor((Column("id", "bigint"),), "s3://lake/t"))


@given(st.text(max_size=40), st.integers(4, 30))
def test_a_shortened_text_fits_and_begins_like_the_whole(text: str, most: int) -> None:
    short = shortened(text, most)
    assert length(short) <= most
    if length(text) <= most:
        assert short == text
    else:
        assert is_shortened(short, text, most)
        assert length(short) == length(short.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    assert length("a😀") == 3
    assert length(shortened("😀" * 129, 256)) <= 256


def test_comments_of_an_entry_fit_and_sparks_schema_has_them_whole() -> None:
    long = "x" * 300
    schema = Schema((Field("id", LongType(), doc=long), Field("p", StringType(), doc="y" * 4001)))
    config = TableConfig(name="t", partition_fields=("p",))
    found = wanted_entries(config, schema, "s3://lake/t", "d", "t", EntryOptions(omit_metadata_fields=True))
    (entry,) = found.entries
    assert entry.table.storage.columns[0].comment == "x" * (COMMENT - 3) + "..."
    assert length(entry.table.partition_keys[0].comment or "") == 4000
    (warning,) = found.warnings
    assert "column id, p" in warning
    schema_text = "".join(value for key, value in sorted(entry.table.parameters.items()) if ".schema.part." in key)
    assert long in schema_text


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (replace(TABLE, name="n" * 257), "the table's name has 257 characters of at most 256"),
        (replace(TABLE, database="n" * 129), "the database's name has 129"),
        (replace(TABLE, owner="o" * 768), "the owner has 768"),
        (replace(TABLE, partition_keys=(Column("k" * 129, "string"),)), "the name of partition key kkk"),
        (replace(TABLE, parameters={"p" * 257: ""}), "the name of parameter ppp"),
        (replace(TABLE, storage=replace(TABLE.storage, columns=(Column("c" * 768, "int"),))), "768 characters of at"),
        (replace(TABLE, storage=replace(TABLE.storage, location="s3://" + "l" * 4000)), "the location has 4,005"),
    ],
)
def test_what_no_metastore_holds_is_named(table: TableEntry, named: str) -> None:
    (found,) = too_long(table)
    assert named in found
    assert too_long(TABLE) == []


def test_types_and_parameters_are_in_doubt_on_some() -> None:
    columns = (Column("deep", "struct<" + "f:int," * 6000 + "g:int>"),)
    table = replace(TABLE, parameters={"k": "v" * 32673}, storage=replace(TABLE.storage, columns=columns))
    assert too_long(table) == []
    column, parameter = may_be_too_long(table)
    assert column.startswith("the type of column deep has 36,013 characters")
    assert parameter == "parameter k has 32,673 characters of at most 32,672"


@pytest.mark.parametrize(
    ("name", "values", "fits"), [("p=a", ("a",), True), ("p=b", ("b" * 256,), False), ("p=" + "c" * 766, ("c",), False)]
)
def test_partitions_that_do_not_fit(name: str, values: tuple[str, ...], fits: bool) -> None:
    assert (partition_too_long(name, values) is None) is fits
