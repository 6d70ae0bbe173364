"""A commit that changes a table's columns by their ids (schema on read) and has no rows; files stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from skep_format.errors import UnsupportedError
from skep_format.schema.avro import avro_text
from skep_format.schema.change import ColumnChange, CommentColumn, FixedColumns, changed, changed_ids
from skep_format.schema.history import LATEST_SCHEMA
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.parts.batches import CommitLabel
from skep_table.commit.parts.metadata_table import create_again
from skep_table.commit.transaction import Transaction
from skep_table.commit.writable import prepared
from skep_table.merge import MergeRule
from skep_table.metadata_write.drop import dropped_indexes
from skep_table.slices.history import current_version, ids_text, in_files, schema_history
from skep_table.table import HudiTable
from skep_table.write.planning.operation import data_action
from skep_table.write.result import WriteResult


def commit_changes(table: HudiTable, changes: Sequence[ColumnChange], label: CommitLabel) -> WriteResult:
    """SchemaError and InputError for changes that Hudi refuses, CommitConflictError where others wrote meanwhile."""
    now = table.reload()
    changed(now.stored_schema(), changes, fixed_columns(now))  # refused before anything is on the timeline
    with Transaction.begin(table, data_action(table), label) as transaction:
        table, time = transaction.table, transaction.instant.requested_time
        before = table.stored_schema()
        after = changed(before, changes, fixed_columns(table))
        whole = in_files(table, after)
        version = changed_ids(current_version(table), in_files(table, before), changes, whole, int(time))
        transaction.inflight(CommitMetadata(operation_type=WriteOperation.ALTER_SCHEMA))
        extra = {**label.extra, "schema": avro_text(after)}
        if schema_history(table) or not all(isinstance(change, CommentColumn) for change in changes):
            extra[LATEST_SCHEMA] = ids_text(version, whole)
        metadata = CommitMetadata(operation_type=WriteOperation.ALTER_SCHEMA, extra_metadata=extra)
        instant = transaction.complete(metadata)
        done = transaction.after
        if done is not None and dropped_indexes(done.config):
            with done.context.locked():
                done = create_again(prepared(done))
        return WriteResult(instant, transaction.committed or metadata, after, table=done)


def fixed_columns(table: HudiTable) -> FixedColumns:
    """UnsupportedError for a table whose files lack its partition columns: their places in the schema have no ids."""
    config = table.config
    if config.dropped_columns:
        raise UnsupportedError.of_table(
            config.name,
            "its files are without the partition columns (hoodie.datasource.write.drop.partition.columns); its"
            " columns can't be changed by id",
        )
    ordering = MergeRule.of(config, table.options).ordering_fields
    return FixedColumns(frozenset(config.record_key_fields), frozenset((*ordering, *config.partition_fields)))
