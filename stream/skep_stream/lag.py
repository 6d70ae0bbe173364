"""How far a stream that runs is behind its source, measured beside its rounds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from skep_format.options import at_least, option
from skep_table.events import Events

log = logging.getLogger("skep.stream")
LAG_SECONDS = option(
    "skep.stream.lag.seconds",
    at_least(0),
    15,
    "Of a stream with metrics: what waits in its source is listed so often, beside the rounds; 0: never",
)


@contextmanager
def lag_watch(
    measure: Callable[[], Mapping[str, object]], events: Events, table: str, seconds: float
) -> Iterator[None]:
    """Measures in a thread of its own, at once and then every so many `seconds`, for the time of a block.

    Sends `stream.lag` with the facts, or `stream.lag.failed`: a source that can't be asked fails no round.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            try:
                events.emit("stream.lag", **{**measure(), "table": table})
            except Exception as error:
                log.info("table %s: what waits in the source can't be measured: %s", table, error)
                events.emit("stream.lag.failed", table=table, error=repr(error))
            ended.wait(seconds)

    thread = threading.Thread(target=run, name=f"skep-lag-{table}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(1)  # brokers that are away may take a minute: nobody waits for that
