"""Topics as sources: which offsets a round reads, what it makes of messages, and what it refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_topics import Topic, cluster

import skep
from skep_format.errors import DataLossError, InputError, OptionError, StorageError
from skep_format.options import Options
from skep_format.timeline.metadata import WriteOperation
from skep_stream.kafka.messages import SCHEMA, once
from skep_stream.kafka.offsets import Log, OffsetRange, checked, clamped, of_sink, parse, ranges, spell
from skep_stream.kafka.properties import ClientPropertyWarning, client_properties
from skep_stream.kafka.source import DataLossWarning
from skep_stream.protocols import Position
from skep_table.events import Event

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture(scope="module")
def topics() -> Iterator[Callable[[], Topic]]:
    with cluster() as made:
        yield made


@pytest.fixture
def topic(topics: Callable[[], Topic]) -> Topic:
    return topics()


@pytest.fixture
def job(topic: Topic, tmp_path: Path) -> Job:
    return Job(topic, tmp_path)


class Job:
    """A topic, a schema and a table."""

    def __init__(self, topic: Topic, work: Path) -> None:
        self.topic, self.table, self.schema = topic, str(work / "table"), work / "order.avsc"
        self.schema.write_text(json.dumps(ORDER))

    def streamer(self, conf: dict[str, str] | None = None, **flags: Any) -> skep.Streamer:
        given = {
            **self.topic.options(),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.schema),
            **(conf or {}),
        }
        flags.setdefault("schemaprovider_class", "FilebasedSchemaProvider")
        flags.setdefault("source_class", "JsonKafkaSource")
        named = {"target_base_path": self.table, "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
        return skep.Streamer(hoodie_conf=given, **named)

    def rows(self) -> list[dict[str, Any]]:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns(
            [name for name in rows.schema.names if name.startswith("_hoodie_") and "kafka" not in name]
        )
        return sorted(kept.to_pylist(), key=lambda row: str(row["id"]))

    def ids(self) -> list[str]:
        return [row["id"] for row in self.rows()]


def row(key: str, at: int = 1, city: str | None = None) -> dict[str, Any]:
    return {"id": key, "ts": at, "city": city}


# -- offsets


def test_a_checkpoint_is_the_text_of_hudi() -> None:
    assert spell("trips", {1: 1, 0: 2}) == "trips,0:2,1:1"
    assert parse("trips,0:2,1:1", "trips") == {0: 2, 1: 1}


@pytest.mark.parametrize(
    "text", ["garbage", "trips", "trips,0", "trips,0:x", "trips,0:-1", "1700000000000", "trips,0:1,"]
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"topic trips: .* is no checkpoint of a topic"):
        parse(text, "trips")


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    with pytest.raises(InputError, match=r"topic trips: the checkpoint rides,0:1 is of topic rides"):
        parse("rides,0:1", "trips")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({0: 3}, "partition 0 begins at offset 5, the checkpoint is 3"),
        ({0: 11}, "partition 0 ends at offset 10, the checkpoint is 11"),
        ({0: 7, 2: 1}, "partition 2 of the checkpoint, at offset 1, is not there"),
    ],
)
def test_a_checkpoint_outside_of_the_topic_is_an_error_or_lost_in_words(last: dict[int, int], words: str) -> None:
    logs = {0: Log(5, 8, 10), 1: Log(0, 4, 4)}
    with pytest.raises(DataLossError, match=f"topic trips: {words}"):
        checked("trips", last, logs)
    starts, lost = clamped(last, logs)
    assert lost == [words]
    assert starts == {0: last[0] if last[0] == 7 else 5, 1: 0}


def test_a_checkpoint_within_an_open_transaction_is_none_outside_of_the_topic() -> None:
    assert checked("trips", {0: 9}, {0: Log(5, 8, 10)}) == {0: 9}
    assert ranges({0: 9}, {0: Log(5, 8, 10)}, 100) == {0: OffsetRange(9, 9)}


@pytest.mark.parametrize(
    ("logs", "most", "parts", "until"),
    [
        ({0: 10, 1: 10}, 2, 0, {0: 1, 1: 1}),
        ({0: 10, 1: 1}, 8, 0, {0: 7, 1: 1}),
        ({0: 10, 1: 10}, 3, 0, {0: 2, 1: 1}),
        ({0: 3, 1: 0, 2: 5}, 100, 0, {0: 3, 1: 0, 2: 5}),
        ({0: 0, 1: 0}, 100, 0, {0: 0, 1: 0}),
        ({0: 100, 1: 100}, 9, 4, {0: 5, 1: 4}),
    ],
)
def test_the_limit_is_spread_over_partitions(
    logs: dict[int, int], most: int, parts: int, until: dict[int, int]
) -> None:
    found = ranges(dict.fromkeys(logs, 0), {number: Log(0, end, end) for number, end in logs.items()}, most, parts)
    assert {number: each.end for number, each in found.items()} == until


# -- rounds


def test_rounds_read_on_and_nothing_new_is_no_commit(job: Job) -> None:
    name = job.topic.name
    job.topic.put(row("a"), row("b"), row("c"))
    job.topic.put(row("d"), partition=1)
    streamer = job.streamer(source_limit=2)
    assert streamer.status()["waiting_messages"] == 4
    assert (streamer.run_once().checkpoint, job.ids()) == (f"{name},0:1,1:1,2:0,3:0", ["a", "d"])
    assert job.streamer(source_limit=100).run_once().checkpoint == f"{name},0:3,1:1,2:0,3:0"
    assert streamer.run_once().result is None
    job.topic.put(row("a", 2, "x"), None, b"", row("a", 3, "y"))
    assert (streamer.run_once().rows, streamer.run_once().rows) == (1, 1)  # each reads one that is empty, too
    assert job.rows()[0] == row("a", 3, "y")
    assert streamer.status()["waiting_messages"] == 0


def test_what_waits_is_as_old_as_the_oldest_of_the_next_messages(job: Job) -> None:
    first = 1_700_000_000_000
    job.topic.put(row("a"), time=first + 5000)
    job.topic.put(row("b"), row("c"), time=first + 7000)
    job.topic.put(row("d"), partition=1, time=first)
    streamer = job.streamer(source_limit=2)
    seen = []
    for _ in range(3):
        found = streamer.status()
        seen.append((found["waiting_messages"], found["waiting_since"]))
        streamer.run_once()
    assert seen == [(4, first), (2, first + 7000), (0, None)]


def test_a_first_round_at_the_end_commits_where_it_begins(job: Job) -> None:
    job.topic.put(row("a"))
    streamer = job.streamer({"auto.offset.reset": "latest"})
    done = streamer.run_once()
    assert (done.rows, done.checkpoint) == (0, f"{job.topic.name},0:1,1:0,2:0,3:0")
    assert done.result is not None
    job.topic.put(row("b"))
    streamer.run_once()
    assert job.ids() == ["b"]


def test_a_group_begins_at_its_offsets_and_gets_those_of_commits(job: Job) -> None:
    group = {"auto.offset.reset": "group", "group.id": "g", "hoodie.streamer.source.kafka.enable.commit.offset": "true"}
    job.topic.put(row("a"))
    assert job.streamer(group).run_once().rows == 0  # without offsets it begins at the end
    job.topic.put(row("b"))
    assert job.streamer(group, retry_on_source_failures=True).run_once().rows == 1
    job.topic.put(row("c"))
    other = job.streamer(group, target_base_path=f"{job.table}-2")
    assert (other.run_once().rows, skep.load(f"{job.table}-2").to_arrow()["id"].to_pylist()) == (1, ["c"])


def test_an_offset_alone_is_no_checkpoint_of_several_partitions(job: Job) -> None:
    alone = {"hoodie.streamer.source.kafka.checkpoint.type": "single_offset"}
    job.topic.put(row("a"))
    with pytest.raises(InputError, match="has 4 partitions: an offset alone is no checkpoint"):
        job.streamer(alone, checkpoint="1").run_once()


def test_offsets_that_are_not_there_fail_or_are_warned_about(job: Job) -> None:
    job.topic.put(row("a"), row("b"))
    job.topic.put(row("c"), partition=1)
    beyond = f"{job.topic.name},0:9,1:1,2:0,3:0"
    with pytest.raises(DataLossError, match="partition 0 ends at offset 2, the checkpoint is 9") as raised:
        job.streamer(checkpoint=beyond).run_once()
    assert raised.value.fields["partitions"] == (0,)
    lenient = job.streamer({"hoodie.deltastreamer.source.kafka.enable.failOnDataLoss": "false"}, checkpoint=beyond)
    with pytest.warns(DataLossWarning, match="partition 0 ends at offset 2"):
        lenient.run_once()
    assert job.ids() == ["a", "b"]  # partition 1 goes on at its checkpoint


def test_a_bad_message_names_its_place_and_may_be_kept_apart(job: Job) -> None:
    job.topic.put(row("a"), b"{", b"\xff", b'{"id": "m",\n"ts": 1}', {"id": "b"}, b" ", b'{"id": "c"} {"id": "d"}')
    with pytest.raises(InputError, match=f"topic {job.topic.name}, partition 0, offset 1: not JSON"):
        job.streamer().run_once()
    job.topic.put(b'{"id": "n\n", "ts": 1}', {"id": "e", "ts": "late"}, row("f"), partition=2)
    nested = b'{"id": "g", "ts": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    job.topic.put(b"null", {"id": "g", "ts": 1.5}, b'{"id": "g", "ts": 1e300000000}', nested, partition=3)
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    streamer = job.streamer(errors)
    assert (streamer.run_once().rows, job.ids()) == (3, ["a", "f", "m"])
    kept = skep.load(f"{job.table}-errors").to_arrow()
    places = sorted(zip(kept["source"].to_pylist(), kept["line"].to_pylist(), strict=True))
    source = f"topic {job.topic.name}, partition"
    bad = {0: (1, 2, 4, 6), 2: (0, 1), 3: range(4)}
    assert places == [(f"{source} {partition}", at) for partition, each in bad.items() for at in each]
    assert streamer.run_once().result is None


def test_rows_of_many_messages_are_those_of_the_topic(job: Job) -> None:
    for partition in range(4):
        job.topic.put(*(row(f"{partition}-{number:05}", number) for number in range(5000)), partition=partition)
    assert job.streamer(op="BULK_INSERT").run_once().rows == 20_000
    rows = skep.load(job.table).to_arrow()
    assert sorted(rows["id"].to_pylist()) == sorted(
        f"{part}-{number:05}" for part in range(4) for number in range(5000)
    )


def test_messages_that_the_client_delivers_again_are_rows_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does after a lost connection; an insert would have them twice."""
    dice = random.Random(3)
    delivered: list[tuple[int, int]] = []

    class Rewinding(confluent_kafka.Consumer):
        def consume(self, count: int, timeout: float) -> list[Any]:
            found = [each for each in super().consume(min(count, 5), timeout) if each.error() is None]
            delivered.extend((each.partition(), each.offset()) for each in found)
            for each in found if dice.random() < 0.5 and len(delivered) < 200 else ():
                back = max(0, each.offset() - dice.randrange(6))
                self.seek(confluent_kafka.TopicPartition(each.topic(), each.partition(), back))
            return found

    for partition in range(2):
        job.topic.put(*({"id": f"{partition}-{at:02}", "ts": 1} for at in range(30)), partition=partition)
    monkeypatch.setattr(confluent_kafka, "Consumer", Rewinding)
    job.streamer({"skep.stream.kafka.timeout.seconds": "30"}, op="INSERT").run_once()
    assert len(delivered) > len(set(delivered)) == 60
    assert job.ids() == sorted(f"{partition}-{at:02}" for partition in range(2) for at in range(30))


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=8), max_size=6))
def test_messages_behind_those_taken_are_taken_once(arrivals: list[list[tuple[int, int]]]) -> None:
    taken, found = {0: 3, 1: 0, 2: 0}, []
    ends = {0: 10, 1: 7, 2: 10}
    for batch in arrivals:
        columns = {"partition": [each[0] for each in batch], "offset": [each[1] for each in batch]}
        rows = pa.record_batch({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
        found += [tuple(row.values()) for row in once(rows, taken, ends).to_pylist()]
    expected, behind = [], {0: 3, 1: 0, 2: 0}
    for partition, offset in (each for batch in arrivals for each in batch):
        if offset >= behind[partition]:
            expected += [(partition, offset)] if offset < ends[partition] else []
            behind[partition] = offset + 1
    assert (found, taken) == (expected, behind)


def test_a_fetch_reports_how_many_messages_are_read(job: Job) -> None:
    job.topic.put(row("a"), None, row("b"))
    seen: list[Event] = []
    streamer = job.streamer()
    streamer.stream.events.listen(seen.append)
    streamer.run_once()
    counts = [(event.done, event.total) for event in seen if event.name == "stream.fetch" and event.seconds is None]
    assert counts[-1] == (3, 3)


def test_rows_are_in_the_order_of_partitions_and_offsets(job: Job) -> None:
    for partition in (3, 0, 2):
        job.topic.put(row(f"{partition}a"), row(f"{partition}b"), partition=partition)
    found = job.streamer().stream.source.fetch(Position(), 100).frame
    assert found is not None
    assert found["id"].to_pylist() == ["0a", "0b", "2a", "2b", "3a", "3b"]


def test_a_message_twice_is_one_row_of_an_upsert_and_two_of_an_insert(job: Job) -> None:
    job.topic.put(row("a", 2, "x"), row("a", 2, "x"), row("a", 1, "late"))
    job.streamer().run_once()
    assert job.rows() == [row("a", 2, "x")]
    job.streamer(op="INSERT", target_base_path=f"{job.table}-2").run_once()
    assert skep.load(f"{job.table}-2").to_arrow().num_rows == 3


def test_rows_get_the_places_of_their_messages(job: Job) -> None:
    job.topic.put(row("a"), key="k")
    job.streamer().run_once()
    places = {"hoodie.streamer.source.kafka.append.offsets": "true"}
    job.topic.put(b"", row("b"), time=1_700_000_000_000, key="k2")
    job.streamer(places).run_once()  # a table that is there gets the columns
    found = {name.removeprefix("_hoodie_kafka_source_"): value for name, value in job.rows()[1].items()}
    assert found == {**row("b"), "offset": 2, "partition": 0, "timestamp": 1_700_000_000_000, "key": "k2"}
    assert job.rows()[0]["_hoodie_kafka_source_offset"] is None


def test_envelopes_of_connect_are_opened(job: Job) -> None:
    about = {"type": "struct", "fields": [{"field": "id", "type": "string"}]}
    job.topic.put({"schema": about, "payload": row("a", 1, "x")}, {"schema": None, "payload": None})
    job.topic.put({"schema": about, "payload": row("b", 1, "y")})
    job.streamer({"skep.stream.kafka.json.envelope": "true"}).run_once()
    assert job.rows() == [row("a", 1, "x"), row("b", 1, "y")]
    job.topic.put(row("bare"))
    with pytest.raises(InputError, match=f"topic {job.topic.name}, partition 0, offset 3: not an envelope"):
        job.streamer({"skep.stream.kafka.json.envelope": "true"}).run_once()


def test_json_behind_the_id_of_a_schema(job: Job) -> None:
    form = {
        "hoodie.streamer.source.kafka.json.value.deserializer.class": "io.confluent.k.s.KafkaJsonSchemaDeserializer"
    }
    header = b"\x00\x00\x00\x00\x07"
    job.topic.put(*(header + json.dumps(row(key)).encode() for key in "abc"), None)
    job.streamer({**form}).run_once()
    assert job.ids() == ["a", "b", "c"]
    job.topic.put(row("bare"), header + json.dumps(row("d")).encode())
    with pytest.raises(InputError, match=f"topic {job.topic.name}, partition 0, offset 4: not a message of Confluent"):
        job.streamer(form).run_once()
    errors = {"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": f"{job.table}-errors"}
    job.streamer({**form, **errors}).run_once()
    assert job.ids() == ["a", "b", "c", "d"]
    with pytest.raises(OptionError, match=r"json\.value\.deserializer\.class=x\.Y is not known"):
        job.streamer({next(iter(form)): "x.Y"})


def test_keys_that_are_no_text_are_replaced_as_in_java(job: Job) -> None:
    job.topic.put(row("a"), key=b"\x00\xff\x01")
    job.streamer({"hoodie.streamer.source.kafka.append.offsets": "true"}).run_once()
    assert job.rows()[0]["_hoodie_kafka_source_key"] == "\x00\ufffd\x01"


@pytest.mark.parametrize(("more", "kept"), [({}, ["a", "c"]), ({"ignore_checkpoint": "x"}, ["a", "b", "c", "s"])])
def test_a_stream_goes_on_where_the_sink_of_connect_ended(job: Job, more: dict[str, str], kept: list[str]) -> None:
    job.topic.put(row("s"), row("a"))
    job.topic.put(row("b"), row("c"), partition=1)
    rows = pa.Table.from_pylist([row("a")]).set_column(2, "city", pa.nulls(1, pa.string()))
    job.streamer().target.write(WriteOperation.UPSERT, rows, None, {"kafka.commit.offsets": "0=2,1=1"})
    streamer = job.streamer(**more)
    assert streamer.run_once().checkpoint == f"{job.topic.name},0:2,1:2,2:0,3:0"
    assert job.ids() == kept
    assert job.streamer(**more).run_once().result is None


def test_offsets_of_a_sink_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match=r"kafka\.commit\.offsets=0:1 are no offsets"):
        of_sink("0:1", "trips")


@pytest.mark.parametrize(
    ("conf", "flags", "words"),
    [
        ({"auto.offset.reset": "newest"}, {}, "one of latest, earliest, group"),
        ({"hoodie.streamer.source.kafka.checkpoint.type": "x"}, {}, "one of string, timestamp, single_offset"),
        ({"hoodie.streamer.source.kafka.enable.commit.offset": "true"}, {}, "needs group.id"),
        ({}, {"schemaprovider_class": None}, "JSON is read by a schema: please provide a schema provider"),
        ({}, {"source_class": "AvroKafkaSource"}, "Avro messages need a schema registry: schema.registry.url"),
        (
            {"hoodie.streamer.source.kafka.value.deserializer.class": "x.Y"},
            {"source_class": "AvroKafkaSource"},
            "expected",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(
    job: Job, conf: dict[str, str], flags: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError) as raised:
        job.streamer(conf, **flags)
    assert words in raised.value.message or words in raised.value.fields


def test_a_topic_and_servers_are_needed(job: Job) -> None:
    for key in ("bootstrap.servers", "hoodie.streamer.source.kafka.topic"):
        with pytest.raises(OptionError, match=f"a Kafka source needs {key}"):
            job.streamer({key: ""})


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (
            {"sasl.jaas.config": 'o.a.k.c.security.plain.PlainLoginModule required username="a" password="b\\"=;c";'},
            {"sasl.username": "a", "sasl.password": 'b"=;c'},
        ),
        (
            {"sasl.jaas.config": "o.a.k.c.security.scram.ScramLoginModule required\n username='a'\n password=b ;"},
            {"sasl.username": "a", "sasl.password": "b"},
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},
            {"ssl.ca.location": "ca.pem"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"ssl.keystore.type": "pem", "ssl.keystore.location": "key.pem", "ssl.key.password": "x"},
            {"ssl.key.location": "key.pem", "ssl.certificate.location": "key.pem", "ssl.key.password": "x"},
        ),
        ({"value.deserializer": "x", "schema.registry.url": "y", "fetch.min.bytes": "1"}, {"fetch.min.bytes": "1"}),
    ],
)
def test_properties_of_java_are_those_of_the_client(given: dict[str, str], passed: dict[str, str]) -> None:
    assert client_properties(Options(given)) == passed


def test_a_login_of_another_kind_is_refused_without_showing_it() -> None:
    login = "com.sun.security.auth.module.Krb5LoginModule required keyTab=s3cret;"
    with pytest.raises(OptionError, match=r"sasl\.jaas\.config is read where it is PlainLoginModule") as raised:
        client_properties(Options({"sasl.jaas.config": login}))
    assert "s3cret" not in repr(raised.value) + str(raised.value.fields) + repr(Options({"sasl.jaas.config": login}))


def test_properties_of_the_client_are_passed_on_or_named(job: Job) -> None:
    job.topic.put(row("a"))
    with pytest.warns(ClientPropertyWarning, match=r"metric\.reporters is no property of Kafka's client here"):
        job.streamer({"metric.reporters": "x", "fetch.min.bytes": "1", "value.deserializer": "x"}).run_once()
    with pytest.raises(OptionError, match="Java TrustStores are not supported"):
        job.streamer({"ssl.truststore.location": "/tmp/store.jks"}).run_once()
    with pytest.raises(OptionError, match=r"Invalid value .*isolation\.level"):
        job.streamer({"isolation.level": "bogus"}).run_once()


def test_brokers_that_are_away_are_an_error_of_the_source(job: Job) -> None:
    away = {"bootstrap.servers": "127.0.0.1:1", "skep.stream.kafka.timeout.seconds": "1"}
    with pytest.raises(StorageError, match=f"topic {job.topic.name}: can't list offsets"):
        job.streamer(away).run_once()


def test_a_topic_that_is_not_there_is_named_and_not_made(job: Job) -> None:
    with pytest.raises(InputError, match=f"topic {job.topic.name}"):
        job.streamer().run_once()
