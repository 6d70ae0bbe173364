"""Strategies of table services that packages register: functions, by the group of their entry points."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import pyarrow as pa

from skep_format.errors import OptionError
from skep_format.options import Option, Options
from skep_format.timeline.plans import CompactionOperation
from skep_table.table import HudiTable
from skep_table.view import FileSlice

PLAN_GROUP: Final = "skep.clustering.plan"
EXECUTION_GROUP: Final = "skep.clustering.execution"
COMPACTION_GROUP: Final = "skep.compaction"
TTL_GROUP: Final = "skep.ttl"


class PlanStrategy(Protocol):
    """Groups slices of one partition for a clustering: each group is rewritten as a whole, other slices stay."""

    def __call__(
        self, partition: str, slices: Sequence[FileSlice], options: Options
    ) -> Sequence[Sequence[FileSlice]]: ...


class ExecutionStrategy(Protocol):
    """Transforms the rows of one group before they are written: sorts, masks, filters.

    `params` are the plan's. Rows have all columns, meta columns included, and keep them; rows not returned are deleted.
    """

    def __call__(self, rows: Iterator[pa.RecordBatch], params: Mapping[str, str]) -> Iterator[pa.RecordBatch]: ...


class StrategyFunction(Protocol):
    """Which slices a compaction takes, in the order in which they are to be compacted."""

    def __call__(
        self, operations: Sequence[CompactionOperation], options: Options
    ) -> Sequence[CompactionOperation]: ...


class TtlStrategy(Protocol):
    """Which of these partition paths expire, in the order in which they are to be dropped."""

    def __call__(
        self, table: HudiTable, partitions: Sequence[str], now: datetime, options: Options
    ) -> Sequence[str]: ...


def matcher(options: Options, pattern: Option[str]) -> Callable[[str], object]:
    """Whether a whole text matches the regular expression that an option has. OptionError where that is none."""
    text = options.value(pattern)
    try:
        return re.compile(text).fullmatch
    except re.error as error:
        raise OptionError(f"option {pattern.key}: {text!r}: {error}", option=pattern.key, found=text) from error
