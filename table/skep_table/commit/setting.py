"""What surrounds a commit: lock, clock, runner, listeners, options, and the check against concurrent commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.commit.conflict import refuse_overlap
from skep_table.commit.options import LOCK_TIMEOUT_SECONDS
from skep_table.events import NO_EVENTS, Events
from skep_table.lock import Lock, NoLock
from skep_table.options import Options
from skep_table.runner import Runner, ThreadRunner
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import CommitMetadata

# (table now, instants completed since the write began, what is to be committed) → raises CommitConflictError
ConflictCheck = Callable[[HudiTable, tuple[Instant, ...], CommitMetadata], None]


@dataclass(frozen=True, slots=True)
class CommitSetting:
    lock: Lock = field(default_factory=NoLock)
    clock: Clock = SYSTEM_CLOCK
    events: Events = NO_EVENTS
    runner: Runner = field(default_factory=ThreadRunner)
    options: Options = field(default_factory=Options)
    conflict_check: ConflictCheck = refuse_overlap

    @property
    def lock_timeout_seconds(self) -> float:
        return self.options.value(LOCK_TIMEOUT_SECONDS)
