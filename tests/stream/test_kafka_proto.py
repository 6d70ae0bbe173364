"""Messages of Protobuf: types of a file and of a registry, several of them in a round, and what can't be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_topics import Topic, cluster
from proto_files import class_of, file_of, written
from registry_server import Registry, registry

import skep
from skep_format.errors import InputError, OptionError, SchemaError, StorageError, UnsupportedError

ITEM = file_of({"Item": {"name": "string"}}, name="item.proto", imports=())
FIELDS = {"id": "string", "ts": "int64", "item": ".shop.Item", "at": ".google.protobuf.Timestamp"}
IMPORTS = ("item.proto", "google/protobuf/timestamp.proto")
MESSAGES = {"Order": FIELDS, "Deleted": {"id": "string"}, "Order.Line": {"id": "string", "ts": "int64"}}
FILE = file_of(MESSAGES, imports=IMPORTS, java_outer_classname="ShopOuter")
LATER = file_of({"Order": {**FIELDS, "big": "uint64", "city": "optional string"}}, imports=IMPORTS)
ORDER, LINE, LATER_ORDER = (
    class_of(file, name, ITEM)
    for file, name in ((FILE, "shop.Order"), (FILE, "shop.Order.Line"), (LATER, "shop.Order"))
)
CONFLUENT = {"hoodie.streamer.source.kafka.proto.value.deserializer.class": "io.x.KafkaProtobufDeserializer"}
CONVERTER = {"hoodie.streamer.schemaprovider.registry.schemaconverter": "org.x.ProtoSchemaToAvroSchemaConverter"}


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
    return Job(topics(), schemas, tmp_path)


class Job:
    """A topic, a registry, a file of descriptors and a table."""

    def __init__(self, topic: Topic, schemas: Registry, work: Path) -> None:
        self.topic, self.schemas, self.work, self.table = topic, schemas, work, str(work / "table")
        self.of_file = {
            "skep.stream.proto.descriptor.file": str(written(work / "shop.desc", FILE, ITEM)),
            "hoodie.streamer.schemaprovider.proto.class.name": "shop.ShopOuter$Order",
        }

    def streamer(self, conf: dict[str, str], **flags: Any) -> skep.Streamer:
        given = {**self.topic.options(), "hoodie.datasource.write.recordkey.field": "id", **conf}
        named = {"target_base_path": self.table, "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
        return skep.Streamer(hoodie_conf=given, source_class="org.x.ProtoKafkaSource", **named)

    def of_ids(self, conf: dict[str, str] | None = None, **flags: Any) -> skep.Streamer:
        return self.streamer({"schema.registry.url": self.schemas.url, **CONFLUENT, **(conf or {})}, **flags)

    def of_registry(self, subject: str = "order", conf: dict[str, str] | None = None) -> skep.Streamer:
        url = {"hoodie.streamer.schemaprovider.registry.url": self.schemas.latest(subject)}
        return self.of_ids({**url, **CONVERTER, **(conf or {})}, schemaprovider_class="SchemaRegistryProvider")

    def add(self, file: Any = FILE) -> int:
        self.schemas.add_file("item", ITEM)
        return self.schemas.add_file("order", file, {"item.proto": "item"})

    def errors(self) -> dict[str, str]:
        return {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{self.table}-errors"}

    def rows(self) -> list[dict[str, Any]]:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie_")])
        return sorted(kept.to_pylist(), key=lambda row: str(row["id"]))


def order(key: str, ts: int = 1, kind: Any = ORDER, **more: Any) -> bytes:
    sent: bytes = kind(id=key, ts=ts, **more).SerializeToString()
    return sent


def framed(number: int, sent: bytes, indexes: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + sent


def row(key: str, ts: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "ts": ts, "item": None, "at": None, **more}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_plain_messages_are_rows_of_their_type(job: Job, kind: str) -> None:
    flags = {"schemaprovider_class": "org.x.ProtoClassBasedSchemaProvider", "table_type": kind}
    job.topic.put(order("a", item={"name": "x"}), order("b"), None)
    assert job.streamer(job.of_file, **flags).run_once().rows == 2
    job.topic.put(order("a", 2))
    assert job.streamer(job.of_file, **flags).run_once().rows == 1
    assert job.rows() == [row("a", 2), row("b")]


def test_rows_are_appended_offsets_where_they_are_wanted(job: Job) -> None:
    job.topic.put(order("a"), order("b"))
    job.streamer({**job.of_file, "hoodie.streamer.source.kafka.append.offsets": "true"}).run_once()
    assert [each["_hoodie_kafka_source_offset"] for each in skep.load(job.table).to_arrow().to_pylist()] == [0, 1]


def test_ids_of_a_registry_give_the_types(job: Job) -> None:
    old, new = job.add(), job.add(LATER)
    job.topic.put(framed(old, order("a", item={"name": "x"})))
    job.topic.put(framed(new, order("b", kind=LATER_ORDER, big=1 << 63, city="y")), framed(old, order("c")))
    assert job.of_ids().run_once().rows == 3
    big = int(job.rows()[1]["big"])
    assert (big, [each["city"] for each in job.rows()]) == (1 << 63, [None, "y", None])
    assert job.rows()[0]["item"] == {"name": "x"}
    assert len(job.schemas.asked) == 4  # each id and what it imports once


def test_a_stream_follows_the_registry(job: Job) -> None:
    old = job.add()
    job.topic.put(framed(old, order("a")))
    streamer = job.of_registry()
    streamer.run_once()
    new = job.add(LATER)
    job.topic.put(framed(new, order("b", kind=LATER_ORDER, big=5)), framed(old, order("c")))
    streamer.run_once()
    assert job.rows() == [
        row("a", big=None, city=None),
        row("b", big=5, city=None),
        row("c", big=0, city=None),
    ]


def test_messages_of_several_types_of_a_schema(job: Job) -> None:
    number = job.add()
    line = order("l", 2, LINE)
    job.topic.put(
        framed(number, order("a")), framed(number, line, b"\x04\x00\x00"), framed(number, order("b"), b"\2\0")
    )
    assert job.of_ids().run_once().rows == 3
    assert job.rows() == [row("a"), row("b"), row("l", 2)]


def test_a_file_of_descriptors_is_in_the_place_of_a_registry(job: Job) -> None:
    job.topic.put(framed(77, order("a")))
    streamer = job.streamer({**job.of_file, **CONFLUENT})
    streamer.run_once()
    job.topic.put(framed(77, order("l", 2, LINE), b"\x04\x00\x00"))
    with pytest.raises(InputError, match=r"offset 1: this is message 0\.0 of its schema, not Order, which is 0"):
        streamer.run_once()
    assert job.rows() == [row("a")]


def test_bad_messages_name_their_place_and_may_be_kept_apart(job: Job) -> None:
    number = job.add()
    good = [framed(number, order(key)) for key in "abcd"]
    bad = [good[0][:-1], b"{}", good[0][:5], framed(99, order("x")), framed(number, b"", b"\x02\x12")]
    job.topic.put(
        *(each for pair in zip(good, bad, strict=False) for each in pair), bad[-1], framed(number, b"", b"\3")
    )
    with pytest.raises(InputError, match=rf"topic {job.topic.name}, partition 0, offset 3: not a message of Confluent"):
        job.of_ids().run_once()
    assert job.of_ids(job.errors()).run_once().rows == 4
    assert [each["id"] for each in job.rows()] == list("abcd")
    kept = skep.load(f"{job.table}-errors").to_arrow().sort_by("line").to_pylist()
    assert [each["line"] for each in kept] == [1, 3, 5, 7, 8, 9]
    whys = [
        "not a message of Order",
        "begins with no 0",
        "place of its type",
        "no such schema",
        "no message 9",
        "place of",
    ]
    assert all(why in each["error"] for why, each in zip(whys, kept, strict=True))


def test_a_plain_message_that_can_not_be_read_fails_the_round(job: Job) -> None:
    job.topic.put(order("a"), b"\x0a\x09")
    with pytest.raises(InputError, match="offset 1: not a message of Order"):
        job.streamer(job.of_file).run_once()
    assert job.streamer({**job.of_file, **job.errors()}).run_once().rows == 1


def test_schemas_that_are_no_descriptors_are_refused_by_name(job: Job) -> None:
    job.schemas.subjects["text"] = job.schemas.add("text", 'syntax = "proto3";', kind="PROTOBUF")
    job.schemas.add("avro", {"type": "record", "name": "r", "fields": []})
    job.schemas.add("broken", "", kind="PROTOBUF")
    cases = {
        "text": (SchemaError, "as text only"),
        "avro": (SchemaError, "of AVRO, not of Protobuf"),
        "none": (SchemaError, "no such schema"),
        "broken": (StorageError, "status 500"),
    }
    for subject, (error, why) in cases.items():
        with pytest.raises(error, match=f"{subject}/versions/latest.*{why}"):
            job.of_registry(subject).stream.schemas.source_schema()  # type: ignore[union-attr]
    job.schemas.add_file("order", FILE, {"item.proto": "none"})
    with pytest.raises(SchemaError, match=r"none/versions/1.*no such schema"):
        job.of_registry().stream.schemas.source_schema()  # type: ignore[union-attr]


def test_settings_that_can_not_be_used_are_refused(job: Job) -> None:
    message, file = sorted(job.of_file)
    with pytest.raises(OptionError, match=f"Protobuf messages need {message}"):
        job.streamer({file: job.of_file[file]})
    with pytest.raises(OptionError, match=f"Protobuf messages need {file}"):
        job.streamer({message: "shop.Order"})
    with pytest.raises(OptionError, match=r"need .*descriptor\.file"):
        job.streamer({message: "shop.Order"}, schemaprovider_class="ProtoClassBasedSchemaProvider")
    with pytest.raises(OptionError, match=r"proto\.value\.deserializer\.class=x\.Other is not known"):
        job.streamer({**job.of_file, **dict.fromkeys(CONFLUENT, "x.Other")})
    with pytest.raises(UnsupportedError, match="JsonToAvroSchemaConverter is not built"):
        job.of_registry(conf=dict.fromkeys(CONVERTER, "org.x.JsonToAvroSchemaConverter"))
