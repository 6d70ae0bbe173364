"""The index of a bootstrap as a part of its commit: the write puts it on storage, and a rollback deletes it."""

from __future__ import annotations

from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
from skep_table.slices.bootstrap_index import delete_index
from skep_table.table import HudiTable


class BootstrapIndex:
    """Skeleton files alone refer to it: without their instant it has no effect."""

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Nothing: only a bootstrap has one, and writes it with its files."""

    def commit(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:
        """Nothing, too."""

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes it, of which JVM writers refuse to write a second one."""
        if instant.requested_time == METADATA_BOOTSTRAP:
            delete_index(table.storage)
