"""What an administrator does with a metadata table: looks at it, makes it again, drops it or one of its indexes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skep_format.errors import FormatError, InputError, MetadataTableError, NotATableError
from skep_format.instant_time import InstantTime
from skep_table.commit.concurrency.indexing_executors import refuse_reserved
from skep_table.commit.parts.metadata_table import metadata_clock, name_dropped
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.writable import check_writable, take_lock_over
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.definitions import IndexDefinition, definitions_path
from skep_table.metadata_table.entries import GroupReader, alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS, NON_PARTITIONED
from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, SINGLE, STATS_MEMBER, member_of, with_led
from skep_table.metadata_write.compaction.compact import delta_commits_to_compact, last_compaction
from skep_table.metadata_write.definitions import (
    definition_of_statistics,
    definitions_of,
    index_types,
    secondary_indexes,
    write_definitions,
)
from skep_table.metadata_write.drop import delete_metadata_table, drop_indexes, dropped_indexes
from skep_table.metadata_write.making.create import create_metadata_table, waits_for
from skep_table.metadata_write.options import partitions_of_options
from skep_table.metadata_write.own import (
    MetadataPartition,
    building_partitions,
    has_metadata_table,
    open_own,
    partition_sizes,
)
from skep_table.table import HudiTable

log = logging.getLogger("skep.services")


@dataclass(frozen=True, slots=True)
class MetadataSummary:
    """A metadata table and how far it has come.

    `is_current`: it has all completed writes of the table. `delta_commits`: so many since the last compaction.
    `pending` are instants of its own timeline.
    """

    table: str
    is_current: bool
    partitions: tuple[MetadataPartition, ...]
    last_instant: InstantTime | None
    last_compaction: InstantTime | None
    delta_commits: int
    pending: tuple[InstantTime, ...]


@dataclass(frozen=True, slots=True)
class IndexRecords:
    """The records of a partition of the metadata table, and how evenly its file groups have them."""

    name: str
    file_groups: int
    records: int
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition of the table as the metadata table lists it; `bytes` of all its files."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MetadataStatistics:
    """What a metadata table holds."""

    indexes: tuple[IndexRecords, ...]
    partitions: tuple[ListedPartition, ...]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A metadata table that was rebuilt: the partitions that it has, and those that it lost."""

    kept: tuple[str, ...]
    lost: tuple[str, ...] = ()


def show_metadata_table(table: HudiTable) -> MetadataSummary:
    """Partitions, file groups and files. InputError where the table has no metadata table."""
    own = _own(table)
    last = own.timeline.completed().instants
    compacted = last_compaction(own)
    return MetadataSummary(
        table=table.config.name,
        is_current=table.metadata_table() is not None,
        partitions=tuple(partition_sizes(table, own)),
        last_instant=last[-1].requested_time if last else None,
        last_compaction=compacted.requested_time if compacted else None,
        delta_commits=len(delta_commits_to_compact(own)),
        pending=tuple(each.requested_time for each in own.timeline.pending()),
    )


def metadata_statistics(table: HudiTable) -> MetadataStatistics:
    """Reads all of the metadata table, a file group at a time. InputError where the table has none."""
    _own(table)
    metadata = MetadataTable.open(table)
    if metadata is None:
        raise _without(table)
    indexes, types = [], index_types(table)
    for name in table.config.metadata_partitions:
        counts = [_count_records(group, name, types.get(name)) for group in metadata.group_readers(name)]
        indexes.append(IndexRecords(name, len(counts), sum(counts), min(counts), max(counts)))
    grouped = metadata.all_files().group_by("key").aggregate([("name", "count"), ("size", "sum")])
    rows = zip(*(grouped[name].to_pylist() for name in ("key", "name_count", "size_sum")), strict=True)
    files = {"" if key == NON_PARTITIONED else key: (count, size) for key, count, size in rows if key != ALL_PARTITIONS}
    paths = sorted({*metadata.partitions(), *files})
    return MetadataStatistics(tuple(indexes), tuple(ListedPartition(path, *files.get(path, (0, 0))) for path in paths))


def _count_records(group: GroupReader, partition: str, index_type: str | None) -> int:
    """The records of a file group that are not deleted. Those of expression indexes without a definition are
    statistics."""
    member = member_of(partition, index_type) or STATS_MEMBER
    keys, _ = alive(*latest(group.entries(column=member), member))
    return len(keys)


def rebuild_metadata_table(table: HudiTable) -> Rebuilt:
    """Makes the metadata table again, or for the first time, under the lock: with the indexes that it has, as they are
    defined, and those that the options enable.

    MetadataTableError where it has to wait for pending actions; the old one then stays. Also for a key that lies in
    several file groups, where a record index has one place for it: the table then has no metadata table.
    """
    check_writable(table.config, table.storage.root)
    check_plaintext(table, logs=False)
    with table.context.locked():
        table = take_lock_over(table)
        check_quiet(table)
        noted = dropped_indexes(table.config)
        before = tuple(dict.fromkeys((*table.config.metadata_partitions, *noted)))
        kinds = {*SINGLE, *(index.partition for index in secondary_indexes(table)), *noted}
        names = {*before, *partitions_of_options(table)} & kinds
        defined = {name: each for name, each in _definitions(table).items() if name in names}
        again = {**dict.fromkeys(names), **noted, **_columns_kept(table), **defined}
        refuse_reserved(table, again)
        delete_metadata_table(table.storage, again)
        write_definitions(table.storage, defined, definitions_path(table.config))
        definitions = {name: each for name, each in again.items() if each is not None}
        try:
            made = create_metadata_table(table.reload(), metadata_clock(table), names, definitions)
        except MetadataTableError:
            name_dropped(table.reload(), {})  # the next attempt would fail, too
            raise
        made = name_dropped(made, {})
    kept = made.config.metadata_partitions
    lost = tuple(name for name in before if name not in kept)
    if lost:
        log.warning("table %s: the indexes %s are not rebuilt", table.config.name, ", ".join(lost))
    return Rebuilt(kept, lost)


def _columns_kept(table: HudiTable) -> Mapping[str, IndexDefinition]:
    """The definition of column statistics where the table has some that no file defines."""
    if COLUMN_STATS not in table.config.metadata_partitions:
        return {}
    return {COLUMN_STATS: definition_of_statistics(table)}


def _definitions(table: HudiTable) -> Mapping[str, IndexDefinition]:
    """The definitions of indexes; none where their file is damaged: they are rebuilt from the options."""
    try:
        return definitions_of(table)
    except FormatError as error:
        log.warning("table %s: %s", table.config.name, error.message)
        return {}


def drop_metadata(table: HudiTable, indexes: Sequence[str] | None = None) -> tuple[str, ...]:
    """Drops the metadata table, or only these of its indexes, under the lock. Returns the names of what was dropped.

    InputError where there is no such one, and for `files` alone: all others depend on it.
    """
    check_writable(table.config, table.storage.root)
    with table.context.locked():
        table = take_lock_over(table)
        noted = dropped_indexes(table.config)
        if not (has_metadata_table(table.config) or noted):
            raise _without(table)
        there = tuple(dict.fromkeys((*table.config.metadata_partitions, *building_partitions(table.config), *noted)))
        if indexes is None:
            delete_metadata_table(table.storage)
            dropped = there
        else:
            _check_droppable(table, indexes, there)
            dropped = tuple(with_led(indexes, there))
            left = {name: each for name, each in noted.items() if name not in dropped}
            drop_indexes(table, [name for name in there if name not in dropped], left)
    log.info("table %s: %s dropped from its metadata table", table.config.name, ", ".join(dropped))
    table.context.events.emit("metadata_table.dropped", table=table.config.name, partitions=dropped)
    return dropped


def _check_droppable(table: HudiTable, names: Sequence[str], there: Sequence[str]) -> None:
    for name in names:
        if name not in there:
            raise InputError(
                f"table {table.config.name}: its metadata table has no index {name}",
                table=table.config.name,
                found=name,
                expected=", ".join(there),
            )
    if FILES in names:
        raise InputError(
            f"table {table.config.name}: {FILES} is dropped with all indexes only",
            hint="drop the whole metadata table",
            table=table.config.name,
            found=FILES,
        )


def check_quiet(table: HudiTable) -> None:
    """MetadataTableError where something pending keeps a partition of the metadata table from being made."""
    first = waits_for(table)
    if first is not None:
        raise MetadataTableError(
            f"table {table.config.name}: {first.action.value} {first.requested_time} is pending, and a metadata table"
            " of this table version is made only while nothing is",
            hint="finish it (skep maintain) or roll it back (skep rollback)",
            table=table.config.name,
            instant=first.requested_time,
        )


def _own(table: HudiTable) -> HudiTable:
    if not has_metadata_table(table.config):
        raise _without(table)
    try:
        return open_own(table)
    except NotATableError as error:
        raise MetadataTableError(
            f"table {table.config.name}: its settings name a metadata table, and there is none",
            hint="skep metadata rebuild makes it again",
            table=table.config.name,
            path=str(error.fields.get("path", "")),
        ) from error


def _without(table: HudiTable) -> InputError:
    return InputError(
        f"table {table.config.name} has no metadata table",
        hint="skep metadata rebuild makes one",
        table=table.config.name,
    )
