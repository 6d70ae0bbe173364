"""The file groups of one partition of a metadata table, and how many records each holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import GroupReader, latest
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    BLOOM_MEMBER,
    FILES,
    FILES_MEMBER,
    RECORD_INDEX,
    RECORD_INDEX_MEMBER,
    SECONDARY_INDEX_MEMBER,
    SECONDARY_INDEX_PREFIX,
    STATS_MEMBER,
)

_MEMBERS: Final = {FILES: FILES_MEMBER, BLOOM_FILTERS: BLOOM_MEMBER, RECORD_INDEX: RECORD_INDEX_MEMBER}
_DELETED: Final = "isDeleted"


def groups_of(metadata: MetadataTable, partition: str) -> Sequence[GroupReader]:
    """By file id, as keys are spread over them. FormatError where there are none."""
    return metadata._group_readers(partition)


def member_of(partition: str) -> str:
    """The member of the records that a partition uses; of expression indexes that of statistics."""
    if partition.startswith(SECONDARY_INDEX_PREFIX):
        return SECONDARY_INDEX_MEMBER
    return _MEMBERS.get(partition, STATS_MEMBER)


def count_records(group: GroupReader, partition: str) -> int:
    """The records of a file group that are not deleted."""
    member = member_of(partition)
    _, records = latest(group.entries(column=member), member)
    if pa.types.is_struct(records.type) and records.type.get_field_index(_DELETED) >= 0:
        return int(pc.sum(pc.invert(pc.struct_field(records, _DELETED).fill_null(False))).as_py() or 0)
    return len(records)
