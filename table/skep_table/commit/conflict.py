"""Optimistic concurrency: a write loses against one that completed since it began, where both touched the same.

What counts as the same, and against whom, is the strategy's: Hudi's three, and a stricter one. To be asked with the
lock held and a fresh look at the table; also before that, so that little is left to do under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from skep_table.commit.new_keys import keys_inserted_by_both
from skep_table.commit.options import CONFLICT_STRATEGY
from skep_table.commit.plans import is_clustering, planned_groups
from skep_table.errors import CommitConflictError, OptionError
from skep_table.keys.buckets import DIGITS, is_bucketed
from skep_table.options import Options
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.timeline.timeline import WRITE_ACTIONS

Group = tuple[str, str]  # partition path, file id


@dataclass(frozen=True, slots=True)
class Ending:
    """A write that is about to complete: the table now, and the commits that completed since the write began."""

    table: HudiTable
    instant: Instant
    metadata: CommitMetadata
    completed: tuple[Instant, ...]

    @property
    def is_service(self) -> bool:
        return self.metadata.operation_type in _SERVICES


Strategy = Callable[[Ending], None]
"""Raises CommitConflictError when the write may not complete."""

_SERVICES: Final = (WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)
_COMPACTIONS: Final = (WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)
_REPLACES_PARTITIONS: Final = (
    WriteOperation.DELETE_PARTITION,
    WriteOperation.INSERT_OVERWRITE,
    WriteOperation.INSERT_OVERWRITE_TABLE,
)


def simple(ending: Ending) -> None:
    """Hudi's default: the same file group. An upsert also loses when the other one inserted a key that it inserts."""
    _refuse_shared_groups(ending, (*ending.completed, *_services_planned_later(ending)))
    if ending.metadata.operation_type in (WriteOperation.UPSERT, WriteOperation.UPSERT_PREPPED):
        _refuse_shared_keys(ending)


def prefer_writer(ending: Ending) -> None:
    """As `simple`, but a table service gives way to writes that still run, and a write never to a planned service."""
    if not ending.is_service:
        _refuse_shared_groups(ending, ending.completed)
        if ending.metadata.operation_type in (WriteOperation.UPSERT, WriteOperation.UPSERT_PREPPED):
            _refuse_shared_keys(ending)
        return
    running = [i for i in ending.table.timeline.pending() if i.action in DATA_ACTIONS and i != ending.instant]
    _refuse_shared_groups(ending, (*ending.completed, *(i for i in running if not is_clustering(ending.table, i))))


def bucket(ending: Ending) -> None:
    """As `simple` without its look for new keys: a file group is known by its bucket, which decides about new keys."""
    _refuse_shared_groups(ending, (*ending.completed, *_services_planned_later(ending)), by_bucket)


def strict(ending: Ending) -> None:
    """As `simple`, and: no key is inserted twice by any operation, no partition replaced under another write."""
    _refuse_shared_groups(ending, (*ending.completed, *_services_planned_later(ending)))
    _refuse_replaced_partitions(ending)
    if not ending.is_service:
        _refuse_shared_keys(ending)


_PACKAGE: Final = "org.apache.hudi.client.transaction"
_STRATEGIES: Final[dict[str, Strategy]] = {
    "simple": simple,
    "prefer_writer": prefer_writer,
    "bucket": bucket,
    "strict": strict,
    f"{_PACKAGE}.SimpleConcurrentFileWritesConflictResolutionStrategy": simple,
    f"{_PACKAGE}.PreferWriterConflictResolutionStrategy": prefer_writer,
    f"{_PACKAGE}.BucketIndexConcurrentFileWritesConflictResolutionStrategy": bucket,
}


def strategy_of(options: Options, *, bucketed: bool = False) -> Strategy:
    """OptionError for an unknown one. Hudi's default: by bucket where the index is one of buckets, else simple.

    `bucketed`: the table has recorded such an index, whatever the options of this write are.
    """
    named = options.value(CONFLICT_STRATEGY)
    if not named:
        return bucket if bucketed or options.get("hoodie.index.type", "").upper() == "BUCKET" else simple
    try:
        return _STRATEGIES[named]
    except KeyError:
        short = ", ".join(name for name in _STRATEGIES if "." not in name)
        raise OptionError(
            f"unknown conflict strategy {named!r}; there are {short}, and Hudi's classes of these",
            option=CONFLICT_STRATEGY.key,
            found=named,
            expected=short,
        ) from None


def completed_since(began: HudiTable, now: HudiTable) -> tuple[Instant, ...]:
    """The commits that completed between two looks at a table, those too that have been archived since."""
    known = set(began.timeline.completed().instants)
    found = [instant for instant in now.timeline.completed().data() if instant not in known]
    ran = {i.requested_time for i in began.timeline.pending() if i.action in WRITE_ACTIONS}
    missing = {time for time in ran if now.timeline.is_archived(time) and not now.timeline.contains(time)}
    if missing:
        found += [i for i in now.timeline.archived() if i.requested_time in missing and i.action in DATA_ACTIONS]
    return tuple(found)


def touched_groups(table: HudiTable, instant: Instant) -> frozenset[Group]:
    """The file groups that an instant wrote or replaced, or says that it is going to."""
    planned = planned_groups(table, instant)
    if planned is not None:
        return planned
    return groups_of(table.commit_metadata(instant)) if instant.state is not instant.state.REQUESTED else frozenset()


def groups_of(metadata: CommitMetadata) -> frozenset[Group]:
    # What is only planned names its partition in the key alone.
    written = [(path, stat.file_id) for path, stats in metadata.partition_to_write_stats.items() for stat in stats]
    replaced = [(path, id_) for path, ids in (metadata.partition_to_replace_file_ids or {}).items() for id_ in ids]
    return frozenset(group for group in written + replaced if group[1])


def conflict(table: HudiTable, other: Instant, groups: Iterable[Group], what: str) -> CommitConflictError:
    """The error of a write that lost against `other` over some groups."""
    listed = sorted(groups)
    place = "/".join(part for part in listed[0] if part) if listed else ""
    done = other.is_completed
    return CommitConflictError(
        f"table {table.config.name}: {other.action.value} {other.requested_time} {what}"
        + (f", {place} among them" if place else ""),
        hint="write again" if done else "let it complete, or roll it back",
        table=table.config.name,
        instant=other.requested_time,
        file_groups=len(listed),
        groups=tuple(listed[:20]),
    )


def _services_planned_later(ending: Ending) -> Iterator[Instant]:
    """Compactions and clusterings planned since: they were planned without what this write brings."""
    if not ending.is_service:
        yield from services_planned_after(ending.table, ending.instant.requested_time)


def services_planned_after(table: HudiTable, time: str) -> Iterator[Instant]:
    for other in table.timeline.pending():
        if other.requested_time > time and (
            other.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING) or is_clustering(table, other)
        ):
            yield other


def by_bucket(group: Group) -> Group:
    return group[0], group[1][:DIGITS]


def conflict_key(table: HudiTable) -> Callable[[Group], Group]:
    """What two file groups share when writes to both collide: themselves, or the bucket of a bucketed table.

    A second group of one bucket would make such a table unwritable, whatever the strategy and the writer's options.
    """
    return by_bucket if is_bucketed(table.config) else lambda group: group


def _refuse_shared_groups(
    ending: Ending, others: Iterable[Instant], same: Callable[[Group], Group] | None = None
) -> None:
    table, time = ending.table, ending.instant.requested_time
    same = same or conflict_key(table)
    if ending.metadata.operation_type in _COMPACTIONS:
        return  # delta commits go on beside a compaction: they write to the slice that it begins
    ours = {same(group) for group in groups_of(ending.metadata)}
    for other in others:
        both = ours & {same(group) for group in touched_groups(table, other)}
        if both and not (_is_compaction(table, other) and other.requested_time < time):
            verb = "changed" if other.is_completed else "is going to change"
            whose = "the file groups of this write"
            raise conflict(
                table, other, both, f"{verb} {len(both)} of {whose}" + (" first" if verb == "changed" else "")
            )


def _is_compaction(table: HudiTable, instant: Instant) -> bool:
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        return True
    return instant.is_completed and table.commit_metadata(instant).operation_type in _COMPACTIONS


def _refuse_shared_keys(ending: Ending) -> None:
    """Two writers that find a key nowhere both insert it: into groups that the other knows nothing of."""
    table = ending.table
    if not table.config.record_key_fields or not table.config.populate_meta_fields:
        return
    for other in ending.completed:
        theirs = table.commit_metadata(other)
        if theirs.operation_type in _SERVICES:
            continue
        both = keys_inserted_by_both(table, (ending.instant, ending.metadata), (other, theirs))
        if both:
            groups = {(found.partition_path, found.file_id) for found in both}
            sample = ", ".join(both[0].keys[:3])
            raise conflict(table, other, groups, f"inserted keys that this write inserts, too ({sample})")


def _refuse_replaced_partitions(ending: Ending) -> None:
    """Whole partitions were replaced by one side, and the other side wrote to them what the first does not know of."""
    ours = ending.metadata
    for other in ending.completed:
        theirs = ending.table.commit_metadata(other)
        if {ours.operation_type, theirs.operation_type}.isdisjoint(_REPLACES_PARTITIONS):
            continue
        if WriteOperation.INSERT_OVERWRITE_TABLE in (ours.operation_type, theirs.operation_type):
            both = {*ours.partitions, *theirs.partitions}
        else:
            both = set(ours.partitions) & set(theirs.partitions)
        if both:
            groups = [(partition, "") for partition in both]
            raise conflict(ending.table, other, groups, f"and this write changed {len(both)} partitions as a whole")
