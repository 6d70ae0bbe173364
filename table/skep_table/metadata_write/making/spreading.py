"""What new partitions hold, spread over their file groups: entries are spooled until all files have been read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.names import join
from skep_format.options import Options
from skep_format.storage import FileStatus
from skep_table.metadata_table.keys import group_id, group_numbers, group_set_of
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.expression_index import ExpressionIndex
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged
from skep_table.metadata_write.definitions import SecondaryIndex
from skep_table.metadata_write.facts.files import ExpressionFacts, FileFacts
from skep_table.metadata_write.facts.keys import repeated_key, two_places
from skep_table.metadata_write.making.reading import each_read
from skep_table.metadata_write.making.spool import KEY, GroupSpool
from skep_table.metadata_write.options import (
    LEAST_RECORD_GROUPS,
    LEAST_RECORD_GROUPS_OF_PARTITION,
    MOST_RECORD_GROUPS,
    MOST_RECORD_GROUPS_OF_PARTITION,
    RECORD_GROUP_BYTES,
    RECORD_GROWTH,
    group_count,
)
from skep_table.slices.options import SPILL_FOLDER
from skep_table.table import HudiTable
from skep_table.view import FileSlice

if TYPE_CHECKING:
    from typing_extensions import Self

_RECORD_BYTES: Final = 48  # what Hudi reckons an entry of the record index takes


@dataclass(frozen=True)
class RecordGroups:
    """How many file groups a new record index has, or in a partitioned one each partition of the table (guide 7.2 and
    16.2). Keys are spread by the number of groups, so it never changes."""

    least: int
    most: int
    growth: float
    group_bytes: int

    @classmethod
    def of(cls, options: Options, *, partitioned: bool) -> Self:
        """By the options of a writer."""
        least, most = (
            (LEAST_RECORD_GROUPS_OF_PARTITION, MOST_RECORD_GROUPS_OF_PARTITION)
            if partitioned
            else (LEAST_RECORD_GROUPS, MOST_RECORD_GROUPS)
        )
        return cls(
            options.value(least), options.value(most), options.value(RECORD_GROWTH), options.value(RECORD_GROUP_BYTES)
        )

    def count(self, records: int) -> int:
        """For so many records now."""
        expected = math.ceil(records * self.growth)
        wanted = expected // max(1, self.group_bytes // _RECORD_BYTES)
        return max(self.least, min(wanted, self.most))


Sizes = Mapping[str, Mapping[str, int]]
"""Sizes of files by partition path and file name."""
Pieces = Callable[[], Iterator[pa.Table]]
"""The puts of one file group, piece by piece, ascending by their keys."""
Groups = Mapping[str, Pieces]
"""Those of the file groups of a partition, by their ids."""

_FILES_AT_ONCE: Final = 256
_PLACE: Final = "place"
_SIZE: Final = attrgetter("size_bytes")  # of a slice


@dataclass(frozen=True)
class PartitionContents:
    """What a new partition holds."""

    partition: str
    groups: Groups


@dataclass(frozen=True)
class NewPartitions:
    """What is to be made: the partitions, the columns of statistics, and whether the record index is partitioned.

    `secondary` are the secondary indexes among the partitions, `expressions` those over expressions. `groups`: how
    many file groups each set has of those that exist already (`metadata_table.keys.group_set`).
    """

    partitions: Collection[str]
    columns: Columns = field(default_factory=dict)
    partitioned: bool = False
    secondary: Sequence[SecondaryIndex] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    expressions: Sequence[ExpressionIndex] = ()


T = TypeVar("T")


@dataclass(frozen=True)
class Build:
    """What new partitions are made of: the committed `files` of a snapshot. Temporary files last as long as `stack`."""

    table: HudiTable
    files: Sizes
    wanted: NewPartitions
    stack: ExitStack

    @property
    def last_time(self) -> InstantTime:
        """The time of the last completed action."""
        last = self.table.timeline.completed().last()
        return last.requested_time if last is not None else BEFORE_ALL

    def statuses(self) -> Iterator[tuple[str, FileStatus]]:
        """All files, partition by partition."""
        for path in sorted(self.files):
            for name, size in sorted(self.files[path].items()):
                yield path, FileStatus(join(path, name), size, 0)

    def slices(self) -> list[FileSlice]:
        """The merged slices, partition by partition."""
        view = self.table.view(metadata=False)
        return [slice_ for path in sorted(self.files) for slice_ in view.slices(path)]

    def spool(self) -> GroupSpool:
        """An empty one."""
        return self.stack.enter_context(GroupSpool(self.table.options.value(SPILL_FOLDER)))

    def steps(self, name: str, total: int) -> Callable[[int], None]:
        """Reports how many of `total` are done."""
        return lambda done: self.table.context.events.progress(name, done, total, table=self.table.config.name)

    def read(self, name: str, read: Callable[[FileSlice], T], slices: Sequence[FileSlice]) -> Iterator[tuple[int, T]]:
        """What is read of each slice, with its number; progress is reported by the `name`."""
        report = self.steps(name, len(slices))
        for place, found in enumerate(each_read(self.table.context.runner, read, slices, _SIZE)):
            yield place, found
            report(place + 1)


# -- records of files and partitions -----------------------------------------------------------------------------------


F = TypeVar("F", bound=FileFacts | ExpressionFacts)


@dataclass(frozen=True)
class OfPartitions(Generic[F]):
    """What an index records of whole partitions: `update` of the merged summaries that `of_file` returns for the files
    that are read. One that returns None is not known: readers then look into the partition.
    """

    of_file: Callable[[F], Sequence[ColumnSummary] | None]
    update: Callable[[Mapping[str, Sequence[ColumnSummary]]], PartitionUpdate]


def updates_by_file(
    build: Build,
    name: str,
    facts: Iterator[F],
    of_files: Callable[[Sequence[F]], Iterable[PartitionUpdate]],
    of_partitions: Sequence[OfPartitions[F]],
) -> Iterator[PartitionUpdate]:
    """The puts of indexes for the facts of all files, which come partition by partition, some at a time."""
    report, done = build.steps(name, sum(map(len, build.files.values()))), 0
    view = build.table.view(metadata=False)
    # The files of a partition that are read, and their summaries; None where those of one are not known.
    open_: dict[str, tuple[frozenset[str], list[Sequence[ColumnSummary] | None]]] = {}

    def ended(last: str | None) -> Iterator[PartitionUpdate]:
        for number, each in enumerate(of_partitions):
            found = {path: wholes[number] for path, (_, wholes) in open_.items() if path != last}
            yield each.update({path: whole for path, whole in found.items() if whole is not None})

    while some := list(islice(facts, _FILES_AT_ONCE)):
        yield from of_files(some)
        for fact in some if of_partitions else ():
            path = fact.partition_path
            if path not in open_:
                latest = frozenset(each for slice_ in view.slices(path) for each in slice_.file_names)
                open_[path] = latest, [[] if latest else None for _ in of_partitions]
            latest, wholes = open_[path]
            for number, each in enumerate(of_partitions if fact.name in latest else ()):
                whole, summaries = wholes[number], each.of_file(fact)
                wholes[number] = None if whole is None or summaries is None else merged([*whole, *summaries])
        last = some[-1].partition_path  # which may go on
        yield from ended(last)
        open_ = {path: each for path, each in open_.items() if path == last}
        done += len(some)
        report(done)
    yield from ended(None)


def spread_updates(build: Build, partitions: Iterable[str], updates: Iterable[PartitionUpdate]) -> dict[str, Groups]:
    """The puts of updates of these partitions, spread over the file groups that each is to have."""
    given, options = build.wanted.groups, build.table.options
    counts = {name: given.get(group_set_of(name)) or group_count(name, options) for name in partitions}
    spools = {name: build.spool() for name in counts}
    for update in updates:
        number = group_numbers(update.puts[KEY].combine_chunks(), counts[update.partition])
        for at in np.unique(number).tolist():
            spools[update.partition].add(at, update.puts.filter(pa.array(number == at)))
    return {
        name: {group_id(group_set_of(name), at): partial(spools[name].ascending, at) for at in range(count)}
        for name, count in counts.items()
    }


# -- entries of keys ---------------------------------------------------------------------------------------------------


_Group = tuple[str, int]
"""A set of file groups among which keys are spread, and a number."""


class Spread:
    """Keys, each with the number of its slice, spread over the file groups of an index.

    How many groups there are depends on how many keys: they are spread again where there are more than the fewest
    groups are for. `sharded_by` returns what the file group of each key is chosen by, where that is not the key.
    """

    def __init__(
        self,
        build: Build,
        slices: Sequence[FileSlice],
        *,
        partitioned: bool = False,
        sharded_by: Callable[[pa.Array], pa.Array] | None = None,
        existing: Mapping[str, int] | None = None,
    ) -> None:
        self._build, self._spool, self._slices = build, build.spool(), slices
        self._sizes = RecordGroups.of(build.table.options, partitioned=partitioned)
        self._sharded_by, self._existing = sharded_by, existing or {}

    def add(self, group_set: str, keys: pa.Array, place: int) -> None:
        """Appends the keys of a slice, whose number is `place`."""
        rows = pa.table([keys, pa.array(np.full(len(keys), place, np.int32))], [KEY, _PLACE])
        self._put(rows, self._spool, group_set, self._existing.get(group_set, self._sizes.least))

    def groups(self, group_set: str, update: Callable[[pa.Array, pa.Array], PartitionUpdate]) -> Groups:
        """The file groups of a set, with the puts of an `update` of keys and numbers of slices.

        MetadataTableError for a key that lies in two slices.
        """
        spool, count = self._settled(group_set)
        for number in range(count):
            self._check_unique(spool, (group_set, number))
        return {
            group_id(group_set, number): partial(_pieces, spool, (group_set, number), update) for number in range(count)
        }

    def _settled(self, group_set: str) -> tuple[GroupSpool, int]:
        """The spool with the keys of a set by as many groups as they take, and that number."""
        if group_set in self._existing:
            return self._spool, self._existing[group_set]
        least = self._sizes.least
        count = self._sizes.count(sum(self._spool.count((group_set, number)) for number in range(least)))
        if count == least:
            return self._spool, count
        spool = self._build.spool()
        for number in range(least):
            for batch in self._spool.batches((group_set, number)):
                self._put(pa.Table.from_batches([batch]), spool, group_set, count)
        return spool, count

    def _put(self, rows: pa.Table, spool: GroupSpool, group_set: str, groups: int) -> None:
        keys = rows[KEY].combine_chunks()
        number = group_numbers(keys if self._sharded_by is None else self._sharded_by(keys), groups)
        for at in np.unique(number).tolist():
            spool.add((group_set, at), rows.filter(pa.array(number == at)))

    def _check_unique(self, spool: GroupSpool, group: _Group) -> None:
        rows = pa.Table.from_batches(spool.batches(group)) if spool.count(group) else None
        if rows is None or pc.count_distinct(rows[KEY]).as_py() == len(rows):
            return
        key = repeated_key(rows[KEY])
        assert key is not None
        places = rows.filter(pc.equal(rows[KEY], key))[_PLACE].to_pylist()
        first, second = (self._slices[place].group for place in places[:2])
        raise two_places(self._build.table, key.as_py(), first, second)


def _pieces(
    spool: GroupSpool, group: _Group, update: Callable[[pa.Array, pa.Array], PartitionUpdate]
) -> Iterator[pa.Table]:
    for rows in spool.ascending(group):
        yield update(rows[KEY].combine_chunks(), rows[_PLACE].combine_chunks()).puts
