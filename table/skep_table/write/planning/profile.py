"""From a workload profile to buckets: which rows are written into which file, small files filled up first.

A bucket is one file to be written: a new base or log file of a file group, or a new group. Hudi: UpsertPartitioner,
with sizes by `hoodie.parquet.small.file.limit`, `hoodie.parquet.max.file.size` and the record size of recent commits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.basefile import BaseFileOptions
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.buckets import UUID_NAMES, GroupNames
from skep_table.keys.hash_rings import RingTargets
from skep_table.keys.text import single
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.tags import NEW_KEY, Tags, number_of_new_group

NO_BUCKET = -1
# How far a file may exceed its target size, as a share, to avoid a small one beside it.
OVER = 0.15
# Base files up to this size cost about as much to rewrite as a new one to begin, in bytes.
_ALWAYS_REWRITTEN = 2 << 20


@dataclass(frozen=True, slots=True)
class LogSizing:
    """Merge-on-read: updates go to log files; inserts too when the index finds keys there (`takes_inserts`): into the
    logs of all groups that are not full.

    Else inserts rewrite small base files, at most `candidates` of a partition, and none that has log files.
    `compression` is the bytes in a base file for each byte of a log file. A base file larger than `most_rewritten`
    bytes for each insert is not rewritten: the inserts get a new file, which later inserts fill up. Files stay as few
    as in an LSM tree, as each is rewritten only by inserts of about its size. None rewrites any small file.
    """

    candidates: int = 1
    compression: float = 0.35
    takes_inserts: bool = False
    most_rewritten: int | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large files become, in bytes and rows. `logs` is set for merge-on-read tables."""

    small_file_bytes: int = 104_857_600
    max_file_bytes: int = 125_829_120
    record_bytes: int = 1024
    logs: LogSizing | None = None
    split_rows: int | None = None  # of a new file, whatever the size of its records
    files: BaseFileOptions | None = None  # what a base file has besides its records

    @property
    def rows_per_file(self) -> int:
        """Rows of a full file, at least one."""
        if self.split_rows is not None:
            return self.split_rows
        rows = self.max_file_bytes // max(1, self.record_bytes)
        if self.files is not None:
            rows = self.files.room(self.max_file_bytes, rows) // max(1, self.record_bytes)
        return max(1, rows)

    def new_files(self, rows: int) -> list[int]:
        """Rows of each new file: full ones and, as Hudi has it, one with the rest, which later inserts fill up.

        A rest too small for a file of its own is spread over the others.
        """
        if rows <= 0:
            return []
        full, rest = divmod(rows, self.rows_per_file)
        if full and self.split_rows is None and rest <= full * int(self.rows_per_file * OVER):
            return [rows // full + (1 if at < rows % full else 0) for at in range(full)]
        return [self.rows_per_file] * full + ([rest] if rest else [])


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """The workload of one partition: its candidate files, the rows tagged with each, the rows with new keys."""

    files: tuple[CandidateFile, ...] = ()
    updates: Mapping[int, int] = field(default_factory=dict)  # tag: position in files, or a group to be made → rows
    inserts: int = 0


@dataclass(frozen=True, slots=True)
class Copies:
    """The buckets that get the rows of a bucket, too, by the hashes of their keys: those of a resize under way."""

    targets: RingTargets
    buckets: tuple[Bucket, ...]

    def parts(self, rows: pa.Table) -> Iterator[tuple[Bucket, pa.Table]]:
        """The keyed rows of each of them that gets any."""
        places = self.targets.of_keys(single(rows.column(RECORD_KEY)))
        for place in np.unique(places).tolist():
            yield self.buckets[place], rows.filter(pa.array(places == place))


@dataclass(frozen=True, slots=True)
class Bucket:
    """One file to be written. `base` is the slice that its rows meet; None makes a new file group.

    `to_log`: the rows are appended to the group's log, instead of being merged into a new base file. `one_file`: rows
    stay in this group however many they are, as an index requires that chose the group by their keys.
    `has_metafile`: the partition is known to have its metafile, as it has a slice already.
    `copies` get the rows, too. Of the rows, `inserts` have keys that no file holds.
    """

    number: int
    partition_path: str
    file_id: str
    base: CandidateFile | None = None
    rows: int = 0
    to_log: bool = False
    one_file: bool = False
    has_metafile: bool = False
    copies: Copies | None = None
    inserts: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    """Where the rows of one partition go: updates by file, inserts by the hash of their key over weighted buckets."""

    updates: Mapping[int, int] = field(default_factory=dict)  # tag → bucket number
    inserts: tuple[int, ...] = ()
    bounds: tuple[int, ...] = ()  # cumulative weights of `inserts`

    def buckets(self, tags: Tags, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The bucket number of each row by its tag and the hash of its key; NO_BUCKET for rows that are left out."""
        if self.inserts:
            draw = hashes % np.uint64(self.bounds[-1])
            place = np.searchsorted(np.array(self.bounds, np.uint64), draw, side="right")
            chosen = np.array(self.inserts, np.int32)[place]
        else:
            chosen = np.full(len(tags), NO_BUCKET, np.int32)
        found = tags != NEW_KEY
        if found.any():
            places = np.array(sorted(self.updates), np.int32)
            numbers = np.array([*(self.updates[place] for place in places.tolist()), NO_BUCKET], np.int32)
            at = np.searchsorted(places, tags)
            at[np.append(places, 0)[at] != tags] = len(places)
            chosen = np.where(found, numbers[at], chosen)
        return chosen.astype(np.int32)


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """All buckets of a write by number, and the route of each partition's rows to them."""

    buckets: tuple[Bucket, ...]
    routes: Mapping[str, PartitionRoute]


def plan_buckets(
    profiles: Mapping[str, PartitionProfile],
    sizing: Sizing,
    *,
    fill_small_files: bool = True,
    names: GroupNames = UUID_NAMES,
    named: Callable[[str, int], str | None] | None = None,
) -> BucketPlan:
    """Assigns every tagged and every new row of `profiles` to a bucket. `names` are for new file groups, but for those
    that are `named`, by their partition and the index's number."""
    buckets: list[Bucket] = []
    inserts_to_log = sizing.logs is not None and sizing.logs.takes_inserts
    routes: dict[str, PartitionRoute] = {}
    for partition in sorted(profiles):
        profile = profiles[partition]
        new = partial(Bucket, partition_path=partition, has_metafile=bool(profile.files))
        by_file: dict[int, int] = {}
        for position in sorted(profile.updates):
            by_file[position] = len(buckets)
            rows = profile.updates[position]
            if position < NEW_KEY:
                number = number_of_new_group(position)
                file_id = (named and named(partition, number)) or names.new_file_id(number)
                buckets.append(new(len(buckets), file_id=file_id, rows=rows, one_file=True, to_log=inserts_to_log))
                continue
            file = profile.files[position]
            buckets.append(Bucket(len(buckets), partition, file.file_id, file, rows, sizing.logs is not None))
        weights = _small_files(profile, sizing) if fill_small_files else {}
        shares: list[tuple[int, int]] = []  # bucket number, rows
        left = profile.inserts
        for position, room in weights.items():
            rows = min(room, left)
            if rows <= 0:
                continue
            if position not in by_file:
                by_file[position] = len(buckets)
                file = profile.files[position]
                buckets.append(Bucket(len(buckets), partition, file.file_id, file))
            shares.append((by_file[position], rows))
            left -= rows
        for rows in sizing.new_files(left):
            shares.append((len(buckets), rows))
            buckets.append(new(len(buckets), file_id=names.new_file_id()))
        for number, rows in shares:
            bucket = buckets[number]
            inserts = bucket.inserts + rows
            buckets[number] = replace(bucket, rows=bucket.rows + rows, to_log=inserts_to_log, inserts=inserts)
        bounds = np.cumsum([rows for _, rows in shares]).tolist() if shares else []
        routes[partition] = PartitionRoute(
            {position: by_file[position] for position in profile.updates}, tuple(n for n, _ in shares), tuple(bounds)
        )
    return BucketPlan(tuple(buckets), routes)


def new_file_id() -> str:
    """Of a file group that may hold any key."""
    return UUID_NAMES.new_file_id()


def pack(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Balances items over tasks by size, largest first. Returns positions of `sizes` by task, no empty task."""
    loads = [(0, number) for number in range(max(1, min(tasks, len(sizes))))]
    packed: list[list[int]] = [[] for _ in loads]
    for position in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        load, lightest = loads[0]
        heapq.heapreplace(loads, (load + sizes[position] + 1, lightest))
        packed[lightest].append(position)
    return [group for group in packed if group]


def _small_files(profile: PartitionProfile, sizing: Sizing) -> dict[int, int]:
    """Position → rows that still fit, smallest file first."""
    sizes = {at: _size(file, sizing.logs) for at, file in enumerate(profile.files) if _takes_inserts(file, sizing.logs)}
    # nothing is rewritten where logs take inserts: there all groups do that are not full, as in Hudi
    in_logs = sizing.logs is not None and sizing.logs.takes_inserts and sizing.small_file_bytes > 0
    below = sizing.max_file_bytes if in_logs else sizing.small_file_bytes
    small = sorted((at for at, size in sizes.items() if size < below), key=lambda at: sizes[at])
    if sizing.logs is not None and not sizing.logs.takes_inserts:
        small = small[: sizing.logs.candidates]
        if sizing.logs.most_rewritten is not None:
            most = max(_ALWAYS_REWRITTEN, sizing.logs.most_rewritten * profile.inserts)
            small = [at for at in small if sizes[at] <= most]
    return {at: (sizing.max_file_bytes - sizes[at]) // max(1, sizing.record_bytes) for at in small}


def _takes_inserts(file: CandidateFile, logs: LogSizing | None) -> bool:
    if file.clustering is not None:
        return False
    if logs is None:
        return True
    if file.compaction is not None:
        return False
    # By their size: in newer table versions the names of log files do not name the slice, and `tail.files` lacks them.
    return logs.takes_inserts or (bool(file.path) and not (file.tail and file.tail.size))


def _size(file: CandidateFile, logs: LogSizing | None) -> int:
    """Bytes of the slice as one base file."""
    if logs is None or file.tail is None:
        return file.size_bytes
    return file.size_bytes + int(file.tail.size * logs.compression)
