"""The contract of an index: which file group holds a key, how new groups are named, and what is stored after a write.

    Index.look_up → KeyLookUp.candidates → (shuffle by file) → KeyLookUp.confirm → file numbers

An `Index` is made for each write, from the options and the table's settings. `look_up` returns the look-up of one
attempt, which pickles: `candidates` runs where the rows are, and returns the file of a key where the index knows it, or
the files that may hold it; `confirm` runs once per candidate file, on any thread or executor. Files are numbered
(`CandidateFiles`). Where log blocks name the rows that they change, `confirm` returns these too, as it reads the keys
anyway; for keys of which the index knows the file alone, they are looked up when the log is written. How further
indexes map to this:

* An index that stores the file group of each key elsewhere (HBase) returns file numbers from `candidates` and no
  candidate files, and gets new keys by `on_written`. A secondary index maps a column's values to record keys, and then
  is one of these.
* An index that spreads its keys over shards (Hudi's record index: the file groups of its partition of the metadata
  table) names the shard of each key in `candidates`, and returns file numbers from `in_shard`, which one task calls
  for all keys of a shard. New keys get into the metadata table with the commit.
* An index that computes the group from the key (buckets, consistent hashing) returns file numbers too, and sets
  `places_new_keys` and `names`. Consistent hashing reads its ranges of hashes in `look_up`, once per attempt, and
  names new groups by `new_group`.
* An index that knows ranges or filters only (Bloom, column statistics, expression indexes) returns candidate files, and
  reads keys in `confirm`. Its statistics of new files come with `on_written`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import InstantTime
from skep_format.runner import Runner
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_table.keys.buckets import UUID_NAMES, GroupNames
from skep_table.keys.text import single
from skep_table.table import HudiTable
from skep_table.write.keyed import partition_codes, rows_by
from skep_table.write.output.written import WrittenKeys
from skep_table.write.planning.candidates import CandidateFiles, candidate_files
from skep_table.write.tags import NEW_KEY, Positions

FileNumbers = npt.NDArray[np.int64]
"""By row: the number of the file that holds its key, or a tag below zero (`write/tags.py`)."""
Span = tuple[int, int, int]
"""A file's number, and the positions in `Candidates.keys` of the first key that it may hold and after the last one."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Keys that files may hold: `keys[i]` is the key of row `rows[i]`; each file's keys lie side by side."""

    keys: pa.Array
    rows: npt.NDArray[np.int64]
    spans: tuple[Span, ...]

    @classmethod
    def joined(cls, parts: Iterable[Candidates]) -> Candidates:
        """Those of several partitions. Rows and file numbers are the same ones in all."""
        keys: list[pa.Array] = []
        rows: list[npt.NDArray[np.int64]] = []
        spans: list[Span] = []
        start = 0
        for part in parts:
            if part.spans:
                spans += [(number, start + low, start + high) for number, low, high in part.spans]
                keys.append(part.keys)
                rows.append(part.rows)
                start += len(part.keys)
        if not keys:
            return NO_CANDIDATES
        return cls(pa.concat_arrays(keys), np.concatenate(rows), tuple(spans))

    def of_keys(self, low: int, high: int) -> Candidates:
        """Those of the keys of rows from `low` to before `high`, whose rows are counted from `low` on."""
        kept = (self.rows >= low) & (self.rows < high)
        place = np.concatenate([[0], np.cumsum(kept)])
        spans = ((number, int(place[first]), int(place[last])) for number, first, last in self.spans)
        found = tuple(span for span in spans if span[2] > span[1])
        return Candidates(self.keys.filter(pa.array(kept)), self.rows[kept] - low, found) if found else NO_CANDIDATES


NO_CANDIDATES = Candidates(pa.array([], pa.string()), np.zeros(0, np.int64), ())


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What an index knows before a file is read: `numbers` by row, NEW_KEY for those that only candidates may hold."""

    numbers: FileNumbers
    candidates: Candidates = field(default=NO_CANDIDATES)


class KeyLookUp(ABC):
    """The look-up of one attempt of a write, over the file slices of the table as it found it. Pickles.

    `columns` are those of keyed rows that it reads.
    """

    columns: tuple[str, ...] = (RECORD_KEY, PARTITION_PATH)
    confirms: ClassVar[bool] = False
    """Whether it returns candidates, of which files have to be read."""
    positions: bool = False
    """Whether `confirm` finds the rows that have the keys."""

    @property
    def among_several(self) -> KeyLookUp | None:
        """Decides among several files that hold a key, and is called for such keys alone: its `confirm` returns DELETED
        where the logs of a file delete the row, so that another one counts. None where the first file counts.
        """
        return None

    @property
    def shard_bytes(self) -> Sequence[int]:
        """The size of each shard of an index that has any: then the spans of `candidates` are of shards."""
        return ()

    def with_ranges(self, runner: Runner) -> KeyLookUp:
        """The same, having read what makes `candidates` return fewer files: each footer once, by tasks of `runner`.

        It pays before keys are shuffled by file. Where they are not, `confirm` reads the footers itself.
        """
        del runner
        return self

    @abstractmethod
    def candidates(self, keyed: pa.Table) -> LookedUp:
        """What the index knows about each row of `columns`, for rows of any partitions; keys may repeat."""

    def new_group(self, path: str, number: int) -> str | None:
        """The id of a group that the partition does not have yet, by the index's number; None for any name."""
        del path, number
        return None

    def in_shard(self, number: int, keys: pa.Array) -> LookedUp:
        """What the index knows about keys of one shard, with candidate files for those that it is not sure of."""
        raise NotImplementedError(f"{type(self).__name__} has no shards")

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        """For each key its position in the file of a number, or NOT_HELD. Reads the file's key column, at most once."""
        raise NotImplementedError(f"{type(self).__name__} returned candidates and can't confirm them")


class Index(ABC):
    """The index of one write. Pickles; making it reads nothing."""

    is_global: bool = False
    """Whether a key is unique in the whole table: then the files of all partitions are candidates."""
    moves: bool = True
    """Of a global index: a row that arrives for another partition moves there; else it stays where its key is."""
    finds_log_keys: bool = False
    """Whether it finds keys that are in log files only, so that new rows of merge-on-read tables may go there."""
    places_new_keys: bool = False
    """Whether it decides the file group of new keys too: every operation tags its rows, and none fills small files."""
    finds_keys: bool = True
    """Whether it finds out which keys the table holds, so that inserts can drop or refuse these. An index that computes
    the file group of a key does not."""
    opens_base_files: bool = True
    """Whether it finds keys in base files. Of one that does not, no positions are looked up there unless asked for."""
    reads_keys: bool = False
    """Whether each key that it finds was read in the file group: in its base file, or in its logs."""
    keeps_keys: bool = False
    """Whether it stores keys outside of the table's files: `on_written` is called with the new ones."""

    @property
    def names(self) -> GroupNames:
        """How it names new file groups, and which groups count as one when writers conflict."""
        return UUID_NAMES

    @property
    def recorded(self) -> Mapping[str, str]:
        """Settings that `hoodie.properties` must hold, so that all writers use the same index."""
        return {}

    def replacing(self) -> Index:
        """The same for a write that replaces the file groups of the partitions that it writes to."""
        return self

    def candidate_files(
        self, table: HudiTable, partitions: Collection[str], keys: Callable[[int], pa.Array | None]
    ) -> CandidateFiles:
        """The files in which the keys of rows may be that arrive for `partitions`: of a global index those of all.

        `keys` returns the keys of the rows, None where they are more than a number, or not in this process.
        """
        del keys
        return candidate_files(table, table.view().partitions() if self.is_global else partitions)

    @abstractmethod
    def look_up(self, table: HudiTable, files: CandidateFiles) -> KeyLookUp:
        """Over the candidate files of a write.

        Runs on the driver. Reads by the table's storage and options, which are those of the write.
        """

    def before_writing(self, table: HudiTable, instant_time: InstantTime) -> None:
        """Called on the driver before the tasks of an attempt start, with the snapshot that it is based on."""
        del table, instant_time

    def on_written(self, written: WrittenKeys) -> None:
        """Stores where the new keys of one finished base file are. Only called when `keeps_keys`.

        Runs in the task that wrote the file, before the commit completes and once per attempt of the task: what it
        stores must be without effect until the instant is completed, and repeating it must change nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps keys and has no on_written")

    def after_commit(self, table: HudiTable, instant_time: InstantTime) -> None:
        """Called on the driver once the instant is complete. What it raises is logged: the commit remains."""
        del table, instant_time


def by_partition(keyed: pa.Table, look_up: Callable[[str, pa.Array, npt.NDArray[np.int64]], LookedUp]) -> LookedUp:
    """`look_up(partition path, keys, their rows)` for each partition; its numbers are those of the keys given."""
    paths, codes = partition_codes(keyed)
    column = single(keyed.column(RECORD_KEY))
    numbers = np.full(len(codes), NEW_KEY, np.int64)
    found = []
    for code, rows in rows_by(codes, len(paths)):
        known = look_up(paths[code], column if len(paths) == 1 else column.take(pa.array(rows)), rows)
        numbers[rows] = known.numbers
        found.append(known.candidates)
    return LookedUp(numbers, Candidates.joined(found))


def numbers_of(values: pa.Array, known: pa.Array, missing: int) -> FileNumbers:
    """For each value its place among the known ones, `missing` for none."""
    found: FileNumbers = pc.fill_null(pc.index_in(values, value_set=known), missing).to_numpy().astype(np.int64)
    return found
