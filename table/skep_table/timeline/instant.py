"""An instant of the timeline: what (action), how far (state), when (requested and completion time)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import total_ordering


class Action(str, Enum):
    """Hudi's actions, spelt as in the file names."""

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
        """The action in the completed file's name: a compaction ends as a commit, and so on (format guide 2.2, 3)."""
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
    """How far an action has come; a later state hides the earlier ones of the same requested time."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2

    def __lt__(self, other: State) -> bool:
        return self.value < other.value


@dataclass(frozen=True, slots=True)
class Instant:
    """One action at one time.

    `requested_time` is the text in the file name (17 digits, 14 in old tables, longer in metadata tables), compared as
    text. `completion_time` is known in layout 2 for completed instants; in layout 1 it is None, or the file's
    modification time where a caller asks for it.
    """

    requested_time: str
    action: Action
    state: State
    completion_time: str | None = None

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def sort_key(self) -> tuple[str, int, str]:
        return self.requested_time, self.state.value, self.action.value
