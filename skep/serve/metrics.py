"""The service's metrics for Prometheus: counters of events, and gauges of what is pending at the time of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skep.base.lock_metrics import LockMetrics
from skep_sync.following.queue import Pending
from skep_sync.sync import SyncReport
from skep_table.events import Event

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """A listener of events with a registry of its own."""

    def __init__(self, pending: Callable[[], Iterable[Pending]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_PendingGauges(pending))
        self.syncs = self._counter("skep_syncs", "Syncs by result: changed, unchanged, failed.", "target", "result")
        self.seconds = Histogram("skep_sync_seconds", "Seconds that a sync took.", ["target"], registry=self.registry)
        self.calls = self._counter("skep_metastore_calls", "Calls that metastores got.", "target")
        self.heard = self._counter("skep_callbacks", "Callbacks by source and result.", "source", "result")
        self.dropped = self._counter("skep_dropped", "Pending syncs of tables that no longer exist.", "target")
        self.after = self._counter("skep_after_commit", "Services after commits, by result.", "result")
        self.rounds = self._counter("skep_watch_rounds", "Rounds of the watcher.")
        self.watch_failures = self._counter("skep_watch_failures", "Tables that could not be looked at.")
        self.watched = Gauge("skep_watched_tables", "Tables that are watched.", registry=self.registry)
        self.locks = LockMetrics(self.registry)

    def __call__(self, event: Event) -> None:
        self.locks(event)
        facts = event.facts
        target = str(facts.get("target", ""))
        match event.name:
            case "service.synced":
                report = facts["report"]
                assert isinstance(report, SyncReport)
                self.syncs.labels(target, "changed" if report.changed else "unchanged").inc()
                self.seconds.labels(target).observe(report.seconds)
                self.calls.labels(target).inc(report.calls)
            case "service.failed":
                self.syncs.labels(target, "failed").inc()
            case "service.dropped":
                self.dropped.labels(target).inc()
            case "service.heard":
                self.heard.labels(str(facts["source"]), str(facts["result"])).inc()
            case "service.after" | "service.after_failed":
                self.after.labels("failed" if event.name.endswith("failed") else "done").inc()
            case "watch.round":
                self.rounds.inc()
                self.watched.set(int(str(facts["tables"])))
            case "watch.failed":
                self.watch_failures.inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


class _PendingGauges(Collector):
    """Computed when they are read."""

    def __init__(self, pending: Callable[[], Iterable[Pending]]) -> None:
        self._pending = pending

    def collect(self) -> Iterator[Metric]:
        now = datetime.now(timezone.utc)
        count: dict[str, int] = {}
        oldest: dict[str, float] = {}
        failing: dict[tuple[str, str], int] = {}
        for one in self._pending():
            count[one.target] = count.get(one.target, 0) + 1
            waits = (now - datetime.fromisoformat(one.latest.received)).total_seconds()
            oldest[one.target] = max(oldest.get(one.target, 0.0), waits)
            if one.failure is not None:
                labels = one.target, one.latest.entry or one.latest.table  # which tables at two paths may share
                failing[labels] = max(failing.get(labels, 0), one.failure.attempts)
        yield _gauge("skep_pending_tables", "Tables that wait for their sync.", count)
        yield _gauge("skep_pending_oldest_seconds", "How long the oldest has been waiting.", oldest)
        yield _gauge("skep_failing_attempts", "Failures in a row.", failing, "table")


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """`values` by target, or by target and the other labels."""
    family = GaugeMetricFamily(name, text, labels=["target", *labels])
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family
