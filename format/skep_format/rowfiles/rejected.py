"""Records that can't be read: where they are, and why, for readers that leave them out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

log = logging.getLogger("skep.stream")
SCHEMA: Final = pa.schema(
    [("source", pa.string()), ("line", pa.int64()), ("record", pa.string()), ("error", pa.string())]
)
"""Of error tables."""


class RecordPlace(Protocol):
    """Where a record is: in which file or log, and its number there; as text for errors."""

    @property
    def source(self) -> str:
        """The file, or the log."""

    @property
    def number(self) -> int:
        """Its line, or its offset."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}, line {self.number}"


class Rejected:
    """The records that one round leaves out."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, str, str]] = []

    def add(self, source: str, line: int, record: str, error: str) -> None:
        """One record, with the file that it is in, its line and the reason."""
        self._rows.append((source, line, record, error))

    def taken(self) -> pa.Table | None:
        """All of them, which are no longer held; None for none."""
        rows, self._rows = sorted(self._rows), []  # messages arrive in another order when a round is repeated
        if not rows:
            return None
        log.warning(
            "%d records can't be read, the first: %s, number %d: %s", len(rows), rows[0][0], rows[0][1], rows[0][3]
        )
        return pa.table(list(zip(*rows, strict=True)), schema=SCHEMA)
