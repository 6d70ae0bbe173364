"""One topic through confluent-kafka: what its partitions hold, and the messages between two offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from skep_format.errors import DataLossError, InputError, SkepError, StorageError
from skep_stream.kafka import messages
from skep_stream.kafka.offsets import Log, OffsetRange, Offsets
from skep_stream.kafka.properties import made

log = logging.getLogger("skep.stream.kafka")
_BATCH: Final = 10_000
_POLL_SECONDS: Final = 0.1
_OWN: Final = {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error"}
"""Offsets are in commits; the end of a partition is reported; offsets that are missing are an error."""
_AHEAD: Final = {"group.id": "skep", "fetch.queue.backoff.ms": 10}
"""The client fetches on as soon as what it holds was taken, where it waits for a second by itself."""
_LITTLE: Final = {"queued.min.messages": "1", "max.partition.fetch.bytes": "4096"}
"""A broker sends a whole batch of messages in any case."""
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id zero."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and the properties of the client that reads it. Each call is a connection of its own."""

    name: str
    properties: Mapping[str, str] = field(repr=False)
    timeout: float = 60.0

    def logs(self) -> dict[int, Log]:
        """What each partition holds. InputError where the topic is not there, StorageError where no broker is."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        with self._errors("list offsets"):
            committed, every = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
            read = every if self.properties.get("isolation.level", "").lower() == "read_uncommitted" else committed
            admin, partitions = self._admin(), self._partitions()
            first = self._offsets(admin, partitions, OffsetSpec.earliest(), every)
            end = self._offsets(admin, partitions, OffsetSpec.latest(), read)
            top = end if read is every else self._offsets(admin, partitions, OffsetSpec.latest(), every)
        return {each: Log(first[each], end[each], max(top[each], end[each])) for each in partitions}

    def identity(self) -> str:
        """What distinguishes this topic from an earlier one of its name; empty where brokers have no such ids."""
        from confluent_kafka import TopicCollection

        with self._errors("describe"):
            admin = self._admin()  # which has to last until it has the result
            asked = admin.describe_topics(TopicCollection([self.name]), request_timeout=self.timeout)
            found = str(asked[self.name].result().topic_id)
        return "" if found == _NO_ID else found

    def at_time(self, milliseconds: int, logs: Mapping[int, Log]) -> dict[int, int]:
        """Of each partition the first offset of that time or later; its end where all messages are older."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        with self._errors("list offsets by time"):
            found = self._offsets(
                self._admin(), list(logs), OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_UNCOMMITTED
            )
        return {each: offset if offset >= 0 else logs[each].end for each, offset in found.items()}

    def committed(self, partitions: list[int]) -> dict[int, int]:
        """The offsets committed for the group; partitions without one are left out."""
        with self._errors("read committed offsets"), self._consumer() as consumer:
            found = consumer.committed([self._partition(each) for each in partitions], timeout=self.timeout)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def commit(self, offsets: Offsets) -> None:
        """Commits offsets for the group. StorageError where the broker does not take them."""
        with self._errors("commit offsets"), self._consumer() as consumer:
            consumer.commit(offsets=[self._partition(*each) for each in offsets.items()], asynchronous=False)

    def read(self, ranges: Mapping[int, OffsetRange]) -> Generator[pa.RecordBatch, None, None]:
        """The messages of these ranges as they arrive; those of a partition in their order.

        DataLossError where they are removed meanwhile, StorageError where none arrives for long.
        """
        wanted = {partition: range for partition, range in ranges.items() if range.count}
        if not wanted:
            return
        with self._errors("read"), self._consumer() as consumer:
            consumer.assign([self._partition(each, range.start) for each, range in wanted.items()])
            yield from self._taken(consumer, wanted)

    def oldest(self, ranges: Mapping[int, OffsetRange]) -> int | None:
        """The least time of the first messages of these ranges, in ms since 1970; None where none has a time.

        Little more is fetched than one message of each partition. See `read`.
        """
        found: dict[int, int] = {}
        wanted = {partition for partition, range in ranges.items() if range.count}
        with closing(replace(self, properties={**self.properties, **_LITTLE}).read(ranges)) as batches:
            for batch in batches:
                for partition, moment in messages.first_times(batch).items():
                    found.setdefault(partition, moment)
                if found.keys() >= wanted:
                    break
        return min((each for each in found.values() if each > 0), default=None)

    def _taken(self, consumer: Any, wanted: Mapping[int, OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Messages as they arrive, until each partition is at its end, which may be a record that is no message."""
        ends = {partition: range.end for partition, range in wanted.items()}
        taken = {partition: range.start for partition, range in wanted.items()}
        left = set(wanted)
        last = monotonic()
        while left:
            arrived = consumer.consume(_BATCH, _POLL_SECONDS)
            if not arrived and monotonic() - last > self.timeout:
                raise StorageError(
                    f"topic {self.name}: no message of partition {min(left)} for {self.timeout:.0f} s, which is read"
                    f" up to offset {ends[min(left)]}",
                    call="read",
                    path=self.name,
                )
            batch = messages.once(messages.of([each for each in arrived if each.error() is None]), taken, ends)
            errors = [each for each in arrived if each.error() is not None]
            at_end = self._ended(errors, wanted) if errors else {}
            ended = {each for each in left if max(taken[each], at_end.get(each, 0)) >= ends[each]}
            if ended:
                consumer.pause([self._partition(each) for each in ended])
                left -= ended
            if batch.num_rows or ended:
                last = monotonic()
                yield batch

    def _ended(self, errors: list[Any], wanted: Mapping[int, OffsetRange]) -> dict[int, int]:
        """Where partitions end, of what is reported as errors."""
        from confluent_kafka import KafkaError

        for each in errors:
            if each.error().code() != KafkaError._PARTITION_EOF:
                self._raise(each.error(), each, wanted)
        return {each.partition(): each.offset() for each in errors}

    def _raise(self, error: Any, message: Any, wanted: Mapping[int, OffsetRange]) -> None:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            partition = message.partition()
            raise DataLossError(
                f"topic {self.name}: partition {partition} no longer has the offsets from {wanted[partition].start}"
                f" to {wanted[partition].end} that were to be read: {error.str()}",
                topic=self.name,
                partitions=(partition,),
            )
        raise StorageError(f"topic {self.name}: {error.str()}", call="read", path=self.name)

    def _partition(self, number: int, offset: int | None = None) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.name, number) if offset is None else TopicPartition(self.name, number, offset)

    def _partitions(self) -> list[int]:
        with self._consumer() as consumer:  # which never makes a topic
            found = consumer.list_topics(self.name, timeout=self.timeout).topics[self.name]
        if found.error is not None or not found.partitions:
            raise InputError(
                f"topic {self.name} is not there" if found.error is None else f"topic {self.name}: {found.error.str()}",
                topic=self.name,
            )
        return sorted(found.partitions)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return made(lambda given: AdminClient(given, logger=log), self.properties)

    def _offsets(self, admin: Any, partitions: list[int], spec: Any, isolation: Any) -> dict[int, int]:
        asked = {self._partition(each): spec for each in partitions}
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=self.timeout)
        return {each.partition: future.result().offset for each, future in found.items()}

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        from confluent_kafka import Consumer

        properties = {**_AHEAD, **self.properties, **_OWN}
        consumer = made(lambda given: Consumer(given, logger=log), properties)
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def _errors(self, call: str) -> Iterator[None]:
        """Errors of the client as StorageError."""
        try:
            yield
        except SkepError:
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("confluent_kafka", "cimpl"):
                raise
            raise StorageError(f"topic {self.name}: can't {call}: {_text(error)}", call=call, path=self.name) from error


def _text(error: Exception) -> str:
    found: Callable[[], str] | None = getattr(error.args[0], "str", None) if error.args else None
    return str(error) if found is None else found()
