"""Where changes go: a stream, files in a folder, posts to an HTTP service, messages of a Kafka topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import IO, Any, Final, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.buffers import joined_lines
from skep_format.clock import SYSTEM_CLOCK, Clock, doubled, retried
from skep_format.errors import AlreadyExistsError, InputError, SyncError
from skep_format.instant_time import InstantTime
from skep_format.logfile.changes import AFTER, BEFORE, OP, TIME
from skep_format.options import Options, at_least, of_option, option
from skep_format.storage import Storage, open_storage
from skep_sync.callbacks.kafka import send_to_topic

RETRIES = option("skep.changes.retries", at_least(0), 5, "How often a post of changes is repeated")
TIMEOUT = option("skep.changes.timeout.seconds", float, 30.0, "How long a receiver of changes may take to answer")
TOKEN = option("skep.changes.http.token", str, "", "Sent to a receiver as `Authorization: Bearer …`", secret=True)
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500


class _MayPassError(Exception):
    """A failure after which the same post may succeed."""


_NULL: Final = "null"
_TEXT: Final = pa.large_string()


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """What one commit changed. `lines` are arrays of texts, read as they are asked for, once."""

    table_name: str
    base_path: str
    instant: InstantTime
    lines: Iterator[pa.Array]


def lines_of(changes: pa.RecordBatch) -> pa.Array:
    """Rows of a CDC query, each as a JSON object."""
    return _side_by_side(
        *(f'{{"{OP}":"', changes.column(OP)),
        *(f'","{TIME}":"', changes.column(TIME)),
        *(f'","{BEFORE}":', pc.fill_null(changes.column(BEFORE), _NULL)),
        *(f',"{AFTER}":', pc.fill_null(changes.column(AFTER), _NULL), "}"),
    )


def joined(lines: pa.Array) -> bytes:
    """One text, a line break behind each line."""
    return joined_lines(lines.cast(_TEXT)).to_pybytes()


def _side_by_side(*parts: pa.Array | str) -> pa.Array:
    large = [pa.scalar(each, _TEXT) if isinstance(each, str) else each.cast(_TEXT) for each in (*parts, "")]
    return pc.binary_join_element_wise(*large)


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
    token: str = of_option(TOKEN)
    retries: int = of_option(RETRIES)
    timeout_seconds: float = of_option(TIMEOUT)
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

        def once() -> None:
            try:
                answer = client.post(self.url, content=body, headers=headers)
            except httpx.HTTPError as error:
                raise _MayPassError(str(error) or type(error).__name__) from error
            if answer.status_code == _TOO_MANY or answer.status_code >= _SERVER_ERRORS:
                raise _MayPassError(f"status {answer.status_code}")
            if not answer.is_success:
                raise _failed(changes, self.url, f"status {answer.status_code}")

        pauses = (doubled(0.5, 30, number) for number in range(1, self.retries + 1))
        try:
            retried(once, _MayPassError, pauses, self.clock)
        except _MayPassError as error:
            raise _failed(changes, self.url, str(error)) from error


@dataclass(frozen=True)
class KafkaReceiver:
    """A message for each change, with the table's name as its key: those of one table stay in order."""

    servers: str
    topic: str
    retries: int = of_option(RETRIES)
    timeout_seconds: float = of_option(TIMEOUT)

    @property
    def address(self) -> str:
        return f"kafka://{self.servers}/{self.topic}"

    def send(self, changes: CommitChanges) -> int:
        return send_to_topic(
            self.servers,
            self.topic,
            changes.table_name,
            chain.from_iterable(lines.to_pylist() for lines in changes.lines),
            {"enable.idempotence": True, "retries": self.retries},  # its own repeats keep the order
            timeout_seconds=self.timeout_seconds,
            failed=partial(_failed, changes, self.address),
            log="skep.changes.kafka",
        )


def receiver_of(target: str, options: Options, stream: Callable[[], IO[bytes]]) -> Receiver:
    """The receiver of an address: `-` for the stream, http(s)://…, kafka://servers/topic, else a folder.

    InputError for an address that lacks a part.
    """
    kind = urlsplit(target).scheme.lower()
    if target == "-":
        return StreamReceiver(stream())
    if kind in ("http", "https"):
        return options.read(HttpReceiver, url=target)
    if kind == "kafka":
        servers, _, topic = target.partition("://")[2].partition("/")
        if not servers or not topic:
            raise InputError(f"{target} names no topic", option="to", expected="kafka://host:port,…/topic")
        return options.read(KafkaReceiver, servers=servers, topic=topic)
    return FolderReceiver(open_storage(target, options))


def _failed(changes: CommitChanges, address: str, why: str) -> SyncError:
    problem = f"the changes of {changes.instant} could not be sent to {address}: {why}"
    return SyncError.of_table(changes.table_name, problem, instant=changes.instant, address=address)
