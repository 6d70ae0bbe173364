"""An instant of the timeline: its action, its state, its requested and completion time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import total_ordering

from skep_format.instant_time import CompletionTime, InstantTime


class Action(str, Enum):
    """Hudi's actions, in the spelling of instant file names (Hudi: HoodieTimeline)."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    @property
    def completed_as(self) -> Action:
        """The action in the name of the completed file: a compaction completes as a commit (format guide 2.2 and 3)."""
        return _COMPLETED_AS.get(self, self)


_COMPLETED_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}

# Actions whose completion makes rows visible or invisible: Hudi's "commits timeline".
DATA_ACTIONS = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})


@total_ordering
class State(Enum):
    """The progress of an action; of one requested time the furthest state counts (Hudi: HoodieInstant.State)."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank  # the value of a member is looked up by Python's code, ten times as slow

    def __lt__(self, other: State) -> bool:
        return self.rank < other.rank


@dataclass(frozen=True, slots=True)
class Instant:
    """One action at one time (Hudi: HoodieInstant).

    `requested_time` has 17 digits, 14 in old tables, more in metadata tables. `completion_time` is set for completed
    instants of layout 2, and None in layout 1. `by_modification`: the name of its completed file does not state it, and
    it is when that file was modified (Hudi: isLegacy).
    """

    requested_time: InstantTime
    action: Action
    state: State
    completion_time: CompletionTime | None = None
    by_modification: bool = False

    @property
    def is_completed(self) -> bool:
        """Whether the action has completed; otherwise the instant is pending."""
        return self.state is State.COMPLETED

    @property
    def latest_time(self) -> InstantTime:
        """The later of its two times: new instants are requested, and complete, after it."""
        completed = self.completion_time
        if completed is None or not completed.is_at_or_after_request(self.requested_time):
            return self.requested_time
        return InstantTime(completed)

    @property
    def sort_key(self) -> tuple[InstantTime, int, str]:
        """The order of the timeline: requested time, then state, then action."""
        return self.requested_time, self.state.rank, self.action
