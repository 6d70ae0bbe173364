"""From a workload profile to buckets: which rows are written into which file, small files filled up first.

A bucket is one base file to be written: a new version of a file group, or a new group. Hudi's upsert partitioner does
the same (sizes by `hoodie.parquet.small.file.limit`, `hoodie.parquet.max.file.size` and the record size learnt from
commits).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from skep_table.basefile import BaseFileOptions
from skep_table.write.index import NEW_KEY, IndexFile
from skep_table.write.indexes.base import number_of_new_group
from skep_table.write.indexes.bucket import bucket_file_id

NO_BUCKET = -1
# How far a file may be over its target size, as a share, rather than leave a small one behind.
OVER = 0.15


@dataclass(frozen=True, slots=True)
class LogSizing:
    """Merge-on-read: updates go to log files; inserts too when the index finds keys there (`takes_inserts`).

    Else inserts rewrite small base files, at most `candidates` of a partition, and none that has log files.
    `compression` is what a byte of a log file takes in a base file.
    """

    candidates: int = 1
    compression: float = 0.35
    takes_inserts: bool = False


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
    """What comes into one partition: its latest base files, the rows tagged with each, the rows that are new."""

    files: tuple[IndexFile, ...] = ()
    updates: Mapping[int, int] = field(default_factory=dict)  # tag: position in files, or a group to be made → rows
    inserts: int = 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """One file to be written. `base` is the slice that its rows meet; None makes a new file group.

    `to_log`: the rows are appended to the group's log, instead of being merged into a new base file. `one_file`: rows
    stay in this group however many they are, as an index demands that has chosen it by their keys.
    """

    number: int
    partition_path: str
    file_id: str
    base: IndexFile | None = None
    rows: int = 0
    to_log: bool = False
    one_file: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRoute:
    """Where the rows of one partition go: updates by file, inserts by the hash of their key over weighted buckets."""

    updates: Mapping[int, int] = field(default_factory=dict)  # tag → bucket number
    inserts: tuple[int, ...] = ()
    bounds: tuple[int, ...] = ()  # cumulative weights of `inserts`

    def buckets(self, tags: npt.NDArray[np.int32], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The bucket number of each row, from its tag and the hash of its key; NO_BUCKET for rows that are left out."""
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
    buckets: tuple[Bucket, ...]
    routes: Mapping[str, PartitionRoute]


def plan_buckets(
    profiles: Mapping[str, PartitionProfile], sizing: Sizing, *, fill_small_files: bool = True
) -> BucketPlan:
    """Assigns every tagged and every new row of `profiles` to a bucket."""
    buckets: list[Bucket] = []
    inserts_to_log = sizing.logs is not None and sizing.logs.takes_inserts
    routes: dict[str, PartitionRoute] = {}
    for partition in sorted(profiles):
        profile = profiles[partition]
        by_file: dict[int, int] = {}
        for position in sorted(profile.updates):
            by_file[position] = len(buckets)
            rows = profile.updates[position]
            if position < NEW_KEY:
                file_id = bucket_file_id(number_of_new_group(position))
                buckets.append(Bucket(len(buckets), partition, file_id, rows=rows, one_file=True))
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
            buckets.append(Bucket(len(buckets), partition, new_file_id(), None))
        for number, rows in shares:
            bucket = buckets[number]
            buckets[number] = replace(bucket, rows=bucket.rows + rows, to_log=inserts_to_log)
        bounds = np.cumsum([rows for _, rows in shares]).tolist() if shares else []
        routes[partition] = PartitionRoute(
            {position: by_file[position] for position in profile.updates}, tuple(n for n, _ in shares), tuple(bounds)
        )
    return BucketPlan(tuple(buckets), routes)


def new_file_id() -> str:
    return f"{uuid.uuid4()}-0"


def pack(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Balances items over tasks by size, largest first. Positions of `sizes`, no empty task."""
    loads = [0] * max(1, min(tasks, len(sizes)))
    packed: list[list[int]] = [[] for _ in loads]
    for position in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        lightest = loads.index(min(loads))
        loads[lightest] += sizes[position] + 1
        packed[lightest].append(position)
    return [group for group in packed if group]


def _small_files(profile: PartitionProfile, sizing: Sizing) -> dict[int, int]:
    """Position → rows that still fit, smallest file first."""
    sizes = {at: _size(file, sizing.logs) for at, file in enumerate(profile.files) if _takes_inserts(file, sizing.logs)}
    small = sorted((at for at, size in sizes.items() if size < sizing.small_file_bytes), key=lambda at: sizes[at])
    if sizing.logs is not None and not sizing.logs.takes_inserts:
        small = small[: sizing.logs.candidates]
    return {at: (sizing.max_file_bytes - sizes[at]) // max(1, sizing.record_bytes) for at in small}


def _takes_inserts(file: IndexFile, logs: LogSizing | None) -> bool:
    if file.clustering is not None:
        return False
    if logs is None or logs.takes_inserts:
        return True
    return bool(file.path) and file.compaction is None and not (file.tail and file.tail.files)


def _size(file: IndexFile, logs: LogSizing | None) -> int:
    """What the slice would be as one base file."""
    if logs is None or file.tail is None:
        return file.size_bytes
    return file.size_bytes + int(file.tail.size * logs.compression)
