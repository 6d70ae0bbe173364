"""The Bloom index: which file group holds a key, learnt from footers and key columns of a partition's base files.

Ranges first (no read beyond the footer), then the bloom filter where it may spare reading a file, then the key column
of the files that are left. Nothing is trusted without that last look, so a tag is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.basefile import BaseFileFooter, read_base, read_footer
from skep_table.basefile.reader import BATCH_ROWS
from skep_table.keys.stored import StoredKeys
from skep_table.schema.evolve import SourceNames
from skep_table.schema.types import RECORD_KEY, Schema
from skep_table.slices.bootstrap import BootstrapSource, read_stitched
from skep_table.storage import Storage
from skep_table.view import FileSlice

NEW_KEY = -1
# Asking the filter costs about as much as reading this many keys, for each key asked.
_FILTER_KEYS_RATIO = 20


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of the logs of a slice in a merge-on-read table, where a write goes on.

    New log files bear `base_instant` (that of a pending compaction, where the slice awaits one) and come after
    `version`. `files` are the names of those that are there, `base_file` is the base file's; their bytes are `size`.
    """

    base_instant: str
    version: int = 0
    files: tuple[str, ...] = ()
    base_file: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The newest slice of a file group, in whose base file keys of its partition may be.

    `path` is relative to the table, empty for a slice that has log files only. `clustering` is the pending clustering
    that has the group as input: it may not be written to until that is done. `tail` is set in merge-on-read tables;
    `compaction`: the slice is to be compacted, and no base file may be written for it meanwhile; `planned` is what the
    compaction reads. `source` is set for a skeleton file, and `size_bytes` includes it.
    `names` are the file's for columns that were renamed since.
    """

    file_id: str
    path: str
    base_instant: str
    size_bytes: int
    clustering: str | None = None
    tail: LogTail | None = None
    compaction: str | None = None
    planned: FileSlice | None = None
    source: BootstrapSource | None = None
    names: SourceNames = field(default_factory=dict)

    def rows(self, storage: Storage, schema: Schema) -> Iterator[pa.RecordBatch]:
        """The rows of the base file, which a skeleton file has together with its source."""
        if self.source is None:
            return read_base(storage, self.path, schema=schema, names=self.names)
        return read_stitched(storage, self.path, self.source, schema, BATCH_ROWS, self.names)


LeftOut = Callable[[IndexFile, pa.Array], npt.NDArray[np.bool_]]
"""Which of the keys, all of them in the base file, count as not there."""


def tag_keys(
    storage: Storage,
    keys: pa.Array,
    files: Sequence[IndexFile],
    left_out: LeftOut | None = None,
    stored: StoredKeys | None = None,
) -> npt.NDArray[np.int32]:
    """For each key the position in `files` of the one that holds it, NEW_KEY for none.

    `keys` are those of one partition and may repeat; `files` are its latest base files. `stored` tells the keys of
    their rows, where it is not the key column.
    """
    tags = np.full(len(keys), NEW_KEY, np.int32)
    if not files or not len(keys):
        return tags
    encoded = keys.dictionary_encode()
    distinct: pa.Array = encoded.dictionary
    order = pc.sort_indices(distinct)
    ordered = distinct.take(order)
    found = np.full(len(distinct), NEW_KEY, np.int32)
    for position, file in enumerate(files):
        if not file.path:
            continue
        footer = read_footer(storage, file.path)
        low, high = _key_range(ordered, footer)
        if low == high or footer.num_rows == 0:
            continue
        candidates = ordered.slice(low, high - low)
        if not _filter_passes(candidates, footer):
            continue
        hits = _confirm(storage, file, candidates, stored)
        if len(hits) and left_out is not None:
            hits = hits[~left_out(file, candidates.take(pa.array(hits)))]
        if len(hits):
            found[order.slice(low, high - low).take(pa.array(hits)).to_numpy()] = position
    tags[:] = found[encoded.indices.to_numpy(zero_copy_only=False)]
    return tags


def _key_range(ordered: pa.Array, footer: BaseFileFooter) -> tuple[int, int]:
    """The part of the sorted keys that lies within the file's range; all of them when the footer has none."""
    low, high = footer.min_key, footer.max_key
    if low is None or high is None or _beyond_utf16_order(low) or _beyond_utf16_order(high):
        return 0, len(ordered)
    return _bisect(ordered, low, after=False), _bisect(ordered, high, after=True)


def _beyond_utf16_order(text: str) -> bool:
    # Java compares UTF-16 units, Arrow UTF-8 bytes: the two orders differ only above the surrogates.
    return any(character >= "\ud800" for character in text)


def _bisect(ordered: pa.Array, text: str, *, after: bool) -> int:
    """Where `text` would go: before equal keys, or after them."""
    low, high = 0, len(ordered)
    wanted = text.encode()
    while low < high:
        middle = (low + high) // 2
        key = ordered[middle].as_py().encode()
        if key < wanted or (after and key == wanted):
            low = middle + 1
        else:
            high = middle
    return low


def _filter_passes(candidates: pa.Array, footer: BaseFileFooter) -> bool:
    """False only when the filter rules out every candidate; not asked where reading the keys is cheaper."""
    if len(candidates) * _FILTER_KEYS_RATIO > footer.num_rows or footer.bloom is None:
        return True
    return bool(pc.any(footer.bloom.might_contain(candidates)).as_py())


def _confirm(
    storage: Storage, file: IndexFile, candidates: pa.Array, stored: StoredKeys | None
) -> npt.NDArray[np.int64]:
    """Positions of the candidates that the file's rows have as their key."""
    held: list[npt.NDArray[np.int64]] = []
    for keys in _keys(storage, file, stored):
        position = pc.index_in(keys, value_set=candidates).drop_null()
        if len(position):
            held.append(position.to_numpy().astype(np.int64))
    return np.unique(np.concatenate(held)) if held else np.zeros(0, np.int64)


def _keys(storage: Storage, file: IndexFile, stored: StoredKeys | None) -> Iterator[pa.Array]:
    if stored is None or stored.generator is None:
        for batch in read_base(storage, file.path, columns=[RECORD_KEY]):
            yield batch.column(0)
        return
    for batch in file.rows(storage, stored.schema):
        yield stored.of_rows(batch)
