"""Time as one protocol, so that tests can set, stop and turn back the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Wall clock and sleep. Nothing in skep calls `time` or `datetime.now` on a path that tests may want to steer."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread."""
        ...


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
