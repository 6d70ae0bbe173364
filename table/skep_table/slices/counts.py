"""Counts of what the rows of a merged slice were made of; a compaction writes them into its commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skep_format.logfile import BlockType, LogBlock
from skep_table.merge import Updates


@dataclass(slots=True)
class MergeCounts:
    """Complete when the last row has been read.

    `beyond_base`: the rows from now on have keys that the base file lacks.
    """

    blocks: int = 0
    corrupt_blocks: int = 0
    rollback_blocks: int = 0
    entries: int = 0
    keys: int = 0
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    beyond_base: bool = False

    def seen(self, blocks: Iterable[LogBlock]) -> Iterator[LogBlock]:
        """Counts blocks as they pass."""
        for block in blocks:
            self.blocks += 1
            self.corrupt_blocks += block.type is BlockType.CORRUPT
            self.rollback_blocks += block.is_rollback
            yield block

    def applied(self, updates: Updates, rest_rows: int) -> None:
        """All base rows that `updates` could touch have passed: the number of its rows that are new."""
        self.keys += len(updates)
        self.updated += updates.updated
        self.deleted += updates.deleted
        self.inserted += rest_rows
