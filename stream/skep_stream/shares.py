"""Whose turn it is in a continuous stream: rounds, compactions and clusterings share it by weights and least shares."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_format.clock import Clock
from skep_format.errors import OptionError
from skep_stream.flags import Flags

_PATIENCE: Final = 1.0  # seconds: a stream whose caller does not go on keeps no service waiting


class Work(Enum):
    """What takes turns, by the names of Hudi's flags."""

    ROUND = "delta-sync"
    COMPACTION = "compact"
    CLUSTERING = "cluster"


@dataclass(frozen=True, slots=True)
class TurnShare:
    """`weight`: how much of the time it gets beside the others. `least`: so many turns of it never wait for others."""

    weight: int = 1
    least: int = 0


def shares_of(flags: Flags) -> dict[Work, TurnShare]:
    """What the flags give each kind; nothing where none of them is given. OptionError for one that is too small."""

    def number(work: Work, what: str, least: int) -> int:
        argument = f"{work.value.replace('-', '_')}_scheduling_{what}"
        found = flags.number(argument) or 0
        if found < least:
            name = f"--{argument.replace('_', '-')}"
            raise OptionError(f"{name}: {found} is less than {least}", option=name, found=found)
        return found

    shares = {work: TurnShare(number(work, "weight", 1), number(work, "minshare", 0)) for work in Work}
    return shares if any("_scheduling_" in argument for argument in flags.given) else {}


class FairQueue:
    """Decides who begins, and knows no threads and no clock: start-time fair queueing by the seconds that turns took.

    One turn at a time is shared; those within the least share of their kind begin beside it. Of the kinds that want the
    shared turn that one gets it whose time, divided by its weight, is the least. A kind that wanted nothing for a while
    has saved nothing up: it begins where the others are.
    """

    def __init__(self, shares: Mapping[Work, TurnShare]) -> None:
        self._shares = {work: shares.get(work, TurnShare()) for work in Work}
        self._spent = dict.fromkeys(Work, 0.0)  # seconds by weight
        self._reached = 0.0  # what the kind had spent that began last
        self._waiting: Counter[Work] = Counter()
        self._running: Counter[Work] = Counter()
        self._returning: set[Work] = set()

    def wants(self, work: Work) -> None:
        """One more turn of a kind waits."""
        self._arrives(work)
        self._waiting[work] += 1

    def returns(self, work: Work) -> None:
        """A kind wants a turn in a moment: others that are further wait for it until it `rests`, or began again."""
        self._arrives(work)
        self._returning.add(work)

    def rests(self, work: Work) -> None:
        """The kind no longer `returns`."""
        self._returning.discard(work)

    def next(self) -> Work | None:
        """The kind of which a waiting turn may begin now; None: all wait for one that ends, or that returns."""
        wanting = [work for work in Work if self._waiting[work]]
        for work in wanting:
            if self._running[work] < self._shares[work].least:
                return work
        if any(self._running[work] > share.least for work, share in self._shares.items()):
            return None
        wanted = (work for work in Work if work in wanting or work in self._returning)
        best = min(wanted, key=self._spent.__getitem__, default=None)
        return best if best in wanting else None

    def leaves(self, work: Work) -> None:
        """One of its turns waits no longer."""
        self._waiting[work] -= 1

    def begins(self, work: Work) -> None:
        """A turn that waited begins."""
        self._waiting[work] -= 1
        if self._running[work] >= self._shares[work].least:
            self._reached = max(self._reached, self._spent[work])
        self._running[work] += 1
        self._returning.discard(work)

    def ends(self, work: Work, seconds: float) -> None:
        """One of its turns has ended."""
        self._running[work] -= 1
        self._spent[work] += seconds / self._shares[work].weight

    def _arrives(self, work: Work) -> None:
        if not (self._waiting[work] or self._running[work] or work in self._returning):
            self._spent[work] = max(self._spent[work], self._reached)


class SharedTurns:
    """The queue, for the threads of one stream."""

    def __init__(self, shares: Mapping[Work, TurnShare], clock: Clock) -> None:
        self._queue, self._clock = FairQueue(shares), clock
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """Waits for a turn, which ends with the block."""
        with self._changed:
            self._queue.wants(work)
            try:
                while not self._changed.wait_for(lambda: self._queue.next() is work, _PATIENCE):
                    self._queue.rests(Work.ROUND)
                self._queue.begins(work)
            except BaseException:
                self._queue.leaves(work)
                raise
            finally:
                self._changed.notify_all()
        start = self._clock.monotonic()
        try:
            yield
        finally:
            with self._changed:
                if work is Work.ROUND:  # a stream goes on at once, unless it rests
                    self._queue.returns(work)
                self._queue.ends(work, self._clock.monotonic() - start)
                self._changed.notify_all()

    def rest(self) -> None:
        """No round begins before something else happens: others need not wait for it."""
        with self._changed:
            self._queue.rests(Work.ROUND)
            self._changed.notify_all()
