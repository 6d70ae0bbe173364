"""Callbacks from Kafka: offsets are committed when callbacks are in the queue, and not before."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from skep.serve import kafka
from skep.serve.kafka import consume
from skep_format.errors import StorageError
from skep_sync.following.allowed import AllowedPaths
from skep_table.events import Event, Events


class Message:
    """A message as the consumer hands it out."""

    def __init__(self, value: bytes | None, error: str | None = None) -> None:
        self._value, self._error = value, error

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> str | None:
        return self._error


class Topic:
    """Stands in for the broker's side: batches of messages, then silence; it notes what is committed when."""

    def __init__(self, ended: threading.Event, *batches: list[Message]) -> None:
        self._batches, self._ended = list(batches), ended
        self.log: list[str] = []

    def subscribe(self, topics: list[str]) -> None: ...

    def consume(self, num_messages: int, timeout: float) -> Sequence[Message]:
        if not self._batches:
            self._ended.set()
            return []
        return self._batches.pop(0)

    def commit(self, *, asynchronous: bool) -> None:
        self.log.append("committed")

    def close(self) -> None:
        self.log.append("closed")


def message_of(path: Path, table: str, instant: str = "20260101") -> Message:
    return Message(json.dumps({"basePath": str(path), "tableName": table, "commitTime": instant}).encode())


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def events(heard: list[str]) -> Events:
    def listen(event: Event) -> None:
        if event.name == "service.heard":
            heard.append(str(event.facts["result"]))

    return Events(listen)


def test_what_is_no_callback_or_not_allowed_is_passed_over(tmp_path: Path, events: Events, heard: list[str]) -> None:
    ended = threading.Event()
    topic = Topic(
        ended,
        [
            message_of(tmp_path / "a", "a"),
            Message(b"{"),
            message_of(Path("/etc"), "b"),
            Message(None),
            Message(None, "a rebalance"),
        ],
        [message_of(tmp_path / "c", "c", "20260102")],
    )

    def submit(path: str, table: str, instant: str | None) -> None:
        topic.log.append(f"{Path(path).name} {table} {instant}")

    consume(topic, AllowedPaths([str(tmp_path)]), submit, events, ended)
    assert topic.log == ["a a 20260101", "committed", "c c 20260102", "committed", "closed"]
    assert heard == ["queued", "refused", "refused", "refused", "queued"]


def test_a_queue_that_is_away_is_waited_for(tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_FIRST_PAUSE_SECONDS", 0.01)
    ended = threading.Event()
    topic = Topic(ended, [message_of(tmp_path / "a", "a")])
    tries = iter([StorageError("away"), OSError("away")])

    def submit(path: str, table: str, instant: str | None) -> None:
        for error in tries:
            topic.log.append("away")
            raise error
        topic.log.append("queued")

    consume(topic, AllowedPaths([str(tmp_path)]), submit, events, ended)
    assert topic.log == ["away", "away", "queued", "committed", "closed"]


def test_what_the_queue_did_not_take_is_not_committed(tmp_path: Path, events: Events) -> None:
    ended = threading.Event()
    topic = Topic(ended, [message_of(tmp_path / "a", "a")])

    def submit(path: str, table: str, instant: str | None) -> None:
        ended.set()
        raise StorageError("away")

    consume(topic, AllowedPaths([str(tmp_path)]), submit, events, ended)
    assert topic.log == ["closed"]


def test_a_commit_of_offsets_that_fails_ends_nothing(tmp_path: Path, events: Events) -> None:
    ended = threading.Event()

    class Rebalancing(Topic):
        def commit(self, *, asynchronous: bool) -> None:
            raise RuntimeError("rebalancing")

    topic = Rebalancing(ended, [message_of(tmp_path / "a", "a")], [message_of(tmp_path / "b", "b")])
    taken: list[str] = []
    consume(topic, AllowedPaths([str(tmp_path)]), lambda _, table, __: taken.append(table), events, ended)
    assert taken == ["a", "b"]
