"""What a metastore has of a table, looked up while the files of a commit are written: its sync then waits for less."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from skep_catalog.entities import TableEntry, partition_name
from skep_format.clock import SYSTEM_CLOCK

Registered = dict[tuple[str, ...], str | None]
"""The locations of an entry's partitions by their values; None where it was not asked for."""

_RECENT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class FoundPartitions:
    """Those of `names` that an entry has, whose partition keys are `keys`."""

    keys: tuple[str, ...]
    names: frozenset[str]
    registered: Registered

    def among(self, names: Collection[str]) -> Registered | None:
        """Those of some of the names; None of others, and where a partition has a name that is none of them."""
        if self.names == set(names):
            return self.registered
        by_name = {partition_name(self.keys, values): values for values in self.registered}
        if not self.names.issuperset({*names, *by_name}):
            return None
        return {by_name[name]: self.registered[by_name[name]] for name in names if name in by_name}


@dataclass(frozen=True, slots=True)
class Ahead:
    """The entries by name, None where there is none, and by entry the partitions that the commit may write.

    A sync compares the entries again under its lock. Where they differ it calls `confirm`, which raises what ends the
    sync, and looks at everything as it is then. `at`: when they were looked up, by the monotonic clock.
    """

    entries: Mapping[str, TableEntry | None]
    partitions: Mapping[str, FoundPartitions]
    confirm: Callable[[], None]
    at: float

    @property
    def is_recent(self) -> bool:
        """Whether a sync may use it: partitions are not compared again under its lock."""
        return SYSTEM_CLOCK.monotonic() - self.at < _RECENT_SECONDS

    def entries_of(self, names: Collection[str]) -> Mapping[str, TableEntry | None] | None:
        """The entries of these names; None where others were looked up."""
        return self.entries if self.entries.keys() == set(names) else None

    def registered(self, entry: str, names: Collection[str]) -> Registered | None:
        """Which of these partitions an entry has; None where others were looked up."""
        found = self.partitions.get(entry)
        return None if found is None else found.among(names)
