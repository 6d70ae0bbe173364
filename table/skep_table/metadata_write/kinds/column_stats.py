"""Column statistics: the summaries of the columns in each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skep_format.instant_time import InstantTime
from skep_format.names import join
from skep_format.storage import FileStatus
from skep_format.timeline.plans import RollbackMetadata
from skep_table.metadata_table.partitions import COLUMN_STATS, SINGLE
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.column_stats import column_stats_update
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.kinds.contract import CleanedFiles, File, KeptKind
from skep_table.table import HudiTable


def _of_files(table: HudiTable, facts: Mapping[File, FileFacts], _time: InstantTime) -> PartitionUpdate:
    written = {file: each.summaries for file, each in facts.items()}
    return column_stats_update(written, (), (), table.format.metadata.release)


def _of_clean(cleaned: CleanedFiles) -> Iterable[PartitionUpdate]:
    if cleaned.deleted:
        yield column_stats_update({}, cleaned.deleted, cleaned.columns, cleaned.table.format.metadata.release)


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


KEPT = KeptKind(SINGLE[COLUMN_STATS], of_files=_of_files, of_clean=_of_clean)
