"""Partitions of a metadata table that are built while writers go on (format guide 16.9).

They begin with empty file groups, to which all writers log from then on. Their base files are written below these logs
without the lock, and hold what the table has at any time after that: entries in logs are newer than those below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from skep_table.clock import Clock
from skep_table.instant_time import InstantTime
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.keys import group_set
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_write.base_file import write_base
from skep_table.metadata_write.contents import Contents, Wanted
from skep_table.metadata_write.create import define, fill, without_leftovers
from skep_table.metadata_write.definitions import groups_of_partition, is_partitioned_record_index
from skep_table.metadata_write.groups import GROUP_SETS, RecordGroups, group_count, group_id
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import record_schema
from skep_table.names import BaseFileName
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def groups_to_begin(table: HudiTable, wanted: Wanted, records: Mapping[str, int]) -> dict[str, int]:
    """How many file groups the wanted partitions are to have, as `Wanted.groups`, where the partitions of the table
    have about so many records."""
    groups = {name: group_count(name, table.options) for name in wanted.partitions}
    if RECORD_INDEX in groups:
        del groups[RECORD_INDEX]
        sizes = RecordGroups.of(table.options, partitioned=wanted.partitioned)
        if wanted.partitioned:
            groups |= {groups_of_partition(table, path): sizes.count(number) for path, number in records.items()}
        else:
            groups[RECORD_INDEX] = sizes.count(sum(records.values()))
    return groups


def existing_groups(table: HudiTable, partitions: Collection[str]) -> dict[str, int]:
    """How many file groups these partitions have, as `Wanted.groups`. FileNotFoundError for one that was dropped."""
    own, groups = open_own(table), dict[str, int]()
    for name in partitions:
        ids = started_groups(own, name)
        if not ids:
            raise FileNotFoundError(f"{own.storage.root}/{name}")
        if name == RECORD_INDEX and is_partitioned_record_index(table):
            groups |= Counter(map(group_set, ids))
        else:
            groups[name] = len(ids)
    return groups


def begin_partitions(table: HudiTable, wanted: Wanted, until: InstantTime, clock: Clock) -> None:
    """Makes the wanted partitions with `wanted.groups` empty file groups each, and defines them, under the lock.

    What an earlier attempt left of them is deleted. Nobody looks at them until the settings name them.
    """
    for name in (each for each in GROUP_SETS if each in wanted.partitions):
        own = without_leftovers(open_own(table), name)
        sets = {each: count for each, count in wanted.groups.items() if each not in GROUP_SETS}
        if not (name == RECORD_INDEX and wanted.partitioned):
            sets = {GROUP_SETS[name]: wanted.groups[name]}
        ids = [group_id(each, number) for each, count in sets.items() for number in range(count)]
        empty = Contents(name, dict.fromkeys(ids, lambda: iter(())))
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


def write_below(own: HudiTable, contents: Contents, token: str, ensure_alive: Callable[[], None]) -> None:
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
