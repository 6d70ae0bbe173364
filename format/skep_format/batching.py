"""Things in their order, so many together as a bound allows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_groups(
    each: Iterable[T], size_of: Callable[[T], int], most_bytes: int, most: int = sys.maxsize
) -> Iterator[list[T]]:
    """In their order, so many together as do not exceed `most_bytes`, or one."""
    group: list[T] = []
    size = 0
    for one in each:
        more = size_of(one)
        if group and (size + more > most_bytes or len(group) == most):
            yield group
            group, size = [], 0
        group.append(one)
        size += more
    if group:
        yield group


def pieces(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """In their order, `size` together."""
    return [items[start : start + size] for start in range(0, len(items), size)]
