"""Which blocks of a slice count: what was written by failed, later or rolled back instants is left out (guide 6.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from skep_format.instant_time import InstantTime
from skep_format.logfile.block import BlockType, LogBlock


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Which instants a query sees.

    `counts(instant)`: it is completed, or older than the active timeline and thus archived, and not being written.
    `as_of`: the query's instant; blocks of later ones don't count. `in_range`: further limits, of incremental reads.
    """

    counts: Callable[[InstantTime], bool]
    as_of: InstantTime | None = None
    in_range: Callable[[InstantTime], bool] = lambda _instant: True


def valid_blocks(blocks: Iterable[LogBlock], rule: BlockRule) -> list[LogBlock]:
    """The data and delete blocks that count, oldest first, from all blocks of a slice in the order of its log files.

    A rollback removes the blocks that its target wrote before it, whenever the rollback itself happened: rows of an
    instant that was rolled back are missing from queries of the past too. (Hudi 0.15 stops at the first block later
    than the query, rollbacks included, and so loses completed rows behind it; later releases continue, as here.)
    """
    stack: list[LogBlock] = []
    for block in blocks:
        if block.type is BlockType.CORRUPT:
            continue
        if block.type is BlockType.COMMAND:
            if block.is_rollback:
                target = block.target_instant_time
                stack = [kept for kept in stack if kept.instant_time != target]
            continue
        instant = block.instant_time
        if rule.as_of is not None and instant.is_after(rule.as_of):
            continue
        if rule.counts(instant) and rule.in_range(instant):
            stack.append(block)
    return _with_log_compactions(stack)


def _with_log_compactions(blocks: list[LogBlock]) -> list[LogBlock]:
    """Blocks that a log compaction merged are replaced by its result, at the place of the last of them."""
    if not any(block.compacted_times for block in blocks):
        return blocks
    of_instant: dict[InstantTime, list[LogBlock]] = {}
    for block in blocks:
        of_instant.setdefault(block.instant_time, []).append(block)
    merged_into: dict[InstantTime, InstantTime] = {}  # instant → the compaction that holds its rows now
    placed: set[InstantTime] = set()
    newest_first: list[LogBlock] = []

    def place(instant: InstantTime) -> None:
        if instant not in placed:
            placed.add(instant)
            newest_first.extend(reversed(of_instant[instant]))

    for instant in reversed(of_instant):
        holder = merged_into.get(instant, instant)
        replaced = [time for block in of_instant[instant] for time in block.compacted_times]
        merged_into.update(dict.fromkeys(replaced, holder))
        if not any(time in of_instant for time in replaced):
            place(holder)  # a plain block, or a compaction whose source files were deleted
    return newest_first[::-1]
