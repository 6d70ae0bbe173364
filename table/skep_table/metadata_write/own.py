"""The metadata table as a table of its own, in the context of its data table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from skep_table.lock import NoLock
from skep_table.metadata_table import FOLDER
from skep_table.names import META_FOLDER
from skep_table.storage import FileStatus, FolderStorage
from skep_table.table import HudiTable
from skep_table.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableConfig


def has_metadata_table(config: TableConfig) -> bool:
    """Whether the table has a metadata table, or one that is being built."""
    return bool(config.raw.get(METADATA_PARTITIONS) or config.raw.get(METADATA_PARTITIONS_INFLIGHT))


def open_own(table: HudiTable) -> HudiTable:
    """A snapshot of the metadata table. The data table's lock is that of both. NotATableError where it is missing."""
    storage = FolderStorage(table.storage, FOLDER)
    return HudiTable.in_context(replace(table.context, storage=storage, lock=NoLock()))


def files_by_partition(own: HudiTable) -> Iterator[list[FileStatus]]:
    """The files in the folder of each partition of the metadata table."""
    for folder in own.storage.list_folder("").folders:
        if folder != META_FOLDER:
            yield own.storage.list_prefix(folder)
