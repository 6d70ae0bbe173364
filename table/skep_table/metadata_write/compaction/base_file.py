"""Base files of the metadata table, which a new partition begins with and each compaction writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

import pyarrow as pa

from skep_format.hfile import HFileWriter
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName, BaseFormat, join
from skep_format.timeline.metadata import WriteStat
from skep_table.metadata_write.records import RecordSchema, check_keys, entries_of, file_info
from skep_table.table import HudiTable

FIRST_TOKEN: Final = "0-0-0"  # Hudi's token of the files that begin a file group


def write_base(
    own: HudiTable,
    partition: str,
    file_id: str,
    time: InstantTime,
    puts: Iterable[pa.Table],
    schema: RecordSchema,
    token: str = FIRST_TOKEN,
) -> WriteStat | None:
    """Writes the base file of a slice of a file group, and its stat; no file, and None, without records.

    `puts` are those of an update, piece by piece, and ascend by their keys. The file is durable after a `sync`.
    """
    pieces = (piece for piece in puts if len(piece))
    first = next(pieces, None)
    if first is None:
        return None
    path = join(partition, str(BaseFileName(file_id, token, time, BaseFormat.HFILE)))
    with own.storage.open_write(path) as sink:
        writer = HFileWriter(sink, file_info(schema))
        for piece in chain([first], pieces):
            check_keys(own, partition, piece["key"])
            writer.add(*entries_of(piece, schema).columns)
        writer.close()
    return WriteStat(
        file_id=file_id,
        path=path,
        partition_path=partition,
        num_writes=writer.entries,
        total_write_bytes=writer.size_bytes,
        file_size_in_bytes=writer.size_bytes,
    )
