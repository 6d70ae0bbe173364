"""Plans of indexing: partitions of the metadata table begin under the lock, and are built later beside writers."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from skep_format.basefile import read_footer
from skep_format.errors import UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import IndexPartitionInfo, IndexPlan
from skep_format.timeline.write import delete_pending
from skep_table.commit.concurrency.indexing_executors import reserved_partitions
from skep_table.commit.heartbeat import ActiveWriters
from skep_table.commit.instants import request_plan
from skep_table.commit.parts.metadata_table import can_be_built_aside, metadata_clock, name_dropped, to_make_again
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.writable import check_writable, prepared
from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, RECORD_INDEX, SINGLE
from skep_table.metadata_write.definitions import PLANNED_COLUMNS, definition_of_statistics
from skep_table.metadata_write.drop import drop_indexes, dropped_indexes
from skep_table.metadata_write.making.create import (
    announce,
    begin_partitions,
    committed_files,
    create_metadata_table,
    existing_groups,
    groups_to_begin,
    wanted_of,
)
from skep_table.metadata_write.making.spreading import NewPartitions
from skep_table.metadata_write.options import partitions_of_options
from skep_table.metadata_write.own import building_partitions, planned_partitions
from skep_table.table import METADATA_ENABLE, HudiTable

log = logging.getLogger("skep.services")


def missing_indexes(table: HudiTable) -> frozenset[str]:
    """The indexes that the options enable, or that had to be dropped, but the table neither has nor builds, if they can
    be built beside writes."""
    if not table.options.value(METADATA_ENABLE):
        return frozenset()
    known = {*table.config.metadata_partitions, *building_partitions(table.config)}
    wanted = {*partitions_of_options(table), *dropped_indexes(table.config)}
    return frozenset(name for name in wanted - known if can_be_built_aside(name))


def schedule_index(table: HudiTable, partitions: Collection[str]) -> Instant | None:
    """Plans to build these partitions of the metadata table; from now on all writers log to them.

    A metadata table is made first where there is none. None where there is nothing to build, or not yet: a write is to
    complete before, and all that were requested before it, and the executors of plans that were dropped are to end.
    UnsupportedError for partitions that can't be built beside writers.
    """
    check_writable(table.config, table.storage.root)
    check_plaintext(table, logs=False, indexes=partitions)
    _check_names(table, partitions)
    records = _records(table) if RECORD_INDEX in partitions else {}
    with table.context.locked():
        table = prepared(table)
        if FILES not in table.config.metadata_partitions:
            table = create_metadata_table(table, metadata_clock(table))
        return _planned(table, partitions, records, {})


def _planned(
    table: HudiTable, partitions: Collection[str], records: Mapping[str, int], groups: Mapping[str, int]
) -> Instant | None:
    """`groups` are those that partitions had which are planned again."""
    until = _written_until(table)
    if FILES not in table.config.metadata_partitions or until is None:
        return None
    ready, building = table.config.metadata_partitions, building_partitions(table.config)
    defined = {name: each for name, each in dropped_indexes(table.config).items() if each is not None}
    files = committed_files(table) if RECORD_INDEX in partitions else {}
    wanted = wanted_of(
        table, frozenset(partitions) - {*ready, *building, *reserved_partitions(table)}, files, definitions=defined
    )
    if not wanted.partitions:
        return None
    sizes = {path: records.get(path, 0) for path, of_partition in files.items() if of_partition}
    wanted = replace(wanted, groups={**groups_to_begin(table, wanted, sizes), **groups})
    begin_partitions(table, wanted, until, metadata_clock(table))
    table.context.lock.ensure_held()
    instant = request_plan(table, Action.INDEXING, _plan(table, wanted, until))
    announce(table, ready, {*building, *wanted.partitions})
    names = ", ".join(sorted(wanted.partitions))
    log.info("table %s: %s is to build %s", table.config.name, instant.requested_time, names)
    return instant


@dataclass(frozen=True)
class SetAside:
    """Partitions that were to be built, and the file groups that they had, as `NewPartitions.groups`."""

    partitions: Collection[str]
    groups: Mapping[str, int]


def set_idle_plans_aside(table: HudiTable) -> SetAside | None:
    """Drops what is being built, under the lock, while no executor is active: `plan_again` begins it again.

    What writers have logged to it keeps the metadata table from being compacted, and is in the files that a later build
    reads. The settings name the partitions until they are planned again. None, and nothing is dropped, while an
    executor may be active.
    """
    names, plans = building_partitions(table.config), table.timeline.pending().of(Action.INDEXING)
    writers = ActiveWriters(table.context)
    idle = [
        each
        for each in plans
        if not writers.is_active(each.requested_time)
        and (each.state is State.REQUESTED or writers.has_heartbeat(each.requested_time))
    ]
    planned = {name for each in idle for name in planned_partitions(table, each)}
    if len(idle) < len(plans) or not set(names) <= planned:
        return None
    groups = existing_groups(table, names)
    again = dict(to_make_again(table, names))
    if COLUMN_STATS in names and not table.format.metadata.defines_indexes:
        again[COLUMN_STATS] = definition_of_statistics(table)
    drop_indexes(table, table.config.metadata_partitions, again)
    for each in table.reload().timeline.pending().of(Action.INDEXING):  # started by executors that died
        delete_pending(table, each)
    return SetAside(names, groups)


def plan_again(table: HudiTable, aside: SetAside) -> HudiTable:
    """The snapshot with a plan to build what was set aside, under the lock. Without one the next writer makes it."""
    if _planned(table, aside.partitions, {}, aside.groups) is None:
        return table
    left = {name: each for name, each in dropped_indexes(table.config).items() if name not in aside.partitions}
    return name_dropped(table.reload(), left)


def _check_names(table: HudiTable, partitions: Collection[str]) -> None:
    defines = table.format.metadata.defines_indexes
    for name in sorted(partitions):
        if not can_be_built_aside(name) or (SINGLE[name].is_defined and not defines):
            raise UnsupportedError(
                f"table {table.config.name}: {name} can't be built beside writers",
                hint="without hoodie.metadata.index.async it is made at once",
                table=table.config.name,
                found=name,
            )


def _written_until(table: HudiTable) -> InstantTime | None:
    """The last write before which no other is pending; None where there is none."""
    writes = table.timeline.data()
    first = min((each.requested_time for each in writes.pending()), default=None)
    done = writes.completed() if first is None else writes.completed().before(first)
    last = done.last()
    return None if last is None else last.requested_time


def _plan(table: HudiTable, wanted: NewPartitions, until: InstantTime) -> IndexPlan:
    """Where no definition states the columns of statistics, the plan does: writers must all record the same ones."""
    stated = {PLANNED_COLUMNS: json.dumps(list(wanted.columns))}
    infos = [
        IndexPartitionInfo(
            metadata_partition_path=name,
            index_upto_instant=until,
            extra_metadata=stated if name == COLUMN_STATS and not table.format.metadata.defines_indexes else {},
        )
        for name in sorted(wanted.partitions)
    ]
    return IndexPlan(index_partition_infos=tuple(infos))


def _records(table: HudiTable) -> dict[str, int]:
    """About how many records each partition has: those of its base files. The number of file groups depends on it."""
    view = table.view()
    files = {s.base_file.path: path for path in view.partitions() for s in view.slices(path) if s.base_file is not None}

    def rows(path: str) -> int:
        with suppress(FileNotFoundError):  # cleaned since
            return read_footer(table.storage, path).num_rows
        return 0

    counts: Counter[str] = Counter()
    for path, count in zip(files.values(), table.context.threads.map(rows, list(files)), strict=True):
        counts[path] += count
    return counts
