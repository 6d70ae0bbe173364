"""What one action on the data table changes in each partition of its metadata table (format guide 16.3 to 16.7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    PARTITION_STATS,
    RECORD_INDEX,
)
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, partition_stats_update
from skep_table.metadata_table.records.files import files_of_clean, files_of_commit
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.secondary_index import secondary_index_update
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary, merged
from skep_table.metadata_write.definitions import (
    SecondaryIndex,
    groups_of_partition,
    is_partitioned_record_index,
    secondary_indexes,
    stats_columns,
)
from skep_table.metadata_write.expression_facts import ExpressionFacts
from skep_table.metadata_write.expression_updates import (
    expressions_of_clean,
    expressions_of_commit,
    facts_of_commit,
    latest_files,
)
from skep_table.metadata_write.file_facts import FileFacts, facts_of_files, with_absent
from skep_table.metadata_write.key_changes import GroupChange, KeyChanges, key_changes, slice_keys, two_places
from skep_table.metadata_write.overtaken import is_beside_earlier
from skep_table.names import FileGroupId, join
from skep_table.preview import Preview
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import Instant
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.plans import CleanMetadata, RollbackMetadata
from skep_table.timeline.timeline import milliseconds_of

File = tuple[str, str]  # partition path, file name

# Of larger partitions the statistics are widened: computing them as a whole takes a look-up for each file.
_RECOMPUTED_FILES: Final = 100
_PLACE: Final = ["record_key", "partition_path", "file_id"]


@dataclass(frozen=True)
class FoundByTasks:
    """What the tasks of a write have found out about its files, so that they are not read again.

    `tagged` has by file group the path of the base file in which all keys were read that the commit updates there.
    `facts` are of these `columns`, and without Bloom filters.
    """

    tagged: Mapping[FileGroupId, str] = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    facts: Mapping[File, FileFacts] = field(default_factory=dict)


NOTHING_FOUND: Final = FoundByTasks()


@dataclass(frozen=True)
class Prepared:
    """What was read for a commit outside of the lock. It stays valid for the files that it names.

    `partitioned` is the record index, where it has file groups of its own for each partition. With the same `basis` the
    `changes` are the same: the other instants of the snapshot, what the commit did, and the secondary indexes.
    """

    columns: Columns = field(default_factory=dict)
    facts: Mapping[File, FileFacts] = field(default_factory=dict)
    changes: Mapping[FileGroupId, GroupChange] = field(default_factory=dict)
    expressions: Mapping[File, ExpressionFacts] = field(default_factory=dict)
    secondary: Sequence[SecondaryIndex] = ()
    partitioned: bool = False
    basis: tuple[object, ...] | None = None
    tasks: FoundByTasks = field(default_factory=FoundByTasks)


def prepare_updates(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, known: Prepared | None = None
) -> Prepared:
    """Reads what the updates of a commit need: the files that it wrote, and the keys of the groups that it changed.

    `known` is what an earlier call has read, on an earlier snapshot.
    """
    known = known or Prepared()
    indexes, after = table.config.metadata_partitions, Preview(table, instant, metadata)
    columns = stats_columns(after) if COLUMN_STATS in indexes or PARTITION_STATS in indexes else {}
    facts: dict[File, FileFacts] = {}
    if columns or BLOOM_FILTERS in indexes:
        written = dict(_written(metadata))
        if columns == known.columns:
            facts = {file: known.facts[file] for file in written if file in known.facts}
        new = {file: status for file, status in written.items() if file not in facts}
        facts |= _facts_of_tasks(after, new, columns, known.tasks, blooms=BLOOM_FILTERS in indexes)
        missing = [(path, status) for (path, name), status in written.items() if (path, name) not in facts]
        read = facts_of_files(after, missing, columns, blooms=BLOOM_FILTERS in indexes)
        facts |= {(each.partition_path, each.name): each for each in read}
    expressions = facts_of_commit(after, dict(_written(metadata)), known.expressions)
    if RECORD_INDEX not in indexes:
        return Prepared(columns, facts, expressions=expressions, tasks=known.tasks)
    partitioned, secondary = is_partitioned_record_index(table), secondary_indexes(table)
    others = frozenset(each for each in table.timeline if each.requested_time != instant.requested_time)
    basis = (others, metadata.partition_to_write_stats, metadata.partition_to_replace_file_ids, secondary)
    changes = known.changes
    if basis != known.basis:
        valued = sorted({index.column for index in secondary})
        changes = key_changes(table, after, metadata, valued, changes, known.tasks.tagged)
    return Prepared(columns, facts, changes, expressions, secondary, partitioned, basis, known.tasks)


def updates_of_commit(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, prepared: Prepared
) -> list[PartitionUpdate]:
    """The updates of a write, or of a service that writes files. `table` is the snapshot under the lock.

    MetadataTableError where a key would lie in two file groups, and the record index has one place for each.
    """
    prepared = prepare_updates(table, instant, metadata, prepared)
    indexes, release = table.config.metadata_partitions, table.format.metadata.release
    updates = [files_of_commit(metadata)]
    if COLUMN_STATS in indexes:
        written = {file: facts.summaries for file, facts in prepared.facts.items()}
        updates.append(column_stats_update(written, (), (), release))
    if BLOOM_FILTERS in indexes:
        filters = {file: facts.bloom for file, facts in prepared.facts.items() if facts.bloom is not None}
        updates.append(bloom_filters_update(filters, (), instant.requested_time, release))
    if PARTITION_STATS in indexes:
        updates.append(_partition_stats(table, instant, metadata, prepared))
    if RECORD_INDEX in indexes:
        updates += _record_index(table, instant, metadata, prepared)
        updates += _secondary_indexes(table, prepared)
    updates += expressions_of_commit(table, instant, metadata, prepared.expressions)
    return [updates[0], *(update for update in updates[1:] if len(update.puts) or len(update.deletes))]


def updates_of_clean(table: HudiTable, instant: Instant, metadata: CleanMetadata) -> list[PartitionUpdate]:
    """The updates of a clean: the entries of the files that it deleted end."""
    indexes, release = table.config.metadata_partitions, table.format.metadata.release
    cleaned = metadata.partition_metadata
    deleted = [
        (path, pattern.rpartition("/")[2]) for path, each in cleaned.items() for pattern in each.delete_path_patterns
    ]
    updates = [files_of_clean(metadata)]
    columns = stats_columns(table) if COLUMN_STATS in indexes or PARTITION_STATS in indexes else {}
    if COLUMN_STATS in indexes and deleted:
        updates.append(column_stats_update({}, deleted, columns, release))
    bases = [(path, name) for path, name in deleted if not name.startswith(".")]
    if BLOOM_FILTERS in indexes and bases:
        updates.append(bloom_filters_update({}, bases, instant.requested_time, release))
    dropped = [path for path, each in cleaned.items() if each.is_partition_deleted]
    if PARTITION_STATS in indexes and dropped:
        updates.append(partition_stats_update({}, dropped, columns, release))
    return [*updates, *expressions_of_clean(table, instant, deleted, dropped)]


def updates_of_rollback(table: HudiTable, metadata: RollbackMetadata) -> list[PartitionUpdate]:
    """The updates of a rollback besides that of the listing: of log files with its commands, and of those that they
    undo, whose entries went with the delta commit that is rolled back."""
    if COLUMN_STATS not in table.config.metadata_partitions:
        return []
    logs = [
        (path, FileStatus(join(path, uri.rpartition("/")[2]), size, 0))
        for path, each in metadata.partition_metadata.items()
        for uri, size in {**(each.rollback_log_files or {}), **(each.log_files_from_failed_commit or {})}.items()
        if size > 0
    ]
    facts = facts_of_files(table, logs, stats_columns(table), blooms=False) if logs else ()
    written = {(each.partition_path, each.name): each.summaries for each in facts}
    return [column_stats_update(written, (), (), table.format.metadata.release)] if written else []


def _facts_of_tasks(
    table: HudiTable, written: Mapping[File, FileStatus], columns: Columns, tasks: FoundByTasks, *, blooms: bool
) -> dict[File, FileFacts]:
    """What tasks have found in the files that a commit has of them, with the Bloom filters of base files."""
    if columns != tasks.columns:
        return {}
    facts = {file: tasks.facts[file] for file in written if file in tasks.facts}
    bases = [(path, written[path, name]) for path, name in facts if blooms and not name.startswith(".")]
    for each in facts_of_files(table, bases, {}, blooms=True):
        file = (each.partition_path, each.name)
        facts[file] = replace(facts[file], bloom=each.bloom)
    return facts


def _written(metadata: CommitMetadata) -> Iterator[tuple[File, FileStatus]]:
    for stat in metadata.stats:
        if stat.path:
            name = stat.path.rpartition("/")[2]
            yield (stat.partition_path, name), FileStatus(stat.path, stat.file_size_in_bytes, 0)


# -- statistics of partitions ------------------------------------------------------------------------------------------


def _partition_stats(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, prepared: Prepared
) -> PartitionUpdate:
    """Of small partitions all files count. The statistics of larger ones, of those that lose no file, and of all where
    entries of a pending write will count as older than these, are widened by the files that were written.

    A partition with a file of which the columns are not known has no statistics: they would leave its rows out.
    """
    before, view = table.view(), Preview(table, instant, metadata).view()
    release = table.format.metadata.release
    tight: dict[str, Sequence[ColumnSummary]] = {}
    loose: dict[str, Sequence[ColumnSummary]] = {}
    ended = []
    view.listing.prefetch(metadata.partitions)
    own: dict[str, list[FileFacts]] = defaultdict(list)
    for (path, _), facts in prepared.facts.items():
        own[path].append(facts)
    beside = is_beside_earlier(table, instant)
    for path in metadata.partitions:
        there, files = latest_files(before, path), latest_files(view, path)
        stay = beside or (there and {file.path for file in there} <= {file.path for file in files})
        if len(files) <= max(_RECOMPUTED_FILES, len(own[path])) and not stay:
            found = _of_files(prepared.columns, _facts(table, path, files, prepared))
            chosen = tight
        else:
            found = _of_files(prepared.columns, own[path])
            chosen = loose
        if files and found is not None:
            chosen[path] = found
        else:
            ended.append(path)
    loose = _with_statistics(table, loose, prepared.columns)
    return partition_stats_update(tight, ended, prepared.columns, release, loose)


def _facts(table: HudiTable, path: str, files: Iterable[FileStatus], prepared: Prepared) -> Iterator[FileFacts]:
    others = []
    for file in files:
        facts = prepared.facts.get((path, file.name))
        if facts is None:
            others.append((path, file))
        else:
            yield facts
    yield from facts_of_files(table, others, prepared.columns, blooms=False)


def _of_files(columns: Columns, files: Iterable[FileFacts]) -> Sequence[ColumnSummary] | None:
    """The merged summaries of files; None where those of one are not known."""
    found: list[ColumnSummary] = []
    for facts in files:
        summaries = with_absent(columns, facts)
        if summaries is None:
            return None
        found += summaries
    return merged(found)


def _with_statistics(
    table: HudiTable, summaries: Mapping[str, Sequence[ColumnSummary]], columns: Columns
) -> dict[str, Sequence[ColumnSummary]]:
    """Those for which there is a record to be widened: a partition without one may hold any value."""
    index = table.metadata_table()
    if index is None or not summaries:
        return {}
    pairs = [(each.column, path) for path, found in summaries.items() for each in found]
    known = {pair for pair, there in zip(pairs, index.has_partition_stats(pairs), strict=True) if there}
    return {
        path: [_typed(each, columns) for each in found if (each.column, path) in known]
        for path, found in summaries.items()
    }


def _typed(summary: ColumnSummary, columns: Columns) -> ColumnSummary:
    """Also without values of the column's type: Hudi takes the type of merged records from the later one."""
    return replace(summary, kind=columns[summary.column])


# -- the record index --------------------------------------------------------------------------------------------------


def _record_index(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, prepared: Prepared
) -> Iterator[PartitionUpdate]:
    changes = KeyChanges.of(prepared.changes.values())
    if not len(changes.added) and not len(changes.removed):
        return
    time, release = milliseconds_of(instant.requested_time, table.config.timezone), table.format.metadata.release
    for group_set, part in _by_group_set(table, changes, prepared):
        _check_once(table, part.added)
        kept = _still_elsewhere(table, instant, metadata, part, prepared)
        removed = part.removed.filter(pc.invert(pc.is_in(part.removed["record_key"], value_set=kept)))
        keys, paths, file_ids = (part.added[name].combine_chunks() for name in _PLACE)
        deletes = removed["record_key"].combine_chunks()
        update = record_index_update(keys, paths, file_ids, time, release, deletes=deletes)
        yield update.in_groups(group_set)


def _by_group_set(table: HudiTable, changes: KeyChanges, prepared: Prepared) -> Iterator[tuple[str | None, KeyChanges]]:
    """The changes that go into each set of file groups of the index: one, or one for each data partition."""
    if not prepared.partitioned:
        yield None, changes
        return
    paths = pa.concat_arrays(
        [side["partition_path"].combine_chunks() for side in (changes.added, changes.removed)]
    ).unique()
    for path in paths.to_pylist():
        sides = (side.filter(pc.equal(side["partition_path"], path)) for side in (changes.added, changes.removed))
        yield groups_of_partition(table, path), KeyChanges(*sides)


def _check_once(table: HudiTable, added: pa.Table) -> None:
    """MetadataTableError where a commit brings a key into two file groups."""
    counts = pc.value_counts(added["record_key"])
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        key = twice[0]["values"].as_py()
        places = added.filter(pc.equal(added["record_key"], key)).to_pylist()
        raise two_places(table, key, *(_group_of(place) for place in places[:2]))


def _still_elsewhere(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, part: KeyChanges, prepared: Prepared
) -> pa.Array:
    """The removed keys whose entry stays: it states another place than the one that they were removed from.

    MetadataTableError where the index has an added key in a file group that keeps it.
    """
    index = table.metadata_table()
    keys = pa.concat_arrays([side["record_key"].combine_chunks() for side in (part.added, part.removed)])
    found = index.record_index(keys) if index is not None else None
    if found is None or not len(found):
        return pa.array([], pa.string())
    found = found.select(_PLACE)
    if prepared.partitioned:
        paths = pa.concat_tables([part.added, part.removed])["partition_path"].unique()
        found = found.filter(pc.is_in(found["partition_path"], value_set=paths))
    elsewhere = found.join(part.removed, _PLACE, join_type="left anti")
    added = elsewhere.join(part.added, _PLACE, join_type="left anti")
    added = added.join(part.added.select(_PLACE[:1]), _PLACE[:1], join_type="left semi")
    if len(added):
        _check_places(table, Preview(table, instant, metadata), added, part.added)
    return elsewhere["record_key"].combine_chunks()


def _check_places(table: HudiTable, after: HudiTable, stated: pa.Table, added: pa.Table) -> None:
    """MetadataTableError where a file group still has a key that the index states there. Entries of groups that are
    replaced, or that lost the key without an update of the index, are outdated."""
    view = after.view()
    for path in stated["partition_path"].unique().to_pylist():
        slices = {each.file_id: each for each in view.slices(path)}
        for file_id in stated.filter(pc.equal(stated["partition_path"], path))["file_id"].unique().to_pylist():
            mine = pc.and_(pc.equal(stated["partition_path"], path), pc.equal(stated["file_id"], file_id))
            of_group = stated.filter(mine)
            both = of_group.filter(pc.is_in(of_group["record_key"], slice_keys(after, slices.get(file_id))))
            if len(both):
                key = both["record_key"][0].as_py()
                (new, *_) = added.filter(pc.equal(added["record_key"], key)).to_pylist()
                raise two_places(table, key, FileGroupId(path, file_id), _group_of(new))


def _group_of(place: Mapping[str, str]) -> FileGroupId:
    return FileGroupId(place["partition_path"], place["file_id"])


# -- secondary indexes -------------------------------------------------------------------------------------------------


def _secondary_indexes(table: HudiTable, prepared: Prepared) -> Iterator[PartitionUpdate]:
    """Entries that came into one file group and went out of another stay: a put wins over a delete."""
    release = table.format.metadata.release
    for index in prepared.secondary:
        changes = [change.entries[index.column] for change in prepared.changes.values()]
        if changes:
            added, removed = (pc.unique(pa.concat_arrays(side)) for side in zip(*changes, strict=True))
            yield secondary_index_update(index.partition, added, removed, release, by_value=index.by_value)
