"""Partitions of the metadata table that are built beside writers: planned under the lock, built, and named once whole.

Data files are read and base files written without the lock. Under it is checked that what was read still holds; else
the build begins again from the table as it is then. One executor at a time, by its heartbeat; another one takes the
plan up once that has expired.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_footer
from skep_format.errors import CommitConflictError, MetadataTableError, NotATableError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import IndexCommitMetadata, IndexPartitionInfo, IndexPlan, RollbackMetadata
from skep_format.timeline.write import complete, delete_pending, transition_to_inflight
from skep_table.commit.concurrency.indexing_executors import reserved_partitions
from skep_table.commit.heartbeat import ActiveWriters, Heartbeat, delete_heartbeat, writer_details
from skep_table.commit.instants import request_plan, timeline_clock
from skep_table.commit.parts.metadata_table import can_be_built_aside, metadata_clock, name_dropped, to_make_again
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.writable import check_version, check_writable, prepared
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, RECORD_INDEX, RECORD_INDEX_MEMBER, SINGLE
from skep_table.metadata_table.records.record_index import file_ids
from skep_table.metadata_write.definitions import (
    PLANNED_COLUMNS,
    columns_for,
    definition_of_statistics,
    is_partitioned_record_index,
)
from skep_table.metadata_write.drop import drop_indexes, dropped_indexes
from skep_table.metadata_write.facts.keys import PLACES, still_there
from skep_table.metadata_write.making.create import (
    announce,
    begin_partitions,
    committed_files,
    contents_of,
    create_metadata_table,
    delete_bases,
    existing_groups,
    groups_to_begin,
    started_groups,
    wanted_of,
    write_below,
)
from skep_table.metadata_write.making.spreading import NewPartitions, Sizes
from skep_table.metadata_write.options import INDEX_CHECK_TIMEOUT_SECONDS, partitions_of_options
from skep_table.metadata_write.own import building_partitions, open_own, planned_partitions
from skep_table.services.execution import execute_each, pending_instant, refuse_while_active
from skep_table.table import METADATA_ENABLE, HudiTable

log = logging.getLogger("skep.services")
_ATTEMPTS: Final = 10
_POLL_SECONDS: Final = 0.1
_UNDOING: Final = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


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
    writes = table.timeline.data()
    first = min((each.requested_time for each in writes.pending()), default=None)
    done = writes.completed() if first is None else writes.completed().before(first)
    last = done.last()  # before which no other write is pending
    if FILES not in table.config.metadata_partitions or last is None:
        return None
    until = last.requested_time
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
            hint = "without hoodie.metadata.index.async it is made at once"
            raise table.error(UnsupportedError, f"{name} can't be built beside writers", hint=hint, found=name)


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


@dataclass(frozen=True, slots=True)
class Indexed:
    """A completed indexing: the partitions that the metadata table has gained."""

    instant: Instant
    partitions: tuple[str, ...]


class _Next(Enum):
    """What is to be done before an indexing can complete."""

    BUILD_AGAIN = auto()
    WAIT = auto()


def build_index(table: HudiTable, planned: Instant) -> Indexed | None:
    """Builds what was planned at `planned`. None where that is done or given up already.

    CommitConflictError where another executor is at it, or writers that began before the plan do not end in time; the
    plan then stays. MetadataTableError for a key that a record index would have two places for: the plan is given up.
    """
    check_writable(table.config, table.storage.root)
    with _Build(table) as build:
        found = build.claim(planned)
        return build.run(found) if isinstance(found, Instant) else found


def execute_pending_indexing(table: HudiTable) -> list[Indexed]:
    """Builds all that is planned, oldest first."""
    return execute_each(table, table.reload().timeline.pending().of(Action.INDEXING), build_index)


class _Build:
    def __init__(self, table: HudiTable) -> None:
        context = table.context
        self._table = table
        self._token = f"0-{random.SystemRandom().randrange(1, 1 << 31)}-0"
        self._heartbeat = Heartbeat(context)
        self._clock = context.clock
        self._instant: Instant | None = None
        self._names: tuple[str, ...] = ()

    def claim(self, planned: Instant) -> Instant | Indexed | None:
        """The instant, which is this executor's now; Indexed where only its completion was missing."""
        with self._table.context.locked():
            fresh = prepared(self._table)
            check_version(self._table, fresh)
            instant = pending_instant(fresh, planned)
            if instant is None:
                return None
            refuse_while_active(fresh, instant)
            names = planned_partitions(fresh, instant)
            self._names = tuple(name for name in names if name in building_partitions(fresh.config))
            if not self._names:
                if names and set(names) <= set(fresh.config.metadata_partitions):
                    return self._complete(fresh, instant, names)
                delete_pending(fresh, instant)
                return None
            fresh.context.lock.ensure_held()
            delete_heartbeat(fresh.storage, instant.requested_time)  # that of an executor that died
            self._heartbeat.announce(instant.requested_time)
            self._instant = instant
            if instant.state is State.REQUESTED:
                self._instant = transition_to_inflight(fresh, instant)
        self._heartbeat.start()
        return self._instant

    def run(self, instant: Instant) -> Indexed | None:
        """Reads, writes and completes; again where the table changed in a way that what was read does not hold."""
        deadline = self._clock.monotonic() + self._table.options.value(INDEX_CHECK_TIMEOUT_SECONDS)
        for _ in range(_ATTEMPTS):
            seen, files = self._seen()
            if not self._is_building(seen):
                with self._table.context.locked():
                    if self._gives_up(prepared(self._table), instant):
                        return None
            try:
                self._write(seen, files)
            except (FileNotFoundError, NotATableError) as error:
                log.info("table %s: %s was deleted meanwhile, the index is built again", seen.config.name, error)
                continue
            while True:
                found = self._finish(instant, seen)
                if found is _Next.BUILD_AGAIN:
                    break
                if found is not _Next.WAIT:
                    assert not isinstance(found, _Next)
                    return found
                if self._clock.monotonic() > deadline:
                    problem = "writers that began before the index was planned do not end"
                    hint = f"build it again; {INDEX_CHECK_TIMEOUT_SECONDS.key} is how long it waits"
                    raise seen.error(CommitConflictError, problem, hint=hint, instant=instant.requested_time)
                self._clock.sleep(_POLL_SECONDS)
        problem = f"what an index was built of changed {_ATTEMPTS} times meanwhile"
        hint = "build it again while fewer services run"
        raise self._table.error(CommitConflictError, problem, hint=hint, instant=instant.requested_time)

    # -- outside of the lock

    def _seen(self) -> tuple[HudiTable, Sizes]:
        """A snapshot and its committed files. A clean that ran beside the listing may have deleted the files of slices
        that the snapshot has; what is missing in a listing would be missing in the index."""
        seen = self._table.reload()
        while True:
            files = committed_files(seen)
            after = seen.reload()
            known = {each.requested_time for each in seen.timeline.of(*_UNDOING)}
            if known.issuperset(each.requested_time for each in after.timeline.of(*_UNDOING)):
                return seen, files
            seen = after

    def _write(self, seen: HudiTable, files: Sizes) -> None:
        own = open_own(seen)
        groups, partitioned = existing_groups(seen, self._names), is_partitioned_record_index(seen)
        wanted = NewPartitions(self._names, columns_for(seen, self._names), partitioned, groups=groups)
        self._heartbeat.ensure_alive()  # otherwise the partitions may be another executor's by now
        delete_bases(seen, self._names)
        with contents_of(seen, files, wanted) as contents:
            for each in contents:
                write_below(own, each, self._token, self._heartbeat.ensure_alive)

    # -- under the lock

    def _finish(self, instant: Instant, seen: HudiTable) -> Indexed | _Next | None:
        with self._table.context.locked():
            fresh = prepared(self._table)
            check_version(seen, fresh)
            if self._gives_up(fresh, instant):
                return None
            if _active_before(fresh, instant):
                return _Next.WAIT
            delete_bases(fresh, self._names, but=self._token)
            if not _holds(fresh, seen, instant, self._names):
                return _Next.BUILD_AGAIN
            if RECORD_INDEX in self._names and _has_other_places(fresh):
                return _Next.BUILD_AGAIN
            fresh.context.lock.ensure_held()
            ready = {*fresh.config.metadata_partitions, *self._names}
            announce(fresh, ready, set(building_partitions(fresh.config)) - set(self._names))
            return self._complete(fresh.reload(), instant, self._names, seen)

    def _gives_up(self, fresh: HudiTable, instant: Instant) -> bool:
        """Whether the partitions, or some of them, were dropped meanwhile: the plan is given up then."""
        self._heartbeat.ensure_alive()
        if pending_instant(fresh, instant) is None:
            return True
        if self._is_building(fresh):
            return False
        self._given_up(fresh, instant)
        return True

    def _is_building(self, table: HudiTable) -> bool:
        return set(self._names) <= set(building_partitions(table.config))

    def _given_up(self, fresh: HudiTable, instant: Instant) -> None:
        """What is left of the partitions is deleted, too."""
        log.info("table %s: %s is given up, its partitions were dropped", fresh.config.name, instant.requested_time)
        others = set(building_partitions(fresh.config)) - set(self._names)
        drop_indexes(fresh, {*fresh.config.metadata_partitions, *others})
        delete_pending(fresh, instant)

    def _complete(
        self, fresh: HudiTable, instant: Instant, names: Sequence[str], seen: HudiTable | None = None
    ) -> Indexed:
        """`seen` is what was read; where it is not known, all that is there may have been."""
        writes = (seen or fresh).timeline.data().completed()
        until = max((each.requested_time for each in writes), default=None)
        infos = [IndexPartitionInfo(metadata_partition_path=name, index_upto_instant=until) for name in names]
        metadata = IndexCommitMetadata(index_partition_infos=tuple(infos))
        done = complete(fresh, instant, metadata, timeline_clock(fresh))
        log.info("table %s: %s has built %s", fresh.config.name, instant.requested_time, ", ".join(names))
        fresh.context.events.emit("metadata_table.indexed", table=fresh.config.name, partitions=sorted(names))
        return Indexed(done, tuple(names))

    # -- away from it

    def __enter__(self) -> _Build:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """A plan that can't be built is taken off the timeline, with its partitions. Else another attempt may have it:
        what fails here, that does."""
        try:
            if isinstance(error, MetadataTableError):
                self._leave(self._given_up)
            elif error is not None:
                with suppress(Exception):
                    self._leave(self._given_back)
        finally:
            self._heartbeat.stop()

    def _leave(self, leave: Callable[[HudiTable, Instant], None]) -> None:
        if self._instant is None:
            return
        with self._table.context.locked():
            fresh = self._table.reload()
            if pending_instant(fresh, self._instant) is not None:
                leave(fresh, self._instant)

    def _given_back(self, fresh: HudiTable, instant: Instant) -> None:
        self._heartbeat.ensure_alive()
        delete_bases(fresh, sorted(set(self._names) & set(building_partitions(fresh.config))))
        delete_pending(fresh, instant, keep_requested=True)


def _active_before(fresh: HudiTable, planned: Instant) -> bool:
    """Whether a writer of Hudi that may not have seen the plan is active. Those of skep read it when they complete."""
    pending = fresh.timeline.data().pending().before(planned.requested_time)
    if not pending:
        return False
    writers = ActiveWriters(fresh.context)
    times = [each.requested_time for each in pending]
    return any(writers.is_active(time) and not writer_details(fresh.storage, time) for time in times)


def _holds(fresh: HudiTable, seen: HudiTable, planned: Instant, names: Sequence[str]) -> bool:
    """Whether what was read of `seen`, with what writers have logged since, is what the table has now."""
    before, after = seen.timeline.data().completed(), fresh.timeline
    if not all(after.is_completed_or_archived(each.requested_time) for each in before):
        return False
    known = {each.requested_time for each in seen.timeline}
    for undone in after.of(Action.ROLLBACK, Action.RESTORE):
        if undone.requested_time in known:
            continue
        plan = fresh.plan(undone) if undone.is_completed else None
        times = plan.commits_rollback if isinstance(plan, RollbackMetadata) else None
        if times is None or any(before.contains(time) for time in times):
            return False
    # One that began before the plan, and completed after the reading, may not have seen it.
    late = after.data().completed().before(planned.requested_time)
    unseen = {each.requested_time for each in late if not before.contains(each.requested_time)}
    if not unseen:
        return True
    own = open_own(fresh)
    logged = [each for each in own.timeline.completed() if each.requested_time in unseen]
    return len(logged) == len(unseen) and all(set(names) <= set(own.commit_metadata(i).partitions) for i in logged)


def _has_other_places(fresh: HudiTable) -> bool:
    """Whether a key that writers have logged is still in the file group that the base files state of it."""
    own = open_own(fresh)
    metadata = MetadataTable(fresh, own)
    view = fresh.view(metadata=False)
    for slice_ in started_groups(own, RECORD_INDEX).values():
        logged = list(metadata.group(replace(slice_, base_file=None)).entries(column=RECORD_INDEX_MEMBER))
        keys = pc.unique(
            pa.concat_arrays([pa.array([], pa.string()), *(each.keys.cast(pa.string()) for each in logged)])
        )
        if slice_.base_file is None or not len(keys):
            continue
        below = metadata.group(replace(slice_, log_files=())).entries(keys, column=RECORD_INDEX_MEMBER)
        places = file_ids(*latest(below, RECORD_INDEX_MEMBER)).select(PLACES.names)
        now = file_ids(*latest(logged, RECORD_INDEX_MEMBER)).select(PLACES.names)
        moved = places.join(now, PLACES.names, join_type="left anti")
        if any(len(keys) for _, keys in still_there(fresh, view, moved)):
            return True
    return False
