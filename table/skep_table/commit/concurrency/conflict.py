"""Optimistic concurrency: a write loses against one that completed since it began, where both changed the same.

The strategy decides what counts as the same, and against whom: Hudi's three, and a stricter one. Conflicts are checked
under the lock, on a new snapshot of the table; with several writers also before, so that little is left to do under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from skep_format.errors import CommitConflictError, OptionError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName
from skep_format.options import Options
from skep_format.storage import Storage
from skep_format.table_config import TableConfig
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.concurrency.changes import (
    completed_since,
    groups_of,
    is_clustering,
    services_planned_after,
    touched_groups,
)
from skep_table.commit.concurrency.new_keys import keys_inserted_by_both
from skep_table.commit.heartbeat import ActiveWriters
from skep_table.commit.options import (
    CONCURRENCY_MODE,
    CONFLICT_STRATEGY,
    EARLY_COMMIT_CHECK,
    EARLY_DETECTION,
    Concurrency,
)
from skep_table.commit.parts.markers import list_markers
from skep_table.commit.writable import check_version
from skep_table.keys.buckets import BUCKET_NAMES, UUID_NAMES, GroupNames
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class CommitCandidate:
    """A write that is about to complete: the table now, and the commits that completed since the write began."""

    table: HudiTable
    instant: Instant
    metadata: CommitMetadata
    completed: tuple[Instant, ...]

    @property
    def is_service(self) -> bool:
        """Whether a table service completes, not a write."""
        return self.metadata.operation_type in _SERVICES


Strategy = Callable[[CommitCandidate], None]
"""Raises CommitConflictError when the write may not complete."""

_SERVICES: Final = (WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)
_COMPACTIONS: Final = (WriteOperation.COMPACT, WriteOperation.LOG_COMPACT)
_REPLACES_PARTITIONS: Final = (
    WriteOperation.DELETE_PARTITION,
    WriteOperation.INSERT_OVERWRITE,
    WriteOperation.INSERT_OVERWRITE_TABLE,
)


def simple(candidate: CommitCandidate) -> None:
    """Hudi's default: the same file group. An upsert also loses when the other one inserted a key that it inserts."""
    _refuse_shared_groups(candidate, (*candidate.completed, *_services_planned_later(candidate)))
    if candidate.metadata.operation_type in (WriteOperation.UPSERT, WriteOperation.UPSERT_PREPPED):
        _refuse_shared_keys(candidate)


def prefer_writer(candidate: CommitCandidate) -> None:
    """As `simple`, but a table service loses against active writes, and a write never against a planned service."""
    if not candidate.is_service:
        _refuse_shared_groups(candidate, candidate.completed)
        if candidate.metadata.operation_type in (WriteOperation.UPSERT, WriteOperation.UPSERT_PREPPED):
            _refuse_shared_keys(candidate)
        return
    running = [i for i in candidate.table.timeline.pending() if i.action in DATA_ACTIONS and i != candidate.instant]
    _refuse_shared_groups(
        candidate, (*candidate.completed, *(i for i in running if not is_clustering(candidate.table, i)))
    )


def bucket(candidate: CommitCandidate) -> None:
    """As `simple` without comparing new keys: file groups are compared by their bucket, which decides where keys go."""
    _refuse_shared_groups(candidate, (*candidate.completed, *_services_planned_later(candidate)), BUCKET_NAMES)


def strict(candidate: CommitCandidate) -> None:
    """As `simple`; moreover no operation inserts a key twice, and no partition is replaced during another write."""
    _refuse_shared_groups(candidate, (*candidate.completed, *_services_planned_later(candidate)))
    _refuse_replaced_partitions(candidate)
    if not candidate.is_service:
        _refuse_shared_keys(candidate)


def non_blocking(candidate: CommitCandidate) -> None:
    """Writes append to the same file groups without a conflict; one fails only where its rows would be hidden.

    A key determines the bucket of its row, the bucket the name of its file group, and a log file belongs to the slice
    on which its delta commit completed (format guide 14.9). So whatever completes meanwhile, the rows of a write are
    found, and readers merge them by the table's rule. What is left to be refused is what would hide rows.

    That is where its file group was replaced or is being clustered, where a group of another name has its bucket, and
    where a log compaction was planned over it: the rows that it merged sort behind those of a write that was
    requested before it.
    """
    table = candidate.table
    ours = groups_of(candidate.metadata)
    by_key = {BUCKET_NAMES.conflict_key(group): group for group in ours}
    for other in (*candidate.completed, *_services_planned_later(candidate)):
        theirs = touched_groups(table, other)
        renamed = {g for g in theirs if by_key.get(BUCKET_NAMES.conflict_key(g), g) != g}
        if renamed:
            raise conflict(table, other, renamed, f"made {len(renamed)} file groups of buckets that this write has too")
        if is_clustering(table, other):
            hiding = theirs
        else:
            hiding = frozenset(table.commit_metadata(other).replaced if other.is_completed else ())
        if _is_log_compaction(table, other) and other.requested_time.is_after(candidate.instant.requested_time):
            hiding |= theirs
        if both := ours & hiding:
            raise conflict(table, other, both, f"replaces {len(both)} of the file groups of this write")


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


def strategy_of(options: Options, names: GroupNames = UUID_NAMES) -> Strategy:
    """The strategy that the options name; OptionError for an unknown one.

    Hudi's default: `bucket` where keys decide the names of file groups, else `simple`.
    """
    named = options.value(CONFLICT_STRATEGY)
    if not named:
        return bucket if names.by_key else simple
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


def check_conflicts(candidate: CommitCandidate) -> None:
    """Applies the context's conflict check, else that of non-blocking writers, else the strategy that its options name.

    CommitConflictError when the write lost against another one.
    """
    table = candidate.table
    if table.context.conflict_check is not None:
        table.context.conflict_check(candidate)
    elif Concurrency.of(table.options).is_non_blocking:
        non_blocking(candidate)
    else:
        strategy_of(table.options, GroupNames.of(table.config, table.options))(candidate)


def conflict(table: HudiTable, other: Instant, groups: Iterable[FileGroupId], what: str) -> CommitConflictError:
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


def _services_planned_later(candidate: CommitCandidate) -> Iterator[Instant]:
    """Compactions and clusterings planned since: their plans do not include what this write adds."""
    if not candidate.is_service:
        yield from services_planned_after(candidate.table, candidate.instant.requested_time)


def _refuse_shared_groups(
    candidate: CommitCandidate, others: Iterable[Instant], names: GroupNames | None = None
) -> None:
    table, time = candidate.table, candidate.instant.requested_time
    same = (names or GroupNames.of(table.config, table.options)).conflict_key
    if candidate.metadata.operation_type in _COMPACTIONS:
        return  # delta commits do not conflict with a compaction: they write to the slice that it starts
    ours = {same(group) for group in groups_of(candidate.metadata)}
    based = {same(group) for group in _groups_with_base(candidate.metadata)}
    for other in others:
        mine = based if table.format.logs.of_delta_commit and _is_plain_compaction(table, other) else ours
        both = mine & {same(group) for group in touched_groups(table, other)}
        if both and not (_is_compaction(table, other) and other.requested_time.is_before(time)):
            verb = "changed" if other.is_completed else "is going to change"
            whose = "the file groups of this write"
            raise conflict(
                table, other, both, f"{verb} {len(both)} of {whose}" + (" first" if verb == "changed" else "")
            )


def _groups_with_base(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """The groups for which a write has new base files: a compaction that was planned over others would hide these.

    Its log files, where they belong to the slice on which it completes, are read above the compaction's result.
    """
    return frozenset(
        FileGroupId(stat.partition_path, stat.file_id)
        for stat in metadata.stats
        if BaseFileName.parse(stat.path.rpartition("/")[2]) is not None
    )


def _is_plain_compaction(table: HudiTable, instant: Instant) -> bool:
    return _is_compaction(table, instant) and not _is_log_compaction(table, instant)


def _is_log_compaction(table: HudiTable, instant: Instant) -> bool:
    if instant.is_completed:
        return table.commit_metadata(instant).operation_type is WriteOperation.LOG_COMPACT
    return instant.action is Action.LOG_COMPACTION


def _is_compaction(table: HudiTable, instant: Instant) -> bool:
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        return True
    return instant.is_completed and table.commit_metadata(instant).operation_type in _COMPACTIONS


def _refuse_shared_keys(candidate: CommitCandidate) -> None:
    """CommitConflictError where both writes inserted the same key, into different file groups."""
    table = candidate.table
    if not table.config.record_key_fields or not table.config.populate_meta_fields:
        return
    for other in candidate.completed:
        theirs = table.commit_metadata(other)
        if theirs.operation_type in _SERVICES:
            continue
        both = keys_inserted_by_both(table, (candidate.instant, candidate.metadata), (other, theirs))
        if both:
            groups = {FileGroupId(found.partition_path, found.file_id) for found in both}
            sample = ", ".join(both[0].keys[:3])
            raise conflict(table, other, groups, f"inserted keys that this write inserts, too ({sample})")


def _refuse_replaced_partitions(candidate: CommitCandidate) -> None:
    """CommitConflictError where one write replaced whole partitions to which the other one wrote."""
    ours = candidate.metadata
    for other in candidate.completed:
        theirs = candidate.table.commit_metadata(other)
        if {ours.operation_type, theirs.operation_type}.isdisjoint(_REPLACES_PARTITIONS):
            continue
        if WriteOperation.INSERT_OVERWRITE_TABLE in (ours.operation_type, theirs.operation_type):
            both = {*ours.partitions, *theirs.partitions}
        else:
            both = set(ours.partitions) & set(theirs.partitions)
        if both:
            groups = [FileGroupId(partition, "") for partition in both]
            raise conflict(candidate.table, other, groups, f"and this write changed {len(both)} partitions as a whole")


def refuse_early(began: HudiTable, instant: Instant, profile: CommitMetadata | None) -> None:
    """Early conflict detection, where the options enable it: CommitConflictError when the write is certain to lose.

    Each write records the file groups that it is going to change in its inflight file, and compares after that: of two,
    at least the later one sees the other. What Hudi's writers do not record beforehand is found by their markers.
    A write without a profile makes new file groups only, and can't lose.
    """
    if not began.options.value(EARLY_DETECTION) or profile is None:
        return
    groups = groups_of(profile)
    if not groups:
        return
    table = began.reload()
    check_version(began, table)
    key = GroupNames.of(table.config, began.options).conflict_key
    ours = set(map(key, groups))
    writers = ActiveWriters(table.context)
    for other in table.timeline.pending():
        if other.action not in DATA_ACTIONS or other.requested_time.is_at_or_after(instant.requested_time):
            continue  # the later one fails
        if is_clustering(table, other) or not writers.is_active(other.requested_time):
            continue
        theirs = touched_groups(table, other) | _marked(table.storage, other.requested_time)
        both = ours & set(map(key, theirs))
        if both:
            raise conflict(table, other, both, f"is writing {len(both)} of the file groups of this write")
    if began.options.value(EARLY_COMMIT_CHECK):
        for done in completed_since(began, table):
            both = ours & set(map(key, touched_groups(table, done)))
            if both:
                raise conflict(table, done, both, f"changed {len(both)} of the file groups of this write first")


def _marked(storage: Storage, instant_time: InstantTime) -> frozenset[FileGroupId]:
    """The file groups that a write has created markers for."""
    found = set()
    for marker in list_markers(storage, instant_time) or ():
        name = BaseFileName.parse(marker.file_name) or LogFileName.parse(marker.file_name)
        if name is not None:
            found.add(FileGroupId(marker.partition_path, name.file_id))
    return frozenset(found)


def check_concurrency(table: HudiTable, action: Action) -> None:
    """UnsupportedError where the options ask for non-blocking writes, and the table or the action rules them out."""
    options = table.options
    if not Concurrency.of(options).is_non_blocking:
        return
    reason = _missing(table, options)
    if reason is None and action is Action.REPLACE_COMMIT:
        reason = (
            "replacing file groups or partitions is not possible with it: other writers would go on with the names of"
            " the groups that are replaced, and their rows would be hidden"
        )
    if reason is not None:
        problem = f"{CONCURRENCY_MODE.key}={options[CONCURRENCY_MODE.key]}: {reason}"
        hint = "optimistic_concurrency_control is possible"
        raise table.error(UnsupportedError, problem, hint=hint, option=CONCURRENCY_MODE.key, path=table.storage.root)


def _missing(table: HudiTable, options: Options) -> str | None:
    config: TableConfig = table.config
    if not table.format.logs.of_delta_commit:
        return (
            f"version {config.version} of the table does not know it: its log files are named by the slice, and those"
            " of a write that completes after a compaction was planned would be lost"
        )
    if not config.is_mor:
        return "it needs a merge-on-read table, as writers append to log files"
    if not GroupNames.of(config, options).by_key:
        return "it needs a simple bucket index (hoodie.index.type=BUCKET), by which all writers name file groups alike"
    return None
