"""What all modules of this package share: updates with ascending keys, records in the types of one Hudi release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.avro import parse_record
from skep_format.avro.types import arrow_of
from skep_format.avro_schemas import schema_of
from skep_table.metadata_table.keys import group_numbers
from skep_table.metadata_table.partitions import PartitionKind, record_kind


@dataclass(frozen=True)
class PartitionUpdate:
    """Changes of the metadata partition `partition`. A key is in `puts` or in `deletes`, once.

    `puts` has the columns `key` (text) and `record`, a struct of those members of HoodieMetadataRecord that are set.
    `group_set`: the name before number and suffix of the file groups that the keys are spread over, where the
    partition has several sets of them (`keys.group_set`). `sharded_by` returns what the file group of each key is
    chosen by; without it that is the key.
    """

    partition: str
    puts: pa.Table
    deletes: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    group_set: str | None = None
    sharded_by: Callable[[pa.Array], pa.Array] | None = None

    def groups_of(self, keys: pa.Array, groups: int) -> npt.NDArray[np.int64]:
        """The number of the file group of each key, of so many."""
        return group_numbers(keys if self.sharded_by is None else self.sharded_by(keys), groups)

    def in_groups(self, group_set: str | None) -> PartitionUpdate:
        """The same changes, in one set of file groups."""
        return replace(self, group_set=group_set)


@lru_cache(maxsize=16)
def record_type(name: str, release: str) -> pa.StructType:
    """The Arrow type of one of Hudi's records as a release has it."""
    return arrow_of(parse_record(schema_of(name, release)))


def type_of(partition: str, release: str) -> pa.StructType:
    """The Arrow type of the records of an index as a release has them."""
    return record_type(_kind(partition).record, release)


def update(partition: str, keys: pa.Array, records: pa.Array, deletes: pa.Array | None = None) -> PartitionUpdate:
    """Puts of `records` of an index. Of a key that is put and deleted only the put remains. ValueError for two puts of
    one key.
    """
    kind = _kind(partition)
    if not pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py():  # by their bytes, as in an HFile
        order = pc.sort_indices(keys)
        keys, records = keys.take(order), records.take(order)
    twice = pc.equal(keys[1:], keys[:-1])
    if pc.any(twice).as_py():
        raise ValueError(f"two records of key {keys[twice.index(True).as_py()].as_py()!r} in {partition}")
    record = wrapped(kind, records)
    removed = pa.array([], pa.string()) if deletes is None else pc.unique(deletes)
    removed = removed.filter(pc.invert(pc.is_in(removed, value_set=keys)))
    return PartitionUpdate(partition, pa.table({"key": keys, "record": record}), removed.take(pc.sort_indices(removed)))


def wrapped(kind: PartitionKind, records: pa.Array, numbers: pa.Array | None = None) -> pa.StructArray:
    """Records of an index as those members of HoodieMetadataRecord that are set. `numbers` are their types, where they
    differ."""
    kinds = pa.array(np.full(len(records), kind.number, np.int32)) if numbers is None else numbers
    return pa.StructArray.from_arrays([kinds, records], ["type", kind.member])


def _kind(partition: str) -> PartitionKind:
    kind = record_kind(partition)
    assert kind is not None, partition
    return kind
