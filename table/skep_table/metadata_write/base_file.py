"""Base files of the partition `files`, which a new metadata table begins with and each compaction writes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from skep_table.instant_time import InstantTime
from skep_table.metadata_table.partitions import FILES
from skep_table.metadata_write.records import RecordSchema, hfile_of
from skep_table.names import BaseFileName, BaseFormat, join
from skep_table.table import HudiTable
from skep_table.timeline.metadata import WriteStat

FIRST_TOKEN: Final = "0-0-0"  # Hudi's token of the files that begin a file group


def write_base(own: HudiTable, file_id: str, time: InstantTime, puts: pa.Table, schema: RecordSchema) -> WriteStat:
    """Writes the base file of a slice of a file group, with these puts of an update; the stat of it."""
    data = hfile_of(puts, schema)
    path = join(FILES, str(BaseFileName(file_id, FIRST_TOKEN, time, BaseFormat.HFILE)))
    own.storage.create_exclusive(path, data)
    return WriteStat(
        file_id=file_id,
        path=path,
        partition_path=FILES,
        num_writes=len(puts),
        total_write_bytes=len(data),
        file_size_in_bytes=len(data),
    )
