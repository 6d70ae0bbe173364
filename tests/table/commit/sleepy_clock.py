"""A clock whose sleeps take no time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


class SleepyClock:
    """The real time, and how long one has slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(seconds=self.slept)

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
