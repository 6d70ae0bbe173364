"""Which slices a compaction takes, and when one is due: pure functions over operations and timeline (Hudi's rules)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial, reduce
from typing import Final

from skep_format.errors import InputError
from skep_format.options import Option, Options
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CompactionOperation
from skep_format.timeline.timeline import Timeline, format_instant_time
from skep_format.timeline.trigger import Trigger
from skep_table.plug_ins import find_strategy
from skep_table.services.compaction import options as options_of
from skep_table.services.strategies import COMPACTION_GROUP, StrategyFunction, matcher

Operations = Sequence[CompactionOperation]
Choose = Callable[[Operations], Operations]

_DAY = re.compile(r"(\d{4})[-/]?(\d{1,2})[-/]?(\d{1,2})")


@dataclass(frozen=True, slots=True)
class _Given:
    """What strategies depend on beside the slices."""

    options: Options
    today: date


def chooser(options: Options, now: datetime) -> Choose:
    """The strategies that the options name, applied in turn. OptionError for an unknown one."""
    given, steps = _Given(options, now.date()), list[Choose]()
    for name in options.value(options_of.COMPACT_STRATEGY):
        if (built_in := _STRATEGIES.get(name)) is not None:
            steps.append(partial(built_in, given))
        else:
            found = find_strategy(COMPACTION_GROUP, name, options_of.COMPACT_STRATEGY, tuple(_STRATEGIES))
            steps.append(partial(_asked, found, options))
    return lambda operations: reduce(lambda left, step: step(left), steps, operations)


def _asked(strategy: StrategyFunction, options: Options, operations: Operations) -> Operations:
    return strategy(operations, options)


def is_compaction_due(timeline: Timeline, options: Options, now: datetime, zone: TimelineZone) -> bool:
    """Whether the trigger fires. It never does without a delta commit since the last compaction."""
    trigger = options.value(options_of.COMPACT_TRIGGER)
    requests = trigger is Trigger.NUM_COMMITS_AFTER_LAST_REQUEST
    last, count = _since_compaction(timeline, requests=requests)
    if not count or last is None:
        return False
    enough = count >= options.value(options_of.COMPACT_DELTA_COMMITS)
    seconds = timedelta(seconds=options.value(options_of.COMPACT_DELTA_SECONDS))
    long_ago = last.requested_time.is_at_or_before(format_instant_time(now - seconds, zone))
    return trigger.fires(enough=enough, long_ago=long_ago)


def _since_compaction(timeline: Timeline, *, requests: bool) -> tuple[Instant | None, int]:
    """The last compaction (or the first delta commit there is), and the delta commits since."""
    done = timeline.completed()
    compactions = timeline.of(Action.COMMIT, Action.COMPACTION) if requests else done.of(Action.COMMIT)
    last = compactions.last()
    deltas = done.of(Action.DELTA_COMMIT)
    if last is None:
        return (deltas.instants[0] if deltas.instants else None), len(deltas)
    return last, len(deltas.after(last.requested_time))


# -- strategies, by Hudi's names without `CompactionStrategy`


def _bounded_io(given: _Given, operations: Operations) -> Operations:
    """The first slices up to the limit of bytes; the one that exceeds it is the last."""
    left = given.options.value(options_of.COMPACT_TARGET_IO)
    chosen: list[CompactionOperation] = []
    for operation in operations:
        chosen.append(operation)
        left -= int((operation.metrics or {}).get("TOTAL_IO_MB", 0.0))
        if left <= 0:
            break
    return chosen


def _largest(
    size: Callable[[CompactionOperation], float], least: Option[int], given: _Given, operations: Operations
) -> Operations:
    """Those of the `least` size at least, the largest first, up to the limit of bytes."""
    large = [each for each in operations if size(each) >= given.options.value(least)]
    return _bounded_io(given, sorted(large, key=lambda each: -size(each)))


def _day_based(given: _Given, operations: Operations) -> Operations:
    """The latest days first, since they are read most."""
    days = sorted({_day(each) for each in operations}, reverse=True)
    chosen = days[: given.options.value(options_of.COMPACT_TARGET_PARTITIONS)]
    return _latest_first([each for each in operations if _day(each) in chosen])


def _bounded_days(given: _Given, operations: Operations) -> Operations:
    """Days since so many before today, days to come among them."""
    first = given.today - timedelta(days=given.options.value(options_of.COMPACT_TARGET_PARTITIONS))
    return _latest_first([each for each in operations if _day(each) >= first])


def _unbounded_days(given: _Given, operations: Operations) -> Operations:
    """The days that the bounded strategy leaves."""
    bounded = _bounded_days(given, operations)
    return [each for each in operations if each not in bounded]


def _by_regex(given: _Given, operations: Operations) -> Operations:
    matches = matcher(given.options, options_of.COMPACT_PARTITION_REGEX)
    return [each for each in operations if matches(each.group.partition_path)]


_STRATEGIES: Final[dict[str, Callable[[_Given, Operations], Operations]]] = {
    "LogFileSizeBased": partial(
        _largest, lambda each: (each.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0.0), options_of.COMPACT_LOG_BYTES
    ),
    "LogFileNumBased": partial(_largest, lambda each: len(each.delta_file_paths), options_of.COMPACT_LOG_FILES),
    "BoundedIO": _bounded_io,
    "DayBased": _day_based,
    "DayBasedAndBoundedIO": lambda given, operations: _bounded_io(given, _day_based(given, operations)),
    "BoundedPartitionAware": _bounded_days,
    "UnBounded": lambda _, operations: operations,
    "UnBoundedPartitionAware": _unbounded_days,
    "PartitionRegexBased": _by_regex,
}


def _latest_first(operations: Operations) -> Operations:
    return sorted(operations, key=_day, reverse=True)


def _day(operation: CompactionOperation) -> date:
    """The day in a partition path, `year=2024/month=02/day=29` and `2024-02-29` too."""
    path = operation.group.partition_path
    found = _DAY.fullmatch("/".join(part.rpartition("=")[2] for part in path.split("/")))
    try:
        if found is not None:
            return date(*map(int, found.groups()))
    except ValueError:
        pass
    raise InputError(
        f"partition {path!r} is no day, which a compaction by days needs",
        hint=f"choose another {options_of.COMPACT_STRATEGY.key}",
        path=path,
        expected="yyyy/MM/dd",
    )
