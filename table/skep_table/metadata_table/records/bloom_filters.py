"""Records of the partition `bloom_filters`: the filters of base files' footers (format guide 7.4 and 16.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from skep_format.bloom import BloomFilter, BloomKind, StoredBloom
from skep_format.instant_time import InstantTime
from skep_table.metadata_table.keys import file_key, path_key
from skep_table.metadata_table.partitions import BLOOM_FILTERS
from skep_table.metadata_table.records.build import PartitionUpdate, type_of, update

File = tuple[str, str]  # partition path, file name


def bloom_filters_update(
    written: Mapping[File, BloomFilter | StoredBloom], deleted: Sequence[File], instant: InstantTime, release: str
) -> PartitionUpdate:
    """The filters of base files that were written, and marks for those that were deleted."""
    kind = type_of(BLOOM_FILTERS, release)
    filters = [(bloom.type_code or BloomKind.SIMPLE.value, bloom.to_base64()) for bloom in written.values()]
    records = [
        *({"type": code, "bloomFilter": text, "isDeleted": False} for code, text in filters),
        *({"type": "", "bloomFilter": b"", "isDeleted": True} for _ in deleted),
    ]
    keys = pa.array([path_key(path) + file_key(name) for path, name in (*written, *deleted)], pa.string())
    timed = pa.array([{**record, "timestamp": str(instant)} for record in records], kind)
    return update(BLOOM_FILTERS, keys, timed)
