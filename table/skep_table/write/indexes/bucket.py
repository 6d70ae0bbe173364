"""BUCKET: the file group of a key is its hash modulo the number of buckets; nothing is read (format guide 11.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import TableMismatchError, UnsupportedError
from skep_format.options import Options
from skep_format.table_config import TableConfig
from skep_table.commit.options import Concurrency
from skep_table.keys.buckets import (
    BUCKET_FIELDS,
    BUCKET_NAMES,
    BUCKETS,
    BUCKETS_BY_PARTITION,
    FIXED_BUCKET_NAMES,
    GroupNames,
    bucket_numbers,
    counts_by_partition,
    hash_fields,
)
from skep_table.table import HudiTable
from skep_table.write.indexes.contract import Index, KeyLookUp, LookedUp, by_partition
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles
from skep_table.write.planning.options import INDEX_TYPE, IndexType
from skep_table.write.tags import tag_of_new_group


@dataclass(frozen=True)
class BucketIndex(Index):
    """`hash_fields`: the record key fields whose values are hashed, into one of `buckets` groups of a partition.

    With non-blocking concurrency control all rows go to logs (`finds_log_keys`), those of new groups too, and all
    writers name a new group alike.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    finds_log_keys: bool = False
    places_new_keys = True
    finds_keys = False
    opens_base_files = False

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> BucketIndex:
        """OptionError for hash fields that are not in the record key; UnsupportedError for buckets by partition."""
        if counts_by_partition(config, options):
            raise UnsupportedError(
                f"table {config.name}: {BUCKETS_BY_PARTITION.key} gives each partition a number of buckets of its own,"
                " and such tables are not written yet",
                option=BUCKETS_BY_PARTITION.key,
                table=config.name,
            )
        fields = hash_fields(config, options)
        return cls(options.value(BUCKETS), fields, Concurrency.of(options).is_non_blocking)

    @property
    def names(self) -> GroupNames:
        return FIXED_BUCKET_NAMES if self.finds_log_keys else BUCKET_NAMES

    @property
    def recorded(self) -> Mapping[str, str]:
        return {
            INDEX_TYPE.key: IndexType.BUCKET.value,
            BUCKETS.key: str(self.buckets),
            BUCKET_FIELDS.key: ",".join(self.hash_fields),
        }

    def look_up(self, table: HudiTable, files: CandidateFiles) -> BucketLookUp:
        for path, of_path in files.items():
            groups_by_number(path, of_path, self.buckets)  # refuses foreign groups on the driver already
        if INDEX_TYPE.key not in table.config.raw:
            self._refuse_table_of_another_index(table)
        return BucketLookUp(files, self.buckets, self.hash_fields)

    def _refuse_table_of_another_index(self, table: HudiTable) -> None:
        """TableMismatchError where the last write made groups without bucket numbers, in whatever partitions.

        Nothing in a table of Hudi's writers records the index. This write would, and so make partitions unwritable
        that it does not touch.
        """
        for instant in reversed(table.timeline.data().completed().instants):
            for stat in table.commit_metadata(instant).stats:
                _number(stat.partition_path, stat.file_id, self.buckets)
                return


@dataclass(frozen=True)
class BucketLookUp(KeyLookUp):
    """Hashes keys; a group that the partition does not have yet gets the tag of its bucket's number."""

    files: CandidateFiles
    buckets: int
    hash_fields: tuple[str, ...]

    def candidates(self, keyed: pa.Table) -> LookedUp:
        return by_partition(keyed, self._of_partition)

    def _of_partition(self, path: str, keys: pa.Array, _rows: npt.NDArray[np.int64]) -> LookedUp:
        number_of = tag_of_new_group(np.arange(self.buckets))
        groups = groups_by_number(path, self.files.get(path, ()), self.buckets)
        number_of[list(groups)] = self.files.first_number(path) + np.array(list(groups.values()), np.int64)
        return LookedUp(number_of[bucket_numbers(keys, self.hash_fields, self.buckets)])


def groups_by_number(path: str, files: Sequence[CandidateFile], buckets: int) -> dict[int, int]:
    """Bucket number → position of its file. TableMismatchError where a group has none, or two have one."""
    found: dict[int, int] = {}
    for position, file in enumerate(files):
        if found.setdefault(_number(path, file.file_id, buckets), position) != position:
            raise _foreign(path, file.file_id, buckets)
    return found


def _number(path: str, file_id: str, buckets: int) -> int:
    number = BUCKET_NAMES.number_of(file_id)
    if number is None or number >= buckets:
        raise _foreign(path, file_id, buckets)
    return number


def _foreign(path: str, file_id: str, buckets: int) -> TableMismatchError:
    return TableMismatchError(
        f"partition {path or 'of the table'}: group {file_id} is not that of one of {buckets} buckets",
        hint="all writers of a table have to use one index, with one number of buckets",
        path=path,
        found=file_id,
        expected=buckets,
    )
