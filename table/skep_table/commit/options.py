"""Options of the commit protocol, and what they mean together for writers that share a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_format.errors import OptionError
from skep_format.options import Options, Status, at_least, boolean, comma_list, one_of, option

_NO_NAMES: Final[tuple[str, ...]] = ()


class MetadataTablePolicy(Enum):
    """What a write does on a table that has a metadata table."""

    DROP = "drop"
    REFUSE = "refuse"


class ConcurrencyMode(Enum):
    """How many writers a table has at a time, and whether conflicts end one of them.

    Hudi's values of `hoodie.write.concurrency.mode`.
    """

    SINGLE_WRITER = "single_writer"
    OPTIMISTIC = "optimistic_concurrency_control"
    NON_BLOCKING = "non_blocking_concurrency_control"


class FailedWritesPolicy(Enum):
    """When the writes of dead writers are rolled back. Active writers are never rolled back."""

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
    "Whether several writers share the table: with conflicts (optimistic), or without (non-blocking; version 8 or 9,"
    " merge-on-read, bucket index); a metadata table is dropped by a single writer only",
)
FAILED_WRITES_POLICY = option(
    "hoodie.cleaner.policy.failed.writes",
    one_of(FailedWritesPolicy),
    FailedWritesPolicy.EAGER,
    "Writes of dead writers are rolled back before the next write, or never; with LAZY, JVM writers wait until the"
    " heartbeat has expired, which skep always does",
    "hoodie.clean.failed.writes.policy",
)
HEARTBEAT_MILLISECONDS = option(
    "hoodie.client.heartbeat.interval_in_ms", at_least(10), 60_000, "Interval at which a writer renews its heartbeat"
)
HEARTBEAT_MISSES = option(
    "hoodie.client.heartbeat.tolerable.misses", at_least(1), 2, "A writer that missed so many heartbeats counts as dead"
)
CONFLICT_STRATEGY = option(
    "hoodie.write.lock.conflict.resolution.strategy",
    str,
    "",
    "Which of two overlapping writes fails: simple, prefer_writer, bucket or strict, or Hudi's class",
)
CONFLICT_RETRIES = option(
    "hoodie.write.num.retries.on.conflict.failures",
    at_least(0),
    0,
    "How often a write is repeated after it lost a conflict",
)
EARLY_DETECTION = option(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    boolean,
    False,
    "A write fails before it writes a file when an older active one writes the same file groups",
)
EARLY_COMMIT_CHECK = option(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    boolean,
    False,
    "Early detection also compares with commits that completed since the write began",
)
SCHEMA_MERGE = option(
    "hoodie.write.concurrency.schema.conflict.resolution.enable",
    boolean,
    True,
    "Columns that another write added meanwhile are kept; incompatible columns fail the later write",
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
    "With optimistic concurrency, new instants are backdated by this time, but never before an existing instant; those"
    " of services wherever others share the lock. A Hudi 0.x writer chooses its instant time before it creates the"
    " instant, and its instant must not sort before ours. So long a commit waits for writers that have created their"
    " instant and not read the timeline yet",
)
CLOCK_SKEW_MILLISECONDS = option(
    "hoodie.time.generator.max_expected_clock_skew_ms",
    at_least(0),
    200,
    "Table versions 8 and 9: the greatest difference between two writers' clocks. Hudi waits that long for a time; skep"
    " backdates its times by it wherever others share the lock, but never before one that is on the timeline",
)
option(
    "hoodie.time.generator.type",
    str,
    "WAIT_TO_ADJUST_SKEW",
    "Hudi has this type only; times are chosen under the lock, after all that are on the timeline",
    status=Status.NO_EFFECT,
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
    option(
        _key,
        str,
        "",
        "waiting writers queue up, and conflicts are checked without a background task",
        status=Status.NO_EFFECT,
    )


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How writers of one table share it, and when the writes of dead writers are rolled back."""

    mode: ConcurrencyMode
    failed_writes: FailedWritesPolicy

    @classmethod
    def of(cls, options: Options) -> Concurrency:
        """OptionError for a policy that the mode excludes."""
        mode, policy = options.value(CONCURRENCY_MODE), options.value(FAILED_WRITES_POLICY)
        if mode is not ConcurrencyMode.SINGLE_WRITER:
            if not options.is_set(FAILED_WRITES_POLICY):
                policy = FailedWritesPolicy.LAZY
            elif policy is not FailedWritesPolicy.LAZY:
                raise OptionError(
                    f"{CONCURRENCY_MODE.key}={mode.value} needs {FAILED_WRITES_POLICY.key}=LAZY, not {policy.value}:"
                    " a JVM writer with another policy rolls back the writes of others that still run",
                    hint=f"leave {FAILED_WRITES_POLICY.key} out",
                    option=FAILED_WRITES_POLICY.key,
                    found=policy.value,
                    expected=FailedWritesPolicy.LAZY.value,
                )
        return cls(mode, policy)

    @property
    def is_shared(self) -> bool:
        """Whether several writers write at the same time."""
        return self.mode is not ConcurrencyMode.SINGLE_WRITER

    @property
    def is_non_blocking(self) -> bool:
        """Whether writes to the same file group do not conflict (`commit/concurrency/conflict.py`)."""
        return self.mode is ConcurrencyMode.NON_BLOCKING
