"""Of which commits a read wants rows: some by name, and all that were archived within a range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import BEFORE_ALL, InstantTime


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """The requested times of commits: `named` ones, and those after `after` and before `before`, both exclusive.

    Whatever was written before the start of the active timeline is committed, also where the archive has lost it.
    """

    named: frozenset[InstantTime]
    after: InstantTime = BEFORE_ALL
    before: InstantTime = BEFORE_ALL

    @classmethod
    def of(
        cls, times: Iterable[InstantTime], after: InstantTime = BEFORE_ALL, before: InstantTime = BEFORE_ALL
    ) -> CommitTimes:
        """These instants, and those between `after` and `before`."""
        return cls(frozenset(times), after, before)

    @property
    def last(self) -> InstantTime | None:
        """The latest of the named ones."""
        return max(self.named, default=None)

    def includes(self, time: InstantTime) -> bool:
        """Whether rows of this commit are wanted."""
        return time in self.named or time.is_between(self.after, self.before)

    def mask(self, times: pa.Array) -> pa.Array:
        """Row by row whether a commit time is one of them."""
        found = pc.is_in(times, value_set=pa.array(sorted(self.named), pa.string()))
        if self.after.is_before(self.before):
            found = pc.or_(found, pc.and_(pc.greater(times, self.after), pc.less(times, self.before)))
        return pc.fill_null(found, False)
