"""The metadata table of a data table: which files there are, and indexes over them, kept up to date by Hudi's writers.

It is a merge-on-read table of its own below `.hoodie/metadata`, with HFiles for base files (format guide 7).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.bloom import BloomFilter
from skep_format.errors import FormatError, TableVersionError
from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.names import META_FOLDER, join
from skep_format.storage import FileStatus, FolderStorage, Storage
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.write import Seen
from skep_table.metadata_table import keys as spelling
from skep_table.metadata_table.definitions import IndexDefinition, definitions_path, read_definitions
from skep_table.metadata_table.entries import Entries, GroupReader, OpenedFiles, alive, entries_of, latest
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    BLOOM_MEMBER,
    COLUMN_STATS,
    FILES,
    FILES_MEMBER,
    PARTITION_STATS,
    RECORD_INDEX,
    RECORD_INDEX_MEMBER,
    SECONDARY,
    SECONDARY_INDEX_MEMBER,
    STATS_MEMBER,
    unbuilt_partitions,
)
from skep_table.metadata_table.records.files import merged_files
from skep_table.metadata_table.records.record_index import RecordIndexGroup, file_ids
from skep_table.metadata_table.records.secondary_index import record_keys_behind, secondary_prefixes
from skep_table.metadata_table.values import statistics, statistics_records
from skep_table.view import FileSlice, FileView, FolderFilter

FOLDER: Final = f"{META_FOLDER}/metadata"

FIRST_INSTANTS: Final = "00000000000000"  # what initialises a partition has an artificial time
_INSTANT_DIGITS: Final = 17
_KEPT_KEYS: Final = 1 << 16
_SINGLE_LOOKUPS: Final = 16  # so many partitions are looked up one by one; then all are read in one go


class OpenedTable(Seen, Protocol):
    """What the data table provides; the metadata table is opened by the same class (`HudiTable`)."""

    @classmethod
    def open(cls, path_or_storage: Storage) -> OpenedTable:
        """Opens a table at the root of a storage."""

    def listed_again(self) -> OpenedTable:
        """A new snapshot of the same table, without what instants hold."""

    def view(self, *, as_of: InstantTime | None = None, metadata: bool = True) -> FileView:
        """The file groups as of an instant; `metadata`: by the metadata table where there is one."""


class ReadBefore(Protocol):
    """What snapshots of a data table have read of its metadata table: the last one of each. They share it.

    `own` is a snapshot of the metadata table, with the storage of the data table; `groups` are the files that are open,
    by partition and file group.
    """

    own: tuple[Storage, OpenedTable] | None
    groups: MutableMapping[str, Mapping[str, OpenedFiles]]


class MetadataTable:
    """A consistent snapshot of a metadata table: the records of the completed instants of `data`, and of no others."""

    def __init__(self, data: OpenedTable, own: OpenedTable, shared: ReadBefore | None = None) -> None:
        self._data, self._own = data, own
        self._opened = {} if shared is None else shared.groups
        self.indexes = frozenset(data.config.metadata_partitions)
        self._unbuilt = unbuilt_partitions(data.config)
        self._view = own.view(metadata=False)
        self._lock = threading.RLock()
        self._groups: dict[str, list[GroupReader]] = {}
        self._described: dict[str, bool] = {}  # columns: whether statistics have a record of them
        self._sliced: dict[str, list[FileSlice]] = {}
        self._looked_up: dict[str, list[FileStatus]] = {}
        self._all: dict[str, list[FileStatus]] | None = None
        self._single = 0
        self._last_keys: tuple[pa.Array, Sequence[str] | None, pa.Table] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return MetadataTable, (self._data, self._own)

    @classmethod
    def open(
        cls, data: OpenedTable, before: MetadataTable | None = None, shared: ReadBefore | None = None
    ) -> MetadataTable | None:
        """None when the table's settings name no finished metadata partition. Errors are those of opening a table.

        What `before`, that of an earlier snapshot, has read is not read again where it is the same, nor what any
        snapshot has read with which `shared` is shared.
        """
        if FILES not in data.config.metadata_partitions:
            return None
        opened = cls(data, _own_of(data, shared), shared)
        if before is not None and opened._has_records_of(before):
            with before._lock:
                opened._groups, opened._looked_up = dict(before._groups), dict(before._looked_up)
                if opened.indexes == before.indexes:
                    opened._described = dict(before._described)
                opened._all, opened._single = before._all, before._single
        return opened

    def _has_records_of(self, other: MetadataTable) -> bool:
        """Whether both have the same records: of the same commits, of which the same count."""
        if self._unbuilt != other._unbuilt or self._own.timeline.instants != other._own.timeline.instants:
            return False
        times = [each.requested_time for each in self._own.timeline.completed()]
        if list(map(self._counts(), times)) != list(map(other._counts(), times)):
            return False
        with other._lock:
            return all(self._slices(name) == [each.slice for each in read] for name, read in other._groups.items())

    @property
    def own(self) -> OpenedTable:
        """The snapshot of the metadata table as a table of its own."""
        return self._own

    def is_current(self) -> bool:
        """Whether every completed write of the data table has its delta commit here.

        Writers complete it here first, so that a missing one means a write that did not keep the metadata table.
        What was there when the partition `files` was made counts as present: its delta commit has the time of the last
        action before it, or an artificial time and a completion time.
        """
        own = self._own.timeline
        times = {instant.requested_time for instant in own.completed()}
        first = [each for each in own.completed() if each.requested_time.startswith(FIRST_INSTANTS)]
        made = first[0].completion_time if first else None
        since = BEFORE_ALL if first or not times else min(times)

        def is_covered(write: Instant) -> bool:
            time, done = write.requested_time, write.completion_time
            if time in times or time.is_at_or_before(since) or own.is_archived(time):
                return True
            return made is not None and done is not None and done.is_at_or_before(made)

        return all(map(is_covered, self._data.timeline.data().completed()))

    @functools.cached_property
    def is_of_snapshot(self) -> bool:
        """Whether all records are those of the data table's snapshot: none is merged with those of later actions.

        Log blocks of later actions do not count for the snapshot, but a compaction mixes them into base files. Only
        records that narrow what is known, or move it, have to be of the snapshot: listings and statistics of
        files leave out nothing that an earlier snapshot has.
        """
        own, counts = self._own.timeline, self._counts()
        done = own.completed()
        times = {each.requested_time for each in done}
        later = {each.requested_time for each in done.of(Action.DELTA_COMMIT) if not counts(each.requested_time)}
        first = min(times, default=BEFORE_ALL)
        last = max((each.requested_time for each in self._data.timeline), default=BEFORE_ALL)
        if InstantTime(first[:_INSTANT_DIGITS]).is_after(last):
            return False  # made, or archived, since then
        services = (time for time in times - later if not self._data.timeline.contains(time))
        return not later or all(time.is_before(min(later)) for time in services)

    def has_delta_commit(self, time: InstantTime) -> bool:
        """Whether the action of the data table at `time` has a completed delta commit of its own here."""
        return any(each.requested_time == time for each in self._own.timeline.completed())

    # -- files ---------------------------------------------------------------------------------------------------------

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        """The data table's partition paths, sorted: all of them, by one look-up, or those wanted that have files."""
        if within is not None and within.exact:
            self.prefetch(within.start)
            return sorted(path for path in within.start if self.files(path))
        found = merged_files(self._lookup(FILES, [spelling.ALL_PARTITIONS], FILES_MEMBER))
        names = found.column("name").to_pylist()
        return sorted("" if name == spelling.NON_PARTITIONED else name for name in names)

    def files(self, partition_path: str) -> list[FileStatus]:
        """The files of a partition, sorted by path; those of writes in progress may be among them.

        After some single look-ups the whole partition `files` is read, and serves all further questions.
        """
        with self._lock:
            if self._all is None and self._single >= _SINGLE_LOOKUPS:
                self._all = _by_partition(self.all_files())
            if self._all is not None:
                return self._all.get(partition_path, [])
            if partition_path not in self._looked_up:
                self._single += 1
                self.prefetch([partition_path])
            return self._looked_up[partition_path]

    def prefetch(self, partition_paths: Collection[str]) -> None:
        """Looks up the files of all these partitions at once."""
        with self._lock:
            missing = [path for path in partition_paths if path not in self._looked_up]
            if self._all is None and missing:
                keys = [spelling.partition_key(path) for path in missing]
                found = _by_partition(merged_files(self._lookup(FILES, keys, FILES_MEMBER)))
                self._looked_up |= {path: found.get(path, []) for path in missing}

    def all_files(self) -> pa.Table:
        """All of the partition `files` as `key`, `name`, `size`, sorted; the list of partitions is among it."""
        return merged_files(self._lookup(FILES, None, FILES_MEMBER))

    # -- indexes -------------------------------------------------------------------------------------------------------

    def has_statistics(self, column: str) -> bool:
        """Whether the column statistics have a record of a data column, even one that ends them."""
        if column not in self._described:
            prefix = spelling.column_key(column)
            self._described[column] = COLUMN_STATS in self.indexes and any(
                group.has_prefix(prefix) for group in self.group_readers(COLUMN_STATS)
            )
        return self._described[column]

    def partition_stats_records(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.int64], pa.StructArray]:
        """The records of statistics of data columns in partitions, as stored, behind the number of the pair that each
        is of: those are given as column and partition path."""
        keys = pa.array([spelling.column_key(c) + spelling.path_key(path) for c, path in pairs], pa.string())
        groups = self.group_readers(PARTITION_STATS) if PARTITION_STATS in self.indexes else ()
        found, records = statistics_records(_entries_in(groups, keys, STATS_MEMBER, newest=True) if groups else ())
        return pc.index_in(found, value_set=keys).to_numpy().astype(np.int64), records

    def statistics_of_files(
        self, column: str, kind: pa.DataType, files: Sequence[tuple[str, str]], index: str = COLUMN_STATS
    ) -> pa.Table | None:
        """Statistics of a data column, as `file_name`, `min_value`, `max_value` (of `kind`), `value_count`,
        `null_count`: a row for each of `files` (partition path, file name) in their order, nulls for one that has none.

        None when the table keeps no such statistics. Smallest and largest are null where nothing is known.
        `index`: the metadata partition of column statistics, or of those of an expression over the column.
        """
        return self._statistics(
            index, spelling.column_key(column), kind, (spelling.path_key(p) + spelling.file_key(f) for p, f in files)
        )

    def statistics_of_partitions(
        self, column: str, kind: pa.DataType, partitions: Sequence[str], index: str = PARTITION_STATS
    ) -> pa.Table | None:
        """As `statistics_of_files`, for whole partitions: `file_name` is the partition path.

        `index`: the metadata partition of partition statistics, or of those of an expression over the column.
        """
        prefix = spelling.column_key(column) if index == PARTITION_STATS else spelling.partitions_key(column)
        return self._statistics(index, prefix, kind, map(spelling.path_key, partitions))

    def _statistics(self, index: str, prefix: str, kind: pa.DataType, places: Iterable[str]) -> pa.Table | None:
        if index not in self.indexes:
            return None
        keys = [prefix + place for place in places]
        rows = statistics(self._lookup(index, keys, STATS_MEMBER), kind)
        # A file name alone is no key: bucketed tables have the same names in several partitions.
        at = pc.index_in(pa.array(keys, pa.string()), value_set=rows["key"].combine_chunks())
        return rows.drop_columns(["key"]).take(at)

    def bloom(
        self, files: Sequence[tuple[str, str]], index: str = BLOOM_FILTERS
    ) -> Mapping[tuple[str, str], BloomFilter] | None:
        """The bloom filters of files, by partition path and file name; None when the table keeps none.

        `index`: the metadata partition of the record keys in base files, or that of an expression.
        """
        if index not in self.indexes:
            return None
        by_key = {spelling.path_key(path) + spelling.file_key(name): (path, name) for path, name in files}
        entries = _entries_in(self.group_readers(index), pa.array(by_key, pa.string()), BLOOM_MEMBER, newest=True)
        keys, found = latest(entries, BLOOM_MEMBER)
        filters = {}
        for key, record in zip(keys.to_pylist(), found.to_pylist(), strict=True):
            if record is not None and not record["isDeleted"]:
                path, name = by_key[key]
                filters[path, name] = BloomFilter.parse(record["bloomFilter"], record["type"], path=join(path, name))
        return filters

    def record_index(
        self, keys: pa.Array | pa.ChunkedArray, partitions: Sequence[str] | None = None
    ) -> pa.Table | None:
        """Where record keys lie: `record_key`, `partition_path`, `file_id`, `instant_ms`, for those that are there.

        `partitions`: of an index that is partitioned, only what it has of these data partitions is read. None when the
        table keeps no record index, or it has nothing of one of them.
        """
        if RECORD_INDEX not in self.indexes:
            return None
        column = RECORD_INDEX_MEMBER
        wanted = pc.unique(keys).drop_null().cast(pa.string())
        last = self._last_keys  # a write looks its keys up for the files that they are in, and again to tag its rows
        if last is not None and last[1] == partitions and last[0].equals(wanted):
            return last[2]
        sets = self._record_groups()
        if partitions is not None and self.has_partitioned_record_index:
            names = [spelling.record_index_groups(path) for path in partitions]
            if not all(name in sets for name in names):
                return None
            sets = {name: sets[name] for name in names}
        # A partitioned index knows a key once for each partition of the data table.
        among = (_entries_in(groups, wanted, column, newest=True) for groups in sets.values())
        found = [file_ids(*latest(entries, column)) for entries in among]
        places = pa.concat_tables(found) if found else file_ids(wanted[:0], pa.nulls(0))
        self._last_keys = (wanted, partitions, places) if len(wanted) <= _KEPT_KEYS else None
        return places

    @property
    def has_partitioned_record_index(self) -> bool:
        """Whether the record index has groups of its own for each partition of the data table."""
        return RECORD_INDEX in self.indexes and set(self._record_groups()) != {spelling.group_set_of(RECORD_INDEX)}

    @functools.cached_property
    def definitions(self) -> Mapping[str, IndexDefinition]:
        """The definitions of indexes by metadata partition; version 6 has none. FormatError for a damaged file."""
        return read_definitions(self._data.storage, definitions_path(self._data.config))

    def secondary_indexes(self) -> Mapping[str, str]:
        """The metadata partitions of secondary indexes, by the data column that each is of."""
        found = {name: self.definitions.get(name) for name in SECONDARY.among(sorted(self.indexes))}
        return {each.source_fields[0]: name for name, each in found.items() if each and len(each.source_fields) == 1}

    def record_keys_of(self, partition: str, values: pa.Array, most_bytes: int) -> pa.Array | None:
        """The record keys that have one of the values, as text without nulls, by a secondary index.

        None where more than `most_bytes` of files would be read.
        """
        prefixes = secondary_prefixes(pc.unique(values))
        groups = self.group_readers(partition)
        # From the second version on a value is in one group; before, its record keys are spread over all.
        by_value = self.definitions[partition].is_by_value
        numbers = spelling.group_numbers(prefixes, len(groups))
        asked = [
            (prefix, [groups[number]] if by_value else groups)
            for prefix, number in zip(prefixes.to_pylist(), numbers.tolist(), strict=True)
        ]
        if sum(group.most_bytes_of_prefix(prefix) for prefix, among in asked for group in among) > most_bytes:
            return None
        found = [pa.array([], pa.string())]
        for prefix, among in asked:
            entries = [each for group in among for each in group.prefix_entries(prefix, column=SECONDARY_INDEX_MEMBER)]
            keys, _ = alive(*latest(entries, SECONDARY_INDEX_MEMBER))
            found.append(record_keys_behind(prefix, keys))
        return pa.concat_arrays(found)

    def record_index_groups(self) -> tuple[RecordIndexGroup, ...]:
        """The file groups of the record index; none where the table keeps none, or where it has no groups yet."""
        if RECORD_INDEX not in self.indexes:
            return ()
        return tuple(map(RecordIndexGroup.of, self._sorted_slices(RECORD_INDEX)))

    def group(self, slice_: FileSlice) -> GroupReader:
        """What a file group holds by one slice of it."""
        return GroupReader(self._own.storage, slice_, self._counts())

    # -- reading -------------------------------------------------------------------------------------------------------

    def _lookup(self, partition: str, keys: Sequence[str] | None, column: str) -> list[Entries]:
        groups = self.group_readers(partition)
        if keys is None:
            return [entries for group in groups for entries in group.entries(column=column)]
        return _entries_in(groups, pa.array(keys, pa.string()), column)

    def _record_groups(self) -> dict[str, list[GroupReader]]:
        """The groups that a key may be in, one of each list: those of the whole table, or of each data partition."""
        sets: dict[str, list[GroupReader]] = {}
        for group in self.group_readers(RECORD_INDEX):
            sets.setdefault(spelling.group_set(group.file_id), []).append(group)
        return sets

    def group_readers(self, partition: str) -> list[GroupReader]:
        """The file groups of a partition by file id, as keys are spread over them. FormatError where there are none."""
        with self._lock:
            if partition not in self._groups:
                slices = self._slices(partition)
                if not slices:
                    raise FormatError(
                        f"{self._own.storage.root}: no files in partition {partition}, which the table's settings name",
                        path=f"{FOLDER}/{partition}", expected="at least one file group",
                    )  # fmt: skip
                counts, files = self._counts(), {file.path: file for file in self._view.listing.files(partition)}
                before = self._opened.get(partition, {})
                readers = [
                    GroupReader(self._own.storage, slice_, counts, files, before.get(slice_.file_id))
                    for slice_ in slices
                ]
                self._opened[partition] = {reader.file_id: reader.files for reader in readers}
                self._groups[partition] = readers
            return self._groups[partition]

    def _slices(self, partition: str) -> list[FileSlice]:
        slices = self._sorted_slices(partition)
        if partition in self._unbuilt:  # their base files come and go
            return [replace(slice_, base_file=None) for slice_ in slices]
        return slices

    def _sorted_slices(self, partition: str) -> list[FileSlice]:
        """By file id. Kept, as the listing is that they are made of."""
        if partition not in self._sliced:
            self._sliced[partition] = sorted(self._view.slices(partition), key=lambda slice_: slice_.file_id)
        return self._sliced[partition]

    def _counts(self) -> Callable[[InstantTime], bool]:
        """Blocks count when their delta commit is completed here, and the action on the data table is completed too.

        The first completes before the second: between the two, and after a crash there, blocks of unfinished actions
        exist.
        Instants that the data table's timeline does not contain are this table's own, archived, or rolled back by a
        later instant whose block deletes their files.
        """
        own, data = self._own.timeline, self._data.timeline
        # A savepoint has the time of a completed commit.
        pending = {each.requested_time for each in data.pending() if each.action is not Action.SAVEPOINT}
        last = max((instant.requested_time for instant in data), default=BEFORE_ALL)

        def counts(instant: InstantTime) -> bool:
            if not own.is_completed_or_archived(instant):
                return False
            if instant.startswith(FIRST_INSTANTS):
                return True
            of_data = InstantTime(instant[:_INSTANT_DIGITS])
            # A log compaction may be later than all of these: what it has merged then counts in its place.
            return of_data not in pending and of_data.is_at_or_before(last)

        return counts


def _own_of(data: OpenedTable, shared: ReadBefore | None) -> OpenedTable:
    """A new snapshot of the metadata table, by one that was taken before where there is one."""
    own = None
    if shared is not None and shared.own is not None and shared.own[0] is data.storage:
        with suppress(TableVersionError):  # its version was changed since
            own = shared.own[1].listed_again()
    if own is None:
        own = data.open(FolderStorage(data.storage, FOLDER))
    if shared is not None:
        shared.own = data.storage, own
    return own


def _entries_in(groups: Sequence[GroupReader], keys: pa.Array, column: str, *, newest: bool = False) -> list[Entries]:
    """What the groups hold for keys that are spread over them."""
    number = spelling.group_numbers(keys, len(groups))
    numbers = np.unique(number).tolist()
    parts = [(groups[at], keys if len(numbers) == 1 else keys.filter(pa.array(number == at))) for at in numbers]
    return list(entries_of(parts, column, newest=newest))


def _by_partition(rows: pa.Table) -> dict[str, list[FileStatus]]:
    keys = rows.column("key").combine_chunks()
    bounds = np.flatnonzero(np.concatenate([[True], pc.not_equal(keys[1:], keys[:-1]).to_numpy(False), [True]]))
    found = {}
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if len(keys) else ():
        key = keys[first].as_py()
        if key != spelling.ALL_PARTITIONS:
            path = "" if key == spelling.NON_PARTITIONED else key
            names, sizes = (rows[name].slice(first, last - first).to_pylist() for name in ("name", "size"))
            found[path] = [FileStatus(join(path, name), size, 0) for name, size in zip(names, sizes, strict=True)]
    return found
