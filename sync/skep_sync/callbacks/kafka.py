"""Messages to a Kafka topic, which has them once the call returns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from skep_format.errors import SyncError, needs


def send_to_topic(
    servers: str,
    topic: str,
    key: str,
    texts: Iterable[str | bytes],
    settings: dict[str, object],
    *,
    timeout_seconds: float,
    failed: Callable[[str], SyncError],
    log: str,
    partition: int = -1,
) -> int:
    """Sends messages of one key, which stay in order, to any partition or the given one; returns their number.

    Raises what `failed` makes of the reason. librdkafka's own lines go to `log`, not to stderr.
    """
    with needs("kafka", "confluent_kafka is not installed", package="confluent_kafka"):
        from confluent_kafka import KafkaException, Producer
    failures, sent = list[str](), 0

    def report(error: object, _message: object) -> None:
        if error:
            failures.append(str(error))

    common = {"bootstrap.servers": servers, "message.timeout.ms": int(timeout_seconds * 1000)}
    try:
        producer = Producer({**common, **settings}, logger=logging.getLogger(log))
        for text in texts:  # the client takes one message a call
            try:
                producer.produce(topic, text, key, partition, report)
            except BufferError:  # its queue is full
                producer.flush(timeout_seconds)
                producer.produce(topic, text, key, partition, report)
            producer.poll(0)
            sent += 1
            if failures:
                break
        left = producer.flush(timeout_seconds + 1)
    except (KafkaException, BufferError) as error:
        raise failed(str(error)) from error
    if failures or left:
        raise failed(failures[0] if failures else "no answer")
    return sent
