"""A stream that goes on: rounds until it is stopped or has ended, and sources that are read again after a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from skep_format.clock import Clock
from skep_format.errors import SkepError
from skep_stream.protocols import Batch, Follower, Position, Source
from skep_stream.rounds import Round, Stream
from skep_stream.shares import SharedTurns, Work
from skep_stream.status import Measured

log = logging.getLogger("skep.stream")
HasEnded = Callable[[Round], bool]
Turn = Callable[[], AbstractContextManager[None]]


class NoNewData:
    """NoNewDataTerminationStrategy: ends after so many rounds in a row without new rows."""

    def __init__(self, rounds: int) -> None:
        self._most = rounds
        self._idle = 0

    def __call__(self, done: Round) -> bool:
        """Whether that was the last round."""
        self._idle = 0 if done.result is not None else self._idle + 1
        return self._idle >= self._most


def never(_done: Round) -> bool:
    """For a stream that ends when it is stopped."""
    return False


@dataclass(frozen=True, slots=True)
class Retrying:
    """A source that is read again when it fails, `times` times, after `seconds` each."""

    source: Source
    times: int
    seconds: float
    stop: threading.Event

    def fetch(self, last: Position, limit: int) -> Batch:
        """What the source fetches. The last of its errors when all attempts fail."""
        for attempt in range(self.times):
            try:
                return self.source.fetch(last, limit)
            except SkepError as error:
                log.warning("the source failed, attempt %d of %d: %s", attempt + 1, self.times + 1, error.message)
                if self.stop.wait(self.seconds):
                    raise
        return self.source.fetch(last, limit)

    def committed(self, checkpoint: str) -> None:
        """See `Follower`."""
        if isinstance(self.source, Follower):
            self.source.committed(checkpoint)

    def waiting(self, last: Position) -> Mapping[str, object]:
        """See `Measured`."""
        return self.source.waiting(last) if isinstance(self.source, Measured) else {}


def run(
    stream: Stream,
    clock: Clock,
    *,
    interval: float,
    has_ended: HasEnded,
    stop: threading.Event,
    turn: Turn = nullcontext,
    shared: SharedTurns | None = None,
) -> Iterator[Round]:
    """Rounds, `interval` seconds apart at least, until `stop` is set or `has_ended`; a round is never cut short.

    Each runs within a `turn`, and before it waits for one that is `shared` with services of its table. An error ends
    the stream: its round left the table as it was.
    """
    mine = nullcontext if shared is None else partial(shared.turn, Work.ROUND)
    rest = nullcontext if shared is None else shared.rest
    try:
        while not stop.is_set():
            with mine(), turn():
                if stop.is_set():  # while it waited for its turn
                    return
                start = clock.monotonic()
                done = stream.run_once()
            yield done
            pause = max(interval - (clock.monotonic() - start), 0)
            if pause:
                rest()
            if has_ended(done) or stop.wait(pause):
                return
    finally:
        rest()
