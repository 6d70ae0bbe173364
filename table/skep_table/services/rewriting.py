"""What the services that rewrite rows share: the metrics of their plans, what their tasks work with, their results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from skep_format.basefile import BaseFileOptions
from skep_format.instant_time import InstantTime
from skep_format.schema.avro import avro_text
from skep_format.schema.history import SchemaVersion
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat, stats_by_partition
from skep_table.commit.plaintext import check_plaintext, marks_of
from skep_table.keys.partition_path import DroppedColumns
from skep_table.merge import MergeRule
from skep_table.slices.bootstrap import source_of
from skep_table.slices.history import history_until, names_in_file, schema_history, schema_with_ids
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.context import WriteContext
from skep_table.write.planning.candidates import CandidateFile

_MIB = 1 << 20


def slice_metrics(slices: Iterable[FileSlice], file_bytes: int) -> dict[str, float]:
    """Whole mebibytes, as Hudi counts them. `file_bytes` stands in for a base file that is not there yet."""
    found = list(slices)
    logs = [log.size_bytes for slice_ in found for log in slice_.log_files]
    bases = [slice_.base_file.size_bytes if slice_.base_file else 0 for slice_ in found]
    read = (sum(bases) + sum(logs)) // _MIB
    written = sum(size or file_bytes for size in bases) // _MIB
    return {
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(logs)),
    }


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A completed compaction, log compaction or clustering. `table` is the snapshot that it ended with."""

    instant: Instant
    metadata: CommitMetadata
    table: HudiTable = field(repr=False, compare=False)

    @property
    def slices(self) -> int:
        """File slices that it wrote to."""
        return len(self.metadata.stats)

    @property
    def replaced(self) -> int:
        """File groups that it replaced."""
        return len(self.metadata.replaced)


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """What all tasks of one service share."""

    table: HudiTable
    context: WriteContext

    @property
    def history(self) -> tuple[SchemaVersion, ...]:
        """The versions of the columns until the service was planned, by which older files are read."""
        return history_until(self.table, self.context.instant_time)


def context_of(table: HudiTable, instant: Instant, operation: WriteOperation, max_file_bytes: int) -> WriteContext:
    """What the tasks of a service write with: the columns and the merge rule of the table as they are.

    Where columns have ids, they are those of when the service was planned: readers find the columns of a file by the
    version in force at its instant.
    """
    changes = operation is WriteOperation.COMPACT and table.config.captured is not None
    check_plaintext(table, logs=changes or operation is WriteOperation.LOG_COMPACT)
    schema = table.stored_schema(instant.requested_time if schema_history(table) else None)
    return WriteContext(
        storage=table.storage,
        format=table.format,
        instant_time=instant.requested_time,
        operation=operation,
        schema=schema,
        rule=MergeRule.of(table.config, table.options).with_defaults(schema),
        files=BaseFileOptions.of(
            table.options, meta=table.config.populate_meta_fields, format=table.config.base_format
        ),
        max_file_bytes=max_file_bytes,
        combine=False,
        dropped=DroppedColumns.of(table.config),
        changes=table.config.captured,
        metafile=table.config.metafile,
    )


def candidate_of(table: HudiTable, slice_: FileSlice, instant_time: InstantTime) -> CandidateFile:
    """The base file of a slice as a service that was planned at an instant time reads it; without path where there is
    none.
    """
    base = slice_.base_file
    if base is None:
        return CandidateFile(slice_.file_id, "", slice_.base_instant, 0)
    return CandidateFile(
        slice_.file_id,
        base.path,
        slice_.base_instant,
        0,
        source=source_of(table, slice_, table.options),
        names=names_in_file(history_until(table, instant_time), slice_.base_instant),
    )


def metadata_of(table: HudiTable, context: WriteContext, stats: Iterable[WriteStat]) -> CommitMetadata:
    """The commit metadata of a service that wrote with `context`: its stats, and the columns, which stay the same."""
    return CommitMetadata(
        partition_to_write_stats=dict(sorted(stats_by_partition(stats).items())),
        operation_type=context.operation,
        compacted=context.operation in (WriteOperation.COMPACT, WriteOperation.LOG_COMPACT),
        extra_metadata={
            **schema_with_ids(table, context.instant_time),
            "schema": avro_text(context.schema),
            **marks_of(table),
        },
    )
