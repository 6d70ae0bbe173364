"""Options of the front door: whether tables of a lake are synced."""

from __future__ import annotations

from skep_table.options import boolean, option

SYNC = option("skep.sync.after.commit", boolean, True, "Bring the metastore up to date after each commit")
QUEUE = option(
    "skep.sync.queue", str, "", "Folder that keeps what is left to sync; else .skep/sync below the lake's warehouse"
)
