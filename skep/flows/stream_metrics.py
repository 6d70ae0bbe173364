"""Streams as Prometheus metrics: a listener of their events, and the endpoints of `skep stream --metrics-port`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from skep_stream.protocols import SINCE
from skep_table.events import Event, Listener
from skep_table.metrics.endpoints import acquire, release

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SECONDS: Final = (0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_WAITING: Final = "waiting_"


class StreamMetrics:
    """`skep.Streamer(…).stream.events.listen(StreamMetrics(registry))`. The label of each metric is the table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"skep_stream_{name}", text, ["table", *labels], registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"skep_stream_{name}", text, ["table"], registry=registry)

        def seconds(part: str, text: str) -> Histogram:
            return Histogram(f"skep_stream_{part}_seconds", text, ["table"], buckets=_SECONDS, registry=registry)

        self._gauge = gauge
        self._rounds = count("rounds", "Rounds by outcome: committed, unchanged, failed.", "outcome")
        self._rows = count("rows", "Rows that were committed.")
        self._rejected = count("rejected_records", "Records of committed rounds that could not be read.")
        self._failures = count("lag_failures", "Measurements of the lag that failed.")
        self._seconds = {
            "stream.round": seconds("round", "How long rounds took."),
            "stream.fetch": seconds("fetch", "How long it took to read the source."),
            "stream.write": seconds("write", "How long it took to commit the rows."),
        }
        self._committed = gauge("last_commit_timestamp_seconds", "When the newest commit of the stream was made.")
        self._lag = gauge("lag_seconds", "The age of the oldest record that waits in the source; 0: none waits.")
        self._waiting: dict[str, Gauge] = {}
        self._since: dict[str, float] = {}
        self._newest: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        facts, table = event.facts, str(event.facts.get("table", ""))
        if event.seconds is not None and event.name in self._seconds:
            self._seconds[event.name].labels(table).observe(event.seconds)
        match event.name:
            case "stream.round.start":  # a rate needs the zero before the first
                for outcome in ("committed", "unchanged", "failed"):
                    self._rounds.labels(table, outcome)
                for counter in (self._rows, self._rejected, self._failures):
                    counter.labels(table)
            case "stream.round":
                self._rounds.labels(table, "committed" if facts["committed"] else "unchanged").inc()
                self._rows.labels(table).inc(_number(facts["rows"]))
                self._rejected.labels(table).inc(_number(facts["rejected"]))
                if facts["committed"]:
                    self._commit(table, time.time())
            case "stream.round.failed":
                self._rounds.labels(table, "failed").inc()
            case "stream.lag":
                self._measured(table, facts)
            case "stream.lag.failed":
                self._failures.labels(table).inc()

    def _measured(self, table: str, facts: Mapping[str, object]) -> None:
        if facts.get("last_commit") is not None:
            self._commit(table, _number(facts["last_commit"]) / 1000)
        waits = {name: _number(value) for name, value in facts.items() if _is_count(name, value)}
        for name, number in waits.items():
            if name not in self._waiting:
                what = name.removeprefix(_WAITING)
                self._waiting[name] = self._gauge(name, f"How many {what} wait in the source.")
            self._waiting[name].labels(table).set(number)
        if SINCE in facts:
            since = facts[SINCE]
            self._since[table] = (math.nan if any(waits.values()) else math.inf) if since is None else _number(since)
            self._lag.labels(table).set_function(lambda: self._age(table))

    def _age(self, table: str) -> float:
        """At the time of a scrape: what waits grows older between two measurements."""
        age = time.time() - self._since[table] / 1000
        return age if math.isnan(age) else max(age, 0.0)

    def _commit(self, table: str, moment: float) -> None:
        self._newest[table] = max(moment, self._newest.get(table, 0.0))
        self._committed.labels(table).set(self._newest[table])


def _is_count(name: str, value: object) -> bool:
    return name.startswith(_WAITING) and name != SINCE and isinstance(value, int)


def _number(value: object) -> float:
    return float(str(value))


@contextmanager
def metrics_servers(ready: Callable[[str], object]) -> Iterator[Callable[[int], Listener]]:
    """The listener whose metrics a port shows, at endpoints of ports that the streams and tables of a process share.

    InputError where the port can't be had. The end of the block releases the endpoints; `ready` is called with the
    address of each.
    """
    guard = threading.Lock()
    with ExitStack() as stack:

        @cache
        def served(port: int) -> Listener:
            endpoint = acquire(port)
            stack.callback(release, endpoint)
            from prometheus_client import CollectorRegistry

            from skep.base.lock_metrics import LockMetrics

            registry = CollectorRegistry()
            streams, locks = StreamMetrics(registry), LockMetrics(registry)
            endpoint.registry.register(registry)
            stack.callback(endpoint.registry.unregister, registry)
            ready(endpoint.url)

            def listen(event: Event) -> None:
                streams(event)
                locks(event)

            return listen

        def of_port(port: int) -> Listener:
            with guard:
                return served(port)

        yield of_port
