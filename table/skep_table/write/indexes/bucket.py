"""BUCKET: the file group of a key is its hash modulo the number of buckets; nothing is read (format guide 11.1)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_table.errors import TableMismatchError
from skep_table.keys.buckets import DIGITS, bucket_numbers
from skep_table.schema.types import RECORD_KEY
from skep_table.write.index import IndexFile
from skep_table.write.indexes.base import Files, Index, Tags, by_partition, new_group, single


@dataclass(frozen=True)
class BucketIndex(Index):
    """`hash_fields`: the record key fields whose values are hashed."""

    files: Files
    buckets: int
    hash_fields: tuple[str, ...]

    def __post_init__(self) -> None:
        for path, files in self.files.items():
            groups_by_number(path, files, self.buckets)  # refuses foreign groups on the driver already

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        tag_of = new_group(np.arange(self.buckets))
        groups = groups_by_number(path, self.files.get(path, ()), self.buckets)
        tag_of[list(groups)] = list(groups.values())
        return tag_of[bucket_numbers(single(rows.column(RECORD_KEY)), self.hash_fields, self.buckets)]


def groups_by_number(path: str, files: Sequence[IndexFile], buckets: int) -> dict[int, int]:
    """Bucket number → position of its file. TableMismatchError where a group has none, or two have one."""
    found: dict[int, int] = {}
    for position, file in enumerate(files):
        prefix = file.file_id[:DIGITS]
        number = int(prefix) if prefix.isdecimal() else buckets
        if number >= buckets or found.setdefault(number, position) != position:
            raise TableMismatchError(
                f"partition {path or 'of the table'}: group {file.file_id} is not that of one of {buckets} buckets",
                hint="all writers of a table have to use one index, with one number of buckets",
                path=path,
                found=file.file_id,
                expected=buckets,
            )
    return found


def bucket_file_id(number: int) -> str:
    """A new file group for a bucket."""
    return f"{number:0{DIGITS}d}{str(uuid.uuid4())[DIGITS:]}-0"
