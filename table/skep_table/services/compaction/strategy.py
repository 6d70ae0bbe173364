"""Which slices a compaction takes, and when one is due: pure functions over operations and timeline (Hudi's rules)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final

from skep_format.errors import InputError, OptionError
from skep_format.options import Options
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CompactionOperation
from skep_format.timeline.timeline import Timeline, format_instant_time
from skep_format.timeline.trigger import Trigger
from skep_table.plug_ins import find_strategy
from skep_table.services.compaction import options as options_of
from skep_table.services.strategies import COMPACTION_GROUP, StrategyFunction

Operations = Sequence[CompactionOperation]
Choose = Callable[[Operations], Operations]

_DAY = re.compile(r"(\d{4})[-/]?(\d{1,2})[-/]?(\d{1,2})")


def chooser(options: Options, now: datetime) -> Choose:
    """The strategies that the options name, applied in turn. OptionError for an unknown one."""
    steps: list[Choose] = []
    for name in options.value(options_of.COMPACT_STRATEGY):
        built_in = _STRATEGIES.get(name)
        if built_in is None:
            found: StrategyFunction = find_strategy(
                COMPACTION_GROUP, name, options_of.COMPACT_STRATEGY, tuple(_STRATEGIES)
            )
            steps.append(partial(_asked, found, options))
        else:
            steps.append(partial(built_in, options=options, today=now.date()))

    def choose(operations: Operations) -> Operations:
        for step in steps:
            operations = step(operations)
        return operations

    return choose


def _asked(
    strategy: Callable[[Operations, Options], Operations], options: Options, operations: Operations
) -> Operations:
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


def _unbounded(operations: Operations, *, options: Options, today: date) -> Operations:  # noqa: ARG001
    return operations


def _bounded_io(operations: Operations, *, options: Options, today: date) -> Operations:  # noqa: ARG001
    """The first slices up to the limit of bytes; the one that exceeds it is the last."""
    left = options.value(options_of.COMPACT_TARGET_IO)
    chosen: list[CompactionOperation] = []
    for operation in operations:
        chosen.append(operation)
        left -= int(_metric(operation, "TOTAL_IO_MB"))
        if left <= 0:
            break
    return chosen


def _by_log_size(operations: Operations, *, options: Options, today: date) -> Operations:
    least = options.value(options_of.COMPACT_LOG_BYTES)
    large = [each for each in operations if _metric(each, "TOTAL_LOG_FILES_SIZE") >= least]
    large.sort(key=lambda each: -_metric(each, "TOTAL_LOG_FILES_SIZE"))
    return _bounded_io(large, options=options, today=today)


def _by_log_number(operations: Operations, *, options: Options, today: date) -> Operations:
    least = options.value(options_of.COMPACT_LOG_FILES)
    many = [each for each in operations if len(each.delta_file_paths) >= least]
    many.sort(key=lambda each: -len(each.delta_file_paths))
    return _bounded_io(many, options=options, today=today)


def _day_based(operations: Operations, *, options: Options, today: date) -> Operations:  # noqa: ARG001
    """The latest days first, since they are read most."""
    days = sorted({_day(each) for each in operations}, reverse=True)
    chosen = days[: options.value(options_of.COMPACT_TARGET_PARTITIONS)]
    return _latest_first([each for each in operations if _day(each) in chosen])


def _day_based_bounded_io(operations: Operations, *, options: Options, today: date) -> Operations:
    return _bounded_io(_day_based(operations, options=options, today=today), options=options, today=today)


def _bounded_days(operations: Operations, *, options: Options, today: date) -> Operations:
    """Days since so many before today, days to come among them."""
    first = today - timedelta(days=options.value(options_of.COMPACT_TARGET_PARTITIONS))
    return _latest_first([each for each in operations if _day(each) >= first])


def _unbounded_days(operations: Operations, *, options: Options, today: date) -> Operations:
    """The days that the bounded strategy leaves."""
    bounded = _bounded_days(operations, options=options, today=today)
    return [each for each in operations if each not in bounded]


def _by_regex(operations: Operations, *, options: Options, today: date) -> Operations:  # noqa: ARG001
    key, pattern = options_of.COMPACT_PARTITION_REGEX.key, options.value(options_of.COMPACT_PARTITION_REGEX)
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise OptionError(f"option {key}: {pattern!r}: {error}", option=key, found=pattern) from error
    return [each for each in operations if matches(each.partition_path or "")]


_STRATEGIES: Final = {
    "LogFileSizeBased": _by_log_size,
    "LogFileNumBased": _by_log_number,
    "BoundedIO": _bounded_io,
    "DayBased": _day_based,
    "DayBasedAndBoundedIO": _day_based_bounded_io,
    "BoundedPartitionAware": _bounded_days,
    "UnBounded": _unbounded,
    "UnBoundedPartitionAware": _unbounded_days,
    "PartitionRegexBased": _by_regex,
}


def _metric(operation: CompactionOperation, name: str) -> float:
    return (operation.metrics or {}).get(name, 0.0)


def _latest_first(operations: Operations) -> Operations:
    return sorted(operations, key=_day, reverse=True)


def _day(operation: CompactionOperation) -> date:
    """The day in a partition path, `year=2024/month=02/day=29` and `2024-02-29` too."""
    path = operation.partition_path or ""
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
