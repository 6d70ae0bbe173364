"""Storage that can set when a file was modified: timeline layout 1 has completion times in no other place."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TimedStorage(Protocol):
    """Local files and HDFS. Object stores state when an object was written, and nothing changes that."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Sets the time of a file that listings show, in milliseconds. FileNotFoundError for a missing one."""
