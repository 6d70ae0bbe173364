"""When a compaction is due, and which slices each strategy takes: Hudi's rules."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from skep_format.errors import InputError, OptionError
from skep_format.options import Options
from skep_format.table_config import TimelineZone
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import layout_1
from skep_format.timeline.plans import CompactionOperation
from skep_format.timeline.timeline import Timeline, format_instant_time
from skep_table.services.compaction.plan import chooser, is_compaction_due

NOW = datetime(2024, 3, 10, 12, tzinfo=timezone.utc)


def operation(name: str, partition: str = "p", logs: int = 1, log_bytes: int = 10, io: int = 0) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time="1",
        delta_file_paths=tuple(f".{name}_1.log.{number}" for number in range(logs)),
        file_id=name,
        partition_path=partition,
        metrics={"TOTAL_LOG_FILES_SIZE": float(log_bytes), "TOTAL_IO_MB": float(io)},
    )


def chosen(operations: list[CompactionOperation], **options: Any) -> list[str | None]:
    given = {f"hoodie.{key.replace('__', '.')}": value for key, value in options.items()}
    return [each.file_id for each in chooser(Options(given), NOW)(operations)]


def strategy(name: str) -> dict[str, str]:
    return {"compaction__strategy": f"org.apache.hudi.table.action.compact.strategy.{name}CompactionStrategy"}


SIZES = [operation("a", log_bytes=5, io=3), operation("b", log_bytes=50, io=4), operation("c", log_bytes=20, io=9)]


def test_by_default_the_most_log_bytes_come_first() -> None:
    assert chosen(SIZES) == ["b", "c", "a"]
    assert chosen(SIZES, compaction__logfile__size__threshold=20) == ["b", "c"]
    assert chosen(SIZES, **strategy("LogFileSizeBased"), compaction__target__io=5) == ["b", "c"]


def test_log_files_are_counted() -> None:
    operations = [operation("a", logs=1), operation("b", logs=4), operation("c", logs=2)]
    assert chosen(operations, **strategy("LogFileNumBased")) == ["b", "c", "a"]
    assert chosen(operations, **strategy("LogFileNumBased"), compaction__logfile__num__threshold=2) == ["b", "c"]


def test_bounded_io_takes_them_as_they_come_until_the_budget_is_spent() -> None:
    assert chosen(SIZES, **strategy("BoundedIO"), compaction__target__io=7) == ["a", "b"]
    assert chosen(SIZES, **strategy("BoundedIO"), compaction__target__io=1) == ["a"]
    assert chosen(SIZES, **strategy("UnBounded"), compaction__target__io=1) == ["a", "b", "c"]


DAYS = [operation(day, f"2024/03/{day}") for day in ("08", "12", "01", "10")]


def test_the_latest_days_come_first() -> None:
    assert chosen(DAYS, **strategy("DayBased")) == ["12", "10", "08", "01"]
    assert chosen(DAYS, **strategy("DayBased"), compaction__daybased__target__partitions=2) == ["12", "10"]
    hive = [operation("x", "year=2024/month=2/day=29"), operation("y", "2024-03-01")]
    assert chosen(hive, **strategy("DayBased")) == ["y", "x"]


def test_days_since_some_before_today_and_the_others() -> None:
    days = {"compaction__daybased__target__partitions": 2}
    assert chosen(DAYS, **strategy("BoundedPartitionAware"), **days) == ["12", "10", "08"]
    assert chosen(DAYS, **strategy("UnBoundedPartitionAware"), **days) == ["01"]


def test_partitions_without_a_day_are_named() -> None:
    with pytest.raises(InputError, match="'north' is no day"):
        chosen([operation("a", "north")], **strategy("DayBased"))


def test_strategies_narrow_down_in_turn() -> None:
    names = "DayBasedCompactionStrategy,LogFileSizeBasedCompactionStrategy"
    options = {"compaction__strategy": names, "compaction__daybased__target__partitions": 1}
    operations = [
        operation("a", "2024/03/01", log_bytes=9),
        operation("b", "2024/03/02"),
        operation("c", "2024/03/02", log_bytes=99),
    ]
    assert chosen(operations, **options) == ["c", "b"]


def test_partitions_by_regex_and_strategies_that_are_not_there() -> None:
    regex = {"compaction__partition__path__regex": "2024/03/0."}
    assert chosen(DAYS, **strategy("PartitionRegexBased"), **regex) == ["08", "01"]
    with pytest.raises(OptionError, match="there is no strategy Mine"):
        chosen(DAYS, compaction__strategy="com.example.Mine")


def timeline(*instants: tuple[int, Action, State]) -> Timeline:
    """Minutes before now."""
    made = [
        Instant(format_instant_time(NOW - timedelta(minutes=ago), TimelineZone.UTC), action, state)
        for ago, action, state in instants
    ]
    return Timeline(made, layout_1())


def deltas(*minutes_ago: int) -> list[tuple[int, Action, State]]:
    return [(ago, Action.DELTA_COMMIT, State.COMPLETED) for ago in minutes_ago]


def due(instants: list[tuple[int, Action, State]], trigger: str = "NUM_COMMITS", **more: Any) -> bool:
    options = {"hoodie.compact.inline.trigger.strategy": trigger, "hoodie.compact.inline.max.delta.commits": 3, **more}
    return is_compaction_due(timeline(*instants), Options(options), NOW, TimelineZone.UTC)


DONE = (50, Action.COMMIT, State.COMPLETED)
PLANNED = (50, Action.COMPACTION, State.REQUESTED)


@pytest.mark.parametrize(
    ("trigger", "few_soon", "many_soon", "few_late", "many_late"),
    [
        ("NUM_COMMITS", False, True, False, True),
        ("TIME_ELAPSED", False, False, True, True),
        ("NUM_AND_TIME", False, False, False, True),
        ("NUM_OR_TIME", False, True, True, True),
    ],
)
def test_triggers(trigger: str, few_soon: bool, many_soon: bool, few_late: bool, many_late: bool) -> None:
    soon, late = (30, Action.COMMIT, State.COMPLETED), (90, Action.COMMIT, State.COMPLETED)
    found = [
        due([(99, Action.DELTA_COMMIT, State.COMPLETED), last, *deltas(*range(count))], trigger)
        for last in (soon, late)
        for count in (2, 3)
    ]
    assert found == [few_soon, many_soon, few_late, many_late]


def test_defaults_are_five_delta_commits_or_an_hour() -> None:
    five = timeline(*deltas(5, 4, 3, 2, 1))
    assert is_compaction_due(five, Options(), NOW, TimelineZone.UTC)
    assert not is_compaction_due(timeline(*deltas(4, 3, 2, 1)), Options(), NOW, TimelineZone.UTC)
    hour = Options({"hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED"})
    assert is_compaction_due(timeline(*deltas(60)), hour, NOW, TimelineZone.UTC)
    assert not is_compaction_due(timeline(*deltas(59)), hour, NOW, TimelineZone.UTC)


def test_nothing_is_due_without_delta_commits() -> None:
    assert not due([DONE], "TIME_ELAPSED", **{"hoodie.compact.inline.max.delta.seconds": 0})
    assert not due([])


def test_a_planned_compaction_counts_when_asked_for() -> None:
    instants = [*deltas(70, 60), PLANNED, *deltas(3, 2)]
    assert due(instants, "NUM_COMMITS")
    assert not due(instants, "NUM_COMMITS_AFTER_LAST_REQUEST")
