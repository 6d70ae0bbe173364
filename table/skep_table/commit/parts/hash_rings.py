"""The hash rings of a table's partitions as participants of commits: written by a resize, deleted by its rollback."""

from __future__ import annotations

from contextlib import suppress

from skep_format.bucket_rules import rules_path
from skep_format.errors import CorruptFileError
from skep_format.hashing_metadata import INDEX_FOLDER, marker_path, metadata_path
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.keys.hash_rings import planned_resizes, planned_rings
from skep_table.table import HudiTable


class HashRings:
    """Writes the rings that a resize leaves; before its instant completes, no reader or writer counts them."""

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Nothing: the rings are compared with the plan once the lock is held."""

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """CommitConflictError where a ring was changed since the plan was made."""
        if metadata.operation_type is not WriteOperation.CLUSTER:
            return
        resizes = planned_resizes(table, instant)
        for partition, before in planned_rings(table, instant, resizes).items():
            after = before.resized(instant.requested_time, resizes[partition].children)
            table.storage.replace_atomic(after.path, after.encode())

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the rings of the instant, each behind its marker: Hudi takes a marker for that of a file.

        And the rules for numbers of buckets that a rescaling of Hudi's has written.
        """
        if not table.may_have_folder(INDEX_FOLDER):
            return
        time = instant.requested_time
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
