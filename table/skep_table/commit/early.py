"""Early conflict detection: a write looks, before its first file, whether an older one that still runs writes there.

Each write says in its inflight file what it is going to change, and looks after that: of two, at least the later one
sees the other. What Hudi's writers have not said beforehand is seen by their markers.
"""

from __future__ import annotations

from skep_table.commit.conflict import Group, completed_since, conflict, conflict_key, groups_of, touched_groups
from skep_table.commit.heartbeat import Heartbeats, Pulse
from skep_table.commit.markers import list_markers
from skep_table.commit.options import EARLY_COMMIT_CHECK, EARLY_DETECTION
from skep_table.commit.plans import is_clustering
from skep_table.commit.setting import CommitSetting
from skep_table.names import BaseFileName, LogFileName
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Instant
from skep_table.timeline.metadata import CommitMetadata


def refuse_early(began: HudiTable, instant: Instant, profile: CommitMetadata, setting: CommitSetting) -> None:
    """CommitConflictError when it is clear already that the write is going to lose. Only where options ask for it."""
    if not setting.options.value(EARLY_DETECTION):
        return
    groups = groups_of(profile)
    if not groups:
        return
    table = began.reload()
    key = conflict_key(table)
    ours = set(map(key, groups))
    hearts = Heartbeats(table.storage, Pulse.of(setting.options), setting.clock)
    for other in table.timeline.pending():
        if other.action not in DATA_ACTIONS or other.requested_time >= instant.requested_time:
            continue  # the later one gives way
        if is_clustering(table, other) or not hearts.is_alive(other.requested_time):
            continue
        theirs = touched_groups(table, other) | _marked(table.storage, other.requested_time)
        both = ours & set(map(key, theirs))
        if both:
            raise conflict(table, other, both, f"is writing {len(both)} of the file groups of this write")
    if setting.options.value(EARLY_COMMIT_CHECK):
        for done in completed_since(began, table):
            both = ours & set(map(key, touched_groups(table, done)))
            if both:
                raise conflict(table, done, both, f"changed {len(both)} of the file groups of this write first")


def _marked(storage: Storage, instant_time: str) -> frozenset[Group]:
    """The file groups that a write has announced files of."""
    found = set()
    for marker in list_markers(storage, instant_time) or ():
        name = BaseFileName.parse(marker.file_name) or LogFileName.parse(marker.file_name)
        if name is not None:
            found.add((marker.partition_path, name.file_id))
    return frozenset(found)
