"""What the partitions of a new metadata table hold, worked out from the table's files: spooled by file group.

Files are read once, a few at a time, for all partitions that record something of files; merged slices once for the
record index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.instant_time import BEFORE_ALL
from skep_table.metadata_table import group_numbers
from skep_table.metadata_table.expressions import ExpressionIndex
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, partition_stats_update
from skep_table.metadata_table.records.files import files_listed
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.secondary_index import secondary_index_update, sharded_parts
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged
from skep_table.metadata_write.definitions import SecondaryIndex, groups_of_partition
from skep_table.metadata_write.expression_contents import expression_updates
from skep_table.metadata_write.file_facts import FileFacts, facts_of_files, with_absent
from skep_table.metadata_write.groups import GROUP_SETS, RecordGroups, group_count, group_id, group_set_of
from skep_table.metadata_write.key_changes import secondary_entries, slice_keys, slice_rows, two_places
from skep_table.metadata_write.reading import each_read
from skep_table.metadata_write.spool import KEY, GroupSpool
from skep_table.names import join
from skep_table.slices.options import SPILL_FOLDER
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.timeline import milliseconds_of
from skep_table.view import FileSlice

Sizes = Mapping[str, Mapping[str, int]]
"""Sizes of files by partition path and file name."""
Pieces = Callable[[], Iterator[pa.Table]]
"""The puts of one file group, piece by piece, ascending by their keys."""

_FILES_AT_ONCE: Final = 256
_PLACE: Final = "place"
_SIZE: Final = attrgetter("size_bytes")  # of a slice
_OF_FILES: Final = frozenset({COLUMN_STATS, PARTITION_STATS, BLOOM_FILTERS})


@dataclass(frozen=True)
class Contents:
    """What a new partition holds: the ids of its file groups, and the puts of each."""

    partition: str
    groups: Mapping[str, Pieces]


@dataclass(frozen=True)
class Wanted:
    """What is to be made: the partitions, the columns of statistics, and whether the record index is partitioned.

    `secondary` are the secondary indexes among the partitions, `expressions` those over expressions. `groups`: how
    many file groups partitions have that exist already; those of a partitioned record index by the sets of its file
    groups.
    """

    partitions: Collection[str]
    columns: Columns = field(default_factory=dict)
    partitioned: bool = False
    secondary: Sequence[SecondaryIndex] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    expressions: Sequence[ExpressionIndex] = ()

    @property
    def of_files(self) -> bool:
        """Whether data files are read one by one."""
        return not _OF_FILES.isdisjoint(self.partitions)


@contextmanager
def contents_of(table: HudiTable, files: Sizes, wanted: Wanted) -> Iterator[list[Contents]]:
    """What the wanted partitions hold, in the order in which Hudi makes them, from the committed `files` of a snapshot.

    Temporary files last as long as the context. MetadataTableError for a key that lies in two file groups, where the
    record index has one place for it.
    """
    with ExitStack() as stack:
        spools = {name: stack.enter_context(_spool(table)) for name in wanted.partitions}
        found: dict[str, Contents] = {}
        if FILES in wanted.partitions:
            update = files_listed(files)
            found[FILES] = Contents(FILES, {group_id(GROUP_SETS[FILES], 0): lambda: iter([update.puts])})
        if wanted.of_files:
            found |= _Facts(table, wanted, spools).read(files)
        if RECORD_INDEX in wanted.partitions:
            found[RECORD_INDEX] = _Keys(table, wanted, spools[RECORD_INDEX], stack).read(sorted(files))
        if wanted.secondary:
            found |= _Entries(table, wanted.secondary, spools, stack).read(sorted(files))
        if wanted.expressions:
            found |= _of_expressions(table, files, wanted, spools)
        named = [*(each.partition for each in wanted.secondary), *(each.partition for each in wanted.expressions)]
        yield [found[name] for name in (*GROUP_SETS, *named) if name in found]


def _of_expressions(
    table: HudiTable, files: Sizes, wanted: Wanted, spools: Mapping[str, GroupSpool]
) -> dict[str, Contents]:
    """The contents of all indexes over expressions."""
    facts = _Facts(table, wanted, spools)
    report = _steps(table, "metadata_table.expressions", sum(map(len, files.values())))
    for update in expression_updates(table, _statuses(files), wanted.expressions, report):
        facts.add(update)
    return {index.partition: facts.contents(index.partition) for index in wanted.expressions}


def _spool(table: HudiTable) -> GroupSpool:
    return GroupSpool(table.options.value(SPILL_FOLDER))


def _steps(table: HudiTable, name: str, total: int) -> Callable[[int], None]:
    """Reports how many of `total` are done."""
    return lambda done: table.context.events.progress(name, done, total, table=table.config.name)


# -- what is recorded of files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    table: HudiTable
    wanted: Wanted
    spools: Mapping[str, GroupSpool]

    def read(self, files: Sizes) -> dict[str, Contents]:
        """The contents of all partitions that record something of files."""
        report, done = _steps(self.table, "metadata_table.files", sum(map(len, files.values()))), 0
        blooms = BLOOM_FILTERS in self.wanted.partitions
        runner = self.table.context.runner
        facts = facts_of_files(self.table, _statuses(files), self.wanted.columns, blooms=blooms, runner=runner)
        open_: dict[str, _PartitionSummary] = {}
        while some := list(islice(facts, _FILES_AT_ONCE)):
            for update in self._updates(some):
                self.add(update)
            for path, of_partition in groupby(some, lambda each: each.partition_path):
                if path not in open_:
                    open_[path] = _PartitionSummary(self.wanted.columns, self._latest(path))
                open_[path].add(of_partition)
            last = some[-1].partition_path  # which may go on
            self._add_partitions({path: whole for path, whole in open_.items() if path != last})
            open_ = {last: open_[last]}
            done += len(some)
            report(done)
        self._add_partitions(open_)
        return {name: self.contents(name) for name in self.wanted.partitions if name in _OF_FILES}

    @property
    def _release(self) -> str:
        return self.table.format.metadata.release

    def _add_partitions(self, wholes: Mapping[str, _PartitionSummary]) -> None:
        if PARTITION_STATS in self.wanted.partitions:
            found = {path: whole.summaries for path, whole in wholes.items()}
            known = {path: summaries for path, summaries in found.items() if summaries is not None}
            self.add(partition_stats_update(known, (), (), self._release))

    def _latest(self, path: str) -> frozenset[str]:
        """The files that a snapshot query reads."""
        if PARTITION_STATS not in self.wanted.partitions:
            return frozenset()
        slices = self.table.view(metadata=False).slices(path)
        return frozenset(name for slice_ in slices for name in slice_.file_names)

    def _updates(self, some: Sequence[FileFacts]) -> Iterator[PartitionUpdate]:
        if COLUMN_STATS in self.wanted.partitions:
            written = {(each.partition_path, each.name): each.summaries for each in some}
            yield column_stats_update(written, (), (), self._release)
        if BLOOM_FILTERS in self.wanted.partitions:
            last = self.table.timeline.completed().instants
            filters = {(each.partition_path, each.name): each.bloom for each in some if each.bloom is not None}
            time = last[-1].requested_time if last else BEFORE_ALL
            yield bloom_filters_update(filters, (), time, self._release)

    def add(self, update: PartitionUpdate) -> None:
        """Spreads the puts of an update over the file groups of its partition."""
        number = group_numbers(update.puts[KEY].combine_chunks(), self._count(update.partition))
        for at in np.unique(number).tolist():
            self.spools[update.partition].add(at, update.puts.filter(pa.array(number == at)))

    def _count(self, name: str) -> int:
        return self.wanted.groups.get(name) or group_count(name, self.table.options)

    def contents(self, name: str) -> Contents:
        """What was added for a partition."""
        spool = self.spools[name]
        numbers = range(self._count(name))
        return Contents(name, {group_id(group_set_of(name), at): partial(spool.ascending, at) for at in numbers})


class _PartitionSummary:
    """The merged summaries of the files of a partition that are read."""

    def __init__(self, columns: Columns, files: Collection[str]) -> None:
        self._columns, self._files = columns, files
        self._found: list[ColumnSummary] = []
        self._known = bool(files)

    @property
    def summaries(self) -> Sequence[ColumnSummary] | None:
        """None where those of a file are not known: readers then look into the partition."""
        return self._found if self._known else None

    def add(self, facts: Iterable[FileFacts]) -> None:
        """Counts those of the files in, if they are read."""
        for each in facts:
            if not self._known or each.name not in self._files:
                continue
            summaries = with_absent(self._columns, each)
            self._known = summaries is not None
            self._found = merged([*self._found, *(summaries or ())])


def _statuses(files: Sizes) -> Iterator[tuple[str, FileStatus]]:
    for path in sorted(files):
        for name, size in sorted(files[path].items()):
            yield path, FileStatus(join(path, name), size, 0)


# -- the record index --------------------------------------------------------------------------------------------------


_Group = tuple[str, int]
"""A set of file groups among which keys are spread, and a number."""


class _Spread:
    """Keys, each with the number of its slice, spread over the file groups of an index.

    How many groups there are depends on how many keys: they are spread again where there are more than the fewest
    groups are for. `sharded_by` returns what the file group of each key is chosen by, where that is not the key.
    """

    def __init__(
        self,
        table: HudiTable,
        spool: GroupSpool,
        stack: ExitStack,
        sizes: RecordGroups,
        sharded_by: Callable[[pa.Array], pa.Array] | None = None,
        existing: Mapping[str, int] | None = None,
    ) -> None:
        self._table, self._spool, self._stack = table, spool, stack
        self._sizes, self._sharded_by, self._existing = sizes, sharded_by, existing or {}

    def add(self, group_set: str, keys: pa.Array, place: int) -> None:
        """Appends the keys of a slice, whose number is `place`."""
        rows = pa.table([keys, pa.array(np.full(len(keys), place, np.int32))], [KEY, _PLACE])
        self._put(rows, self._spool, group_set, self._existing.get(group_set, self._sizes.least))

    def settled(self, group_set: str) -> tuple[GroupSpool, int]:
        """The spool with the keys of a set by as many groups as they take, and that number."""
        if group_set in self._existing:
            return self._spool, self._existing[group_set]
        least = self._sizes.least
        count = self._sizes.count(sum(self._spool.count((group_set, number)) for number in range(least)))
        if count == least:
            return self._spool, count
        spool = self._stack.enter_context(_spool(self._table))
        for number in range(least):
            for batch in self._spool.batches((group_set, number)):
                self._put(pa.Table.from_batches([batch]), spool, group_set, count)
        return spool, count

    def _put(self, rows: pa.Table, spool: GroupSpool, group_set: str, groups: int) -> None:
        keys = rows[KEY].combine_chunks()
        number = group_numbers(keys if self._sharded_by is None else self._sharded_by(keys), groups)
        for at in np.unique(number).tolist():
            spool.add((group_set, at), rows.filter(pa.array(number == at)))


def _check_unique(table: HudiTable, spool: GroupSpool, group: _Group, slices: Sequence[FileSlice]) -> None:
    rows = pa.Table.from_batches(spool.batches(group)) if spool.count(group) else None
    if rows is None or pc.count_distinct(rows[KEY]).as_py() == len(rows):
        return
    counts = pc.value_counts(rows[KEY])
    key = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"]
    places = rows.filter(pc.equal(rows[KEY], key))[_PLACE].to_pylist()
    first, second = (slices[place].group for place in places[:2])
    raise two_places(table, key.as_py(), first, second)


def _distinct_keys(table: HudiTable, slice_: FileSlice) -> pa.Array:
    return pc.unique(slice_keys(table, slice_))


class _Keys:
    """The keys of all merged slices, spread over the file groups of the record index."""

    def __init__(self, table: HudiTable, wanted: Wanted, spool: GroupSpool, stack: ExitStack) -> None:
        self._table, self._partitioned = table, wanted.partitioned
        sizes = RecordGroups.of(table.options, partitioned=wanted.partitioned)
        existing = {GROUP_SETS.get(name, name): count for name, count in wanted.groups.items()}
        self._spread = _Spread(table, spool, stack, sizes, existing=existing)
        self._slices: list[FileSlice] = []

    def read(self, partitions: Iterable[str]) -> Contents:
        """MetadataTableError for a key that lies in two file groups, where the index has one place for it."""
        view = self._table.view(metadata=False)
        self._slices = [slice_ for path in partitions for slice_ in view.slices(path)]
        report = _steps(self._table, "metadata_table.keys", len(self._slices))
        read = partial(_distinct_keys, self._table)
        for place, keys in enumerate(each_read(self._table.context.runner, read, self._slices, _SIZE)):
            self._spread.add(self._set_of(self._slices[place]), keys, place)
            report(place + 1)
        sets = dict.fromkeys(map(self._set_of, self._slices)) if self._partitioned else [GROUP_SETS[RECORD_INDEX]]
        groups = {}
        for name in sets:
            spool, count = self._spread.settled(name)
            for number in range(count):
                _check_unique(self._table, spool, (name, number), self._slices)
                groups[group_id(name, number)] = partial(self._pieces, spool, (name, number))
        return Contents(RECORD_INDEX, groups)

    def _set_of(self, slice_: FileSlice) -> str:
        if not self._partitioned:
            return GROUP_SETS[RECORD_INDEX]
        return groups_of_partition(self._table, slice_.partition_path)

    def _pieces(self, spool: GroupSpool, group: _Group) -> Iterator[pa.Table]:
        paths, ids, times = self._columns
        for rows in spool.ascending(group):
            keys, place = rows[KEY].combine_chunks(), rows[_PLACE].combine_chunks()
            release = self._table.format.metadata.release
            yield record_index_update(keys, paths.take(place), ids.take(place), times.take(place), release).puts

    @cached_property
    def _columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Partition path, file id and time of each slice."""
        zone = self._table.config.timezone
        return (
            pa.array([each.partition_path for each in self._slices], pa.string()),
            pa.array([each.file_id for each in self._slices], pa.string()),
            pa.array([milliseconds_of(each.base_instant, zone) for each in self._slices], pa.int64()),
        )


# -- secondary indexes -------------------------------------------------------------------------------------------------


def _distinct_entries(table: HudiTable, columns: Sequence[str], slice_: FileSlice) -> dict[str, pa.Array]:
    rows = slice_rows(table, slice_, columns)
    return {column: pc.unique(secondary_entries(rows, column)) for column in columns}


class _Entries:
    """The entries of secondary indexes for the rows of all merged slices, which are read once for all of them."""

    def __init__(
        self, table: HudiTable, indexes: Sequence[SecondaryIndex], spools: Mapping[str, GroupSpool], stack: ExitStack
    ) -> None:
        self._table, self._indexes = table, indexes
        self._columns = sorted({index.column for index in indexes})
        sizes = RecordGroups.of(table.options, partitioned=False)
        self._spreads = {
            index.partition: _Spread(
                table, spools[index.partition], stack, sizes, sharded_parts if index.by_value else None
            )
            for index in indexes
        }

    def read(self, partitions: Iterable[str]) -> dict[str, Contents]:
        """MetadataTableError for a key that lies in two file groups with the same value."""
        view = self._table.view(metadata=False)
        slices = [slice_ for path in partitions for slice_ in view.slices(path)]
        report = _steps(self._table, "metadata_table.secondary_indexes", len(slices))
        read = partial(_distinct_entries, self._table, self._columns)
        for place, entries in enumerate(each_read(self._table.context.runner, read, slices, _SIZE)):
            for index in self._indexes:
                self._spreads[index.partition].add(group_set_of(index.partition), entries[index.column], place)
            report(place + 1)
        return {index.partition: self._contents(index, slices) for index in self._indexes}

    def _contents(self, index: SecondaryIndex, slices: Sequence[FileSlice]) -> Contents:
        name = group_set_of(index.partition)
        spool, count = self._spreads[index.partition].settled(name)
        for number in range(count):
            _check_unique(self._table, spool, (name, number), slices)
        numbers = range(count)
        return Contents(
            index.partition,
            {group_id(name, number): partial(self._pieces, index, spool, (name, number)) for number in numbers},
        )

    def _pieces(self, index: SecondaryIndex, spool: GroupSpool, group: _Group) -> Iterator[pa.Table]:
        none, release = pa.array([], pa.string()), self._table.format.metadata.release
        for rows in spool.ascending(group):
            keys = rows[KEY].combine_chunks()
            yield secondary_index_update(index.partition, keys, none, release, by_value=index.by_value).puts
