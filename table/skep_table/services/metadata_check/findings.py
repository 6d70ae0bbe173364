"""What the comparison of a metadata table with its table found, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.instant_time import InstantTime

MOST_FINDINGS: Final = 1000  # of each partition of the metadata table; further ones are counted


class MetadataProblem(str, Enum):
    """How a metadata table and the files disagree. The last three change no answer of a query, and are notes."""

    MISSING = "missing"  # the metadata table lacks it
    SURPLUS = "surplus"  # the metadata table has it, the table has not
    DIFFERS = "differs"  # the metadata table states something else
    DOUBLE = "double"  # a key has several entries where it may have one
    DAMAGED = "damaged"  # can't be read
    LOOSE = "loose"  # states less than it could: queries read more than they need
    STALE = "stale"  # of a file that is no longer there
    UNFINISHED = "unfinished"  # of a write that failed or is going on

    @property
    def is_note(self) -> bool:
        """Whether no answer of a query depends on it."""
        return self in (MetadataProblem.LOOSE, MetadataProblem.STALE, MetadataProblem.UNFINISHED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs.

    `partition` is one of the metadata table, `path` a partition path of the table, `subject` a file, file group, key or
    column. `found` is what the metadata table states, `expected` what the files hold; None for nothing.
    """

    problem: MetadataProblem
    partition: str
    path: str
    subject: str
    found: str | None = None
    expected: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """The comparison of one partition of the metadata table. `checked`: so many files, bounds or keys were compared.

    At most `MOST_FINDINGS` differences and as many notes are kept; `omitted` is the number of the others.
    """

    partition: str
    checked: int
    differences: tuple[Difference, ...] = ()
    notes: tuple[Difference, ...] = ()
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class MetadataCheck:
    """The comparison of a whole metadata table, with the table as of its last completed action `as_of`.

    `skipped` are partitions that were not compared: their contents can't be computed here.
    """

    table: str
    as_of: InstantTime | None
    partitions: tuple[PartitionCheck, ...]
    skipped: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Of all partitions; none where the metadata table is right."""
        return tuple(each for check in self.partitions for each in check.differences)

    @property
    def notes(self) -> tuple[Difference, ...]:
        """What no answer of a query depends on."""
        return tuple(each for check in self.partitions for each in check.notes)


@dataclass
class Findings:
    """Gathers what is found in one partition of the metadata table, in bounded memory."""

    partition: str
    checked: int = 0
    omitted: int = 0
    _differences: list[Difference] = field(default_factory=list)
    _notes: list[Difference] = field(default_factory=list)

    def add(
        self,
        problem: MetadataProblem,
        path: str,
        subject: str,
        detail: str = "",
        *,
        found: object = None,
        expected: object = None,
    ) -> None:
        """One more difference or note."""
        kept = self._notes if problem.is_note else self._differences
        if len(kept) >= MOST_FINDINGS:
            self.omitted += 1
            return
        stated = None if found is None else str(found)
        held = None if expected is None else str(expected)
        kept.append(Difference(problem, self.partition, path, subject, stated, held, detail))

    def some(
        self, keys: pa.Array, numbers: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]
    ) -> list[tuple[str, int]]:
        """As many of the chosen keys as there is room for, each with its number; the others are counted."""
        positions = np.flatnonzero(chosen)
        kept = positions[: max(0, MOST_FINDINGS - len(self._differences))]
        self.omitted += len(positions) - len(kept)
        return list(zip(keys.take(pa.array(kept)).to_pylist(), numbers[kept].tolist(), strict=True))

    def done(self) -> PartitionCheck:
        return PartitionCheck(self.partition, self.checked, tuple(self._differences), tuple(self._notes), self.omitted)
