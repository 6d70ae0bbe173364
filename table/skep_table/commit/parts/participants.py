"""What takes part in a commit beside the timeline: data files, the metadata table, indexes outside the table."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace

from skep_format.bucket_rules import rules_path
from skep_format.errors import CommitConflictError, CorruptFileError, FormatError
from skep_format.hashing_metadata import INDEX_FOLDER, marker_path, metadata_path
from skep_format.names import marker_folder
from skep_format.schema.history import LATEST_SCHEMA, first_version, version_document, with_version
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.parts.data_files import (
    delete_files,
    delete_new_partitions,
    files_of_instant,
    is_of_base_file,
    own_files,
    sync_written,
)
from skep_table.commit.parts.index_entries import IndexEntries
from skep_table.commit.parts.markers import close_markers, delete_markers, marker_files, parse_markers
from skep_table.commit.parts.metadata_table import (
    abort_in_metadata_table,
    drop_of_columns,
    drop_overtaken,
    drop_retyped,
    drop_unkept,
    keeps_metadata_table,
    record_in_metadata_table,
)
from skep_table.commit.parts.participant import Participant
from skep_table.keys.hash_rings import files_of_rings, planned_resizes, planned_rings, renewed_rings
from skep_table.metadata_write.kinds.contract import FoundByTasks, Prepared
from skep_table.metadata_write.own import has_metadata_table, with_building
from skep_table.metadata_write.updates import prepare_updates, updates_of_commit
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.slices.bootstrap_index import delete_index
from skep_table.slices.history import history_files, history_path, in_files, newest_history
from skep_table.table import HudiTable


class SchemaHistory(Participant):
    """Writes the history before the instant completes; readers leave out the file of an instant that is not complete.

    Hudi takes the newest file of the commits in the active timeline for the whole history: each commit of a table whose
    columns have ids writes one, whether it changes the columns or not.
    """

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Writes the file, and deletes those of archived commits; nothing for a table whose columns have no ids."""
        latest = metadata.extra_metadata.get(LATEST_SCHEMA)
        if latest is None:
            return
        files = history_files(table)
        newest = newest_history(table, files)
        if newest is None:
            before = in_files(table, table.stored_schema())
            history = with_version(None, version_document(first_version(before), before))
        else:
            history = table.storage.read(newest).decode()
        text = with_version(history, json.loads(latest))
        table.storage.replace_atomic(history_path(instant.requested_time), text.encode())
        archived = table.timeline.is_archived
        old = [path for file, path in files if archived(file.requested_time) and path != newest]
        if old:
            table.storage.delete_many(old, durable=False)

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the instant's files, those that Hudi wrote included."""
        written = [path for file, path in history_files(table) if file.requested_time == instant.requested_time]
        if written:
            table.storage.delete_many(written)


def rename_for_version_6(table: HudiTable) -> None:
    """Gives the history files that Hudi wrote in a newer version names without completion times, as its readers of
    version 6 need them. Those of newer versions read these, too: an interrupted change may leave either."""
    for file, path in history_files(table):
        target = history_path(file.requested_time)
        if file.is_completed and path != target:
            table.storage.rename(path, target)


class HashRings(Participant):
    """Writes the rings that a commit leaves; before its instant completes, no reader or writer counts them."""

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """CommitConflictError where a ring was changed since the plan was made."""
        if metadata.operation_type is not WriteOperation.CLUSTER:
            self._renew(table, instant, metadata)
            return
        resizes = planned_resizes(table, instant)
        for partition, before in planned_rings(table, instant, resizes).items():
            after = before.resized(instant.requested_time, resizes[partition].children)
            table.storage.replace_atomic(after.path, after.encode())

    def _renew(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Groups that are replaced are never seen again: the rings get others, to which the commit has written."""
        for partition, before in renewed_rings(table, metadata).items():
            after = before.renewed(instant.requested_time)
            ids = {stat.file_id for stat in metadata.stats if stat.partition_path == partition}
            if strange := sorted(ids - {node.file_id for node in after.nodes}):
                raise table.error(
                    CommitConflictError,
                    f"the hash ring of partition {partition or 'of the table'} was changed since"
                    f" {instant.requested_time} began",
                    hint="try again",
                    partition=partition,
                    found=strange[0],
                )
            table.storage.replace_atomic(after.path, after.encode())

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the rings of the instant, each behind its marker: Hudi takes a marker for that of a file.

        And the rules for numbers of buckets that a rescaling of Hudi's has written.
        """
        if not table.may_have_folder(INDEX_FOLDER):
            return
        time = instant.requested_time
        if instant.action is Action.REPLACE_COMMIT:
            table.storage.delete_many(files_of_rings(table, time))
        with suppress(CorruptFileError):  # a plan that can't be read was never carried out
            paths = [
                path
                for partition in planned_resizes(table, instant)
                for path in (
                    marker_path(partition, time),
                    marker_path(partition, time, in_partition=True),
                    metadata_path(partition, time),
                )
            ]
            table.storage.delete_many([*paths, rules_path(time)])


log = logging.getLogger("skep.commit")


class MetadataTableParticipant(Participant):
    """Hudi's metadata table, where the table has one that is kept. One that is not is dropped.

    It has a delta commit of the same time as the write. Its readers ignore that until the write completes, and it is
    found on the metadata table's own timeline when it has to be undone.
    """

    def __init__(self) -> None:
        self._prepared = Prepared()

    def spare_reading(self, found: FoundByTasks) -> None:
        """Keeps what the tasks of the write have found out about its files, for `prepare` and `commit`."""
        self._prepared = replace(self._prepared, tasks=found)

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Reads what the entries of the indexes need: bounds and keys of the written files.

        Another writer may drop an index meanwhile, or make it again: what could not be read is left to `commit`.
        """
        if has_metadata_table(table.config) and keeps_metadata_table(table.options):
            try:
                self._prepared = prepare_updates(with_building(table), instant, metadata, self._prepared)
            except (FormatError, FileNotFoundError) as error:
                log.info("table %s: its indexes are read again under the lock: %s", table.config.name, error)

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Adds files and index entries to the metadata table, or drops it.

        MetadataTableError where the options forbid that, and where a key would lie in two file groups of which a record
        index can state one.
        """
        table = drop_unkept(table)
        if has_metadata_table(table.config):
            table = drop_overtaken(table, instant, metadata)
            table = drop_retyped(table, instant, metadata)
            if metadata.operation_type is WriteOperation.ALTER_SCHEMA:
                table = drop_of_columns(table)
            table = with_building(table)
            updates = updates_of_commit(table, instant, metadata, self._prepared)
            record_in_metadata_table(table, instant.requested_time, updates, locked=True)

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the delta commit of this time from the metadata table."""
        abort_in_metadata_table(table, instant.requested_time)


class BootstrapIndex(Participant):
    """The index of a bootstrap, which writes it with its files. Skeleton files alone refer to it: without their instant
    it has no effect."""

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes it, of which JVM writers refuse to write a second one."""
        if instant.requested_time == METADATA_BOOTSTRAP:
            delete_index(table.storage)


def table_participants(metadata_table: MetadataTableParticipant | None = None) -> tuple[Participant, ...]:
    """The participants that a table itself requires, the same for every process that writes to it."""
    metadata_table = metadata_table or MetadataTableParticipant()
    return metadata_table, IndexEntries(), SchemaHistory(), BootstrapIndex(), HashRings()


class DataFiles(Participant):
    """The base and log files of one commit, found again by its markers."""

    def __init__(self) -> None:
        self._marker_files: list[str] = []

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:  # noqa: ARG002
        """Makes the files durable, all together. StorageError."""
        sync_written(table, metadata)

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Ends the opening of files, and deletes those that losing task attempts left."""
        storage, time = table.storage, instant.requested_time
        close_markers(storage, time)
        files = marker_files(storage, time)
        self._marker_files = [file.path for file in files]
        written = {path for stat in metadata.stats for path in stat.paths}
        announced = {marker.data_path for marker in parse_markers(storage, time, files)}
        only_bases = instant.action is Action.COMPACTION
        left = own_files(table, time, sorted(announced - written))
        delete_files(table.context, [path for path in left if not only_bases or is_of_base_file(path)])

    def delete_markers(self, table: HudiTable, instant: Instant, *others: str) -> None:
        """After the completion. `others` are deleted with the markers, by one request on object stores."""
        if table.storage.flags.atomic_rename:  # `commit` has deleted the open sign
            table.storage.delete_folder(marker_folder(instant.requested_time), durable=False)
            table.storage.delete_many(others, durable=False)
        else:  # no folders to delete
            table.storage.delete_many([*others, *self._marker_files], durable=False)

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the files, the metafiles of partitions that came with them, and the markers."""
        close_markers(table.storage, instant.requested_time)
        # of every process that worked on it
        # but not the logs that writers have started on the slices that a compaction or a resize writes
        only_bases = instant.action is Action.COMPACTION or bool(planned_resizes(table, instant))
        files = [p for p in files_of_instant(table, instant.requested_time) if not only_bases or is_of_base_file(p)]
        delete_files(table.context, files)
        delete_markers(table.storage, instant.requested_time)
        delete_new_partitions(table.storage, files, instant.requested_time)
