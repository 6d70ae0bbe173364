"""Options of commit callbacks, by Hudi's names."""

from __future__ import annotations

from skep_format.options import boolean, option

_PREFIX = "hoodie.write.commit.callback."
_HTTP_CLASS = "org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback"


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """`Name:value;Name:value`; values may hold colons."""
    pairs = [part.partition(":") for part in text.split(";") if part.strip()]
    if not all(colon and name.strip() and value.strip() for name, colon, value in pairs):
        raise ValueError("of the form Name:value;Name:value")
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


_no_headers: tuple[tuple[str, str], ...] = ()
ON = option(f"{_PREFIX}on", boolean, False, "Send each commit to a service")
CLASS = option(
    f"{_PREFIX}class",
    str,
    _HTTP_CLASS,
    "Hudi's callback class (HTTP, Kafka), or the name of an entry point of group skep.callbacks",
)
HTTP_URL = option(f"{_PREFIX}http.url", str, "", "Where commits are posted")
HTTP_KEY = option(
    f"{_PREFIX}http.api.key",
    str,
    "hudi_write_commit_http_callback",
    "Value of the header HUDI-CALLBACK-KEY",
    secret=True,
)
HTTP_TIMEOUT = option(f"{_PREFIX}http.timeout.seconds", float, 3.0, "How long the service may take to answer")
HTTP_HEADERS = option(
    f"{_PREFIX}http.custom.headers", _headers, _no_headers, "More headers: Name:value;Name:value", secret=True
)
KAFKA_SERVERS = option(f"{_PREFIX}kafka.bootstrap.servers", str, "", "Brokers of the topic")
KAFKA_TOPIC = option(f"{_PREFIX}kafka.topic", str, "", "The topic to which commits are sent")
KAFKA_PARTITION = option(
    f"{_PREFIX}kafka.partition", int, -1, "The topic's partition; -1 lets the table's name choose it"
)
KAFKA_ACKS = option(f"{_PREFIX}kafka.acks", str, "all", "Which brokers have to have a message: 0, 1 or all")
KAFKA_RETRIES = option(f"{_PREFIX}kafka.retries", int, 3, "How often a message is sent again")
KAFKA_TIMEOUT = option(
    "skep.callback.kafka.timeout.seconds", float, 10.0, "How long a message may take to be acknowledged"
)
