"""Keys that two concurrent writes both inserted: each looked for them before the other one had completed.

Only partitions into which both inserted are compared, or the whole table where the index makes keys unique in it. Of
these all logs are read, and base files whose key ranges overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_base, read_footer
from skep_format.instant_time import InstantTime
from skep_format.logfile import read_blocks
from skep_format.schema.types import COMMIT_TIME, RECORD_KEY
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_table.keys.buckets import GLOBAL_INDEXES, index_named
from skep_table.table import HudiTable

_SAMPLE: Final = 10
Write = tuple[Instant, CommitMetadata]


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Some keys of a file group that another write inserted into another group; none where that file is deleted."""

    partition_path: str
    file_id: str
    keys: tuple[str, ...]


def keys_inserted_by_both(table: HudiTable, ours: Write, theirs: Write) -> list[SharedKeys]:
    """Rows of both writes under one key in one partition, in different file groups; with a global index in any."""
    is_global = index_named(table.config, table.options) in GLOBAL_INDEXES
    found = []
    others = _inserted(table, theirs, is_global)
    for scope, files in _inserted(table, ours, is_global).items():
        for file in files:
            stat, own = file.stat, None
            for other in others.get(scope, ()):
                if stat.file_id == other.stat.file_id:
                    continue  # the same group: that is a conflict, or routed by key
                try:
                    if not file.overlaps(other):
                        continue
                    own = pa.chunked_array(list(file.keys()), pa.string()) if own is None else own
                    keys = _first_among(other.keys(), own)
                except FileNotFoundError:
                    if table.storage.exists(other.stat.path):
                        raise
                    # Cleaned already, so a still later commit replaced it, which nobody has compared with.
                    found.append(SharedKeys(stat.partition_path, stat.file_id, ()))
                    continue
                if keys:
                    found.append(SharedKeys(stat.partition_path, stat.file_id, keys))
    return found


def is_planned(table: HudiTable, time: InstantTime) -> bool:
    """Whether a delta commit wrote before how many rows each group gets: its inflight file was listed, with content.

    Flink's do not, and count the new keys with which they fill a group as updates.
    """
    listed = table.timeline.files.listed
    path = table.layout.path(Instant(time, Action.DELTA_COMMIT, State.INFLIGHT))
    at = bisect_left(listed, path, key=lambda file: file.path)
    return at < len(listed) and listed[at].path == path and listed[at].size_bytes > 0


@dataclass(frozen=True)
class _Inserted:
    """A file into which a write put new rows."""

    table: HudiTable
    instant_time: InstantTime
    stat: WriteStat

    def overlaps(self, other: _Inserted) -> bool:
        """Whether both may hold one key, by the key ranges of base files."""
        if self._range is None or other._range is None:
            return True
        return self._range[0] <= other._range[1] and other._range[0] <= self._range[1]

    def keys(self) -> Iterator[pa.Array]:
        """Keys of the rows that the instant itself wrote into the file."""
        storage, path = self.table.storage, self.stat.path
        if self.stat.is_log:
            with storage.open_input(path) as file:
                for block in read_blocks(file, path):
                    if block.type.has_records and block.instant_time == self.instant_time:
                        yield from (batch.column(RECORD_KEY).cast(pa.string()) for batch in block.batches([RECORD_KEY]))
            return
        size = max(0, self.stat.file_size_in_bytes) or None
        for batch in read_base(storage, path, size=size, columns=[RECORD_KEY, COMMIT_TIME]):
            own = pc.equal(batch.column(COMMIT_TIME), self.instant_time)
            yield batch.column(RECORD_KEY).filter(own).cast(pa.string())

    @cached_property
    def _range(self) -> tuple[bytes, bytes] | None:
        """The lowest and highest key of a base file, in the order in which Java compares strings."""
        if self.stat.is_log:
            return None
        footer = read_footer(self.table.storage, self.stat.path)
        if footer.min_key is None or footer.max_key is None:
            return None
        return _utf16(footer.min_key), _utf16(footer.max_key)


def _inserted(table: HudiTable, write: Write, is_global: bool) -> dict[str, list[_Inserted]]:
    """The files of a write that got new rows, by partition; of a global index all together."""
    instant, metadata = write
    time, found = instant.requested_time, dict[str, list[_Inserted]]()
    for stat in metadata.stats:
        counts_as_update = stat.is_log and stat.num_update_writes > 0 and not is_planned(table, time)
        if stat.path and (stat.num_inserts or counts_as_update):
            scope = "" if is_global else stat.partition_path
            found.setdefault(scope, []).append(_Inserted(table, time, stat))
    return found


def _first_among(parts: Iterator[pa.Array], known: pa.ChunkedArray) -> tuple[str, ...]:
    """Some of the keys that are known, of the first part that has any."""
    for keys in parts:
        both = keys.filter(pc.is_in(keys, value_set=known))
        if len(both):
            return tuple(both.slice(0, _SAMPLE).to_pylist())
    return ()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
