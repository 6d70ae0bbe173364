"""What surrounds a commit: lock, clock, runner, listeners, options, and what is done against concurrent commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from skep_table.clock import SYSTEM_CLOCK, Clock
from skep_table.commit.conflict import Ending, Strategy, strategy_of
from skep_table.commit.options import LOCK_TIMEOUT_SECONDS
from skep_table.errors import LeaseLostError
from skep_table.events import NO_EVENTS, Events
from skep_table.keys.buckets import is_bucketed
from skep_table.lock import Lock, NoLock
from skep_table.locks.options import LOCK_RETRIES, LOCK_WAIT_MILLISECONDS
from skep_table.options import Options
from skep_table.runner import Runner, ThreadRunner


def _nothing(_error: LeaseLostError) -> None:
    return None


@dataclass(frozen=True, slots=True)
class CommitSetting:
    """`on_lost` is called, from another thread, when a write can't complete any more because its heartbeat was lost:
    what still runs for it had better stop. `conflict_check` takes the place of the strategy that the options name."""

    lock: Lock = field(default_factory=NoLock)
    clock: Clock = SYSTEM_CLOCK
    events: Events = NO_EVENTS
    runner: Runner = field(default_factory=ThreadRunner)
    options: Options = field(default_factory=Options)
    conflict_check: Strategy | None = None
    on_lost: Callable[[LeaseLostError], None] = _nothing

    @property
    def lock_timeout_seconds(self) -> float:
        options = self.options
        if not options.is_set(LOCK_TIMEOUT_SECONDS) and (
            options.is_set(LOCK_WAIT_MILLISECONDS) or options.is_set(LOCK_RETRIES)
        ):
            return options.value(LOCK_WAIT_MILLISECONDS) / 1000 * (1 + options.value(LOCK_RETRIES))
        return options.value(LOCK_TIMEOUT_SECONDS)

    def check_conflicts(self, ending: Ending) -> None:
        """CommitConflictError when the write lost against another one."""
        bucketed = is_bucketed(ending.table.config)
        (self.conflict_check or strategy_of(self.options, bucketed=bucketed))(ending)
