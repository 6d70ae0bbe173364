"""HiveSchemaProvider: a stream reads and writes by the columns of tables in the metastore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skep
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_catalog.type_text import spark_schema
from skep_format.errors import NoSuchTableError, OptionError
from skep_format.schema.types import Field, LongType, StringType

pytestmark = pytest.mark.metastore
PREFIX = "hoodie.deltastreamer.schemaprovider"


@pytest.fixture
def conf(metastore_server: EmbeddedMetastore, metastore: Metastore, database: str, tmp_path: Path) -> dict[str, str]:
    columns = (Column("id", "string"), Column("ts", "bigint"), Column("price", "decimal(6,2)"))
    storage = StorageDescriptor(columns, f"file://{tmp_path}/landing")
    metastore.create_table(TableEntry(database, "landing", storage, table_type="EXTERNAL_TABLE"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text(json.dumps({"id": "a", "ts": 1, "price": 2.5}))
    return {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.streamer.source.dfs.root": f"{tmp_path}/in",
        "hoodie.datasource.hive_sync.metastore.uris": metastore_server.uri,
        f"{PREFIX}.source.schema.hive.database": database,
        f"{PREFIX}.source.schema.hive.table": "landing",
    }


def streamer(conf: dict[str, str], work: Path, **flags: Any) -> skep.Streamer:
    given = {"target_base_path": f"{work}/table", "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
    provider = "org.apache.hudi.utilities.schema.HiveSchemaProvider"
    return skep.Streamer(hoodie_conf=conf, source_class="JsonDFSSource", schemaprovider_class=provider, **given)


def test_rows_have_the_columns_of_a_table(
    conf: dict[str, str], tmp_path: Path, metastore: Metastore, database: str
) -> None:
    stream = streamer(conf, tmp_path)
    stream.run_once()
    rows = skep.load(f"{tmp_path}/table").to_arrow()
    assert rows.schema.names[-3:] == ["id", "ts", "price"]
    assert str(rows.column("price")[0].as_py()) == "2.50"
    entry = metastore.table(database, "landing")
    columns = (*entry.storage.columns, Column("city", "string"))
    metastore.alter_table(database, "landing", replace(entry, storage=replace(entry.storage, columns=columns)))
    (tmp_path / "in/b.json").write_text(json.dumps({"id": "b", "ts": 2, "price": None, "city": "delft"}))
    stream.run_once()  # it follows the table
    assert skep.load(f"{tmp_path}/table").to_arrow()["city"].to_pylist() == [None, "delft"]


def test_the_target_may_have_another_table_and_spark_counts_over_hive(
    conf: dict[str, str], tmp_path: Path, metastore: Metastore, database: str
) -> None:
    stated = {
        "spark.sql.sources.schema": spark_schema((Field("id", StringType(), nullable=False), Field("ts", LongType())))
    }
    storage = StorageDescriptor((Column("id", "string"),), f"file://{tmp_path}/wanted")
    metastore.create_table(TableEntry(database, "wanted", storage, parameters=stated, table_type="EXTERNAL_TABLE"))
    target = {
        f"{PREFIX}.target.schema.hive.{name}": value for name, value in (("database", database), ("table", "wanted"))
    }
    with pytest.warns(UserWarning, match="columns price are not in the target's schema"):
        streamer({**conf, **target}, tmp_path).run_once()
    assert skep.load(f"{tmp_path}/table").to_arrow().schema.names[-2:] == ["id", "ts"]


def test_a_table_that_is_missing_is_an_error(conf: dict[str, str], tmp_path: Path, database: str) -> None:
    with pytest.raises(NoSuchTableError, match=f"{database}.none"):
        streamer({**conf, f"{PREFIX}.source.schema.hive.table": "none"}, tmp_path)
    with pytest.raises(NoSuchTableError, match=r"default\.none"):
        streamer({**conf, f"{PREFIX}.target.schema.hive.table": "none"}, tmp_path)
    key = f"{PREFIX}.source.schema.hive.table"
    with pytest.raises(OptionError, match=r"HiveSchemaProvider needs hoodie\.streamer\.schemaprovider\.source"):
        streamer({name: value for name, value in conf.items() if name != key}, tmp_path)
    with pytest.raises(OptionError, match=r"need hoodie\.datasource\.hive_sync\.metastore\.uris"):
        streamer({name: value for name, value in conf.items() if "uris" not in name}, tmp_path)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_target_with_a_database_in_its_name_is_synced_there(
    conf: dict[str, str], tmp_path: Path, metastore: Metastore, database: str, kind: str
) -> None:
    flags = {"target_table": f"{database}.orders", "enable_hive_sync": True, "table_type": kind}
    streamer(conf, tmp_path, **flags).run_once()
    entry = metastore.table(database, "orders")
    assert [column.name for column in entry.storage.columns[-3:]] == ["id", "ts", "price"]
    assert "hoodie.table.name=" + f"{database}.orders" in (tmp_path / "table/.hoodie/hoodie.properties").read_text()
    named = {"hoodie.datasource.hive_sync.table": "named"}  # counts over that
    streamer({**conf, **named}, tmp_path, **flags, allow_commit_on_no_checkpoint_change=True).run_once()
    assert metastore.table(database, "named").storage.location == entry.storage.location
