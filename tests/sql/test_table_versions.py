"""CREATE TABLE chooses a table's version: by a property, by a setting of the session, by the table that it is like."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.lake import Lake
from skep_format.errors import OptionError, TableMismatchError, TableVersionError

pytestmark = pytest.mark.metastore


@pytest.mark.parametrize("key", ["hoodie.write.table.version", "hoodie.table.version"])
def test_a_property_decides(lake: Lake, key: str) -> None:
    lake.sql(f"create table t (id int, v string) using hudi tblproperties (primaryKey = 'id', '{key}' = '9')")
    lake.sql("insert into t values (1, 'a')")
    table = lake.table("t")
    assert table.hudi.config.version == 9
    assert table.hudi.config.raw["hoodie.table.version"] == "9"
    assert lake.sql("select v from t").to_arrow().to_pylist() == [{"v": "a"}]


def test_a_setting_of_the_session_decides_where_no_property_does(lake: Lake) -> None:
    lake.sql("set hoodie.write.table.version = 8")
    lake.sql("create table a using hudi tblproperties (primaryKey = 'id') as select 1 id")
    lake.sql("create table b (id int) using hudi tblproperties (primaryKey = 'id', hoodie.write.table.version = '9')")
    lake.sql("reset hoodie.write.table.version")
    lake.sql("create table c (id int) using hudi tblproperties (primaryKey = 'id')")
    assert [lake.table(name).hudi.config.version for name in "abc"] == [8, 9, 6]


def test_a_table_like_another_has_its_version(lake: Lake) -> None:
    lake.sql("create table a (id int) using hudi tblproperties (primaryKey = 'id', hoodie.write.table.version = '9')")
    lake.sql("create table b like a using hudi")
    lake.sql("create table c like a using hudi tblproperties (hoodie.write.table.version = '8')")
    assert [lake.table(name).hudi.config.version for name in "bc"] == [9, 8]


def test_a_table_like_another_has_a_metadata_table_as_it_has(lake: Lake) -> None:
    version, enabled = "hoodie.write.table.version", "hoodie.metadata.enable"
    lake.sql(f"create table a (id int) using hudi tblproperties (primaryKey = 'id', '{version}' = 'newest')")
    lake.sql("create table b like a using hudi")
    for name in "ab":
        lake.sql(f"insert into {name} values (1)")
    lake.sql("create table c like b using hudi")
    lake.sql(f"create table d like b using hudi tblproperties ('{version}' = '6')")
    lake.sql(f"create table e like b using hudi tblproperties ('{enabled}' = 'false')")
    for name in "cde":
        lake.sql(f"insert into {name} values (1)")
    kept = {name: lake.table(name).hudi.config.metadata_partitions for name in "abcde"}
    assert kept == {**dict.fromkeys("abcd", ("column_stats", "files")), "e": ()}


def test_a_table_of_an_older_version_is_upgraded_by_a_call_or_a_write(lake: Lake) -> None:
    for name in "ab":
        lake.sql(f"create table {name} (id int, v string) using hudi tblproperties (primaryKey = 'id')")
        lake.sql(f"insert into {name} values (1, 'x')")
        settings = Path(lake.table(name).path.removeprefix("file:")) / ".hoodie/hoodie.properties"
        settings.write_text(settings.read_text().replace("hoodie.table.version=6", "hoodie.table.version=4"))
    lake.sql("create table c like a using hudi")
    assert [lake.table(name).hudi.config.version for name in "abc"] == [4, 4, 6]
    for statement in ("insert into a values (2, 'y')", "update a set v = 'y'", "delete from a"):
        with pytest.raises(TableVersionError, match="has version 4, which is read"):
            lake.sql(statement)
    lake.sql("call upgrade_table(table => 'a', to_version => 'SIX')")
    lake.sql("set hoodie.write.auto.upgrade = true")
    lake.sql("update b set v = 'y'")
    assert [lake.table(name).hudi.config.version for name in "ab"] == [6, 6]
    assert lake.sql("select v from b").to_arrow().to_pylist() == [{"v": "y"}]


def test_a_location_is_registered_where_the_version_fits(lake: Lake) -> None:
    lake.sql("create table a (id int) using hudi tblproperties (primaryKey = 'id', hoodie.write.table.version = '9')")
    place = lake.table("a").path
    with pytest.raises(TableMismatchError, match="has version 9, not 8"):
        lake.sql(f"create table b using hudi tblproperties (hoodie.table.version = '8') location '{place}'")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [("7", OptionError, "one of 6, 8, 9"), ("nine", OptionError, "'nine' is not one of 6, 8, 9, newest")],
)
def test_what_is_no_version_is_refused(
    lake: Lake, tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lake.sql(f"create table t (id int) using hudi tblproperties (primaryKey='id', hoodie.table.version = '{text}')")
    assert not list(tmp_path.rglob("hoodie.properties"))


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize(
    "stated",
    [
        "payloadClass = 'org.apache.hudi.common.model.PartialUpdateAvroPayload'",
        "payloadClass = 'org.apache.hudi.common.model.OverwriteWithLatestAvroPayload'",
        "'hoodie.table.cdc.enabled' = 'true', 'hoodie.table.cdc.supplemental.logging.mode' = 'data_before'",
    ],
)
def test_a_table_like_another_merges_and_keeps_changes_as_it_does(lake: Lake, version: int, stated: str) -> None:
    lake.sql(
        "CREATE TABLE a (id STRING, ts BIGINT) USING hudi TBLPROPERTIES"
        f" (primaryKey = 'id', orderingFields = 'ts', 'hoodie.write.table.version' = '{version}', {stated})"
    )
    lake.sql("CREATE TABLE b LIKE a")
    one, other = (lake.table(name).hudi.config.raw for name in "ab")
    of_its_own = {"hoodie.table.name", "hoodie.table.create.schema", "hoodie.table.checksum"}
    assert {key: one[key] for key in one.keys() - of_its_own} == {key: other[key] for key in other.keys() - of_its_own}
