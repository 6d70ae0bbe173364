"""The messages of commit callbacks and their receivers: an HTTP service, a Kafka topic, what an entry point makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from skep_format.errors import SyncError, UnsupportedError
from skep_format.options import Options, of_option
from skep_format.timeline.codec import encode_json
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_sync.callbacks import options as keys
from skep_sync.callbacks.kafka import send_to_topic
from skep_table.plug_ins import plug_in

GROUP: Final = "skep.callbacks"
KEY_HEADER: Final = "HUDI-CALLBACK-KEY"
_WHO: Final = "commit callbacks need"


@dataclass(frozen=True, slots=True)
class CallbackMessage:
    """One commit. A message may come more than once: `event_id` is the same each time."""

    base_path: str
    table_name: str
    instant: Instant
    metadata: CommitMetadata

    @property
    def event_id(self) -> str:
        """The same for each repetition of a message."""
        return f"{self.base_path}@{self.instant.requested_time}"

    def record(self) -> Mapping[str, Any]:
        """Hudi's fields first. Action and extra metadata, which Hudi's message loses, come with their values."""
        commit = json.loads(encode_json(self.metadata))
        return {
            "commitTime": self.instant.requested_time,
            "tableName": self.table_name,
            "basePath": self.base_path,
            "hoodieWriteStat": [stat for stats in commit["partitionToWriteStats"].values() for stat in stats],
            "commitActionType": self.instant.action.value,
            "extraMetadata": commit["extraMetadata"],
            "eventId": self.event_id,
            "eventVersion": 1,
            "operationType": commit["operationType"],
            "partitions": list(self.metadata.partitions),
        }

    def text(self) -> bytes:
        """The message as JSON."""
        return json.dumps(self.record(), ensure_ascii=False, separators=(",", ":")).encode()


class Sender(Protocol):
    """Sends to one receiver. `address` identifies it: deliveries are recorded per address."""

    @property
    def address(self) -> str:
        """Identifies the receiver; no secrets."""

    def send(self, message: CallbackMessage) -> None:
        """Returns when the receiver has it. SyncError when it has not, or may not have."""
        ...


@dataclass(frozen=True)
class HttpSender:
    """Posts messages as JSON. Any answer but 2xx counts as not received."""

    url: str
    key: str = of_option(keys.HTTP_KEY)
    timeout_seconds: float = of_option(keys.HTTP_TIMEOUT)
    headers: tuple[tuple[str, str], ...] = of_option(keys.HTTP_HEADERS)

    @property
    def address(self) -> str:
        return self.url

    def send(self, message: CallbackMessage) -> None:
        import httpx

        headers = {KEY_HEADER: self.key, "Content-Type": "application/json; charset=UTF-8", **dict(self.headers)}
        try:
            answer = httpx.post(self.url, content=message.text(), headers=headers, timeout=self.timeout_seconds)
        except httpx.HTTPError as error:
            raise _failed(message, self.url, str(error) or type(error).__name__) from error
        if not answer.is_success:
            raise _failed(message, self.url, f"status {answer.status_code}")


@dataclass(frozen=True)
class KafkaSender:
    """Messages have the table's name as their key, so those of one table stay in order."""

    servers: str
    topic: str
    partition: int = of_option(keys.KAFKA_PARTITION)
    acks: str = of_option(keys.KAFKA_ACKS)
    retries: int = of_option(keys.KAFKA_RETRIES)
    timeout_seconds: float = of_option(keys.KAFKA_TIMEOUT)

    @property
    def address(self) -> str:
        return f"{self.servers}/{self.topic}"

    def send(self, message: CallbackMessage) -> None:
        send_to_topic(
            self.servers,
            self.topic,
            message.table_name,
            [message.text()],
            {"acks": self.acks, "retries": self.retries, "message.max.bytes": 100_000_000},
            timeout_seconds=self.timeout_seconds,
            failed=partial(_failed, message, self.address),
            log="skep.callbacks.kafka",
            partition=self.partition,
        )


@dataclass(frozen=True)
class FunctionSender:
    """A plug-in: called with the message's record; what it raises means that it was not received."""

    name: str
    function: Callable[[Mapping[str, Any]], object]

    @property
    def address(self) -> str:
        return f"{GROUP}:{self.name}"

    def send(self, message: CallbackMessage) -> None:
        try:
            self.function(message.record())
        except Exception as error:
            raise _failed(message, self.address, repr(error)) from error


def sender_of(options: Options) -> Sender:
    """The sender by the options. OptionError for what is missing, UnsupportedError for a class that is not there.

    An entry point of the group `skep.callbacks` is called with the options and returns the function to be called.
    """
    named = options.value(keys.CLASS)
    match named.rpartition(".")[2]:
        case "HoodieWriteCommitHttpCallback":
            return options.read(HttpSender, url=options.needed(keys.HTTP_URL, _WHO))
        case "HoodieWriteCommitKafkaCallback":
            servers, topic = (options.needed(each, _WHO) for each in (keys.KAFKA_SERVERS, keys.KAFKA_TOPIC))
            return options.read(KafkaSender, servers=servers, topic=topic)
    made = plug_in(GROUP, named)
    if made is not None:
        return FunctionSender(named, made(options))
    raise UnsupportedError(
        f"there is no callback {named}",
        hint=f"Hudi's HTTP and Kafka callbacks are built in; register others in entry point group {GROUP!r}",
        found=named,
    )


def _failed(message: CallbackMessage, address: str, why: str) -> SyncError:
    problem = f"commit {message.instant.requested_time} could not be sent to {address}: {why}"
    return SyncError.of_table(message.table_name, problem, instant=message.instant.requested_time, address=address)
