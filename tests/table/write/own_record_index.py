"""A record index of the rows that a table has, as Hudi's writers make one: file groups, filled by one commit."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.escaping import escape
from skep_format.logfile import BlockType, HeaderKey
from skep_format.logfile.writer import delete_content, format_block
from skep_format.metafile import ensure_partition
from skep_format.names import BaseFileName, BaseFormat, LogFileName, join
from skep_format.table_config import METADATA_PARTITIONS, update_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.metadata_table import group_numbers
from skep_table.metadata_table.definitions import INDEX_DEFINITIONS, INDEX_DEFINITIONS_PROPERTY, IndexDefinition
from skep_table.metadata_table.partitions import FILES, RECORD_INDEX
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_write.definitions import IS_PARTITIONED, definitions_of, write_definitions
from skep_table.metadata_write.delta_commit import delete_entries
from skep_table.metadata_write.drop import drop_indexes
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import entries_of, hfile_of, record_schema
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.indexes import KeyLookUp
from skep_table.write.indexes.record_index import RecordIndex, RecordIndexLookUp
from skep_table.write.planning.candidates import CandidateFiles

KEPT = {"hoodie.metadata.enable": "true"}
# The partition was made before others: its number among them.
_NUMBER = 1


def live_keys(table: HudiTable) -> pa.Table:
    """Where each row is: `key`, `partition`, `file_id`."""
    rows = read(table, ReadRequest()).to_arrow().combine_chunks()
    names = rows.column("_hoodie_file_name")
    return pa.table(
        {
            "key": rows.column("_hoodie_record_key"),
            "partition": rows.column("_hoodie_partition_path"),
            "file_id": pc.replace_substring_regex(names, "_.*$", ""),
        }
    ).combine_chunks()


def with_record_index(
    table: HudiTable, groups: int = 3, *, partitioned: bool = False, keys: pa.Table | None = None
) -> HudiTable:
    """The table with a new index of `keys`, by default all live ones; `partitioned`: of groups for each partition."""
    drop_indexes(table, {FILES})
    table = table.reload()
    keys = live_keys(table) if keys is None else keys
    last = max(each.requested_time for each in table.timeline.completed())
    own = open_own(table)
    time = own.format.metadata.first_instant(last, _NUMBER)
    while own.timeline.contains(time):
        time = type(time)(f"{int(time) + 1:0{len(time)}d}")
    instant = create_requested(own, Instant(time, Action.DELTA_COMMIT, State.REQUESTED))
    instant = transition_to_inflight(own, instant, CommitMetadata(operation_type=WriteOperation.BULK_INSERT))
    ensure_partition(own.storage, RECORD_INDEX, time)
    parts: Sequence[tuple[str, pa.Table]] = [("", keys)]
    if partitioned:
        found = sorted(pc.unique(keys.column("partition")).to_pylist())
        parts = [(path, keys.filter(pc.equal(keys.column("partition"), path))) for path in found]
    for path, part in parts:
        prefix = "record-index-" + (escape(path).replace("-", "%2D") + "-" if partitioned else "")
        of_group = group_numbers(part.column("key").combine_chunks(), groups)
        for number in range(groups):
            mine = part.filter(pa.array(of_group == number))
            _fill(own, f"{prefix}{number:04d}-0", time, mine)
    complete(own, instant, CommitMetadata(operation_type=WriteOperation.BULK_INSERT), table.context.clock, alone=True)
    if partitioned:
        definition = IndexDefinition(RECORD_INDEX, RECORD_INDEX, "", (), {IS_PARTITIONED: "true"}, "V1")
        write_definitions(table.storage, {**definitions_of(table), RECORD_INDEX: definition})
        update_table_config(table.storage, {INDEX_DEFINITIONS_PROPERTY: INDEX_DEFINITIONS})
    update_table_config(table.storage, {METADATA_PARTITIONS: f"{FILES},{RECORD_INDEX}"})
    return table.reload()


class MadeRecordIndex(RecordIndex):
    """The record index, made of the rows that the table has before a look-up that does not find one."""

    def look_up(self, table: HudiTable, files: CandidateFiles) -> KeyLookUp:
        if any(files.values()) and RECORD_INDEX not in table.config.metadata_partitions:
            table = with_record_index(table, partitioned=not self.is_global, keys=self.entries(live_keys(table)))
        found = super().look_up(table, files)
        assert isinstance(found, RecordIndexLookUp) is any(files.values())
        return found

    def entries(self, keys: pa.Table) -> pa.Table:
        """What the index has, of the rows that the table has."""
        return keys


def _fill(own: HudiTable, file_id: str, time: str, keys: pa.Table) -> None:
    none = delete_entries(pa.array([], pa.string()), RECORD_INDEX)
    begin = format_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: str(time)}, delete_content(none))
    own.storage.create_exclusive(join(RECORD_INDEX, str(LogFileName(file_id, time, 1, "0-0-0"))), begin)
    if not len(keys):
        return
    columns = [keys.column(name).combine_chunks() for name in ("key", "partition", "file_id")]
    release = own.format.metadata.release
    puts = record_index_update(*columns, 5, release).puts
    path = join(RECORD_INDEX, str(BaseFileName(file_id, "0-0-0", time, BaseFormat.HFILE)))
    own.storage.create_exclusive(path, hfile_of(entries_of(puts, record_schema(release)), record_schema(release)))
