"""Options of the front door: how tables of a lake are locked and synced."""

from __future__ import annotations

from enum import Enum

from skep_table.options import boolean, one_of, option


class LockKind(str, Enum):
    """Who excludes other writers while a commit is completed."""

    METASTORE = "metastore"
    PROCESS = "process"
    NONE = "none"


LOCK = option(
    "skep.lock",
    one_of(LockKind),
    LockKind.METASTORE,
    "The metastore's lock, one between the threads of this process, or none",
)
SYNC = option("skep.sync.after.commit", boolean, True, "Bring the metastore up to date after each commit")
QUEUE = option(
    "skep.sync.queue", str, "", "Folder that keeps what is left to sync; else .skep/sync below the lake's warehouse"
)
