"""What a metastore has of a table, looked up while the files of a commit are written: its sync then waits for less."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from skep_catalog.entities import TableEntry
from skep_format.clock import SYSTEM_CLOCK

Registered = dict[tuple[str, ...], str | None]
"""The locations of an entry's partitions by their values; None where it was not asked for."""

_RECENT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class FoundPartitions:
    """Those of `names` that an entry has."""

    names: frozenset[str]
    registered: Registered


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
        return found.registered if found is not None and found.names == set(names) else None
