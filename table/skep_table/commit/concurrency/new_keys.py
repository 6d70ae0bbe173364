"""Keys that two concurrent writes both inserted: each looked for them before the other one had completed.

Only partitions into which both inserted are compared, and of these only files whose key ranges overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_base, read_footer
from skep_format.names import BaseFileName
from skep_format.schema.types import COMMIT_TIME, RECORD_KEY
from skep_format.storage import Storage
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_table.table import HudiTable

_SAMPLE = 10
Write = tuple[Instant, CommitMetadata]


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Some keys of a file group that another write inserted into another group; none where that file is deleted."""

    partition_path: str
    file_id: str
    keys: tuple[str, ...]


def keys_inserted_by_both(table: HudiTable, ours: Write, theirs: Write) -> list[SharedKeys]:
    """Rows of both writes under one key in one partition, in different file groups."""
    found = []
    others = _inserting(theirs[1])
    for partition, mine in _inserting(ours[1]).items():
        for stat in mine:
            for other in others.get(partition, ()):
                if stat.file_id == other.file_id:
                    continue  # the same group: that is a conflict, or routed by key
                try:
                    keys = _shared(table.storage, (ours[0], stat), (theirs[0], other))
                except FileNotFoundError:
                    if table.storage.exists(other.path):
                        raise
                    # Cleaned already, so a still later commit replaced it, which nobody has compared with.
                    found.append(SharedKeys(partition, stat.file_id, ()))
                    continue
                if keys:
                    found.append(SharedKeys(partition, stat.file_id, keys))
    return found


def _inserting(metadata: CommitMetadata) -> dict[str, list[WriteStat]]:
    """By partition, the base files that got new rows."""
    found: dict[str, list[WriteStat]] = {}
    for stat in metadata.stats:
        if stat.num_inserts and stat.path and BaseFileName.parse(stat.path.rpartition("/")[2]) is not None:
            found.setdefault(stat.partition_path, []).append(stat)
    return found


def _shared(storage: Storage, ours: tuple[Instant, WriteStat], theirs: tuple[Instant, WriteStat]) -> tuple[str, ...]:
    first, second = (read_footer(storage, stat.path) for _, stat in (ours, theirs))
    if None not in (first.min_key, first.max_key, second.min_key, second.max_key) and (
        _utf16(first.max_key) < _utf16(second.min_key) or _utf16(second.max_key) < _utf16(first.min_key)
    ):
        return ()
    mine = pa.chunked_array(list(_keys_written(storage, *ours)), pa.string())
    for keys in _keys_written(storage, *theirs):
        both = keys.filter(pc.is_in(keys, value_set=mine))
        if len(both):
            return tuple(both.slice(0, _SAMPLE).to_pylist())
    return ()


def _utf16(text: str | None) -> bytes:
    """Keys in footers are ordered as Java orders strings."""
    return (text or "").encode("utf-16-be", "surrogatepass")


def _keys_written(storage: Storage, instant: Instant, stat: WriteStat) -> Iterator[pa.Array]:
    """Keys of the rows that the instant itself wrote into the file."""
    for batch in read_base(
        storage, stat.path, size=max(0, stat.file_size_in_bytes) or None, columns=[RECORD_KEY, COMMIT_TIME]
    ):
        own = pc.equal(batch.column(COMMIT_TIME), instant.requested_time)
        yield batch.column(RECORD_KEY).filter(own).cast(pa.string())
