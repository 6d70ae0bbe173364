"""Tables of Hudi's writers with a simple bucket index: nothing in them records it but the names of their file groups.

Hudi 0.15 writes such a table by another index without a word: its Bloom index misses the keys that buckets have in
logs, and the groups that it makes have no number, so that no bucket writer can load their partition from then on
(`HoodieSimpleBucketIndex.loadBucketIdToFileIdMappingForPartition`).
"""

from __future__ import annotations

from typing import Final

from skep_table.keys.buckets import BUCKET_NAMES, INDEX
from skep_table.table import HudiTable

_MOST_BUCKETS: Final = 10_000
"""Of a partition. One of 400,000 random names begins with a number below."""


def unrecorded_bucket(table: HudiTable) -> str | None:
    """A file group that the last write of a table made for a bucket; None for a table that records an index.

    Where all groups of that write have numbers, those of a partition are listed: all have one, each another.
    """
    if INDEX in table.config.raw:
        return None
    for instant in reversed(table.timeline.data().completed().instants):
        written = {stat.file_id: stat.partition_path for stat in table.commit_metadata(instant).stats if stat.file_id}
        if written:
            if not all(_is_bucket(file_id) for file_id in written):
                return None
            file_id, path = next(iter(written.items()))
            groups = [each.file_id for each in table.view().file_groups(path)]
            numbers = {BUCKET_NAMES.number_of(each) for each in groups}
            return file_id if all(map(_is_bucket, groups)) and len(numbers) == len(groups) else None
    return None


def _is_bucket(file_id: str) -> bool:
    number = BUCKET_NAMES.number_of(file_id)
    return number is not None and number < _MOST_BUCKETS
