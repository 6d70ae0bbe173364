"""The hash rings of a table's partitions: loaded, made, and what a resize does to them (format guide 17.3, 17.4).

The first file of a partition belongs to no commit: it is made by whichever writer comes first, and stays when its write
fails, as in Hudi. That of a resize, or of a commit that replaces the partition's file groups, is written before its
instant completes, and counts from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import AlreadyExistsError, CommitConflictError, CorruptFileError, TableMismatchError
from skep_format.hashing_metadata import (
    FIRST,
    FOLDER,
    INDEX_FOLDER,
    HashingMetadata,
    HashNode,
    counting,
    decode_nodes,
    instants_of,
    marker_path,
    metadata_folder,
    metadata_path,
)
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.plans import ClusteringGroup, RequestedReplaceMetadata
from skep_table.keys.buckets import ring_hashes
from skep_table.table import HudiTable

OF_PARTITION: Final = "clustering.group.partition"
SEQUENCE: Final = "clustering.group.sequence.no"
CHILDREN: Final = "clustering.group.child.node"


@dataclass(frozen=True, slots=True)
class Resize:
    """What a clustering plan does to the ring of one partition."""

    seq_no: int
    children: tuple[HashNode, ...]


def ring_of(table: HudiTable, partition: str) -> HashingMetadata | None:
    """The metadata of a partition that counts; None for a partition without any. Changes nothing."""
    found = _found(table, partition)
    return found[0] if found else None


def ring_for_writing(
    table: HudiTable, partition: str, buckets: int, *, has_groups: bool = False
) -> HashingMetadata | None:
    """The same, made where there is none, but for a partition that has file groups already. A resize that lacks its
    marker gets it."""
    if table.may_have_folder(INDEX_FOLDER):
        found = _found(table, partition)
        if found is not None:
            metadata, is_marked = found
            if not is_marked:
                mark(table, metadata.instant, (partition,))
            return metadata
    if has_groups:
        return None
    first = HashingMetadata.initial(partition, buckets)
    try:
        table.storage.create_exclusive(first.path, first.encode())
    except AlreadyExistsError:  # another writer was first, and may have had another number of buckets
        return HashingMetadata.decode(table.storage.read(first.path), first.path)
    return first


def has_rings(table: HudiTable) -> bool:
    """Whether the partitions of a table have hash rings."""
    return (
        table.may_have_folder(INDEX_FOLDER)
        and FOLDER.rpartition("/")[2] in table.storage.list_folder(INDEX_FOLDER).folders
    )


def is_copy(table: HudiTable, stat: WriteStat) -> bool:
    """Whether a log file of a completed write lies over a slice that a resize was to write, or is about to.

    The same rows are in a group that readers see. Where the resize was rolled back, the file is deleted.
    """
    if not stat.is_log or not has_rings(table):
        return False
    files, _ = instants_of(file.name for file in table.storage.list_prefix(metadata_folder(stat.partition_path)))
    pending = table.timeline.pending()
    counted = (_load(table, stat.partition_path, time) for time in files if not pending.contains(time))
    return all(ring.node_of(stat.file_id) is None for ring in counted)


def with_groups_of_rings(
    table: HudiTable, replaced: Mapping[str, tuple[str, ...]], partitions: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """The groups that a commit replaces in some partitions, and with them all groups of their rings, of which some may
    not be there yet: whatever writes to one at the same time conflicts with the commit."""
    if not has_rings(table):
        return replaced
    found = dict(replaced)
    paths = sorted({*partitions, *replaced})
    for path, ring in zip(paths, table.context.threads.map(partial(ring_of, table), paths), strict=True):
        if ring is not None:
            ids = (node.file_id for node in ring.nodes)
            found[path] = tuple(dict.fromkeys((*found.get(path, ()), *ids)))
    return found


def renewed_rings(table: HudiTable, metadata: CommitMetadata) -> dict[str, HashingMetadata]:
    """The rings of which a commit other than a clustering replaces all groups, as they are before it."""
    replaced = metadata.partition_to_replace_file_ids
    if not replaced or metadata.operation_type is WriteOperation.CLUSTER or not has_rings(table):
        return {}
    paths = list(replaced)
    rings = zip(paths, table.context.threads.map(partial(ring_of, table), paths), strict=True)
    return {
        path: ring
        for path, ring in rings
        if ring is not None and {node.file_id for node in ring.nodes} <= set(replaced[path])
    }


def files_of_rings(table: HudiTable, instant: InstantTime) -> list[str]:
    """The rings of an instant and their markers, in whatever partitions: each ring behind its markers."""
    if not has_rings(table):
        return []
    found = []
    for file in table.storage.list_prefix(FOLDER, recursive=True):
        folder, _, name = file.path.rpartition("/")
        if instant in instants_of([name])[0]:
            partition = folder.removeprefix(FOLDER).strip("/")
            places = (marker_path(partition, instant, in_partition=inside) for inside in (False, True))
            found += [*places, file.path]
    return found


def mark(table: HudiTable, instant: InstantTime, partitions: Iterable[str]) -> None:
    """Writes the markers of a resize that has completed."""
    in_partition = table.format.marks_rings_in_partitions
    for partition in partitions:
        table.storage.replace_atomic(marker_path(partition, instant, in_partition=in_partition), b"")


def move_markers_for_version_6(table: HudiTable) -> None:
    """Puts the markers of rings where Hudi 0.15 writes them: one beside an older ring keeps it from resizing."""
    if not has_rings(table):
        return
    for file in table.storage.list_prefix(FOLDER, recursive=True):
        partition, _, name = file.path.removeprefix(FOLDER + "/").rpartition("/")
        for time in instants_of([name])[1]:
            table.storage.replace_atomic(marker_path(partition, time, in_partition=True), b"")
            table.storage.delete(file.path)


def _found(table: HudiTable, partition: str) -> tuple[HashingMetadata, bool] | None:
    """The metadata that counts, and whether that is marked."""
    listed = table.storage.list_prefix(metadata_folder(partition))
    files, markers = instants_of(file.name for file in listed)

    def is_marked_in_partition(time: InstantTime) -> bool:
        return table.storage.exists(marker_path(partition, time, in_partition=True))

    def is_committed(time: InstantTime) -> bool:
        if table.timeline.contains(time):
            return table.timeline.completed().contains(time)
        return is_marked_in_partition(time) or _is_in_use(table, partition, files, time)

    time = counting(files, markers, is_committed)
    if time is None:
        return None
    is_marked = time == FIRST or time in markers
    if not is_marked and table.format.marks_rings_in_partitions:
        is_marked = is_marked_in_partition(time)
    return _load(table, partition, time), is_marked


def _load(table: HudiTable, partition: str, time: InstantTime) -> HashingMetadata:
    path = metadata_path(partition, time)
    return HashingMetadata.decode(table.storage.read(path), path)


def _is_in_use(table: HudiTable, partition: str, files: tuple[InstantTime, ...], time: InstantTime) -> bool:
    """Whether a live file group is one that came with a resize which is not on the timeline: an archived one.

    The groups that were there before are no sign: a resize that Hudi rolled back leaves a file with these, too.
    """
    position = files.index(time)
    known = {node.prefix for node in _load(table, partition, files[position - 1]).nodes} if position else set()
    own = {node.file_id for node in _load(table, partition, time).nodes if node.prefix not in known}
    return any(group.file_id in own for group in table.view().file_groups(partition))


def resizes_of(table: HudiTable, groups: Iterable[ClusteringGroup], instant: Instant) -> Mapping[str, Resize]:
    """By partition what the groups of a plan do to its ring; empty for a clustering that resizes nothing."""
    path = table.layout.path(Instant(instant.requested_time, instant.action, State.REQUESTED))
    children: dict[str, list[HashNode]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for group in groups:
        extra = group.extra_metadata or {}
        if CHILDREN not in extra:
            continue
        partition = extra.get(OF_PARTITION, "")
        children[partition] += decode_nodes(extra[CHILDREN], path)
        try:
            numbers[partition] = int(extra[SEQUENCE])
        except (KeyError, ValueError) as error:
            raise CorruptFileError.of_file(path, f"{SEQUENCE} is {extra.get(SEQUENCE)!r}") from error
    return {partition: Resize(numbers[partition], tuple(nodes)) for partition, nodes in children.items()}


def groups_after(
    table: HudiTable, groups: Iterable[ClusteringGroup], instant: Instant
) -> dict[FileGroupId, frozenset[FileGroupId]]:
    """By file group that a resize replaces those that it makes of it."""
    found = {}
    for group in groups:
        for partition, resize in resizes_of(table, (group,), instant).items():
            made = frozenset(FileGroupId(partition, node.file_id) for node in resize.children if node.prefix)
            found.update({FileGroupId(partition, each.file_id or ""): made for each in group.slices})
    return found


def planned_resizes(table: HudiTable, instant: Instant) -> Mapping[str, Resize]:
    """Those of the plan of a clustering, be it pending or completed; empty for other instants."""
    return resizes_of(table, clustering_groups(table, instant), instant)


def clustering_groups(table: HudiTable, instant: Instant) -> tuple[ClusteringGroup, ...]:
    """The groups in the plan of a clustering, be it pending or completed; none of other instants."""
    if instant.action not in (Action.REPLACE_COMMIT, Action.CLUSTERING) or not table.may_have_folder(INDEX_FOLDER):
        return ()
    requested = Instant(instant.requested_time, table.layout.clustering, State.REQUESTED)
    plan = table.requested_plan(RequestedReplaceMetadata, requested)
    return plan.clustering_plan.input_groups if plan and plan.clustering_plan else ()


def planned_rings(table: HudiTable, instant: Instant, resizes: Mapping[str, Resize]) -> dict[str, HashingMetadata]:
    """By partition the ring that a resize begins with. CommitConflictError where it is not the one that was planned."""
    rings = {}
    for partition, resize in resizes.items():
        ring = ring_of(table, partition)
        if ring is None or ring.seq_no != resize.seq_no:
            raise table.error(
                CommitConflictError,
                f"the hash ring of partition {partition or 'of the table'} was changed since {instant.requested_time}"
                " was planned",
                hint="plan it again",
                partition=partition,
                found=None if ring is None else ring.seq_no,
                expected=resize.seq_no,
            )
        rings[partition] = ring
    return rings


_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class RingTargets:
    """The file groups that the rows of a planned group go to. `places`: by range of hashes the one of `file_ids`, or
    none where the range is another group's. `fields` are the hash fields in the order of the key."""

    ends: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    file_ids: tuple[str, ...]
    fields: tuple[str, ...]

    @classmethod
    def of(cls, ring: HashingMetadata, children: Sequence[HashNode], fields: tuple[str, ...]) -> RingTargets:
        """`ring` is that before the resize, `children` are the nodes of the group."""
        nodes = ring.resized(ring.instant, children).nodes
        ids = tuple(child.file_id for child in children if child.prefix)
        places = [ids.index(node.file_id) if node.file_id in ids else _NOWHERE for node in nodes]
        return cls(np.array([node.value for node in nodes], np.int64), np.array(places, np.int64), ids, fields)

    def of_keys(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """By key the position of its group in `file_ids`. TableMismatchError for one that is another group's."""
        at = np.searchsorted(self.ends, ring_hashes(keys, self.fields))
        at[at == len(self.ends)] = 0
        found = self.places[at]
        if (found == _NOWHERE).any():
            raise TableMismatchError(
                f"{int((found == _NOWHERE).sum())} rows lie in a file group that their hashes do not lead to",
                hint=f"were they written with other hash fields than {', '.join(self.fields)}?",
                found=self.file_ids,
            )
        return found
