"""A line of a file, as errors name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}, line {self.number}"
