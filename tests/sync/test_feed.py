"""Changes are delivered to receivers at least once, commit by commit, from where the last delivery ended."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_storage import FaultyStorage

from skep_format.errors import CorruptFileError, InputError, SkepError, SyncError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.timeline.instant import Action
from skep_sync.feed import feed, receiver_of
from skep_sync.feed.receivers import CommitChanges, FolderReceiver, HttpReceiver, KafkaReceiver
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.transaction import Transaction
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("name", pa.string())])
Json = dict[str, Any]


def frame(**rows: str) -> pa.Table:
    return pa.table({"id": list(rows), "name": list(rows.values())}, SCHEMA)


@pytest.fixture(params=[6, 9])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
    properties = {"hoodie.table.cdc.enabled": "true"}
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), version=request.param, properties=properties)
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(made).upsert(frame(a="1", b='"\n{ü}'))
    LocalWriter(made).upsert(frame(a="2"))
    return made


@dataclass
class Received:
    """What a receiver got. It fails at the commit number `fails_at`, once."""

    address: str = "somewhere"
    fails_at: int = -1
    commits: list[list[Json]] = field(default_factory=list)

    def send(self, changes: CommitChanges) -> int:
        lines = [json.loads(line) for lines in changes.lines for line in lines.to_pylist()]
        if len(self.commits) == self.fails_at:
            self.fails_at = -1
            raise SyncError("no")
        self.commits.append(lines)
        return len(lines)

    @property
    def short(self) -> list[list[tuple[str, str | None, str | None]]]:
        def name(image: Json | None) -> str | None:
            return image and image["name"]

        return [[(line["op"], name(line["before"]), name(line["after"])) for line in each] for each in self.commits]


FIRST = [("i", None, "1"), ("i", None, '"\n{ü}')]
SECOND = [("u", "1", "2")]


def test_the_next_delivery_goes_on_behind_the_last(table: HudiTable) -> None:
    receiver = Received()
    assert [fed.changes for fed in feed(table, receiver)] == [2, 1]
    assert receiver.short == [FIRST, SECOND]
    assert not list(feed(table, receiver))
    LocalWriter(table).delete(frame(a=""))
    assert [fed.changes for fed in feed(table, receiver)] == [1]
    assert receiver.short[2:] == [[("d", "2", None)]]


def test_a_commit_that_was_not_delivered_is_sent_again(table: HudiTable) -> None:
    receiver = Received(fails_at=1)
    with pytest.raises(SyncError):
        list(feed(table, receiver))
    assert receiver.short == [FIRST]
    list(feed(table, receiver))
    assert receiver.short == [FIRST, SECOND]


def test_consumers_have_positions_of_their_own(table: HudiTable) -> None:
    receiver = Received()
    list(feed(table, receiver, consumer="one"))
    list(feed(table, receiver, consumer="two"))
    list(feed(table, receiver, consumer="one"))
    assert receiver.short == [FIRST, SECOND, FIRST, SECOND]


def test_since_begins_anywhere(table: HudiTable) -> None:
    receiver = Received()
    (first, _) = feed(table, receiver)
    assert [fed.changes for fed in feed(table, receiver, since=first.position)] == [1]
    assert receiver.short == [FIRST, SECOND, SECOND]


def test_nothing_is_passed_by_a_write_that_is_under_way(table: HudiTable) -> None:
    """Of version 6: ranges are of requested times there, and the write may complete before its position."""
    receiver = Received()
    with Transaction.begin(table, Action.COMMIT):
        LocalWriter(table).upsert(frame(a="3"))
        sent = [fed.changes for fed in feed(table, receiver)]
    assert sent == ([2, 1] if table.config.version == 6 else [2, 1, 1])
    list(feed(table, receiver))
    assert receiver.short == [FIRST, SECOND, [("u", "2", "3")]]


def test_a_file_for_each_commit(table: HudiTable, tmp_path: Path) -> None:
    receiver = receiver_of(str(tmp_path / "out"), Options({}), io.BytesIO)
    assert isinstance(receiver, FolderReceiver)
    sent = list(feed(table, receiver))
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"{fed.instant}.jsonl" for fed in sent]
    found = [json.loads(line)["op"] for file in files for line in file.read_text().splitlines()]
    assert found == ["i", "i", "u"]


def test_a_file_that_is_there_was_delivered_before(table: HudiTable, tmp_path: Path) -> None:
    """A process that died between the file and its position sends the commit again."""
    receiver = receiver_of(str(tmp_path / "out"), Options({}), io.BytesIO)
    list(feed(table, receiver))
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    list(feed(table, receiver, since="000"))
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


@pytest.fixture
def service() -> Iterator[Callable[..., Any]]:
    """An HTTP service with these statuses, one a request; then 204."""
    servers: list[ThreadingHTTPServer] = []

    def start(*statuses: int) -> tuple[str, list[tuple[Json, list[Json]]]]:
        got: list[tuple[Json, list[Json]]] = []
        waiting = list(statuses)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status = waiting.pop(0) if waiting else 204
                if status == 204:
                    got.append((dict(self.headers), [json.loads(line) for line in body.splitlines()]))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/changes", got

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class NoPauses:
    """A clock that does not wait."""

    def sleep(self, seconds: float) -> None:
        assert seconds > 0


def test_posts_are_repeated_while_the_service_fails(table: HudiTable, service: Callable[..., Any]) -> None:
    url, got = service(503, 429, 500)
    receiver = HttpReceiver(url, token="secret", clock=NoPauses())  # type: ignore[arg-type]
    sent = list(feed(table, receiver))
    assert [[line["op"] for line in lines] for _, lines in got] == [["i", "i"], ["u"]]
    headers = got[0][0]
    assert (headers["Skep-Table"], headers["Skep-Instant"], headers["Skep-Part"]) == ("t", str(sent[0].instant), "0")
    assert headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(("statuses", "retries"), [((404,), 5), ((503, 503, 503), 2)])
def test_a_service_that_refuses_is_an_error(
    table: HudiTable, service: Callable[..., Any], statuses: tuple[int, ...], retries: int
) -> None:
    url, got = service(*statuses)
    receiver = HttpReceiver(url, retries=retries, clock=NoPauses())  # type: ignore[arg-type]
    with pytest.raises(SyncError, match=f"status {statuses[0]}"):
        list(feed(table, receiver))
    assert not got
    assert [fed.changes for fed in feed(table, receiver)] == [2, 1]


def test_no_service_is_an_error(table: HudiTable) -> None:
    receiver = HttpReceiver("http://127.0.0.1:1/", retries=1, clock=NoPauses())  # type: ignore[arg-type]
    with pytest.raises(SyncError):
        list(feed(table, receiver))


def test_addresses() -> None:
    kafka = receiver_of("kafka://one:9092,two:9092/changes", Options({}), io.BytesIO)
    assert isinstance(kafka, KafkaReceiver)
    assert (kafka.servers, kafka.topic) == ("one:9092,two:9092", "changes")
    with pytest.raises(InputError):
        receiver_of("kafka://one:9092", Options({}), io.BytesIO)
    assert receiver_of("-", Options({}), io.BytesIO).address == ""


def test_a_position_that_can_not_be_read_is_an_error(table: HudiTable) -> None:
    receiver = Received()
    list(feed(table, receiver))
    (position,) = (Path(table.storage.root) / ".hoodie/.skep/changes").iterdir()
    position.write_text("{}")
    with pytest.raises(CorruptFileError):
        list(feed(table, receiver))


@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
def test_a_fault_at_any_call_loses_no_change(table: HudiTable, dies: bool) -> None:
    at = 1
    while True:
        consumer, receiver = f"{dies}-{at}", Received()
        storage = FaultyStorage(table.storage.root, at, dies=dies)
        with contextlib.suppress(SkepError):
            list(feed(HudiTable.open(storage), receiver, consumer=consumer))
        list(feed(table, receiver, consumer=consumer))
        commits = receiver.short
        assert commits[0] == FIRST
        assert [each for number, each in enumerate(commits) if each not in commits[:number]] == [FIRST, SECOND]
        if not storage.hit:
            break
        at += 1
    assert at > 3


def test_kafka_gets_a_message_for_each_change(table: HudiTable) -> None:
    """Over the wire, to brokers that librdkafka runs in this process."""
    kafka = pytest.importorskip("confluent_kafka")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    receiver = receiver_of(f"kafka://{servers}/changes", Options({}), io.BytesIO)
    assert [fed.changes for fed in feed(table, receiver)] == [2, 1]
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["changes"])
    messages = consumer.consume(3, timeout=30)
    consumer.close()
    assert [json.loads(message.value())["op"] for message in messages] == ["i", "i", "u"]
    assert {message.key() for message in messages} == {b"t"}
    assert not list(feed(table, receiver))


def test_kafka_that_does_not_answer_is_an_error(table: HudiTable) -> None:
    pytest.importorskip("confluent_kafka")
    receiver = KafkaReceiver("127.0.0.1:9", "changes", retries=0, timeout_seconds=0.5)
    with pytest.raises(SyncError):
        list(feed(table, receiver))
    assert [fed.changes for fed in feed(table, Received(receiver.address))] == [2, 1]
