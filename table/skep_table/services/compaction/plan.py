"""Which file slices a compaction folds into new base files, by Hudi's strategies, and when one is due.

And of which slices a log compaction merges the log files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial, reduce
from itertools import chain
from typing import Final

from skep_format.errors import InputError
from skep_format.names import FileGroupId
from skep_format.options import Option, Options
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CompactionOperation, CompactionPlan, CompactionStrategy
from skep_format.timeline.timeline import Timeline, format_instant_time
from skep_format.timeline.trigger import Trigger
from skep_table.commit.concurrency.changes import planned_groups
from skep_table.plug_ins import find_strategy
from skep_table.query.cleaned import refuse_lost_files
from skep_table.services.compaction import options as options_of
from skep_table.services.compaction.options import LOG_COMPACT_FILES
from skep_table.services.execution import inputs_of
from skep_table.services.plan_scope import coverage_of, options_key, uncovered_partitions
from skep_table.services.rewriting import slice_metrics
from skep_table.services.strategies import COMPACTION_GROUP, StrategyFunction, matcher
from skep_table.slices.bootstrap import source_of, with_source_size
from skep_table.slices.options import MERGE_BYTES
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView
from skep_table.write.planning.options import most_bytes

Operations = Sequence[CompactionOperation]
Choose = Callable[[Operations], Operations]
"""Which slices are compacted, in which order, out of all that could be."""

_DAY = re.compile(r"(\d{4})[-/]?(\d{1,2})[-/]?(\d{1,2})")
PLAN_VERSION = 2  # paths are file names
_COMPACTOR: Final = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
_CHOOSE_CANDIDATES: Final = (LOG_COMPACT_FILES.key, MERGE_BYTES.key)


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


def every_slice(operations: Operations) -> Operations:
    """The most log bytes first."""
    return sorted(operations, key=lambda each: -(each.metrics or {})["TOTAL_LOG_FILES_SIZE"])


def plan_compaction(table: HudiTable, choose: Choose = every_slice) -> CompactionPlan | None:
    """The plan of a compaction of this snapshot, None when there is nothing to compact. Changes nothing.

    Lists the partitions that may have logs which no earlier plan has seen (see `plan_scope`).
    """
    view, file_bytes = table.view(metadata=False), most_bytes(table.config, table.options)
    partitions = uncovered_partitions(table, view, _earlier_plans(table))
    taken = _in_log_compactions(table)
    operations = _candidates(table, view, partitions, taken, lambda slice_: operation_of(table, slice_, file_bytes))
    chosen = choose(operations)
    if not chosen:
        return None
    left = {each.group for each in operations} - {each.group for each in chosen} | taken
    return CompactionPlan(
        operations=tuple(chosen),
        extra_metadata=coverage_of(table, view, (group.partition_path for group in left)),
        version=PLAN_VERSION,
        missing_schedule_partitions=(),
    )


def compaction_plan(table: HudiTable, instant: Instant) -> CompactionPlan | None:
    """The plan of a compaction or log compaction; None when its file is empty or missing."""
    return table.requested_plan(CompactionPlan, instant)


def _earlier_plans(table: HudiTable) -> Iterator[tuple[Instant, Mapping[str, str] | None]]:
    """Those of the active timeline, newest first. In merge-on-read tables commits are completed compactions."""
    for instant in reversed(table.timeline.of(Action.COMPACTION, Action.COMMIT).instants):
        requested = Instant(instant.requested_time, Action.COMPACTION, State.REQUESTED)
        plan = table.requested_plan(CompactionPlan, requested)
        if plan is not None:
            yield instant, plan.extra_metadata


def _in_log_compactions(table: HudiTable) -> frozenset[FileGroupId]:
    """The file groups of pending log compactions, where log files belong to the slice that they completed on.

    The result of one that completes after the compaction was planned would count as newer than what was compacted.
    Where log files are named by their slice, it stays with that, and its executor notices the compaction.
    """
    if not table.format.logs.of_delta_commit:
        return frozenset()
    pending = table.timeline.pending().of(Action.LOG_COMPACTION)
    return frozenset(group for instant in pending for group in planned_groups(table, instant) or ())


def _candidates(
    table: HudiTable,
    view: FileView,
    partitions: Sequence[str],
    taken: Collection[FileGroupId],
    operation: Callable[[FileSlice], CompactionOperation | None],
) -> list[CompactionOperation]:
    """The operations of the newest slices that have log files, and on which nothing else has a claim."""
    refuse_lost_files(table, view, partitions)

    def of_partition(partition: str) -> list[CompactionOperation]:
        groups = (each for each in view.file_groups(partition) if each.is_free)
        slices = (
            group.slices[0] for group in groups if group.slices[0].log_files and group.slices[0].group not in taken
        )
        return [found for slice_ in slices if (found := operation(slice_)) is not None]

    return list(chain.from_iterable(table.context.threads.map(of_partition, partitions)))


def operation_of(table: HudiTable, slice_: FileSlice, file_bytes: int) -> CompactionOperation:
    """A slice as a plan names it. `file_bytes` stands in for the size of a base file that is not there yet."""
    source = source_of(table, slice_, table.options)
    whole = with_source_size(table, slice_, table.options)
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(str(log.name) for log in slice_.log_files),
        data_file_path=str(slice_.base_file.name) if slice_.base_file else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        metrics=slice_metrics([whole], file_bytes),
        bootstrap_file_path=None if source is None else source.path,
    )


def plan_log_compaction(table: HudiTable) -> CompactionPlan | None:
    """What a log compaction would do now, None for nothing. Changes nothing.

    Lists the partitions that changed since an earlier plan with the same options (see `plan_scope`).
    """
    view, options = table.view(metadata=False), table.options
    plans = _earlier_log_plans(table)
    pending = {group for instant, plan in plans if not instant.is_completed for group in inputs_of(plan.operations)}
    merged: dict[FileGroupId, frozenset[str]] = {}  # by the last completed one: readers take its result for these files
    for instant, plan in plans:
        if instant.is_completed:
            merged = {**inputs_of(plan.operations), **merged}
    least, most = max(2, options.value(LOG_COMPACT_FILES)), options.value(MERGE_BYTES)
    file_bytes = most_bytes(table.config, options)

    def operation(slice_: FileSlice) -> CompactionOperation | None:
        """What memory does not hold awaits a compaction."""
        count = len({str(log.name) for log in slice_.log_files} - merged.get(slice_.group, frozenset()))
        fits = count >= least and sum(log.size_bytes for log in slice_.log_files) <= most
        return operation_of(table, slice_, file_bytes) if fits else None

    chosen_by = options_key(options, _CHOOSE_CANDIDATES)
    earlier = ((instant, plan.extra_metadata) for instant, plan in plans)
    partitions = uncovered_partitions(table, view, earlier, chosen_by)
    operations = _candidates(table, view, partitions, pending, operation)
    if not operations:
        return None
    return CompactionPlan(
        operations=tuple(operations),
        extra_metadata=coverage_of(table, view, (group.partition_path for group in pending), chosen_by),
        version=PLAN_VERSION,
        strategy=CompactionStrategy(compactor_class_name=_COMPACTOR, strategy_params={}),
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=(),
    )


def _earlier_log_plans(table: HudiTable) -> list[tuple[Instant, CompactionPlan]]:
    """Those of the active timeline, newest first. Log compactions complete as delta commits."""
    times = table.timeline.files.log_compactions
    instants = table.timeline.of(Action.LOG_COMPACTION, Action.DELTA_COMMIT).instants
    found = [instant for instant in reversed(instants) if instant.requested_time in times]
    requested = [Instant(instant.requested_time, Action.LOG_COMPACTION, State.REQUESTED) for instant in found]
    plans = table.context.threads.map(partial(table.requested_plan, CompactionPlan), requested)
    return [(instant, plan) for instant, plan in zip(found, plans, strict=True) if plan is not None]
