"""The values of each reporter, and when they are sent: by a thread, and at the end of the process."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from skep_table.metrics.reporters import ReportedValues, Reporter

log = logging.getLogger("skep.metrics")


class MetricsChannel:
    """The values of one reporter, of all tables that use it. A reporter that fails is logged once, and goes on."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._gauges: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._guard, self._sending = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._has_failed = False
        if reporter.period_seconds is not None:
            threading.Thread(target=self._repeat, args=(reporter.period_seconds,), daemon=True).start()

    def add(self, gauges: Mapping[str, int], counts: Iterable[str]) -> None:
        """Takes values over, and sends them where the reporter has no period."""
        with self._guard:
            self._gauges.update(gauges)
            self._counts.update(counts)
        if self._reporter.period_seconds is None:
            self.send()

    def values(self) -> ReportedValues:
        """Those of now."""
        with self._guard:
            return ReportedValues(dict(self._gauges), dict(self._counts))

    def send(self) -> None:
        """Sends the values of now."""
        with self._sending:
            self._try(lambda: self._reporter.send(self.values()))

    def end(self) -> None:
        """Sends the last values."""
        self._ended.set()
        self.send()
        with self._sending:
            self._try(self._reporter.close)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a reporter raises, no write fails for it
            if not self._has_failed:
                self._has_failed = True
                kind, address = type(self._reporter).__name__, self._reporter.address
                log.warning("metrics can't be reported to %s at %s: %s", kind, address, error)

    def _repeat(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            self.send()


_channels: dict[Reporter, MetricsChannel] = {}
_guard = threading.Lock()
os.register_at_fork(after_in_child=_channels.clear)  # they are the parent's, and so are their threads


def channel_of(reporter: Reporter) -> MetricsChannel:
    """The channel of a reporter; equal reporters share one."""
    with _guard:
        if reporter not in _channels:
            _channels[reporter] = MetricsChannel(reporter)
        return _channels[reporter]


def _all() -> list[MetricsChannel]:
    with _guard:
        return list(_channels.values())


def metrics() -> dict[str, int]:
    """The values of all metrics that this process has reported so far, by their names in Hudi."""
    found: dict[str, int] = {}
    for values in (channel.values() for channel in _all()):
        found |= {**values.gauges, **values.counts}
    return found


def flush_metrics() -> None:
    """Sends all values now, as reporters with a period do at its end."""
    for channel in _all():
        channel.send()


@atexit.register
def end_metrics() -> None:
    """Sends the last values and closes all reporters; later commits begin with new ones."""
    with _guard:
        channels = list(_channels.values())
        _channels.clear()
    for channel in channels:
        channel.end()
