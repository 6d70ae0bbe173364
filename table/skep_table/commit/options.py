"""Options of the commit protocol."""

from __future__ import annotations

from enum import Enum
from typing import Final

from skep_table.options import Status, at_least, boolean, comma_list, one_of, option

_NO_NAMES: Final[tuple[str, ...]] = ()


class MetadataTablePolicy(Enum):
    """What a write does on a table that has a metadata table."""

    DROP = "drop"
    REFUSE = "refuse"


class ConcurrencyMode(Enum):
    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"


class FailedWritesPolicy(Enum):
    """When the writes of dead writers are rolled back. Those of living ones never are."""

    EAGER = "EAGER"
    LAZY = "LAZY"
    NEVER = "NEVER"


METADATA_TABLE_POLICY = option(
    "skep.write.metadata.table",
    one_of(MetadataTablePolicy),
    MetadataTablePolicy.DROP,
    "A table's metadata table is dropped before the write, as Hudi does when a writer runs without it; or the write is"
    " refused",
)
CONCURRENCY_MODE = option(
    "hoodie.write.concurrency.mode",
    one_of(ConcurrencyMode),
    ConcurrencyMode.SINGLE_WRITER,
    "With other writers at work, a metadata table is never dropped",
)
FAILED_WRITES_POLICY = option(
    "hoodie.cleaner.policy.failed.writes",
    one_of(FailedWritesPolicy),
    FailedWritesPolicy.EAGER,
    "Writes of dead writers are rolled back before the next write, or never; LAZY tells JVM writers to wait for their"
    " heartbeat, which skep always does",
    "hoodie.clean.failed.writes.policy",
)
HEARTBEAT_MILLISECONDS = option(
    "hoodie.client.heartbeat.interval_in_ms", at_least(10), 60_000, "A writer shows so often that it lives"
)
HEARTBEAT_MISSES = option(
    "hoodie.client.heartbeat.tolerable.misses", at_least(1), 2, "A writer that missed so many heartbeats is dead"
)
CONFLICT_STRATEGY = option(
    "hoodie.write.lock.conflict.resolution.strategy",
    str,
    "",
    "Which of two overlapping writes fails: simple, prefer_writer, bucket or strict, or Hudi's class",
)
CONFLICT_RETRIES = option(
    "hoodie.write.num.retries.on.conflict.failures", at_least(0), 0, "A write that lost a conflict tries again so often"
)
EARLY_DETECTION = option(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    boolean,
    False,
    "A write gives up before it writes a file when an older one that still runs writes the same file groups",
)
EARLY_COMMIT_CHECK = option(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    boolean,
    False,
    "The early look is at commits completed meanwhile too",
)
SCHEMA_MERGE = option(
    "hoodie.write.concurrency.schema.conflict.resolution.enable",
    boolean,
    True,
    "Columns that another write added meanwhile are kept; what does not fit fails the later write",
)
LOCK_TIMEOUT_SECONDS = option(
    "skep.write.lock.timeout.seconds",
    float,
    600.0,
    "How long a write waits for the table's lock; else as long as Hudi with its two options, when one is given",
)
LOCK_PARTITIONS = option(
    "skep.write.lock.partitions",
    comma_list,
    _NO_NAMES,
    "Partition paths that a write locks for as long as it takes, besides the table's short locks",
)
INSTANT_LAG_SECONDS = option(
    "skep.write.instant.lag.seconds",
    at_least(0),
    10,
    "With optimistic concurrency, new instants are dated back so far, but never before one that is there; those of"
    " services wherever others share the lock: a Hudi 0.x writer dates its instant before it shows it, and must not"
    " come to lie below ours. So long is one waited for that has shown its instant, and not looked at the table yet",
)
for _key in (
    "hoodie.write.lock.num_retries",
    "hoodie.write.lock.wait_time_ms_between_retry",
    "hoodie.write.lock.max_wait_time_ms_between_retry",
    "hoodie.write.lock.client.wait_time_ms_between_retry",
    "hoodie.write.concurrency.early.conflict.detection.strategy",
    "hoodie.write.concurrency.early.conflict.async.checker.batch.interval.ms",
    "hoodie.write.concurrency.early.conflict.async.checker.period.ms",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms",
    "hoodie.write.concurrency.async.conflict.detector.period_ms",
    "hoodie.auto.adjust.lock.configs",
):
    option(_key, str, "", "a waiting writer keeps its place, and looks are direct", status=Status.NO_EFFECT)
