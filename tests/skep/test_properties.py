"""What table properties mean when a table is made: settings, words of SQL, parameters of the metastore's entry."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep.handles.table import Table
from skep.lake import Lake
from skep_format.errors import InputError, OptionError, TableMismatchError
from skep_format.names import BaseFormat
from skep_format.options import UnknownOptionWarning
from tests.tables_at import create_at

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("day", pa.string())])
ROWS = pa.table([[1], [1700000000000], ["a b/c"]], schema=SCHEMA)
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}
WRITE = "hoodie.datasource.write."
TIMESTAMPS = "org.apache.hudi.keygen.TimestampBasedKeyGenerator"


def make(path: Path, properties: dict[str, str], **given: Any) -> Table:
    return create_at(path / "t", SCHEMA, {}, properties=properties, **given)


def stored(path: Path) -> dict[str, str]:
    lines = (path / "t/.hoodie/hoodie.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({f"{WRITE}partitionpath.urlencode": "true"}, {f"{WRITE}partitionpath.urlencode": "true"}),
        ({f"{WRITE}hive_style_partitioning": "true"}, {f"{WRITE}hive_style_partitioning": "true"}),
        ({"hoodie.table.type": "MERGE_ON_READ"}, {"hoodie.table.type": "MERGE_ON_READ"}),
        ({f"{WRITE}table.type": "MERGE_ON_READ"}, {"hoodie.table.type": "MERGE_ON_READ"}),
        ({"type": "mor"}, {"hoodie.table.type": "MERGE_ON_READ"}),
        ({"primaryKey": "id"}, {"hoodie.table.recordkey.fields": "id"}),
        ({"hoodie.table.recordkey.fields": "id"}, {"hoodie.table.recordkey.fields": "id"}),
        ({f"{WRITE}partitionpath.field": "day"}, {"hoodie.table.partition.fields": "day"}),
        ({f"{WRITE}partitionpath.fields": "day"}, {"hoodie.table.partition.fields": "day"}),
        ({"hoodie.table.partition.fields": "day"}, {"hoodie.table.partition.fields": "day"}),
        ({"preCombineField": "at"}, {"hoodie.table.precombine.field": "at"}),
        ({"hoodie.table.base.file.format": "PARQUET"}, {"hoodie.table.base.file.format": "PARQUET"}),
    ],
)
def test_a_property_is_the_tables_setting(tmp_path: Path, properties: dict[str, str], expected: dict[str, str]) -> None:
    make(tmp_path, properties)
    found = stored(tmp_path)
    assert {key: found.get(key) for key in expected} == expected
    assert not [key for key in found if not key.startswith("hoodie.")]
    assert not found.keys() & {f"{WRITE}table.type", f"{WRITE}partitionpath.field"}


@pytest.mark.parametrize(
    "key", [f"{WRITE}keygenerator.class", f"{WRITE}keygenerator.type", "hoodie.table.keygenerator.class"]
)
@pytest.mark.parametrize("version", [6, 9])
def test_a_key_generator_makes_the_paths(tmp_path: Path, key: str, version: int) -> None:
    """Hudi's documentation of TimestampBasedKeyGenerator: EPOCHMILLISECONDS are formatted by output.dateformat."""
    generator = "TIMESTAMP" if key.endswith("type") else TIMESTAMPS
    table = make(tmp_path, {key: generator, **TIMES}, key="id", partition_by="at", table_version=version)
    table.insert(ROWS)
    assert table.hudi.view().partitions() == ["2023-11-14"]
    assert table.hudi.config.key_generator == "TIMESTAMP"


def test_arguments_for_paths(tmp_path: Path) -> None:
    table = make(tmp_path, {}, key="id", partition_by="day", hive_style=True, url_encode=True)
    table.insert(ROWS)
    # as java.net.URLEncoder, and Hudi's PartitionPathEncodeUtils, encode the slash
    assert table.hudi.view().partitions() == ["day=a b%2Fc"]


@pytest.mark.parametrize(
    ("properties", "given", "expected_message"),
    [
        ({"hoodie.table.base.file.format": "HFILE"}, {}, "is not PARQUET or ORC"),
        ({f"{WRITE}hive_style_partitioning": "false"}, {"hive_style": True}, "hive_style is true and"),
        ({f"{WRITE}recordkey.field": "at"}, {"key": "id"}, "key is id and"),
        ({"type": "mor"}, {"type": "cow"}, "type is COPY_ON_WRITE and"),
        ({"type": "mor", "hoodie.table.type": "COPY_ON_WRITE"}, {}, "given twice|contradicts"),
        ({"hoodie.table.checksum": "1"}, {}, "follows from how a table is made"),
        ({"hoodie.table.name": "other"}, {}, "the table's name is t and"),
        ({"type": "row"}, {}, "row"),
    ],
)
def test_what_can_not_be_is_refused(
    tmp_path: Path, properties: dict[str, str], given: dict[str, Any], expected_message: str
) -> None:
    with pytest.raises(InputError, match=expected_message) as found:
        make(tmp_path, properties, **given)
    assert isinstance(found.value, OptionError)
    assert not (tmp_path / "t").exists()


def test_an_unknown_key_of_hudi_is_warned_about_and_not_kept(tmp_path: Path) -> None:
    with pytest.warns(UnknownOptionWarning, match=r"hoodie\.table\.recordkey\.feilds; did you mean hoodie"):
        make(tmp_path, {"hoodie.table.recordkey.feilds": "id"})
    assert "hoodie.table.recordkey.feilds" not in stored(tmp_path)


def test_a_property_for_a_metastore_that_is_not_there_is_warned_about(tmp_path: Path) -> None:
    with pytest.warns(UnknownOptionWarning, match="unknown option team_of_none"):
        make(tmp_path, {"team_of_none": "a"})


def test_options_of_writes_are_kept_for_later_writes(tmp_path: Path) -> None:
    make(tmp_path, {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"}, key="id")
    assert stored(tmp_path)["hoodie.bucket.index.num.buckets"] == "3"


def test_statements_and_entries(lake: Lake) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lake.sql(
            "create table sql_made (id bigint, day string, at bigint) partitioned by (at) tblproperties ("
            "primaryKey = 'id', 'team' = 'a', "
            f" '{WRITE}keygenerator.class' = '{TIMESTAMPS}', '{WRITE}hive_style_partitioning' = 'false',"
            f" '{WRITE}partitionpath.urlencode' = 'true', "
            + ", ".join(f"'{key}' = '{value}'" for key, value in TIMES.items())
            + ")"
        )
        lake.sql("insert into sql_made values (1, 'a', 1700000000000)")
    made = lake.table("sql_made").hudi
    assert made.view().partitions() == ["2023-11-14"]
    assert (made.config.hive_style, made.config.url_encode) == (False, True)
    lake.sql("create table made_like like sql_made")
    assert lake.table("made_like").hudi.config.url_encode

    described = {"key": "id", "properties": {"team": "a", "preCombineField": "at"}}
    table = lake.create_table("python_made", SCHEMA, **described)
    assert "team" not in table.hudi.config.raw
    assert lake.metastore.table(lake.database, "python_made").parameters["team"] == "a"
    lake.create_table("python_made", SCHEMA, if_not_exists=True, **described)
    with pytest.raises(TableMismatchError, match="has property team a, not b"):
        lake.create_table("python_made", SCHEMA, if_not_exists=True, key="id", properties={"team": "b"})

    orc = "'primaryKey' = 'id', 'hoodie.table.base.file.format' = 'ORC'"
    lake.sql(f"create table orc (id bigint, v string) tblproperties ({orc})")
    lake.sql("insert into orc values (1, 'a'), (2, 'b'), (3, 'c')")
    lake.sql("update orc set v = 'x' where id = 1")
    lake.sql("delete from orc where id = 2")
    merged = "when matched then update set v = s.v when not matched then insert *"
    lake.sql(f"merge into orc t using (select * from values (3, 'y'), (4, 'd') as (id, v)) s on t.id = s.id {merged}")
    assert lake.sql("select id, v from orc order by id").to_arrow().to_pydict() == {
        "id": [1, 3, 4],
        "v": ["x", "y", "d"],
    }
    assert not list(Path(lake.table("orc").path).glob("*.parquet"))
    lake.sql("create table orc_like like orc")
    assert lake.table("orc_like").hudi.config.base_format is BaseFormat.ORC
