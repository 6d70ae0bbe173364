"""Partitions of a metadata table that are built while writers go on (format guide 16.9).

They begin with empty file groups, to which all writers log from then on. Their base files are written below these logs
without the lock, and hold what the table has at any time after that: entries in logs are newer than those below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from skep_format.clock import Clock
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.keys import group_id, group_set, group_set_of
from skep_table.metadata_table.partitions import RECORD_INDEX, SINGLE
from skep_table.metadata_write.definitions import groups_of_partition
from skep_table.metadata_write.making.create import define, fill, without_leftovers
from skep_table.metadata_write.making.spreading import NewPartitions, PartitionContents, RecordGroups
from skep_table.metadata_write.options import group_count
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import record_schema, write_base
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def groups_to_begin(table: HudiTable, wanted: NewPartitions, records: Mapping[str, int]) -> dict[str, int]:
    """How many file groups the wanted partitions are to have, as `NewPartitions.groups`, where the partitions of the
    table have about so many records."""
    sizes = RecordGroups.of(table.options, partitioned=wanted.partitioned)
    groups = {group_set_of(name): group_count(name, table.options) for name in wanted.partitions}
    if groups.pop(group_set_of(RECORD_INDEX), None) is not None:
        keys = {group_set_of(RECORD_INDEX): sum(records.values())}
        if wanted.partitioned:
            keys = {groups_of_partition(table, path): number for path, number in records.items()}
        groups |= {each: sizes.count(number) for each, number in keys.items()}
    return groups


def existing_groups(table: HudiTable, partitions: Collection[str]) -> dict[str, int]:
    """How many file groups these partitions have, as `NewPartitions.groups`.

    FileNotFoundError for one that was dropped.
    """
    own, groups = open_own(table), dict[str, int]()
    for name in partitions:
        ids = started_groups(own, name)
        if not ids:
            raise FileNotFoundError(f"{own.storage.root}/{name}")
        groups |= Counter(map(group_set, ids))
    return groups


def begin_partitions(table: HudiTable, wanted: NewPartitions, until: InstantTime, clock: Clock) -> None:
    """Makes the wanted partitions with `wanted.groups` empty file groups each, and defines them, under the lock.

    What an earlier attempt left of them is deleted. Nobody looks at them until the settings name them.
    """
    for name in (each for each in SINGLE if each in wanted.partitions):
        own = without_leftovers(open_own(table), name)
        mine = group_set_of(name)  # as the sets of a partitioned index begin, too
        sets = {each: count for each, count in wanted.groups.items() if f"{each}-".startswith(f"{mine}-")}
        ids = [group_id(each, number) for each, count in sets.items() for number in range(count)]
        empty = PartitionContents(name, dict.fromkeys(ids, lambda: iter(())))
        fill(own, _time_for(table, own, until), empty, clock)
        define(table, name, wanted)


def _time_for(table: HudiTable, own: HudiTable, until: InstantTime) -> InstantTime:
    rules = table.format.metadata
    if rules.appends_suffixes:
        return rules.indexing_instant(until)
    times = (rules.indexing_instant(until, number) for number in count())
    return next(time for time in times if not own.timeline.contains(time))


def started_groups(own: HudiTable, partition: str) -> Mapping[str, FileSlice]:
    """The latest slices of the file groups of a partition, by file id."""
    return {slice_.file_id: slice_ for slice_ in own.view(metadata=False).slices(partition)}


def write_below(own: HudiTable, contents: PartitionContents, token: str, ensure_alive: Callable[[], None]) -> None:
    """Writes the base files of file groups that exist, below their logs. `token` is that of this attempt.

    FileNotFoundError where the partition was dropped meanwhile.
    """
    slices = started_groups(own, contents.partition)
    schema = record_schema(own.format.metadata.release)
    paths = []
    for file_id, pieces in contents.groups.items():
        ensure_alive()
        if file_id not in slices:
            raise FileNotFoundError(f"{own.storage.root}/{contents.partition}: file group {file_id}")
        time = slices[file_id].base_instant
        stat = write_base(own, contents.partition, file_id, time, pieces(), schema, token)
        if stat is not None:
            paths.append(stat.path)
    own.storage.sync(paths)


def delete_bases(table: HudiTable, partitions: Sequence[str], but: str | None = None) -> None:
    """Deletes the base files that attempts at building have left; those with the token `but` stay."""
    for partition in partitions:
        files = table.storage.list_prefix(f"{FOLDER}/{partition}")
        named = ((file.path, BaseFileName.parse(file.name)) for file in files)
        table.storage.delete_many([path for path, name in named if name is not None and name.write_token != but])
