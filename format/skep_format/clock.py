"""Time as one protocol, so that tests can set, stop and turn back the clock; calls that are repeated as time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import repeat, takewhile
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Clock(Protocol):
    """Wall clock and sleep. Nothing in skep calls `time` or `datetime.now` on a path that tests may want to steer."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class LateClock:
    """Another clock, some seconds behind it."""

    clock: Clock
    seconds: float

    def now(self) -> datetime:
        return self.clock.now() - timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


def doubled(first: float, longest: float, failures: int) -> float:
    """The pause behind so many failures in a row: the `first`, twice as long each time, up to the `longest`."""
    return min(longest, first * 2.0 ** min(failures - 1, 30))


def within(seconds: float, pause: float, clock: Clock = SYSTEM_CLOCK) -> Iterator[float]:
    """Equal pauses for `retried`, until so many seconds from now are over."""
    end = clock.monotonic() + seconds
    return takewhile(lambda _: clock.monotonic() <= end, repeat(pause))


def retried(call: Callable[[], T], failure: type[Exception], pauses: Iterable[float], clock: Clock = SYSTEM_CLOCK) -> T:
    """What `call` returns, which is repeated behind each pause (in seconds) as long as it fails so; then it raises."""
    left = iter(pauses)
    while True:
        try:
            return call()
        except failure:
            pause = next(left, None)
            if pause is None:
                raise
        clock.sleep(pause)
