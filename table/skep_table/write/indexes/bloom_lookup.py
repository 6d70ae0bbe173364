"""BLOOM, SIMPLE and their global forms: which base file holds a key, by footers and key columns.

Key ranges first (no read beyond the footer), then the bloom filter where it may save reading a file, then the key
column of the files that are left. Only that last step confirms a key, so a tag is never wrong. Ranges and filters may
come from the metadata table's indexes instead: then only files that may hold a key are opened. Logs are read too where
they may have keys that no base file has, as Flink's do: Hudi passes over them, and its upserts write such keys a second
time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import BaseFileFooter, OpenBaseFile, open_base, read_footer
from skep_format.bloom import BloomFilter
from skep_format.runner import Runner
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import Storage
from skep_table.keys.stored import StoredKeys
from skep_table.keys.text import single
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import BLOOM_FILTERS
from skep_table.query.pruning.slices import in_byte_order
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.indexes.contract import Candidates, Index, KeyLookUp, LookedUp, by_partition
from skep_table.write.indexes.log_keys import groups_with_log_keys
from skep_table.write.output.held import (
    Mask,
    keys_in_rows,
    may_delete,
    positions_among,
    stored_keys,
    uses_positions,
)
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles
from skep_table.write.tags import DELETED, HELD, NEW_KEY, NOT_HELD, Positions

# A filter is decoded and tested for so many keys in about the time in which a file of so many times more is read.
_FILTER_KEYS_RATIO: Final = 40
# Keys that are tested against a filter before all others.
_PROBED_KEYS: Final = 256
# Files whose footers one task reads.
_FILES_A_TASK: Final = 16


class MetadataIndexWarning(UserWarning):
    """A write looks into the base files for what it is to find in an index of the metadata table, which is missing."""


@dataclass(frozen=True)
class BloomIndex(Index):
    """Base files are candidates. `moves` is for the global form.

    `by_metadata`: key ranges and filters are those of the metadata table, where it has them.
    """

    is_global: bool = False
    moves: bool = True
    by_metadata: bool = False
    reads_keys = True

    def look_up(self, table: HudiTable, files: CandidateFiles) -> BloomLookUp:
        look_up = BloomLookUp(table, files, self.is_global, positions=uses_positions(table)).with_log_keys()
        return look_up.with_metadata() if self.by_metadata else look_up


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The lowest and highest key of a base file, None where unknown; and whether it has rows."""

    low: str | None
    high: str | None
    has_rows: bool

    @classmethod
    def of(cls, footer: BaseFileFooter) -> KeyRange:
        """That of a file, unknown where Java's order of its keys may differ from the order of their bytes."""
        low, high = footer.min_key, footer.max_key
        if low is None or high is None or _beyond_utf16_order(low) or _beyond_utf16_order(high):
            return cls(None, None, footer.num_rows > 0)
        return cls(low, high, footer.num_rows > 0)

    def bounds(self, ordered: pa.Array) -> tuple[int, int]:
        """The part of the sorted keys that lies within; all of them when the range is unknown."""
        if not self.has_rows:
            return 0, 0
        if self.low is None or self.high is None:
            return 0, len(ordered)
        return _bisect(ordered, self.low, after=False), _bisect(ordered, self.high, after=True)

    def holds(self, keys: pa.Array) -> pa.Array | None:
        """Which keys lie within; None for all."""
        if self.low is None or self.high is None:
            return None
        return pc.and_(pc.greater_equal(keys, self.low), pc.less_equal(keys, self.high))


@dataclass(frozen=True)
class BloomLookUp(KeyLookUp):
    """Over the base files of the row's partition, or of all partitions (`is_global`).

    A key whose row is deleted by the logs of its slice does not count as held: of a global index always, since a row
    that moved is deleted in that way; else where a pending compaction is going to leave the row out, after which no
    index of base files would find it in the logs over the compaction, and where another file holds the key. `ranges`,
    by file number: see `with_ranges`. `filters` is set where the metadata table has those of the files.
    `log_keys`: see `groups_with_log_keys`; None until it is needed.
    """

    confirms: ClassVar[bool] = True

    table: HudiTable
    files: CandidateFiles
    is_global: bool = False
    ranges: tuple[KeyRange | None, ...] | None = None
    positions: bool = False
    filters: MetadataTable | None = None
    log_keys: frozenset[int] | None = None

    def with_log_keys(self) -> BloomLookUp:
        """The same, knowing in which logs to look: a snapshot that was sent to another process knows less of them."""
        return replace(self, log_keys=self._log_keys)

    def with_metadata(self) -> BloomLookUp:
        """The same by the metadata table's statistics of the record key, and its filters; warns of what it lacks."""
        names = [_place(path, file) for path, files in self.files.items() for file in files]
        if not any(name for _, name in names):
            return self
        metadata = self.table.metadata_table()
        filters = metadata if metadata is not None and BLOOM_FILTERS in metadata.indexes else None
        stats = metadata.statistics_of_files(RECORD_KEY, pa.string(), names) if metadata is not None else None
        has_stats = metadata is not None and metadata.has_statistics(RECORD_KEY)
        if filters is None or not has_stats:
            lacking = [*([] if filters else ["Bloom filters"]), *([] if has_stats else [f"statistics of {RECORD_KEY}"])]
            warnings.warn(
                f"table {self.table.config.name} has no metadata table with {' and '.join(lacking)} that lists all"
                " commits: the footers of its base files are read",
                MetadataIndexWarning,
                stacklevel=2,
            )
        return replace(self, filters=filters, ranges=None if stats is None else _ranges_of(stats))

    def with_ranges(self, runner: Runner) -> BloomLookUp:
        if self.ranges is not None:
            return self
        paths = [file.path for files in self.files.values() for file in files]
        tasks = [paths[at : at + _FILES_A_TASK] for at in range(0, len(paths), _FILES_A_TASK)]
        found = runner.map(partial(_ranges, self.table.storage), tasks)
        return replace(self, ranges=tuple(each for ranges in found for each in ranges))

    @property
    def among_several(self) -> AliveLookUp | None:
        return AliveLookUp(self) if self.table.config.is_mor and not self.is_global else None

    def candidates(self, keyed: pa.Table) -> LookedUp:
        if not self.is_global:
            return by_partition(keyed, self._of_partition)
        keys = single(keyed.column(RECORD_KEY))
        return self._among(keys, np.arange(len(keys)), self.files)

    def _of_partition(self, path: str, keys: pa.Array, rows: npt.NDArray[np.int64]) -> LookedUp:
        return self._among(keys, rows, (path,))

    def _among(self, keys: pa.Array, rows: npt.NDArray[np.int64], paths: Iterable[str]) -> LookedUp:
        numbers = [number for path in paths for number in self._groups(path)]
        if self.ranges is not None and numbers:
            order = pc.sort_indices(keys)
            keys, rows = keys.take(order), rows[order.to_numpy()]
        bounds = ((number, *self._bounds(number, keys)) for number in numbers)
        spans = [(number, low, high) for number, low, high in bounds if high > low]
        return LookedUp(np.full(len(keys), NEW_KEY, np.int64), Candidates(keys, rows, tuple(spans)))

    def _groups(self, path: str) -> range:
        first = self.files.first_number(path)
        return range(first, first + len(self.files.get(path, ())))

    def _bounds(self, number: int, keys: pa.Array) -> tuple[int, int]:
        found = self.ranges[number] if self.ranges is not None and number not in self._log_keys else None
        return found.bounds(keys) if found is not None else (0, len(keys))

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        path, file = self.files.numbered(number)
        if file.path and number not in self._log_keys:
            return self._in_base(path, file, keys)
        if self.is_global:
            return np.where(keys_in_rows(self.table, self._slice(path, file), keys), HELD, NOT_HELD)
        found = self._in_base(path, file, keys) if file.path else np.full(len(keys), NOT_HELD, np.int64)
        rest = np.flatnonzero(found == NOT_HELD)
        if len(rest):
            found[rest] = np.where(self._in_logs(path, file, keys.take(pa.array(rest))), HELD, NOT_HELD)
        return found

    def _in_base(self, path: str, file: CandidateFile, keys: pa.Array) -> Positions:
        known = None if self.filters is None else self.filters.bloom([_place(path, file)])
        bloom = next(iter(known.values()), None) if known else None
        if bloom is not None and not _passes(bloom, keys):
            return np.full(len(keys), NOT_HELD, np.int64)
        with open_base(self.table.storage, file.path, file.known_size) as opened:
            return self._confirm(path, file, opened, keys, filtered=bloom is not None)

    def _confirm(
        self, path: str, file: CandidateFile, opened: OpenBaseFile, keys: pa.Array, *, filtered: bool
    ) -> Positions:
        footer = opened.footer()
        found = np.full(len(keys), NOT_HELD, np.int64)
        if not footer.num_rows:
            return found
        within = KeyRange.of(footer).holds(keys)
        rows = np.arange(len(keys)) if within is None else np.flatnonzero(within.to_numpy(zero_copy_only=False))
        wanted = keys if within is None else keys.filter(within)
        if not len(wanted) or not (filtered or _filter_passes(wanted, footer)):
            return found
        del footer  # its bloom filter takes more memory than a batch of keys
        stored = self._keys(file, opened, wanted)
        places = positions_among(wanted, stored) if self.positions else np.where(_held(wanted, stored), HELD, NOT_HELD)
        hits = np.flatnonzero(places != NOT_HELD)
        if len(hits):
            places[hits[~self._alive(path, file, wanted.take(pa.array(hits)))]] = NOT_HELD
        found[rows] = places
        return found

    def _keys(self, file: CandidateFile, opened: OpenBaseFile, wanted: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """The record keys of the file's rows, part by part, those that are surely not wanted left out where that spares
        reading; with the position of the first one of each part.
        """
        if self.table.config.populate_meta_fields:
            yield from opened.text_among(RECORD_KEY, wanted)
            return
        start = 0
        for batch in file.rows(self.table.storage, self._stored.schema, opened):
            yield start, self._stored.of_rows(batch)
            start += batch.num_rows

    @cached_property
    def _stored(self) -> StoredKeys:
        return stored_keys(self.table)

    def _alive(self, path: str, file: CandidateFile, keys: pa.Array) -> Mask:
        """Which of the keys that the base file holds count as held."""
        return self._undeleted(self._with_logs(path, file) if self.is_global else file.planned, keys)

    def alive(self, number: int, keys: pa.Array) -> Mask:
        """Which of the keys that a file holds, in its base file or its logs, its logs do not delete."""
        return self._undeleted(self._with_logs(*self.files.numbered(number)), keys)

    def _undeleted(self, slice_: FileSlice | None, keys: pa.Array) -> Mask:
        """Which of the keys in the files of a slice the slice has rows of; all without one."""
        if slice_ is None or not may_delete(self.table, slice_):
            return np.ones(len(keys), np.bool_)
        return keys_in_rows(self.table, slice_, keys)

    def _with_logs(self, path: str, file: CandidateFile) -> FileSlice | None:
        return self._slice(path, file) if file.tail is not None and file.tail.size else None

    def _in_logs(self, path: str, file: CandidateFile, keys: pa.Array) -> Mask:
        """Which keys the logs hold, those too that a pending compaction is going to write into a base file."""
        found = np.zeros(len(keys), np.bool_)
        for slice_ in (self._slice(path, file), file.planned):
            if slice_ is not None:
                found |= keys_in_rows(self.table, replace(slice_, base_file=None), keys)
        return found

    @cached_property
    def _log_keys(self) -> frozenset[int]:
        return groups_with_log_keys(self.table, self.files) if self.log_keys is None else self.log_keys

    def _slice(self, path: str, file: CandidateFile) -> FileSlice:
        return next(each for each in self.table.view().slices(path) if each.file_id == file.file_id)


@dataclass(frozen=True)
class AliveLookUp(KeyLookUp):
    """Of keys that several files hold: in which of them the row is not deleted, as that of a key which came back is."""

    by_files: BloomLookUp

    def candidates(self, keyed: pa.Table) -> LookedUp:
        return self.by_files.candidates(keyed)

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        return np.where(self.by_files.alive(number, keys), HELD, DELETED)


def _place(path: str, file: CandidateFile) -> tuple[str, str]:
    """Partition path and name of the base file; no name for a slice without one."""
    return path, file.path.rpartition("/")[2]


def _ranges_of(stats: pa.Table) -> tuple[KeyRange | None, ...] | None:
    """The key ranges that statistics state, by file; None where they state none."""
    stats = in_byte_order(stats)
    lows, highs = stats["min_value"].to_pylist(), stats["max_value"].to_pylist()
    if not any(low is not None and high is not None for low, high in zip(lows, highs, strict=True)):
        return None
    return tuple(KeyRange(low, high, has_rows=True) for low, high in zip(lows, highs, strict=True))


def _ranges(storage: Storage, paths: Sequence[str]) -> list[KeyRange | None]:
    return [KeyRange.of(read_footer(storage, path)) if path else None for path in paths]


def _beyond_utf16_order(text: str) -> bool:
    # Java compares UTF-16 units, Arrow UTF-8 bytes: the two orders differ only above the surrogates.
    return any(character >= "\ud800" for character in text)


def _bisect(ordered: pa.Array, text: str, *, after: bool) -> int:
    """Where `text` would go: before equal keys, or after them."""
    low, high = 0, len(ordered)
    wanted = text.encode()
    while low < high:
        middle = (low + high) // 2
        key = ordered[middle].as_py().encode()
        if key < wanted or (after and key == wanted):
            low = middle + 1
        else:
            high = middle
    return low


def _filter_passes(wanted: pa.Array, footer: BaseFileFooter) -> bool:
    """False only when the filter rules out every key; it is not tested where reading the keys costs less."""
    if len(wanted) * _FILTER_KEYS_RATIO > footer.num_rows or footer.bloom is None:
        return True
    return _passes(footer.bloom, wanted)


def _passes(bloom: BloomFilter, wanted: pa.Array) -> bool:
    """Whether the filter may hold one of the keys."""
    # Held keys pass all rounds of a filter, so a few of them are tested first: one that passes decides.
    return any(
        pc.any(bloom.might_contain(keys)).as_py()
        for keys in (wanted.slice(0, _PROBED_KEYS), wanted.slice(_PROBED_KEYS))
        if len(keys)
    )


def _held(wanted: pa.Array, stored: Iterator[tuple[int, pa.Array]]) -> Mask:
    """Which of the wanted keys are among the stored ones. The hash table is made of the smaller side."""
    held = np.zeros(len(wanted), np.bool_)
    for _, keys in stored:
        if len(keys) > len(wanted):
            keys = keys.filter(pc.is_in(keys, value_set=wanted))
        if len(keys):
            held |= pc.is_in(wanted, value_set=keys).to_numpy(zero_copy_only=False)
    return held
