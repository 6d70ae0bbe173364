"""What one action on the data table changes in each partition of its metadata table (format guide 16.3 to 16.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from skep_format.storage import FileStatus
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import CleanMetadata
from skep_table.metadata_table.partitions import FILES, RECORD_INDEX
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.summaries import Columns
from skep_table.metadata_write.definitions import columns_for, is_partitioned_record_index, secondary_indexes
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.facts.keys import key_changes
from skep_table.metadata_write.kinds import KEPT
from skep_table.metadata_write.kinds.contract import (
    CleanedFiles,
    CommittedWrite,
    File,
    FoundByTasks,
    KeptKind,
    Prepared,
)
from skep_table.metadata_write.kinds.expression import facts_of_commit
from skep_table.preview import Preview
from skep_table.table import HudiTable

NOTHING_FOUND: Final = FoundByTasks()


def prepare_updates(
    table: HudiTable, instant: Instant, metadata: CommitMetadata, known: Prepared | None = None
) -> Prepared:
    """Reads what the updates of a commit need: the files that it wrote, and the keys of the groups that it changed.

    `known` is what an earlier call has read, on an earlier snapshot.
    """
    known = known or Prepared()
    indexes, after = table.config.metadata_partitions, Preview(table, instant, metadata)
    columns, blooms = columns_for(after, indexes), any(each.has_filters for each in _kept(table))
    facts: dict[File, FileFacts] = {}
    if columns or blooms:
        written = dict(_written(metadata))
        if columns == known.columns:
            facts = {file: known.facts[file] for file in written if file in known.facts}
        new = {file: status for file, status in written.items() if file not in facts}
        facts |= _facts_of_tasks(after, new, columns, known.tasks, blooms=blooms)
        missing = [(path, status) for (path, name), status in written.items() if (path, name) not in facts]
        read = facts_of_files(after, missing, columns, blooms=blooms)
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
    write = CommittedWrite(table, instant, metadata, prepare_updates(table, instant, metadata, prepared))
    updates = []
    for kept in _kept(table):
        if kept.of_files is not None:
            updates.append(kept.of_files(table, write.prepared.facts, instant.requested_time))
        updates += kept.of_commit(write)
    return [updates[0], *(update for update in updates[1:] if len(update.puts) or len(update.deletes))]


def updates_of_clean(table: HudiTable, instant: Instant, metadata: CleanMetadata) -> list[PartitionUpdate]:
    """The updates of a clean: the entries of the files that it deleted end."""
    cleaned = metadata.partition_metadata
    deleted = [
        (path, pattern.rpartition("/")[2]) for path, each in cleaned.items() for pattern in each.delete_path_patterns
    ]
    dropped = [path for path, each in cleaned.items() if each.is_partition_deleted]
    columns = columns_for(table, table.config.metadata_partitions)
    clean = CleanedFiles(table, instant, metadata, deleted, dropped, columns)
    return [update for each in _kept(table) for update in each.of_clean(clean)]


def _kept(table: HudiTable) -> list[KeptKind]:
    """The kinds that there are partitions of; files are listed in any case."""
    return [each for each in KEPT if each.kind.among((FILES, *table.config.metadata_partitions))]


def _facts_of_tasks(
    table: HudiTable, written: Mapping[File, FileStatus], columns: Columns, tasks: FoundByTasks, *, blooms: bool
) -> dict[File, FileFacts]:
    """What tasks have found in the files that a commit has of them, with the Bloom filters of base files."""
    if columns != tasks.columns:
        return {}
    facts = {file: tasks.facts[file] for file in written if file in tasks.facts}
    bases = [(path, written[path, name]) for path, name in facts if blooms and not name.startswith(".")]
    for each in facts_of_files(table, bases, {}, blooms=True, written=True):
        file = (each.partition_path, each.name)
        facts[file] = replace(facts[file], bloom=each.bloom)
    return facts


def _written(metadata: CommitMetadata) -> Iterator[tuple[File, FileStatus]]:
    for stat in metadata.stats:
        if stat.path:
            name = stat.path.rpartition("/")[2]
            yield (stat.partition_path, name), FileStatus(stat.path, stat.file_size_in_bytes, 0)
