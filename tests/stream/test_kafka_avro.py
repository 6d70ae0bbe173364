"""Messages of Avro: schemas by their ids and by a provider, several of them in a round, and what can't be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_topics import Topic, cluster
from registry_server import USER, Registry, plain, registry

import skep
from skep_format.errors import FormatError, InputError, OptionError, SchemaError, StorageError, UnsupportedError
from skep_format.options import Options
from skep_stream.schemas.registry import SOURCE_URL, without_user

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "string"}, {"name": "ts", "type": "int"}],
}
CITY: dict[str, Any] = {"name": "city", "type": ["null", "string"], "default": None}
LATER = {**ORDER, "fields": [ORDER["fields"][0], {"name": "ts", "type": "long"}, CITY]}


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
    """A topic, a registry and a table."""

    def __init__(self, topic: Topic, schemas: Registry, table: str) -> None:
        self.topic, self.schemas, self.table = topic, schemas, table

    def streamer(self, conf: dict[str, str] | None = None, **flags: Any) -> skep.Streamer:
        given = {
            **self.topic.options(),
            "hoodie.datasource.write.recordkey.field": "id",
            "schema.registry.url": self.schemas.url,
            **(conf or {}),
        }
        named = {"target_base_path": self.table, "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
        return skep.Streamer(hoodie_conf=given, source_class="AvroKafkaSource", **named)

    def of_registry(self, conf: dict[str, str] | None = None, user: str = "") -> skep.Streamer:
        url = {"hoodie.deltastreamer.schemaprovider.registry.url": self.schemas.latest("order", user)}
        return self.streamer({**url, **(conf or {})}, schemaprovider_class="SchemaRegistryProvider")

    def rows(self) -> list[dict[str, Any]]:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie_")])
        return sorted(kept.to_pylist(), key=lambda row: str(row["id"]))


def test_messages_of_several_schemas_are_rows_of_all_columns(job: Job) -> None:
    old, new = job.schemas.add("order", ORDER), job.schemas.add("order", LATER)
    job.topic.put(job.schemas.message(old, {"id": "a", "ts": 1}))
    job.topic.put(job.schemas.message(new, {"id": "b", "ts": 1 << 40, "city": "x"}), None)
    job.topic.put(job.schemas.message(old, {"id": "c", "ts": 3}), job.schemas.message(old, {"id": "a", "ts": 4}))
    assert job.streamer().run_once().rows == 4
    assert job.rows() == [
        {"id": "a", "ts": 4, "city": None},
        {"id": "b", "ts": 1 << 40, "city": "x"},
        {"id": "c", "ts": 3, "city": None},
    ]
    assert job.schemas.asked == [f"/schemas/ids/{number}" for number in (old, new)]


@pytest.mark.parametrize(("rounds", "batch"), [(1, 100), (1, 1), (2, 100)])
def test_rows_without_a_column_that_later_messages_always_have(
    job: Job, rounds: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep_stream.kafka.client._BATCH", batch)
    later = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
    job.topic.put(job.schemas.message(job.schemas.add("order", ORDER), {"id": "a", "ts": 1}))
    if rounds == 2:
        job.streamer().run_once()
    job.topic.put(job.schemas.message(job.schemas.add("order", later), {"id": "b", "ts": 2, "n": 3}))
    job.streamer().run_once()
    assert job.rows() == [{"id": "a", "ts": 1, "n": None}, {"id": "b", "ts": 2, "n": 3}]


def test_a_stream_follows_the_registry(job: Job) -> None:
    old = job.schemas.add("order", ORDER)
    job.topic.put(job.schemas.message(old, {"id": "a", "ts": 1}))
    streamer = job.of_registry()
    streamer.run_once()
    new = job.schemas.add("order", LATER)
    job.topic.put(job.schemas.message(new, {"id": "b", "ts": 2, "city": "x"}))
    streamer.run_once()
    assert job.rows() == [{"id": "a", "ts": 1, "city": None}, {"id": "b", "ts": 2, "city": "x"}]


@pytest.mark.parametrize("by_key", [False, True])
def test_rows_have_the_schema_of_the_reader(job: Job, by_key: bool, tmp_path: Path) -> None:
    new = job.schemas.add("other", LATER)
    job.topic.put(job.schemas.message(new, {"id": "b", "ts": 2, "city": "x"}))
    reader = {**ORDER, "fields": [*ORDER["fields"][:1], {"name": "ts", "type": "long"}]}
    conf = {"hoodie.streamer.source.kafka.value.deserializer.class": "org.x.KafkaAvroSchemaDeserializer"}
    if by_key:
        given = {**conf, "hoodie.streamer.source.kafka.value.deserializer.schema": json.dumps(reader)}
        job.streamer(given).run_once()
    else:
        file = tmp_path / "reader.avsc"
        file.write_text(json.dumps(reader))
        conf["hoodie.streamer.schemaprovider.source.schema.file"] = str(file)
        job.streamer(conf, schemaprovider_class="FilebasedSchemaProvider").run_once()
        with pytest.raises(OptionError, match="reads by a schema: please provide a schema provider"):
            job.streamer(conf)
    assert job.rows() == [{"id": "b", "ts": 2}]


def test_plain_messages_are_of_the_schema_of_the_provider(job: Job) -> None:
    job.schemas.add("order", LATER)
    job.topic.put(plain(LATER, {"id": "a", "ts": 1, "city": None}), plain(LATER, {"id": "b", "ts": 2, "city": "x"}))
    job.of_registry(
        {
            "hoodie.streamer.source.kafka.value.deserializer.class": "o.a.k.c.s.ByteArrayDeserializer",
            "schema.registry.url": "",
        }
    ).run_once()
    assert [row["city"] for row in job.rows()] == [None, "x"]


def test_bad_messages_name_their_place_and_may_be_kept_apart(job: Job) -> None:
    number = job.schemas.add("order", ORDER)
    good = [job.schemas.message(number, {"id": key, "ts": 1}) for key in "abcd"]
    unknown = b"\x00\x00\x00\x00\x63" + good[0][5:]
    job.topic.put(good[0], b"{}", good[1][:-2], good[1], unknown, good[2] + b"\x00", good[3])
    with pytest.raises(InputError, match=f"topic {job.topic.name}, partition 0, offset 1: not a message of Confluent"):
        job.streamer().run_once()
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    assert job.streamer(errors).run_once().rows == 3
    assert [row["id"] for row in job.rows()] == ["a", "b", "d"]
    kept = skep.load(f"{job.table}-errors").to_arrow().sort_by("line").to_pylist()
    assert [row["line"] for row in kept] == [1, 2, 4, 5]
    assert "no such schema" in kept[2]["error"]


def test_a_round_of_bad_messages_alone_goes_on(job: Job) -> None:
    number = job.schemas.add("order", ORDER)
    job.topic.put(job.schemas.message(number, {"id": "a", "ts": 1}))
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    streamer = job.streamer(errors)
    streamer.run_once()
    job.topic.put(b"{}")
    assert (streamer.run_once().rows, streamer.run_once().result) == (0, None)
    assert skep.load(f"{job.table}-errors").to_arrow().num_rows == 1


def test_a_registry_that_is_away_fails_the_round(job: Job) -> None:
    number = job.schemas.add("order", ORDER)
    job.topic.put(job.schemas.message(number, {"id": "a", "ts": 1}))
    job.schemas.guarded = True
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    with pytest.raises(StorageError, match=r"schemas/ids/1: status 401"):
        job.streamer(errors).run_once()
    job.streamer(
        {"basic.auth.user.info": USER, "schema.registry.url": f"http://127.0.0.1:1,{job.schemas.url}"}
    ).run_once()
    assert job.rows() == [{"id": "a", "ts": 1}]


def test_the_user_in_an_address_is_sent_and_never_shown(job: Job) -> None:
    job.schemas.guarded = True
    number = job.schemas.add("order", ORDER)
    job.topic.put(job.schemas.message(number, {"id": "a", "ts": 1}))
    streamer = job.of_registry({"basic.auth.user.info": USER}, user=USER)
    assert streamer.run_once().rows == 1
    with pytest.raises(StorageError) as raised:
        job.of_registry(user="streamer:wr0ng").stream.schemas.source_schema()  # type: ignore[union-attr]
    assert "wr0ng" not in repr(raised.value) + str(raised.value.fields)
    assert "s3cret" not in repr(Options({SOURCE_URL.key: job.schemas.latest("order", USER)}))
    assert without_user("https://a:b%40c@host:81/x") == ("https://host:81/x", "a:b@c")


def test_what_is_no_registry_or_no_avro_is_refused(job: Job) -> None:
    job.topic.put(job.schemas.message(job.schemas.add("order", ORDER), {"id": "a", "ts": 1}))
    for subject, error in (("none", SchemaError), ("broken", StorageError)):
        url = {"hoodie.streamer.schemaprovider.registry.url": job.schemas.latest(subject)}
        with pytest.raises(error, match=f"subjects/{subject}/versions/latest"):
            job.streamer(url, schemaprovider_class="SchemaRegistryProvider").run_once()
    job.schemas.subjects["text"] = job.schemas.add("text", "string")
    url = {"hoodie.streamer.schemaprovider.registry.url": job.schemas.latest("text")}
    with pytest.raises(SchemaError, match=r"subjects/text/versions/latest: .* is a record"):
        job.streamer(url, schemaprovider_class="SchemaRegistryProvider").run_once()
    with pytest.raises(OptionError, match=r"SchemaRegistryProvider needs hoodie\.streamer\.schemaprovider\.registry"):
        job.streamer(schemaprovider_class="SchemaRegistryProvider")
    with pytest.raises(UnsupportedError, match="schemaconverter"):
        job.of_registry({"hoodie.streamer.schemaprovider.registry.schemaconverter": "x.Y"})


def test_an_answer_without_a_schema_is_none_of_a_registry(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.schemas, "respond", lambda _path: (200, ["x"]))
    with pytest.raises(FormatError, match="not an answer of a schema registry"):
        job.of_registry().stream.schemas.source_schema()  # type: ignore[union-attr]
    monkeypatch.setattr(job.schemas, "respond", lambda _path: (200, {"schema": "{}", "schemaType": "JSON"}))
    with pytest.raises(SchemaError, match="of JSON, not of Avro"):
        job.of_registry().stream.schemas.source_schema()  # type: ignore[union-attr]
