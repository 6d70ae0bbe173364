"""The sizes of base files, by the commit that wrote them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Of the base files of one commit, or of all (`commit` ALL): bytes at some percentiles, and their spread."""

    commit: str
    smallest: int
    at_10: float
    at_50: float
    average: float
    at_95: float
    greatest: int
    files: int
    deviation: float


def file_sizes(table: HudiTable, keeps: Callable[[str], bool], limit: int = -1) -> list[FileSizes]:
    """By commit, newest first, at most `limit` of them; then of all. `keeps` takes the path of a partition."""
    view = table.view()
    by_commit: dict[str, list[int]] = {}
    for path in filter(keeps, view.partitions()):
        for found in view.all_slices(path):
            if found.base_file is not None:
                by_commit.setdefault(str(found.base_instant), []).append(found.base_file.size_bytes)
    rows = [_sizes(time, sizes) for time, sizes in sorted(by_commit.items(), reverse=True)]
    every = [size for sizes in by_commit.values() for size in sizes]
    return [*(rows[:limit] if limit >= 0 else rows), *([_sizes("ALL", every)] if every else [])]


def _sizes(commit: str, sizes: Sequence[int]) -> FileSizes:
    ordered = sorted(sizes)
    mean = sum(ordered) / len(ordered)

    def part(share: float) -> float:
        return float(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share else 0)])

    spread = math.sqrt(sum((size - mean) ** 2 for size in ordered) / max(1, len(ordered) - 1))
    return FileSizes(commit, ordered[0], part(0.1), part(0.5), mean, part(0.95), ordered[-1], len(ordered), spread)
