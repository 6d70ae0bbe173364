"""Streams of a real Kafka broker: rounds, kills on either side, records that aged out, transactions, partitions."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import skep
from benchmarks.peers.bundle import PeerMissing
from benchmarks.peers.kafka import Broker, running
from skep_format.errors import DataLossError, StorageError
from skep_stream.kafka.client import Topic
from skep_stream.kafka.offsets import OffsetRange
from skep_stream.kafka.source import DataLossWarning
from skep_stream.lag import lag_watch
from skep_stream.status import lag

pytestmark = pytest.mark.peer("kafka")
ORDER = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "string"}, {"name": "ts", "type": "long"}],
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        with running(tmp_path_factory.mktemp("kafka")) as made:
            yield made
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def job(broker: Broker, tmp_path: Path) -> Job:
    return Job(broker, tmp_path, f"orders-{next(_numbers)}")


class Job:
    """A topic of two partitions, and a table."""

    def __init__(self, broker: Broker, work: Path, name: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker, self.work, self.name, self.table = broker, work, name, str(work / "table")
        (work / "order.avsc").write_text(json.dumps(ORDER))
        self.given = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(self.given)
        for made in self.admin.create_topics([NewTopic(name, 2, 1)]).values():
            made.result(60)
        self.producer = Producer(self.given)

    def put(self, *keys: str, partition: int = 0, time: int = 0) -> None:
        for key in keys:
            self.send(self.producer, key, partition, time)
        assert self.producer.flush(60) == 0

    def send(self, producer: Any, key: str, partition: int, time: int = 0) -> None:
        more = {"timestamp": time} if time else {}
        producer.produce(self.name, json.dumps({"id": key, "ts": 1}), key, partition=partition, **more)

    def conf(self, **more: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.address,
            "auto.offset.reset": "earliest",
            "hoodie.streamer.source.kafka.topic": self.name,
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.work / "order.avsc"),
            "hoodie.datasource.write.recordkey.field": "id",
            **{name.replace("__", "."): value for name, value in more.items()},
        }

    def streamer(self, conf: dict[str, str] | None = None, **flags: Any) -> skep.Streamer:
        named = {**self.flags(), **flags}
        return skep.Streamer(hoodie_conf={**self.conf(), **(conf or {})}, **named)

    def flags(self) -> dict[str, str]:
        return {
            "target_base_path": self.table,
            "target_table": "t",
            "table_type": "COPY_ON_WRITE",
            "source_class": "JsonKafkaSource",
            "schemaprovider_class": "FilebasedSchemaProvider",
            "op": "INSERT",
        }

    def command(self, *more: str, conf: dict[str, str] | None = None, **flags: str) -> list[str]:
        named = {f"--{name.replace('_', '-')}": value for name, value in {**self.flags(), **flags}.items()}
        words = [word for name, value in named.items() if name not in more for word in (name, value)]
        given = {**self.conf(), **(conf or {})}
        words += [word for key, value in given.items() for word in ("--hoodie-conf", f"{key}={value}")]
        return [str(Path(sys.executable).parent / "skep"), "stream", *words, *more]

    def ids(self) -> list[str]:
        return sorted(skep.load(self.table).to_arrow()["id"].to_pylist())


def test_rounds_go_on_in_another_process(job: Job) -> None:
    job.put("a", "b")
    job.put("c", partition=1)
    assert job.streamer(source_limit=2).run_once().checkpoint == f"{job.name},0:1,1:1"
    done = subprocess.run(job.command(), capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["checkpoint"] == f"{job.name},0:2,1:1"
    assert job.ids() == ["a", "b", "c"]
    assert job.streamer().run_once().result is None


def test_what_waits_is_counted_from_the_oldest_message_that_no_round_has_read(job: Job) -> None:
    first = 1_700_000_000_000
    for number, key in enumerate("abcd"):
        job.put(key, partition=number % 2, time=first + 1000 * number)
    streamer = job.streamer(source_limit=2)
    assert _waits(streamer) == (4, first)
    streamer.run_once()
    assert _waits(streamer) == (2, first + 2000)
    streamer.run_once()
    assert _waits(streamer) == (0, None)


def test_metrics_of_a_topic_go_on_while_the_broker_is_away(job: Job) -> None:
    from prometheus_client import CollectorRegistry

    from skep.flows.stream_metrics import StreamMetrics

    registry = CollectorRegistry()
    metrics = StreamMetrics(registry)
    job.put("a")
    streamer = job.streamer({"skep.stream.kafka.timeout.seconds": "2"})
    streamer.stream.events.listen(metrics)
    with lag_watch(partial(lag, streamer.stream), streamer.stream.events, "t", 0.1):
        until(lambda: registry.get_sample_value("skep_stream_waiting_messages", {"table": "t"}) == 1)
        assert 0 < (registry.get_sample_value("skep_stream_lag_seconds", {"table": "t"}) or 0) < 60
        job.broker.kill()
        try:
            until(lambda: registry.get_sample_value("skep_stream_lag_failures_total", {"table": "t"}))
        finally:
            job.broker.start()
        streamer.run_once()
        until(lambda: registry.get_sample_value("skep_stream_waiting_messages", {"table": "t"}) == 0)
        assert registry.get_sample_value("skep_stream_lag_seconds", {"table": "t"}) == 0


def _waits(streamer: skep.Streamer) -> tuple[int, int | None]:
    found = streamer.status()
    return found["waiting_messages"], found["waiting_since"]


@pytest.mark.parametrize("framed", [False, True])
def test_protobuf_goes_on_in_another_process(job: Job, framed: bool) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate({"id": 9, "ts": 3, "big": 4}.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    (job.work / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    conf = {
        "skep.stream.proto.descriptor.file": str(job.work / "shop.desc"),
        "hoodie.streamer.schemaprovider.proto.class.name": "shop.Shop$Order",
        "hoodie.streamer.source.kafka.proto.value.deserializer.class": (
            "x.KafkaProtobufDeserializer" if framed else "x.ByteArrayDeserializer"
        ),
    }
    flags = {"source_class": "ProtoKafkaSource", "schemaprovider_class": "ProtoClassBasedSchemaProvider"}

    def put(*keys: str, partition: int = 0) -> None:
        for key in keys:
            sent = order(id=key, ts=1, big=(1 << 64) - 1).SerializeToString()
            job.producer.produce(job.name, b"\0\0\0\0\7\0" + sent if framed else sent, key, partition=partition)
        assert job.producer.flush(60) == 0

    put("a", "b")
    put("c", partition=1)
    assert job.streamer(conf, **flags, source_limit=2).run_once().checkpoint == f"{job.name},0:1,1:1"
    put("d", partition=1)
    done = subprocess.run(job.command(conf=conf, **flags), capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["checkpoint"] == f"{job.name},0:2,1:2"
    assert job.ids() == ["a", "b", "c", "d"]
    assert set(skep.load(job.table).to_arrow()["big"].to_pylist()) == {(1 << 64) - 1}
    job.producer.produce(job.name, b"\xff", "bad", partition=1)
    job.producer.flush(60)
    failed = subprocess.run(job.command(conf=conf, **flags), capture_output=True, text=True, timeout=120, check=False)
    assert failed.returncode == 1
    assert f"topic {job.name}, partition 1, offset 2" in failed.stderr


@pytest.mark.parametrize(("checkpoint", "kept"), [("1700000001000", ["b", "c"]), ("1700000001", ["b", "c"])])
def test_a_time_is_a_checkpoint(job: Job, checkpoint: str, kept: list[str]) -> None:
    for number, key in enumerate("abc"):
        job.put(key, time=1_700_000_000_000 + 1000 * number)
    job.put("older", partition=1, time=1_600_000_000_000)
    job.streamer({"hoodie.streamer.source.kafka.checkpoint.type": "timestamp"}, checkpoint=checkpoint).run_once()
    assert job.ids() == kept


def test_records_that_aged_out_are_an_error_or_warned_about(job: Job) -> None:
    from confluent_kafka import TopicPartition

    job.put("a", "b", "c", "d")
    job.put("x", partition=1)
    job.streamer(source_limit=2).run_once()
    assert job.ids() == ["a", "x"]
    for done in job.admin.delete_records([TopicPartition(job.name, 0, 3)]).values():
        done.result(60)
    with pytest.raises(DataLossError, match=f"topic {job.name}: partition 0 begins at offset 3, the checkpoint is 1"):
        job.streamer().run_once()
    with pytest.warns(DataLossWarning, match="partition 0 begins at offset 3"):
        job.streamer({"hoodie.streamer.source.kafka.enable.failOnDataLoss": "false"}).run_once()
    assert job.ids() == ["a", "d", "x"]  # Hudi would read x again
    with pytest.raises(DataLossError, match="partition 0 no longer has the offsets from 1 to 4"):  # in between
        list(Topic(job.name, {"bootstrap.servers": job.broker.address}).read({0: OffsetRange(1, 4)}))


def test_a_topic_that_was_made_again_is_an_error(job: Job) -> None:
    from confluent_kafka.admin import NewTopic

    job.put("a", "b")
    job.streamer().run_once()
    for done in job.admin.delete_topics([job.name]).values():
        done.result(60)
    time.sleep(1)
    for made in job.admin.create_topics([NewTopic(job.name, 2, 1)]).values():
        made.result(60)
    job.put("c", "d", "e")
    with pytest.raises(DataLossError, match=f"topic {job.name}: it was deleted and created again since the checkpoint"):
        job.streamer().run_once()
    with pytest.warns(DataLossWarning, match="deleted and created again"):
        job.streamer({"hoodie.streamer.source.kafka.enable.failOnDataLoss": "false"}).run_once()
    assert job.ids() == list("abcde")


def test_new_partitions_are_read_from_their_beginning(job: Job) -> None:
    from confluent_kafka.admin import NewPartitions

    job.put("a")
    streamer = job.streamer({"auto.offset.reset": "latest"})
    streamer.run_once()
    for made in job.admin.create_partitions([NewPartitions(job.name, 3)]).values():
        made.result(60)
    until(lambda: len(job.producer.list_topics(job.name, timeout=10).topics[job.name].partitions) == 3)
    job.put("b", partition=2)
    assert streamer.run_once().checkpoint == f"{job.name},0:1,1:0,2:1"
    assert job.ids() == ["b"]


def test_transactions_are_read_when_they_are_complete(job: Job) -> None:
    from confluent_kafka import Producer

    transactional = Producer({**job.given, "transactional.id": job.name})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    job.send(transactional, "aborted", 0)
    transactional.flush(60)
    transactional.abort_transaction(60)
    transactional.begin_transaction()
    job.send(transactional, "a", 0)
    transactional.flush(60)
    job.put("behind")
    streamer = job.streamer()
    assert streamer.run_once().rows == 0
    transactional.commit_transaction(60)
    assert (streamer.run_once().rows, job.ids()) == (2, ["a", "behind"])
    assert streamer.run_once().result is None  # the last record is the transaction's own, and no message
    job.streamer({"isolation.level": "read_uncommitted"}, target_base_path=f"{job.table}-2").run_once()
    assert skep.load(f"{job.table}-2").to_arrow().num_rows == 3


def test_a_limit_that_ends_at_a_record_of_a_transaction(job: Job) -> None:
    from confluent_kafka import Producer

    transactional = Producer({**job.given, "transactional.id": job.name})
    transactional.init_transactions(60)
    for key in "abc":
        transactional.begin_transaction()
        job.send(transactional, key, 0)
        transactional.commit_transaction(60)
    streamer = job.streamer(source_limit=2)
    rows = [streamer.run_once().rows for _ in range(3)]
    assert (rows, job.ids()) == ([1, 1, 1], ["a", "b", "c"])


def test_a_broker_that_dies_and_comes_back_loses_nothing(job: Job) -> None:
    job.put("a")
    streamer = job.streamer({"skep.stream.kafka.timeout.seconds": "2"})
    streamer.run_once()
    job.put("b")
    job.broker.kill()
    try:
        with pytest.raises(StorageError, match=f"topic {job.name}"):
            streamer.run_once()
    finally:
        job.broker.start()
    patient = job.streamer()
    assert (patient.run_once().rows, job.ids()) == (1, ["a", "b"])


class Writing:
    """A producer that goes on: each key once, or twice, also where the broker is away for a while."""

    def __init__(self, job: Job, times: int = 1) -> None:
        from confluent_kafka import Producer

        self.sent: list[str] = []
        self._job, self._times, self._stop = job, times, Event()
        self._producer = Producer({**job.given, "enable.idempotence": True})
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break
            self.sent.append(f"{number:07}")
            for _ in range(self._times):
                self._job.send(self._producer, self.sent[-1], number % 2)
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.02)
        assert self._producer.flush(60) == 0


def test_rows_are_those_of_the_topic_however_often_the_stream_is_killed(job: Job) -> None:
    with Writing(job) as writing:
        killed_again_and_again(job, random.Random(5), rounds=5)
    assert read_whole(job) == in_topic(job), (job.work / "log").read_text()[-2000:]
    assert in_topic(job) == writing.sent


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["INSERT", "UPSERT"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_kills_of_the_stream_and_now_and_then_of_the_broker(job: Job, operation: str, seed: int) -> None:
    """25 in each. Inserts: each message is a row, once. Upserts, of messages that arrive twice: each key is a row."""
    is_upsert = operation == "UPSERT"
    more = ("--op", operation, *RETRY)
    with Writing(job, times=2 if is_upsert else 1) as writing:
        restarts = killed_again_and_again(job, random.Random(seed), rounds=25, more=more, broker_dies=0.2)
    messages = in_topic(job)  # a batch may be there twice: the broker died before it acknowledged it
    assert set(messages) == set(writing.sent)
    kept = read_whole(job, op=operation)
    print(f"{operation}, seed {seed}: 25 kills, {restarts} restarts, {len(messages)} messages, {len(kept)} rows")
    assert kept == (writing.sent if is_upsert else messages), (job.work / "log").read_text()[-2000:]
    assert restarts
    assert len(messages) >= (2 if is_upsert else 1) * len(writing.sent)


RETRY = ("--retry-on-source-failures", "--retry-interval-seconds", "1", "--max-retry-count", "60")


def killed_again_and_again(
    job: Job, dice: random.Random, rounds: int, more: tuple[str, ...] = (), broker_dies: float = 0
) -> int:
    """Streams one after another, each killed at a random moment. Returns how often the broker was, beside one."""
    restarts = 0
    with (job.work / "log").open("ab") as log:
        for _ in range(rounds):
            words = job.command("--continuous", "--source-limit", "500", *more)
            stream = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
            assert stream.stdout is not None
            if dice.random() < 0.7:
                stream.stdout.readline()  # it has committed a round
            time.sleep(dice.uniform(0, 2))
            if dice.random() < broker_dies:
                job.broker.kill()
                time.sleep(dice.uniform(0, 1))
                job.broker.start()
                restarts += 1
            stream.kill()
            stream.wait()
            stream.stdout.close()
    return restarts


@pytest.mark.slow
def test_rows_are_those_of_the_topic_when_the_broker_is_killed_beside_the_stream(job: Job) -> None:
    words = job.command("--continuous", "--source-limit", "500", *RETRY)
    words += ["--hoodie-conf", "skep.stream.kafka.timeout.seconds=3"]
    dice = random.Random(1)
    with Writing(job) as writing, (job.work / "log").open("ab") as log:
        stream = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
        assert stream.stdout is not None
        for _ in range(3):
            stream.stdout.readline()
            time.sleep(dice.uniform(0, 2))
            job.broker.kill()
            time.sleep(dice.uniform(0, 4))
            job.broker.start()
        stream.stdout.readline()
        stream.terminate()
        stream.stdout.read()
        assert stream.wait(60) == 0
    kept = in_topic(job)  # a batch may be there twice: the broker died before it acknowledged it
    assert read_whole(job) == kept, (job.work / "log").read_text()[-2000:]
    assert set(kept) == set(writing.sent)


def in_topic(job: Job) -> list[str]:
    """The keys of all messages, by a consumer of the test's own."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**job.given, "group.id": "all", "enable.auto.commit": False})
    partitions = [TopicPartition(job.name, number, 0) for number in range(2)]
    expected = sum(consumer.get_watermark_offsets(each, timeout=60)[1] for each in partitions)
    consumer.assign(partitions)
    found: list[str] = []
    end = time.monotonic() + 60
    while len(found) < expected and time.monotonic() < end:
        found += [each.key().decode() for each in consumer.consume(10_000, 1) if each.error() is None]
    consumer.close()
    assert len(found) == expected
    return sorted(found)


def read_whole(job: Job, **flags: Any) -> list[str]:
    streamer = job.streamer(**flags)
    while streamer.run_once().result is not None:
        pass
    return job.ids()


def test_changes_are_messages_of_a_topic(job: Job) -> None:
    from confluent_kafka import Consumer, TopicPartition

    job.put("a", "b")
    job.streamer().run_once()
    words = [str(Path(sys.executable).parent / "skep"), "changes", job.table, "--to"]
    words.append(f"kafka://{job.broker.address}/{job.name}-changes")
    for _ in range(2):  # the second has nothing to send
        subprocess.run(words, check=True, capture_output=True, timeout=120)
    consumer = Consumer({**job.given, "group.id": "changes", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(f"{job.name}-changes", 0, 0)])
    found = consumer.consume(2, 10)
    consumer.close()
    assert [each.key() for each in found] == [b"t", b"t"]
    changes = [json.loads(each.value()) for each in found]
    assert sorted(each["after"]["id"] for each in changes) == ["a", "b"]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
