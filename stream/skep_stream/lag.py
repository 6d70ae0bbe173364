"""How far a stream that runs is behind its source, measured beside its rounds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from skep_format.options import at_least, option
from skep_table.events import Events

log = logging.getLogger("skep.stream")
LAG_SECONDS = option(
    "skep.stream.lag.seconds",
    at_least(0),
    15,
    "Of a stream with metrics: what waits in its source is listed so often, beside the rounds; 0: never",
)


class LagWatch:
    """Measures in a thread of its own, at once and then every so many `seconds`, for the time of a block.

    Sends `stream.lag` with the facts, or `stream.lag.failed`: a source that can't be asked fails no round.
    """

    def __init__(self, measure: Callable[[], Mapping[str, object]], events: Events, table: str, seconds: float) -> None:
        self._measure, self._events, self._table, self._seconds = measure, events, table, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"skep-lag-{table}", daemon=True)

    def __enter__(self) -> LagWatch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(1)  # brokers that are away may take a minute: nobody waits for that

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._events.emit("stream.lag", **{**self._measure(), "table": self._table})
            except Exception as error:
                log.info("table %s: what waits in the source can't be measured: %s", self._table, error)
                self._events.emit("stream.lag.failed", table=self._table, error=repr(error))
            self._ended.wait(self._seconds)
