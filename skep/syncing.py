"""The sync that follows a commit: it can fail, and the commit stands all the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from skep_table.errors import SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import CommitHook, Committed


class SyncWarning(UserWarning):
    """A commit stands and the metastore does not know of it yet: the next sync of the table makes up for it."""


def sync_after_commit(sync: Callable[[Committed], object], events: Events = NO_EVENTS) -> CommitHook:
    """A hook that runs `sync`. What it misses needs no record of its own: the entry's marker stays behind the timeline,
    which is what `skep sync apply --pending` looks for.
    """

    def hook(committed: Committed) -> None:
        instant = committed.instant.requested_time
        try:
            sync(committed)
        except SkepError as error:
            events.emit("sync.failed", table=committed.table_name, instant=instant, error=error)
            warnings.warn(
                f"commit {instant} of {committed.table_name} stands, but the metastore does not know it yet: "
                f"{error.message}",
                SyncWarning,
                stacklevel=2,
            )

    return hook
