"""Locks and conflicts of writers as Prometheus metrics: a listener, for `skep.connect` and for `skep serve`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from skep_table.events import Event

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900)


class LockMetrics:
    """`skep.connect(listener=LockMetrics(registry))`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def seconds(name: str, text: str) -> Histogram:
            return Histogram(name, text, ["lock"], buckets=_SECONDS, registry=registry)

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._waits = seconds("skep_lock_wait_seconds", "Waits for locks that were granted.")
        self._holds = seconds("skep_lock_held_seconds", "How long locks were held.")
        self._ends = count("skep_lock_failures", "Locks that were lost, broken or timed_out.", "lock", "what")
        self._writes = count("skep_write_conflicts", "Writes that were retried or taken_back.", "what")

    def __call__(self, event: Event) -> None:
        facts = event.facts
        lock = str(facts.get("lock", ""))
        match event.name:
            case "lock.acquired":
                self._waits.labels(lock).observe(float(str(facts["waited_seconds"])))
            case "lock.released" if facts.get("held_seconds") is not None:
                self._holds.labels(lock).observe(float(str(facts["held_seconds"])))
            case "lock.lost" | "lock.broken" | "lock.timed_out":
                self._ends.labels(lock, event.name.removeprefix("lock.")).inc()
            case "write.retried" | "write.taken_back":
                self._writes.labels(event.name.removeprefix("write.")).inc()
