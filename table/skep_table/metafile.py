"""The metafile that makes a folder a partition (format guide 1.2)."""

from __future__ import annotations

from skep_table.errors import AlreadyExistsError
from skep_table.instant_time import InstantTime
from skep_table.names import PARTITION_METAFILE, join
from skep_table.properties import format_properties
from skep_table.storage import Storage


def ensure_partition(storage: Storage, partition_path: str, instant_time: InstantTime) -> None:
    """Writes the partition metafile with the first data file of a partition; an existing one is never touched."""
    path = join(partition_path, PARTITION_METAFILE)
    if storage.exists(path):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    text = format_properties({"commitTime": instant_time, "partitionDepth": str(depth)}, ["partition metadata"])
    try:
        storage.create_exclusive(path, text, durable=False)
    except AlreadyExistsError:
        return  # another task was first
