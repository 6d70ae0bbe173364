"""Candidate files: the newest slices of partitions, in which the keys of a write may be and to which it writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.basefile import OpenBaseFile, read_base
from skep_format.basefile.reader import BATCH_ROWS
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId, LogFileName
from skep_format.schema.evolve import SourceNames
from skep_format.schema.types import Schema
from skep_format.storage import Storage
from skep_table.query.cleaned import refuse_lost_files
from skep_table.slices.bootstrap import BootstrapSource, read_stitched, source_of
from skep_table.slices.history import names_in_file, schema_history
from skep_table.table import HudiTable
from skep_table.view import FileGroup, FileSlice
from skep_table.write.tags import Tags


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of the logs of a slice in a merge-on-read table, where a write goes on.

    New log files are named by `base_instant` (that of a pending compaction, where the slice awaits one) and come after
    `version`. `files` are the names of those that are there, `base_file` is the base file's; their bytes are `size`.
    `last` is the newest of them in the order of reading, with its size. `logs` are all that are read with the slice.
    `awaited`: a resize is to write the slice; its log files are named by it in every version of tables, so that no
    reader sees them before.
    """

    base_instant: InstantTime
    version: int = 0
    files: tuple[str, ...] = ()
    base_file: str = ""
    size: int = 0
    awaited: bool = False
    last: tuple[LogFileName, int] | None = None
    logs: tuple[LogFileName, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """The newest slice of a file group, in whose base file keys of its partition may be.

    `path` is relative to the table, empty for a slice that has log files only. `clustering` is the pending clustering
    that has the group as input: it may not be written to until that is done. `tail` is set in merge-on-read tables;
    `compaction`: the slice is to be compacted, and no base file may be written for it meanwhile; `planned` is what the
    compaction reads. `source` is set for a skeleton file, and `size_bytes` includes it.
    `names` are the file's for columns that were renamed since.
    """

    file_id: str
    path: str
    base_instant: InstantTime
    size_bytes: int
    clustering: InstantTime | None = None
    tail: LogTail | None = None
    compaction: InstantTime | None = None
    planned: FileSlice | None = None
    source: BootstrapSource | None = None
    names: SourceNames = field(default_factory=dict)

    @property
    def known_size(self) -> int | None:
        """The size in bytes of the base file itself, where that is known."""
        return max(0, self.size_bytes - (self.source.size_bytes if self.source else 0)) or None

    @property
    def is_plain(self) -> bool:
        """Whether its rows are those of the base file itself, under the names of today."""
        return self.source is None and not self.names

    def rows(
        self,
        storage: Storage,
        schema: Schema,
        opened: OpenBaseFile | None = None,
        encoded: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the base file, which a skeleton file has together with its source. `opened`: it is open.

        `encoded`: as for `OpenBaseFile.rows`.
        """
        if self.source is not None:
            return read_stitched(storage, self.path, self.source, schema, BATCH_ROWS, self.names)
        if opened is not None:
            return opened.rows(schema=schema, names=self.names, encoded=encoded)
        return read_base(storage, self.path, size=self.known_size, schema=schema, names=self.names)


@dataclass(frozen=True)
class CandidateFiles(Mapping[str, Sequence[CandidateFile]]):
    """Partition path → its candidate files; all of them are numbered, one partition after the other.

    Of a file, the position in its partition is what rows are tagged with (`write/tags.py`).
    """

    by_partition: Mapping[str, Sequence[CandidateFile]] = field(default_factory=dict)

    def __getitem__(self, path: str) -> Sequence[CandidateFile]:
        return self.by_partition[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_partition)

    def __len__(self) -> int:
        return len(self.by_partition)

    def first_number(self, path: str) -> int:
        """The number of a partition's first file; 0 for a partition without files."""
        return self._firsts.get(path, 0)

    def numbered(self, number: int) -> tuple[str, CandidateFile]:
        """The partition path and the file of a number."""
        return self._numbered[number]

    def numbers(self) -> dict[FileGroupId, int]:
        """File group → number."""
        return {FileGroupId(path, file.file_id): number for number, (path, file) in enumerate(self._numbered)}

    def places(self, numbers: npt.NDArray[np.int64]) -> KeyPlaces:
        """Partition and position of the files of some numbers; of numbers below zero, no partition and the number."""
        paths = list(self.by_partition)
        starts = np.array([*self._firsts.values(), len(self._numbered)], np.int64)
        codes = np.searchsorted(starts, numbers, side="right") - 1
        held = numbers >= 0
        partitions = pa.array(paths, pa.string()).take(pa.array(np.where(held, codes, 0), mask=~held))
        return KeyPlaces(partitions, np.where(held, numbers - starts[codes], numbers).astype(np.int32))

    @cached_property
    def _firsts(self) -> dict[str, int]:
        counts = accumulate((len(files) for files in self.by_partition.values()), initial=0)
        return dict(zip(self.by_partition, counts, strict=False))

    @cached_property
    def _numbered(self) -> tuple[tuple[str, CandidateFile], ...]:
        return tuple((path, file) for path, files in self.by_partition.items() for file in files)


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """For each row the partition in which its key is, null for none, and its tag there."""

    partitions: pa.Array
    tags: Tags


def candidate_files(table: HudiTable, partitions: Iterable[str]) -> CandidateFiles:
    """The newest slice of each live file group. Those without a base file are merge-on-read's."""
    view, partitions = table.view(), list(partitions)
    view.listing.prefetch(partitions)
    refuse_lost_files(table, view, partitions)
    is_mor = table.config.is_mor
    found = {path: [_candidate_file(table, group, is_mor) for group in view.file_groups(path)] for path in partitions}
    return CandidateFiles({path: tuple(file for file in files if file is not None) for path, files in found.items()})


def _candidate_file(table: HudiTable, group: FileGroup, is_mor: bool) -> CandidateFile | None:
    slice_ = group.latest
    if slice_ is None or (slice_.base_file is None and not is_mor):
        return None
    base = slice_.base_file
    source = source_of(table, slice_, table.options)
    size = base.size_bytes if base else 0
    return CandidateFile(
        group.file_id,
        base.path if base else "",
        slice_.base_instant,
        size if source is None else size + source.size_bytes,
        group.pending_clustering,
        _tail(group) if is_mor else None,
        group.pending_compaction,
        _planned(group),
        source,
        names_in_file(schema_history(table), slice_.base_instant) if base else {},
    )


def _planned(group: FileGroup) -> FileSlice | None:
    """The slice that a pending compaction reads; logs that came since are of the next one."""
    before = [slice_ for slice_ in group.slices if slice_.base_instant != group.pending_compaction]
    return before[0] if before and group.pending_compaction is not None else None


def _tail(group: FileGroup) -> LogTail | None:
    """Rows for a slice that awaits its compaction go to the logs of the slice that this begins."""
    slice_ = group.latest
    if slice_ is None:
        return None
    instant = group.pending_compaction or slice_.base_instant
    newest = group.slices[0]
    files = newest.log_files if newest.base_instant == instant else ()
    logs = [log.name for log in files]
    last = max(files, key=lambda log: log.name.sort_key, default=None)
    base = slice_.base_file if slice_.base_instant == instant else None
    return LogTail(
        instant,
        max((name.version for name in logs), default=0),
        tuple(map(str, logs)),
        str(base.name) if base else "",
        sum(log.size_bytes for log in slice_.log_files),
        last=None if last is None else (last.name, last.size_bytes),
        logs=tuple(log.name for log in slice_.log_files),
    )
