"""The hash rings of a table's partitions as participants of commits: written by a resize, and by what replaces the
groups of partitions, deleted by its rollback."""

from __future__ import annotations

from contextlib import suppress

from skep_format.bucket_rules import rules_path
from skep_format.errors import CommitConflictError, CorruptFileError
from skep_format.hashing_metadata import INDEX_FOLDER, marker_path, metadata_path
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.commit.parts.participant import Participant
from skep_table.keys.hash_rings import files_of_rings, planned_resizes, planned_rings, renewed_rings
from skep_table.table import HudiTable


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
                raise CommitConflictError(
                    f"table {table.config.name}: the hash ring of partition {partition or 'of the table'} was changed"
                    f" since {instant.requested_time} began",
                    hint="try again",
                    table=table.config.name,
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
