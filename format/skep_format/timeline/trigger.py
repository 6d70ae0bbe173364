"""What starts a compaction, of the table or of its metadata table, by Hudi's names."""

from __future__ import annotations

from enum import Enum


class Trigger(str, Enum):
    """What starts a compaction: delta commits since the last one, time since it, both, or either."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"

    def fires(self, *, enough: bool, long_ago: bool) -> bool:
        """Whether one is due: there are `enough` delta commits, the last compaction is `long_ago`."""
        return {
            Trigger.NUM_COMMITS: enough,
            Trigger.NUM_COMMITS_AFTER_LAST_REQUEST: enough,
            Trigger.TIME_ELAPSED: long_ago,
            Trigger.NUM_AND_TIME: enough and long_ago,
            Trigger.NUM_OR_TIME: enough or long_ago,
        }[self]
