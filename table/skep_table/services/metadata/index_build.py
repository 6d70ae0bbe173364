"""Building planned partitions of the metadata table while writers go on, and naming them once they are whole.

Data files are read and base files written without the lock. Under it is checked that what was read still holds; else
the build begins again from the table as it is then. One executor at a time, by its heartbeat; another one takes the
plan up once that has expired.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import CommitConflictError, MetadataTableError, NotATableError
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import IndexCommitMetadata, IndexPartitionInfo, RollbackMetadata
from skep_format.timeline.write import complete, delete_pending, transition_to_inflight
from skep_table.commit.heartbeat import ActiveWriters, Heartbeat, HeartbeatLimits, delete_heartbeat, writer_details
from skep_table.commit.instants import timeline_clock
from skep_table.commit.writable import check_version, check_writable, prepared
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.partitions import RECORD_INDEX, RECORD_INDEX_MEMBER
from skep_table.metadata_table.records.record_index import file_ids
from skep_table.metadata_write import (
    announce,
    building_partitions,
    committed_files,
    delete_bases,
    drop_indexes,
    existing_groups,
    open_own,
    planned_partitions,
    started_groups,
    write_below,
)
from skep_table.metadata_write.definitions import columns_for, is_partitioned_record_index
from skep_table.metadata_write.facts.keys import PLACES, still_there
from skep_table.metadata_write.making.contents import contents_of
from skep_table.metadata_write.making.spreading import NewPartitions, Sizes
from skep_table.metadata_write.options import INDEX_CHECK_TIMEOUT_SECONDS
from skep_table.services.execution import execute_each, pending_instant, refuse_while_active
from skep_table.table import HudiTable

_ATTEMPTS: Final = 10
_POLL_SECONDS: Final = 0.1
_UNDOING: Final = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)

log = logging.getLogger("skep.services")


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
    build = _Build(table)
    try:
        found = build.claim(planned)
        if found is None or isinstance(found, Indexed):
            return found
        return build.run(found)
    except MetadataTableError:
        build.give_up()
        raise
    except BaseException:
        build.give_back()
        raise
    finally:
        build.release()


def execute_pending_indexing(table: HudiTable) -> list[Indexed]:
    """Builds all that is planned, oldest first."""
    return execute_each(table, table.reload().timeline.pending().of(Action.INDEXING), build_index)


class _Build:
    def __init__(self, table: HudiTable) -> None:
        context = table.context
        self._table = table
        self._token = f"0-{random.SystemRandom().randrange(1, 1 << 31)}-0"
        self._heartbeat = Heartbeat(
            context.storage, HeartbeatLimits.of(context.options), context.clock, context.on_lost
        )
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
            if not self._is_building(seen) and self._is_dropped(instant):
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
                    raise CommitConflictError(
                        f"table {seen.config.name}: writers that began before the index was planned do not end",
                        hint=f"build it again; {INDEX_CHECK_TIMEOUT_SECONDS.key} is how long it waits",
                        table=seen.config.name,
                        instant=instant.requested_time,
                    )
                self._clock.sleep(_POLL_SECONDS)
        raise CommitConflictError(
            f"table {self._table.config.name}: what an index was built of changed {_ATTEMPTS} times meanwhile",
            hint="build it again while fewer services run",
            table=self._table.config.name,
            instant=instant.requested_time,
        )

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

    def _is_dropped(self, instant: Instant) -> bool:
        """Whether the partitions, or some of them, were dropped meanwhile: the plan is given up then."""
        with self._table.context.locked():
            return self._gives_up(prepared(self._table), instant)

    def _gives_up(self, fresh: HudiTable, instant: Instant) -> bool:
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

    def give_up(self) -> None:
        """Takes the plan off the timeline, and deletes its partitions."""
        if self._instant is None:
            return
        with self._table.context.locked():
            fresh = self._table.reload()
            if pending_instant(fresh, self._instant) is not None:
                self._given_up(fresh, self._instant)

    def give_back(self) -> None:
        """Leaves the plan to another attempt. What fails here, the next attempt does."""
        if self._instant is None:
            return
        with suppress(Exception), self._table.context.locked():
            self._heartbeat.ensure_alive()
            fresh = self._table.reload()
            if pending_instant(fresh, self._instant) is not None:
                delete_bases(fresh, sorted(set(self._names) & set(building_partitions(fresh.config))))
                delete_pending(fresh, self._instant, keep_requested=True)

    def release(self) -> None:
        """Ends the heartbeat."""
        self._heartbeat.stop()


def _active_before(fresh: HudiTable, planned: Instant) -> bool:
    """Whether a writer of Hudi that may not have seen the plan is active. Those of skep read it when they complete."""
    pending = fresh.timeline.data().pending().before(planned.requested_time)
    if not pending:
        return False
    writers = ActiveWriters(fresh.storage, HeartbeatLimits.of(fresh.options), fresh.context.clock)
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
    return all(before.contains(each.requested_time) or _is_logged(fresh, each, names) for each in late)


def _is_logged(fresh: HudiTable, write: Instant, names: Sequence[str]) -> bool:
    own = open_own(fresh)
    found = next((each for each in own.timeline.completed() if each.requested_time == write.requested_time), None)
    return found is not None and set(names) <= set(own.commit_metadata(found).partitions)


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
