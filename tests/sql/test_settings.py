"""Settings of Spark that a client gives by SET hold for its own queries, in both engines."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from sql_lakes import NeedsSession

from skep.lake import Lake
from skep_format.errors import InputError, OptionError
from skep_format.options import UnknownOptionWarning

HOUR = dt.datetime(2024, 7, 1, 22, tzinfo=dt.timezone.utc)
ROWS = pa.table({"id": [1], "v": ["a"], "seen": pa.array([HOUR], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize("statement", ["SET TIME ZONE 'Asia/Tokyo'", "SET spark.sql.session.timeZone = Asia/Tokyo"])
def test_queries_that_depend_on_the_zone_are_left_to_spark(statement: str, lake: Lake) -> None:
    lake.create_table("t", ROWS, key="id").upsert(ROWS)
    seen = "SELECT seen FROM t"
    assert lake.sql(seen).to_arrow()["seen"].to_pylist() == [HOUR]
    assert lake.sql(statement).to_arrow().to_pylist() == [{"key": "spark.sql.session.timeZone", "value": "Asia/Tokyo"}]
    for query in (seen, "SELECT TIMESTAMP '2024-07-01 22:00:00' x", "DELETE FROM t WHERE seen = '2024-07-02 07:00:00'"):
        with pytest.raises(NeedsSession):
            lake.sql(query).to_arrow()
    assert lake.sql("SELECT v FROM VALUES (1, 'a') AS t(id, v)", engine="sail").to_arrow()["v"].to_pylist() == ["a"]
    lake.sql("RESET spark.sql.session.timeZone")
    assert lake.sql(seen).to_arrow()["seen"].to_pylist() == [HOUR]
    with pytest.raises(InputError, match="a time zone in quotes"):
        lake.sql("SET TIME ZONE LOCAL")


def test_settings_that_may_change_an_answer_leave_queries_to_spark(lake: Lake) -> None:
    lake.sql("SET spark.sql.ansi.enabled = true")
    with pytest.raises(NeedsSession):
        lake.sql("SELECT 1 AS one").to_arrow()
    lake.sql("RESET")
    lake.sql("SET spark.sql.shuffle.partitions = 3")
    assert lake.sql("SELECT 1 AS one", engine="sail").to_arrow()["one"].to_pylist() == [1]


def test_a_misspelt_option_is_named_with_the_nearest(lake: Lake) -> None:
    with pytest.warns(UnknownOptionWarning, match=r"hoodie\.clean\.automtic; did you mean hoodie\.clean\.automatic\?"):
        lake.sql("SET hoodie.clean.automtic = true")
    with pytest.raises(OptionError, match=r"hoodie\.clean\.automatic"):
        lake.sql("SET hoodie.clean.automatic = maybe")
    assert lake.sql("SET hoodie.clean.automatic").to_arrow()["value"].to_pylist() == ["<undefined>"]  # type: ignore[union-attr]


@pytest.mark.spark
def test_settings_hold_in_spark_for_the_client_that_gave_them(spark_lake: Lake, spark: Any) -> None:
    lake, before = spark_lake, spark.conf.get("spark.sql.session.timeZone")
    lake.create_table("t", ROWS, key="id").upsert(ROWS)
    day, wrong = "SELECT cast(seen AS string) s FROM t", "SELECT CAST('x' AS INT) n"
    lake.sql("SET TIME ZONE 'Asia/Tokyo'")
    assert lake.sql(day).to_arrow()["s"].to_pylist() == ["2024-07-02 07:00:00"]
    assert lake.sql("DELETE FROM t WHERE seen = '2024-07-01 22:00:00'").counts["deleted"] == 0  # type: ignore[union-attr]
    assert lake.sql("DELETE FROM t WHERE seen = '2024-07-02 07:00:00'").counts["deleted"] == 1  # type: ignore[union-attr]
    assert spark.conf.get("spark.sql.session.timeZone") == before
    lake.sql("SET spark.sql.ansi.enabled = true")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        lake.sql(wrong).to_arrow()
    lake.sql("SET spark.sql.ansi.enabled = false")
    assert lake.sql(wrong).to_arrow()["n"].to_pylist() == [None]
    lake.sql("SET spark.sql.session.timeZone = Nowhere/Here")
    with pytest.raises(InputError, match=r"SET spark\.sql\.session\.timeZone=Nowhere/Here"):
        lake.sql(wrong).to_arrow()


@pytest.mark.parametrize("key", ["parquet.encryption.uniform.key", "parquet.crypto.factory.class"])
def test_keys_of_encrypted_tables_are_no_settings_of_a_session(key: str, lake: Lake) -> None:
    with pytest.raises(OptionError, match="is no setting of a session"):
        lake.sql(f"SET {key}=k1")
