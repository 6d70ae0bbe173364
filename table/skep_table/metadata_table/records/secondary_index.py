"""Records of a secondary index: the record keys that a value has (format guide 16.8). All of it is in the key."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.records.build import type_of, update
from skep_table.metadata_table.records.update import PartitionUpdate

_SEPARATOR: Final = "$"
_NULL: Final = "\0"
_SPECIAL: Final = r"([\\$\x00])"


def secondary_index_update(
    partition: str, added: pa.Array, removed: pa.Array, release: str, *, by_value: bool
) -> PartitionUpdate:
    """`added` and `removed`: keys of the index (`secondary_keys`). `by_value`: all keys of a value are in one group."""
    kind = type_of(partition, release)
    records = pa.StructArray.from_arrays([pa.array(np.zeros(len(added), np.bool_))], fields=list(kind))
    changes = update(partition, added, records, removed)
    return replace(changes, sharded_by=sharded_parts if by_value else None)


def secondary_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    """A key for each value and record key, as Hudi 1.1 has them: 1.0 has no form for null."""
    escaped = (pc.replace_substring_regex(texts, _SPECIAL, r"\\\1") for texts in (values, record_keys))
    value, key = escaped
    return pc.binary_join_element_wise(value.fill_null(_NULL), key, _SEPARATOR)


def secondary_prefixes(values: pa.Array) -> pa.Array:
    """How all keys of a value begin: with the value and the separator, which no value has in it unescaped."""
    return secondary_keys(values, pa.array([""] * len(values), pa.string()))


def record_keys_behind(prefix: str, keys: pa.Array) -> pa.Array:
    """The record keys in those keys that begin with a value's prefix."""
    behind = pc.utf8_slice_codeunits(keys.filter(pc.starts_with(keys, prefix)), len(prefix))
    return pc.replace_substring_regex(behind, r"(?s)\\(.)", r"\1")


def sharded_parts(keys: pa.Array) -> pa.Array:
    """What the file group of a key is chosen by, from Hudi 1.1 on: the value with the separator behind it."""
    return pc.replace_substring_regex(keys, r"(?s)^((?:[^\\$]|\\.)*\$).*$", r"\1")
