"""What a commit names is on the disk before its instant completes: a power loss can't leave a commit without files."""

from __future__ import annotations

from skep_table.names import PARTITION_METAFILE, join
from skep_table.storage import Storage
from skep_table.timeline.metadata import CommitMetadata


def sync_written(storage: Storage, metadata: CommitMetadata) -> None:
    """Syncs the data files of a commit and the metafiles of partitions that may be new. Raises StorageError."""
    new = {stat.partition_path for stat in metadata.stats if stat.prev_commit in (None, "", "null")}
    storage.sync([*(stat.path for stat in metadata.stats), *(join(path, PARTITION_METAFILE) for path in sorted(new))])
