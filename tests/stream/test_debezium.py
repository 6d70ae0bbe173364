"""Changes of MySQL and PostgreSQL from topics: flat rows, deletes, their order by Hudi's payload classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_topics import Topic, cluster
from registry_server import Registry, registry

import skep
from skep_format.errors import InputError

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}


def envelope(**of_source: str) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in of_source.items()]
    source = {"type": "record", "name": "Source", "fields": [{"name": "name", "type": "string"}, *fields]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", VALUE], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


POSTGRES = envelope(ts_ms="long", schema="string", txId="long", lsn="long", xmin="long")
MYSQL = envelope(ts_ms="long", file="string", pos="long", row="int")


@pytest.fixture(scope="module")
def topics() -> Iterator[Callable[[], Topic]]:
    with cluster() as made:
        yield made


@pytest.fixture
def schemas() -> Iterator[Registry]:
    with registry() as made:
        yield made


@pytest.fixture
def job(topics: Callable[[], Topic], schemas: Registry, tmp_path: Path) -> Job:
    return Job(topics(), schemas, str(tmp_path / "table"))


class Job:
    """A topic of changes, a registry and a table."""

    def __init__(self, topic: Topic, schemas: Registry, table: str) -> None:
        self.topic, self.schemas, self.table = topic, schemas, table
        self.version, self.kind = "6", "COPY_ON_WRITE"

    def put(self, op: str, before: Any, after: Any, **source: Any) -> None:
        names = {"name": "shop", "ts_ms": 5, **source}
        record = {"before": before, "after": after, "source": names, "op": op, "ts_ms": 7}
        self.topic.put(self.schemas.message(1, record))

    def run(self, database: str, **conf: str) -> skep.Streamer:
        payload = {"Postgres": "PostgresDebeziumAvroPayload", "Mysql": "MySqlDebeziumAvroPayload"}[database]
        given = {
            **self.topic.options(),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.streamer.schemaprovider.registry.url": self.schemas.latest("changes"),
            "hoodie.write.table.version": self.version,
            **{name.replace("__", "."): value for name, value in conf.items()},
        }
        streamer = skep.Streamer(
            target_base_path=self.table,
            target_table="t",
            table_type=self.kind,
            source_class=f"org.apache.hudi.utilities.sources.debezium.{database}DebeziumSource",
            schemaprovider_class="SchemaRegistryProvider",
            source_ordering_field={"Postgres": "_event_lsn", "Mysql": "_event_seq"}[database],
            payload_class=f"org.apache.hudi.common.model.debezium.{payload}",
            hoodie_conf=given,
        )
        streamer.run_once()
        return streamer

    def rows(self) -> list[dict[str, Any]]:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie_")])
        return sorted(kept.to_pylist(), key=lambda row: int(row["id"]))


def value(key: int, name: str | None) -> dict[str, Any]:
    return {"id": key, "name": name}


FORMS = [("6", "COPY_ON_WRITE"), ("6", "MERGE_ON_READ"), ("8", "COPY_ON_WRITE"), ("9", "MERGE_ON_READ")]


@pytest.mark.parametrize(("version", "kind"), FORMS)
def test_changes_of_postgresql(job: Job, version: str, kind: str) -> None:
    job.version, job.kind = version, kind
    job.schemas.add("changes", POSTGRES)
    origin = {"schema": "public", "txId": 1, "xmin": None}
    job.put("r", None, value(1, "a"), lsn=10, **origin)
    job.put("c", None, value(2, "b"), lsn=11, **origin)
    job.put("c", None, value(3, "c"), lsn=12, **origin)
    job.run("Postgres")
    job.put("u", None, value(1, "a2"), lsn=20, **origin)
    job.put("d", value(2, "b"), None, lsn=21, **origin)
    job.topic.put(None)  # the tombstone behind a delete
    job.put("u", None, value(3, "older"), lsn=5, **origin)
    job.put("d", value(9, None), None, lsn=22, **origin)  # of a row that is not there
    job.run("Postgres")
    assert [(row["id"], row["name"]) for row in job.rows()] == [(1, "a2"), (3, "c")]
    assert job.rows()[0] == {
        "_change_operation_type": "u",
        "_upstream_event_processed_ts_ms": 7,
        "db_shard_source_partition": "shop",
        "db_schema_source_partition": "public",
        "_event_origin_ts_ms": 5,
        "_event_tx_id": 1,
        "_event_lsn": 20,
        "_event_xmin": None,
        **value(1, "a2"),
    }


@pytest.mark.parametrize(("version", "kind"), FORMS)
def test_changes_of_mysql(job: Job, version: str, kind: str) -> None:
    job.version, job.kind = version, kind
    job.schemas.add("changes", MYSQL)
    job.put("c", None, value(1, "a"), file="mysql-bin.000002", pos=900, row=0)
    job.put("c", None, value(2, "b"), file="mysql-bin.000002", pos=950, row=1)
    job.run("Mysql")
    job.put("u", value(1, "a"), value(1, "a2"), file="mysql-bin.000002", pos=1000, row=0)
    job.put("u", value(2, "b"), value(2, "older"), file="mysql-bin.000001", pos=5000, row=0)
    job.run("Mysql")
    assert [(row["id"], row["name"], row["_event_seq"]) for row in job.rows()] == [
        (1, "a2", "000002.1000"),
        (2, "b", "000002.950"),
    ]
    assert set(job.rows()[0]) - set(VALUE) >= {"_event_bin_file", "_event_pos", "_event_row", "_event_origin_ts_ms"}
    job.put("d", value(1, "a2"), None, file="mysql-bin.000003", pos=4, row=0)
    job.run("Mysql")
    assert [row["id"] for row in job.rows()] == [2]


def test_changes_as_json(job: Job) -> None:
    job.schemas.add("changes", POSTGRES)
    as_json = {
        "hoodie__streamer__source__kafka__value__deserializer__class": "o.a.k.c.s.StringDeserializer",
        "skep__stream__kafka__json__envelope": "true",
    }
    source = {"version": "2.5", "name": "shop", "ts_ms": 5, "schema": "public", "txId": 1, "xmin": None}

    def put(op: str, before: Any, after: Any, lsn: int) -> None:
        change = {"before": before, "after": after, "source": {**source, "lsn": lsn}, "op": op, "ts_ms": 7}
        job.topic.put({"schema": {}, "payload": {**change, "transaction": None}})

    put("c", None, value(1, "a"), 1)
    put("c", None, value(2, "b"), 2)
    job.run("Postgres", **as_json)
    put("d", value(1, "a"), None, 3)
    put("u", None, value(2, "b2"), 4)
    job.run("Postgres", **as_json)
    assert [(row["id"], row["name"], row["_event_lsn"]) for row in job.rows()] == [(2, "b2", 4)]


def test_what_is_no_change_of_a_row_is_refused_or_kept_apart(job: Job) -> None:
    job.schemas.add("changes", POSTGRES)
    job.put("c", None, value(1, "a"), schema="public", lsn=1)
    job.put("t", None, None, schema="public", lsn=2)
    with pytest.raises(InputError, match=f"topic {job.topic.name}, partition 0, offset 1: operation 't'"):
        job.run("Postgres")
    errors = f"{job.table}-errors"
    job.run("Postgres", hoodie__errortable__enable="true", hoodie__errortable__base__path=errors)
    assert [row["id"] for row in job.rows()] == [1]
    assert skep.load(errors).to_arrow()["line"].to_pylist() == [1]


def test_messages_of_another_kind_are_named(job: Job) -> None:
    job.schemas.add("changes", POSTGRES)
    job.put("c", None, value(1, "a"), schema="public", lsn=1)
    with pytest.raises(InputError, match=r"no changes of Debezium's connector: there is no source\.file"):
        job.run("Mysql")
