"""What takes part in a commit beside the timeline: data files, the metadata table, indexes outside the table."""

from __future__ import annotations

import logging
from dataclasses import replace

from skep_format.errors import FormatError
from skep_format.names import marker_folder
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
from skep_table.commit.parts.hash_rings import HashRings
from skep_table.commit.parts.index_entries import IndexEntries
from skep_table.commit.parts.markers import close_markers, delete_markers, marker_files, parse_markers
from skep_table.commit.parts.metadata_records import (
    abort_in_metadata_table,
    drop_of_columns,
    drop_overtaken,
    drop_retyped,
    record_in_metadata_table,
)
from skep_table.commit.parts.metadata_table import drop_unkept, keeps_metadata_table
from skep_table.commit.parts.participant import Participant
from skep_table.commit.parts.schema_history import SchemaHistory
from skep_table.keys.hash_rings import planned_resizes
from skep_table.metadata_write.kinds.contract import FoundByTasks, Prepared
from skep_table.metadata_write.own import has_metadata_table, with_building
from skep_table.metadata_write.updates import prepare_updates, updates_of_commit
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.slices.bootstrap_index import delete_index
from skep_table.table import HudiTable

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
