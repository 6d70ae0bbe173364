"""Commit callbacks: what receivers get, and that they get it at least once whatever fails in between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import OptionError, SyncError, UnsupportedError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action
from skep_sync.callbacks import CallbackWarning, callback_hook, deliver, senders, undelivered
from skep_sync.callbacks.senders import HttpSender, KafkaSender, sender_of
from skep_sync.following.receiver import parse_callback
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

PREFIX = "hoodie.write.commit.callback."


class Service:
    """An HTTP service that refuses on request."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if service.status == 200:
                    service.got.append(json.loads(body))
                    service.headers.append(dict(self.headers))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/commits"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def times(self) -> list[str]:
        return [message["commitTime"] for message in self.got]


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    found.thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    schema = pa.schema([("id", pa.string()), ("part", pa.string())])
    spec = TableSpec(name="orders", schema=schema, record_key=("id",), partition_by=("part",))
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


Write = Callable[..., str]


@pytest.fixture
def write(table: HudiTable, service: Service) -> Write:
    """Writes one row, with the hook of the service; returns the instant's time."""

    def one(key: str = "a", hooked: bool = True, url: str | None = None, **extra: str) -> str:
        sender = HttpSender(url or service.url, "secret", 3.0, (("X-Team", "lake"),))
        hooks = [callback_hook(lambda: sender, HudiTable.open)] if hooked else []
        writer = LocalWriter(table, hooks)
        result = writer.upsert(pa.table({"id": [key], "part": ["p"]}), extra_metadata=extra or None)
        return result.instant.requested_time

    return one


def test_a_commit_is_reported_in_hudis_form(write: Write, table: HudiTable, service: Service) -> None:
    time = write(checkpoint="42")
    (message,), (headers,) = service.got, service.headers
    assert (message["commitTime"], message["tableName"], message["basePath"]) == (time, "orders", table.storage.root)
    (stat,) = message["hoodieWriteStat"]
    assert (stat["partitionPath"], stat["numInserts"], stat["prevCommit"]) == ("p", 1, "null")
    assert (message["commitActionType"], message["operationType"]) == (Action.COMMIT.value, "UPSERT")
    assert message["extraMetadata"]["checkpoint"] == "42"
    assert message["partitions"] == ["p"]
    assert headers["HUDI-CALLBACK-KEY"] == "secret"
    assert headers["X-Team"] == "lake"
    assert headers["Content-Type"].startswith("application/json")


def test_who_parses_hudis_callbacks_parses_ours(write: Write, table: HudiTable, service: Service) -> None:
    time = write()
    parsed = parse_callback(json.dumps(service.got[0]).encode())
    assert (parsed.base_path, parsed.instant) == (table.storage.root, time)


def test_a_receiver_that_is_down_is_notified_later(write: Write, service: Service) -> None:
    service.status = 503
    with pytest.warns(CallbackWarning, match="status 503; skep callbacks replay"):
        first = write("a")
    with pytest.warns(CallbackWarning, match="2 commits"):
        second = write("b")
    assert service.got == []
    service.status = 200
    third = write("c")
    assert service.times == [first, second, third]
    assert len({message["eventId"] for message in service.got}) == 3


def test_commits_of_writers_that_died_before_their_callbacks_are_reported(write: Write, service: Service) -> None:
    first = write("a")
    lost = write("b", hooked=False)
    third = write("c")
    assert service.times == [first, lost, third]


def test_callbacks_begin_with_the_first_commit_that_has_them(write: Write, service: Service) -> None:
    write("a", hooked=False)
    second = write("b")
    assert service.times == [second]


def test_each_receiver_is_notified_by_itself(write: Write, service: Service) -> None:
    first = write("a")
    with pytest.warns(CallbackWarning):
        write("b", url="http://127.0.0.1:9/nobody")
    second_time = service.times
    third = write("c")
    assert second_time == [first]
    assert len(service.times) == 3
    assert service.times[-1] == third


def test_replay_sends_what_is_left_and_what_is_asked_for(write: Write, table: HudiTable, service: Service) -> None:
    sender = HttpSender(service.url, "k", 3.0)
    times = [write("a"), write("b", hooked=False), write("c", hooked=False)]
    assert [instant.requested_time for instant in undelivered(table.reload(), sender)] == times[1:]
    delivery = deliver(table.reload(), sender)
    assert [instant.requested_time for instant in delivery.delivered] == times[1:]
    assert deliver(table.reload(), sender).delivered == ()
    again = deliver(table.reload(), sender, since=times[0])
    assert [instant.requested_time for instant in again.delivered] == times[1:]
    assert service.times == [*times, *times[1:]]


def test_a_replay_stops_at_the_first_failure(write: Write, table: HudiTable, service: Service) -> None:
    write("a")
    lost = [write("b", hooked=False), write("c", hooked=False)]
    service.status = 500
    delivery = deliver(table.reload(), HttpSender(service.url, "k", 3.0))
    assert (delivery.delivered, [i.requested_time for i in delivery.left]) == ((), lost)
    assert isinstance(delivery.error, SyncError)


def test_a_write_that_completes_after_a_later_one_is_reported(write: Write, table: HudiTable, service: Service) -> None:
    """Its instant is older than what the receiver knows, and it is sent all the same."""
    sender = HttpSender(service.url, "k", 3.0)
    first = write("a")
    early = write("b", hooked=False)
    commit = Path(table.storage.root) / f".hoodie/{early}.commit"
    kept = commit.read_bytes()
    commit.unlink()  # still running
    late = deliver(table.reload(), sender)
    assert late.delivered == ()
    third = str(int(early) + 1)
    for suffix in ("commit.requested", "inflight", "commit"):
        (commit.parent / f"{third}.{suffix}").write_bytes(kept if suffix == "commit" else b"")
    assert [i.requested_time for i in deliver(table.reload(), sender).delivered] == [third]
    commit.write_bytes(kept)
    assert [i.requested_time for i in deliver(table.reload(), sender).delivered] == [early]
    assert service.times == [first, third, early]


def test_what_was_sent_is_remembered_in_a_few_bytes(write: Write, table: HudiTable) -> None:
    for at in range(5):
        write(str(at))
    (state,) = (Path(table.storage.root) / ".hoodie/.skep/callbacks").iterdir()
    record = json.loads(state.read_text())
    assert record["told"] == []
    assert "secret" not in state.read_text()


def test_senders_by_hudis_options(monkeypatch: pytest.MonkeyPatch) -> None:
    http = sender_of(
        Options({f"{PREFIX}http.url": "http://x/y", f"{PREFIX}http.custom.headers": "A: b:c ;D:e", f"{PREFIX}on": True})
    )
    assert http == HttpSender("http://x/y", "hudi_write_commit_http_callback", 3.0, (("A", "b:c"), ("D", "e")))
    kafka = {
        f"{PREFIX}class": "org.apache.hudi.utilities.callback.kafka.HoodieWriteCommitKafkaCallback",
        f"{PREFIX}kafka.bootstrap.servers": "b:9092",
        f"{PREFIX}kafka.topic": "commits",
    }
    assert sender_of(Options(kafka)) == KafkaSender("b:9092", "commits", -1, "all", 3, 10.0)
    with pytest.raises(OptionError, match=r"http\.url"):
        sender_of(Options())
    with pytest.raises(OptionError, match=r"custom\.headers"):
        sender_of(Options({f"{PREFIX}http.url": "u", f"{PREFIX}http.custom.headers": "no colon"}))
    with pytest.raises(UnsupportedError, match="no callback mine"):
        sender_of(Options({f"{PREFIX}class": "mine"}))
    received: list[Any] = []
    monkeypatch.setattr(EntryPoint, "load", lambda _self: lambda options: received.append)
    entry = EntryPoint("mine", "x:y", senders.GROUP)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry] if name == "mine" else [])
    assert sender_of(Options({f"{PREFIX}class": "mine"})).address == "skep.callbacks:mine"


def test_a_function_of_ones_own(write: Write, table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a", hooked=False)
    received: list[Any] = []
    own = senders.FunctionSender("mine", received.append)
    deliver(table.reload(), own, since="0")
    assert [message["tableName"] for message in received] == ["orders"]

    def fails(_record: Any) -> None:
        raise RuntimeError("not today")

    failing = deliver(table.reload(), senders.FunctionSender("other", fails), since="0")
    assert "not today" in str(failing.error)


def test_kafka_gets_messages_by_the_tables_name(write: Write, table: HudiTable) -> None:
    """Over the wire, to brokers that librdkafka runs in this process."""
    kafka = pytest.importorskip("confluent_kafka")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    metadata = cluster.list_topics(timeout=10)
    (broker,) = metadata.brokers.values()
    servers = f"{broker.host}:{broker.port}"
    times = [write("a", hooked=False), write("b", hooked=False)]
    sender = KafkaSender(servers, "commits", 0, "all", 3, 10.0)
    assert len(deliver(table.reload(), sender, since="0").delivered) == 2
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([kafka.TopicPartition("commits", 0, 0)])
    got = consumer.consume(2, timeout=20)
    consumer.close()
    assert [json.loads(message.value())["commitTime"] for message in got] == times
    assert {message.key() for message in got} == {b"orders"}


def test_kafka_that_does_not_answer_leaves_the_commit_undelivered(write: Write, table: HudiTable) -> None:
    pytest.importorskip("confluent_kafka")
    write("a", hooked=False)
    delivery = deliver(table.reload(), KafkaSender("127.0.0.1:9", "commits", -1, "all", 0, 0.5), since="0")
    assert delivery.delivered == ()
    assert isinstance(delivery.error, SyncError)
