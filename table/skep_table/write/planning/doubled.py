"""Writes beside a resize: rows for the groups that it replaces go to those that it makes, too (format guide 17.4).

They are logs over the slices that the resize is about to write, which no reader sees before it completes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from skep_format.errors import CommitConflictError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId, LogFileName
from skep_table.keys.buckets import hash_fields_of_key
from skep_table.keys.hash_rings import Resize, RingTargets, clustering_groups, planned_rings, resizes_of
from skep_table.table import HudiTable
from skep_table.write.planning.candidates import CandidateFile, LogTail
from skep_table.write.planning.pending_clusterings import Met
from skep_table.write.planning.profile import BucketPlan, Copies


def with_copies(table: HudiTable, plan: BucketPlan, met: Met) -> BucketPlan:
    """The plan, in which the buckets of `met` have their rows in the groups that come of them, too."""
    targets = _targets(table, met)
    versions = {path: _versions(table, path) for path in {group.partition_path for group in met}}
    numbers = count(len(plan.buckets))
    buckets = list(plan.buckets)
    for place, bucket in enumerate(plan.buckets):
        group = FileGroupId(bucket.partition_path, bucket.file_id)
        if group in met:
            instant, to = met[group], targets[group]
            copies = tuple(
                replace(
                    bucket,
                    number=next(numbers),
                    file_id=file_id,
                    base=_slice_to_be(file_id, instant, versions[group.partition_path]),
                )
                for file_id in to.file_ids
            )
            buckets[place] = replace(bucket, copies=Copies(to, copies))
    return replace(plan, buckets=tuple(buckets))


def _targets(table: HudiTable, met: Met) -> dict[FileGroupId, RingTargets]:
    """CommitConflictError where a group has none: its clustering was taken back meanwhile."""
    fields = hash_fields_of_key(table.config, table.options)
    found: dict[FileGroupId, RingTargets] = {}
    for instant in table.timeline.pending():
        if instant.requested_time not in met.values():
            continue
        groups = clustering_groups(table, instant)
        rings = planned_rings(table, instant, resizes_of(table, groups, instant))
        for group in groups:
            resizes: dict[str, Resize] = dict(resizes_of(table, (group,), instant))
            for partition, resize in resizes.items():
                to = RingTargets.of(rings[partition], resize.children, fields)
                found.update({FileGroupId(partition, each.file_id or ""): to for each in group.slices})
    if missing := met.keys() - found.keys():
        problem = f"the clustering of {min(missing).file_id} was taken back meanwhile"
        raise table.error(CommitConflictError, problem, path=min(missing).partition_path)
    return found


def _versions(table: HudiTable, partition: str) -> dict[tuple[str, InstantTime], int]:
    """The highest version of the log files of a partition, by group and slice: those of former writes lie behind."""
    found: dict[tuple[str, InstantTime], int] = {}
    for file in table.storage.list_prefix(partition):
        name = LogFileName.parse(file.name)
        if name is not None:
            key = name.file_id, name.instant_time
            found[key] = max(found.get(key, 0), name.version)
    return found


def _slice_to_be(file_id: str, instant: InstantTime, versions: dict[tuple[str, InstantTime], int]) -> CandidateFile:
    return CandidateFile(
        file_id, "", instant, 0, tail=LogTail(instant, versions.get((file_id, instant), 0), awaited=True)
    )
