"""Making a metadata table: its settings, the file groups of `files`, and the delta commit that fills it (guide 16.2).

Readers look at it once the data table's settings name it, which is the last step.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

import pyarrow as pa

from skep_table.clock import Clock
from skep_table.instant_time import InstantTime
from skep_table.logfile import BlockType, HeaderKey
from skep_table.logfile.writer import delete_content, format_block
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.partitions import FILES
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.files import files_listed
from skep_table.metadata_write.base_file import FIRST_TOKEN, write_base
from skep_table.metadata_write.delta_commit import delete_entries
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import record_schema
from skep_table.metafile import ensure_partition
from skep_table.names import BaseFileName, BaseFormat, LogFileName, join
from skep_table.properties import format_properties
from skep_table.storage import FolderStorage
from skep_table.table import HudiTable
from skep_table.table_config import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    PROPERTIES_PATH,
    TimelineZone,
    update_table_config,
    with_checksum,
)
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.view.slicing import InstantStates

_FILE_ID: Final = "files-0000-0"

log = logging.getLogger("skep.commit")


def create_metadata_table(table: HudiTable, clock: Clock) -> HudiTable:
    """The snapshot with a metadata table of all committed files; the same one where it has to wait for pending actions.

    What an earlier attempt left is deleted.
    """
    pending = [each for each in table.timeline.pending() if each.action is not Action.INDEXING]
    if table.format.metadata.first_when_quiet and pending:
        first, name = pending[0], table.config.name
        log.info("table %s: %s %s is pending, no metadata table before", name, first.action.value, first.requested_time)
        return table
    update = files_listed(_committed_files(table))
    table.storage.delete_folder(FOLDER)
    _create_settings(table)
    own = open_own(table)
    last = max((each.requested_time for each in table.timeline.completed()), default=None)
    _fill(own, table.format.metadata.first_instant(last), update, clock)
    update_table_config(table.storage, {METADATA_PARTITIONS: FILES, METADATA_PARTITIONS_INFLIGHT: ""})
    log.info("table %s: its metadata table is made, with %d partitions", table.config.name, len(update.puts) - 1)
    table.context.events.emit("metadata_table.created", table=table.config.name)
    return table.reload()


def _committed_files(table: HudiTable) -> dict[str, dict[str, int]]:
    """Names and sizes of the files of committed writes, by partition path; replaced ones too, while they are there."""
    view = table.view(metadata=False)
    return {
        partition: {
            file.name: file.size_bytes
            for file in view.listing.files(partition)
            if _is_committed(file.name, view.states)
        }
        for partition in view.partitions()
    }


def _is_committed(name: str, states: InstantStates) -> bool:
    """Whether it is a data file of a committed write. A log file named by its slice may belong to a planned one."""
    base, log_file = BaseFileName.parse(name), LogFileName.parse(name)
    if base is not None:
        return states.is_committed(base.instant_time)
    if log_file is None:
        return False
    planned = not states.logs.of_delta_commit and log_file.instant_time in states.pending_compactions.values()
    return planned or states.is_committed(log_file.instant_time)


def _create_settings(table: HudiTable) -> None:
    config = table.config
    zone = {} if config.timezone is TimelineZone.LOCAL else {"hoodie.table.timeline.timezone": config.timezone.value}
    properties = {
        "hoodie.table.name": f"{config.name}_metadata",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.base.file.format": BaseFormat.HFILE.value,
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        **zone,
        **table.format.metadata.properties,
    }
    storage = FolderStorage(table.storage, FOLDER)
    storage.create_exclusive(PROPERTIES_PATH, format_properties(with_checksum(properties)))
    placeholder = table.layout.placeholder
    if placeholder is not None:
        storage.create_exclusive(placeholder, b"")


def _fill(own: HudiTable, time: InstantTime, update: PartitionUpdate, clock: Clock) -> None:
    instant = create_requested(own, Instant(time, Action.DELTA_COMMIT, State.REQUESTED))
    instant = transition_to_inflight(own, instant, CommitMetadata(operation_type=WriteOperation.BULK_INSERT))
    ensure_partition(own.storage, FILES, time)
    # An empty list of deletes: a file group of Hudi begins with a log file.
    none = delete_entries(pa.array([], pa.string()), FILES)
    first_log = LogFileName(_FILE_ID, time, 1, FIRST_TOKEN)
    begin = format_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: str(time)}, delete_content(none))
    own.storage.create_exclusive(join(FILES, str(first_log)), begin)
    schema = record_schema(own.format.metadata.release)
    stat = replace(write_base(own, _FILE_ID, time, update.puts, schema), num_inserts=len(update.puts))
    done = CommitMetadata(
        partition_to_write_stats={FILES: (stat,)},
        operation_type=WriteOperation.BULK_INSERT,
        extra_metadata={"schema": schema.text},
    )
    complete(own, instant, done, clock, alone=True)
