"""Hudi's commit callbacks from a Kafka topic (HoodieWriteCommitKafkaCallback), into the same queue as those over HTTP.

An offset is committed when its callbacks are in the durable queue. A service that is killed before reads them again,
which does no harm.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skep_format.errors import InputError, SkepError, needs
from skep_sync.following.allowed import AllowedPaths
from skep_sync.following.receiver import parse_callback
from skep_table.events import Events

log = logging.getLogger("skep.serve")

_BATCH = 500
_POLL_SECONDS = 0.5
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """`properties` are librdkafka's: security.protocol, sasl.…"""

    servers: str
    topic: str
    group: str = "skep"
    properties: Mapping[str, str] = field(default_factory=dict)


Submit = Callable[[str, str, str | None], None]
"""Base path, table, instant; returns when they are in the queue."""


def connect(settings: KafkaSettings) -> Any:
    """A confluent_kafka.Consumer of the topic. EnvironmentMissingError without the package."""
    with needs("kafka", "callbacks from Kafka need the package confluent-kafka"):
        import confluent_kafka
    consumer = confluent_kafka.Consumer(
        {
            "auto.offset.reset": "earliest",
            **settings.properties,
            "bootstrap.servers": settings.servers,
            "group.id": settings.group,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([settings.topic])
    return consumer


def consume(consumer: Any, allowed: AllowedPaths, submit: Submit, events: Events, ended: threading.Event) -> None:
    """Takes callbacks until `ended` is set. What is none, or names a path that is not allowed, is passed over."""
    try:
        while not ended.is_set():
            taken = False
            for message in consumer.consume(_BATCH, _POLL_SECONDS):
                if message.error() is not None:
                    log.warning("Kafka: %s", message.error())
                    continue
                if not _take(message.value() or b"", allowed, submit, events, ended):
                    return
                taken = True
            if taken:
                _commit(consumer)
    finally:
        consumer.close()


def _take(body: bytes, allowed: AllowedPaths, submit: Submit, events: Events, ended: threading.Event) -> bool:
    """Whether the callback is settled; False when the service ended before the queue could take it."""
    try:
        callback = parse_callback(body)
        path = allowed.check(callback.base_path)
    except InputError as error:
        log.warning("Kafka: a callback is passed over: %s", error.message)
        events.emit("service.heard", source="kafka", result="refused")
        return True
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            submit(path, callback.table, callback.instant)
        except (SkepError, OSError) as error:
            log.warning("the queue can't be written, again in %.0f s: %s", pause, error)
            if ended.wait(pause):
                return False
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        else:
            events.emit("service.heard", source="kafka", result="queued")
            return True


def _commit(consumer: Any) -> None:
    """A commit that fails (in a rebalance, for example) makes the messages arrive once more."""
    try:
        consumer.commit(asynchronous=False)
    except Exception as error:  # confluent_kafka.KafkaException, which is not imported here
        log.warning("Kafka: offsets could not be committed: %s", error)
