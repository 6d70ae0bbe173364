"""A cluster of Kafka's client within the process: partitions, offsets and messages, without a broker of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PARTITIONS = 4  # of each of its topics


@dataclass(frozen=True)
class Topic:
    """A topic of its own."""

    servers: str
    producer: Any
    name: str

    def put(self, *values: object, partition: int = 0, key: str | bytes | None = None, time: int = 0) -> None:
        """Messages: bytes as they are, None for a tombstone, all else as JSON."""
        for value in values:
            sent = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            more = {"timestamp": time} if time else {}
            self.producer.produce(self.name, sent, key, partition=partition, **more)
        assert self.producer.flush(20) == 0

    def options(self, **more: str) -> dict[str, str]:
        """What a source needs, from the first message on."""
        given = {
            "bootstrap.servers": self.servers,
            "auto.offset.reset": "earliest",
            "hoodie.streamer.source.kafka.topic": self.name,
            "skep.stream.kafka.timeout.seconds": "10",
            "skep.stream.kafka.topic.id": "false",  # this cluster has none
        }
        return {**given, **{name.replace("__", "."): value for name, value in more.items()}}


@contextmanager
def cluster() -> Iterator[Any]:
    """Yields a function that makes topics."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": "1", "log_level": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers)
    yield lambda: Topic(servers, producer, f"t-{uuid.uuid4().hex[:8]}")
