"""Where changes go: a stream, files in a folder, posts to an HTTP service, messages of a Kafka topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import IO, Any, Final, Protocol
from urllib.parse import urlsplit

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.distribution import install_command
from skep_format.errors import AlreadyExistsError, EnvironmentMissingError, InputError, SyncError
from skep_format.options import Options, at_least, option
from skep_format.storage import Storage, open_storage
from skep_sync.feed.lines import CommitChanges, joined

RETRIES = option("skep.changes.retries", at_least(0), 5, "How often a post of changes is repeated")
TIMEOUT = option("skep.changes.timeout.seconds", float, 30.0, "How long a receiver of changes may take to answer")
TOKEN = option("skep.changes.http.token", str, "", "Sent to a receiver as `Authorization: Bearer …`", secret=True)
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500


class Receiver(Protocol):
    """Takes the changes of one commit after the other. `address` identifies it: positions are kept per address,
    none for an empty one.
    """

    @property
    def address(self) -> str:
        """Identifies the receiver; no secrets."""
        ...

    def send(self, changes: CommitChanges) -> int:
        """Returns their number when the receiver has them all. SyncError when it has not, or may not have."""
        ...


@dataclass(frozen=True)
class StreamReceiver:
    """Lines on a stream, such as standard output."""

    stream: IO[bytes]
    address: str = ""

    def send(self, changes: CommitChanges) -> int:
        sent = 0
        for lines in changes.lines:
            self.stream.write(joined(lines))
            sent += len(lines)
        self.stream.flush()
        return sent


@dataclass(frozen=True)
class FolderReceiver:
    """One file a commit, `<instant>.jsonl`, which is there as a whole or not at all."""

    storage: Storage

    @property
    def address(self) -> str:
        return self.storage.root

    def send(self, changes: CommitChanges) -> int:
        name = f"{changes.instant}.jsonl"
        written = f".{name}.part" if self.storage.flags.atomic_rename else name
        sent = 0
        with self.storage.open_write(written) as file:
            for lines in changes.lines:
                file.write(joined(lines))
                sent += len(lines)
        self.storage.sync([written])
        if written != name:
            try:
                self.storage.rename(written, name)
            except AlreadyExistsError:  # a run that was killed before it recorded its position
                self.storage.delete(written)
            self.storage.sync([name])
        return sent


@dataclass(frozen=True)
class HttpReceiver:
    """Posts lines of JSON, a commit in one or more parts, which headers number. Repeats what may succeed later."""

    url: str
    token: str = ""
    retries: int = RETRIES.default
    timeout_seconds: float = TIMEOUT.default
    clock: Clock = SYSTEM_CLOCK

    @property
    def address(self) -> str:
        return self.url

    def send(self, changes: CommitChanges) -> int:
        import httpx

        sent = 0
        with httpx.Client(timeout=self.timeout_seconds) as client:
            for part, lines in enumerate(changes.lines):
                headers = {
                    "Content-Type": "application/x-ndjson",
                    "Skep-Table": changes.table_name,
                    "Skep-Instant": str(changes.instant),
                    "Skep-Part": str(part),
                    **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
                }
                self._post(client, headers, joined(lines), changes)
                sent += len(lines)
        return sent

    def _post(self, client: Any, headers: dict[str, str], body: bytes, changes: CommitChanges) -> None:
        import httpx

        for pause in _pauses(self.retries):
            try:
                answer = client.post(self.url, content=body, headers=headers)
            except httpx.HTTPError as error:
                why, again = str(error) or type(error).__name__, True
            else:
                if answer.is_success:
                    return
                why = f"status {answer.status_code}"
                again = answer.status_code == _TOO_MANY or answer.status_code >= _SERVER_ERRORS
            if pause is None or not again:
                raise _failed(changes, self.url, why)
            self.clock.sleep(pause)


@dataclass(frozen=True)
class KafkaReceiver:
    """A message for each change, with the table's name as its key: those of one table stay in order."""

    servers: str
    topic: str
    retries: int = RETRIES.default
    timeout_seconds: float = TIMEOUT.default

    @property
    def address(self) -> str:
        return f"kafka://{self.servers}/{self.topic}"

    def send(self, changes: CommitChanges) -> int:
        try:
            from confluent_kafka import KafkaException, Producer
        except ImportError as error:
            raise EnvironmentMissingError(
                "confluent_kafka is not installed", hint=install_command("kafka"), package="confluent_kafka"
            ) from error
        failures: list[str] = []
        settings = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": True,  # its own repeats keep the order
            "retries": self.retries,
            "message.timeout.ms": int(self.timeout_seconds * 1000),
        }
        sent = 0
        try:
            producer = Producer(settings, logger=logging.getLogger("skep.changes.kafka"))
            for lines in changes.lines:
                self._produce(producer, changes, lines.to_pylist(), failures)
                sent += len(lines)
                if failures:
                    break
            left = producer.flush(self.timeout_seconds + 1)
        except (KafkaException, BufferError) as error:
            raise _failed(changes, self.address, str(error)) from error
        if failures or left:
            raise _failed(changes, self.address, failures[0] if failures else "no answer")
        return sent

    def _produce(self, producer: Any, changes: CommitChanges, lines: list[str], failures: list[str]) -> None:
        def report(error: object, _message: object) -> None:
            if error:
                failures.append(str(error))

        for line in lines:  # the client takes one message a call
            try:
                producer.produce(self.topic, line, changes.table_name, on_delivery=report)
            except BufferError:  # its queue is full
                producer.flush(self.timeout_seconds)
                producer.produce(self.topic, line, changes.table_name, on_delivery=report)
            producer.poll(0)


def receiver_of(target: str, options: Options, stream: Callable[[], IO[bytes]]) -> Receiver:
    """The receiver of an address: `-` for the stream, http(s)://…, kafka://servers/topic, else a folder.

    InputError for an address that lacks a part.
    """
    retries, timeout = options.value(RETRIES), options.value(TIMEOUT)
    kind = urlsplit(target).scheme.lower()
    if target == "-":
        return StreamReceiver(stream())
    if kind in ("http", "https"):
        return HttpReceiver(target, options.value(TOKEN), retries, timeout)
    if kind == "kafka":
        servers, _, topic = target.partition("://")[2].partition("/")
        if not servers or not topic:
            raise InputError(f"{target} names no topic", option="to", expected="kafka://host:port,…/topic")
        return KafkaReceiver(servers, topic, retries, timeout)
    return FolderReceiver(open_storage(target, options))


def _pauses(retries: int) -> Iterator[float | None]:
    """The pause after each attempt in seconds, None after the last one."""
    for number in count():
        if number >= retries:
            yield None
            return
        yield min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**number)


def _failed(changes: CommitChanges, address: str, why: str) -> SyncError:
    return SyncError(
        f"table {changes.table_name}: the changes of {changes.instant} could not be sent to {address}: {why}",
        table=changes.table_name,
        instant=changes.instant,
        address=address,
    )
