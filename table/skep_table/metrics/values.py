"""What an event means in Hudi's metrics: names and values, without prefix (Hudi: HoodieMetrics, HoodieLockMetrics)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.timeline import Timeline
from skep_table.events import Event

_SERVICES: Mapping[WriteOperation | None, Action] = {
    WriteOperation.COMPACT: Action.COMPACTION,
    WriteOperation.LOG_COMPACT: Action.LOG_COMPACTION,
    WriteOperation.CLUSTER: Action.CLUSTERING,
}
_PENDING = (Action.CLUSTERING, Action.COMPACTION, Action.CLEAN, Action.ROLLBACK)
_COMPLETED = {
    Action.CLUSTERING: Action.REPLACE_COMMIT,
    Action.COMPACTION: Action.COMMIT,
    Action.CLEAN: Action.CLEAN,
    Action.ROLLBACK: Action.ROLLBACK,
}
_TIME_DIGITS = 17
_SUMS = {
    "totalRecordsWritten": "num_writes",
    "totalUpdateRecordsWritten": "num_update_writes",
    "totalInsertRecordsWritten": "num_inserts",
    "totalRecordsDeleted": "num_deletes",
    "totalBytesWritten": "total_write_bytes",
    "totalCompactedRecordsUpdated": "total_updated_records_compacted",
    "totalLogFilesCompacted": "total_log_files_compacted",
    "totalLogFilesSize": "total_log_size_compacted",
}
_BLOCKS = {
    "totalCorruptedLogBlocks": "total_corrupt_log_block",
    "totalRollbackLogBlocks": "total_rollback_blocks",
}
_TIMES = ("totalScanTime", "totalCreateTime", "totalUpsertTime")


@dataclass(frozen=True, slots=True)
class EventMetrics:
    """Values that replace those before, and numbers to add to those before. `of_locks`: what Hudi measures of locks."""

    gauges: Mapping[str, int] = field(default_factory=dict)
    counts: tuple[str, ...] = ()
    of_locks: bool = False


def commit_metrics(
    instant: Instant, metadata: CommitMetadata, epoch_ms: int, seconds: float, *, log_blocks: bool = False
) -> dict[str, int]:
    """Of a completed write or service, whose requested time is `epoch_ms` and which took so long."""
    action = service_action(instant, metadata)
    milliseconds = round(seconds * 1000)
    found = {"commitTime": epoch_ms, "duration": milliseconds}
    stats = metadata.stats
    earliest = min((stat.min_event_time for stat in stats if stat.min_event_time is not None), default=None)
    latest = max((stat.max_event_time for stat in stats if stat.max_event_time is not None), default=None)
    if earliest is not None:
        found["commitLatencyInMs"] = epoch_ms + milliseconds - earliest
    if latest is not None:
        found["commitFreshnessInMs"] = epoch_ms + milliseconds - latest
    new = sum(stat.prev_commit.lower() == "null" for stat in stats)
    found["totalPartitionsWritten"] = len(metadata.partition_to_write_stats)
    found |= {"totalFilesInsert": new, "totalFilesUpdate": len(stats) - new}
    for name, attribute in {**_SUMS, **(_BLOCKS if log_blocks else {})}.items():
        found[name] = sum(getattr(stat, attribute) for stat in stats)
    taken = [stat.runtime_stats for stat in stats if stat.runtime_stats]
    found |= {name: sum(each.get(name, 0) for each in taken) for name in _TIMES}
    return {f"{action}.{name}": value for name, value in found.items()}


def timeline_metrics(timeline: Timeline) -> dict[str, int]:
    """Which services are pending, and when each was last completed, by the active timeline after a commit."""
    found = {}
    pending, completed = timeline.pending().instants, timeline.completed().instants
    for action in _PENDING:
        name = action.value.capitalize()
        waiting = [each for each in pending if each.action is action]
        found[f"{action.value}.pending{name}InstantCount"] = len(waiting)
        if waiting:
            found[f"{action.value}.earliestInflight{name}Instant"] = _digits(waiting[0])
        as_ = _COMPLETED[action]
        last = next((each for each in reversed(completed) if each.action is as_), None)
        if last is not None:
            found[f"{as_.value}.latestCompleted{name}Instant"] = _digits(last)
    return found


def _digits(instant: Instant) -> int:
    return int(instant.requested_time[:_TIME_DIGITS])


def measured(event: Event) -> EventMetrics | None:
    """None for an event that Hudi has no metric of."""
    facts = event.facts
    match event.name:
        case "commit.completed":
            done = facts["action"] == Action.COMPACTION.value
            gauges = facts.get("metrics", {})
            assert isinstance(gauges, Mapping)
            return EventMetrics(gauges, ("compaction.compaction.completed.counter",) if done else ())
        case "compact.start":
            return EventMetrics(counts=("compaction.compaction.requested.counter",))
        case "clean" | "rollback" if "files" in facts:
            return EventMetrics(_timed(event, event.name, numFilesDeleted=facts["files"]))
        case "archive":
            return EventMetrics(_timed(event, "archive", numInstantsArchived=facts["instants"]))
        case "commit.finalize":
            return EventMetrics(_timed(event, "finalize", numFilesFinalized=facts["files"]))
        case "write.tag" if facts["index"]:
            return EventMetrics(_timed(event, "index.lookup"))
        case "commit.conflicts" if facts["locked"]:
            return EventMetrics(counts=("conflict_resolution.success.counter",), of_locks=True)
        case "commit.conflicts.failed" if facts["lost"]:
            return EventMetrics(counts=("conflict_resolution.failure.counter",), of_locks=True)
        case "lock.wait":
            counts = ("lock.acquire.attempts", "lock.acquire.success")
            return EventMetrics({"lock.request.latency": _milliseconds(event)}, counts, of_locks=True)
        case "lock.wait.failed":
            latency = {"lock.request.latency": _milliseconds(event)}
            return EventMetrics(latency, ("lock.acquire.failure",), of_locks=True)
        case "lock.hold" | "lock.hold.failed":
            held = {"lock.acquire.duration": _milliseconds(event)}
            return EventMetrics(held, ("lock.release.success",), of_locks=True)
    return None


def service_action(instant: Instant, metadata: CommitMetadata) -> str:
    """The name of what completed, as metrics have it: a service completes as a commit, and has some of its own."""
    return _SERVICES.get(metadata.operation_type, instant.action).value


def _timed(event: Event, action: str, **counts: object) -> dict[str, int]:
    found = {"duration": _milliseconds(event), **{name: int(str(value)) for name, value in counts.items()}}
    return {f"{action}.{name}": value for name, value in found.items()}


def _milliseconds(event: Event) -> int:
    return round((event.seconds or 0.0) * 1000)
