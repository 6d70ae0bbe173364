"""Names of file groups, and buckets: the hash of a key determines its file group in a partition (format guide 11.1)."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.bucket_rules import EXPRESSIONS, REGEX
from skep_format.errors import OptionError
from skep_format.hashing_metadata import GREATEST_HASH
from skep_format.names import FileGroupId
from skep_format.options import Options, Status, at_least, boolean, comma_list, option
from skep_format.table_config import TableConfig
from skep_table.keys.generator import EMPTY_TEXT, NULL_TEXT, KeyGeneratorType
from skep_table.keys.hashes import xxhash32
from skep_table.metadata_table.keys import java_hashes

INDEX: Final = "hoodie.index.type"
GLOBAL_INDEXES: Final = frozenset(
    ["GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "HBASE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"]
)
"""Those by which a key is unique in the whole table, not in its partition."""
_ENGINE: Final = "hoodie.index.bucket.engine"

_nothing: tuple[str, ...] = ()


def _regex(text: str) -> str:
    if text.strip().lower() != REGEX:
        raise ValueError(f"{REGEX}; Hudi has no other rules")
    return REGEX


BUCKETS = option("hoodie.bucket.index.num.buckets", at_least(1), 256, "BUCKET: file groups of a partition")
BUCKET_FIELDS = option(
    "hoodie.bucket.index.hash.field", comma_list, _nothing, "BUCKET: key columns that are hashed; all of the record key"
)
BUCKETS_BY_PARTITION = option(
    EXPRESSIONS,
    str,
    "",
    "BUCKET: numbers of buckets by partition, as `pattern,number;…`: the first pattern found in a path counts",
)
BUCKET_PRUNING = option(
    "hoodie.bucket.index.query.pruning", boolean, True, "BUCKET: filters leave out files by the buckets of their keys"
)
RULE_TYPE = option(
    "hoodie.bucket.index.partition.rule.type", _regex, REGEX, f"How {BUCKETS_BY_PARTITION.key} are read: regex"
)
MIN_BUCKETS = option(
    "hoodie.bucket.index.min.num.buckets",
    at_least(1),
    None,
    "CONSISTENT_HASHING: buckets of a partition are merged down to so many; by default to those that it began with",
)
MAX_BUCKETS = option(
    "hoodie.bucket.index.max.num.buckets",
    at_least(1),
    None,
    "CONSISTENT_HASHING: buckets of a partition are split up to so many; by default to those that it began with",
)
MERGE_THRESHOLD = option(
    "hoodie.bucket.index.merge.threshold",
    float,
    0.2,
    "CONSISTENT_HASHING: a clustering merges neighbours below this share of hoodie.parquet.max.file.size",
)
SPLIT_THRESHOLD = option(
    "hoodie.bucket.index.split.threshold",
    float,
    2.0,
    "CONSISTENT_HASHING: a clustering splits buckets above this multiple of hoodie.parquet.max.file.size",
)
option(
    "hoodie.bucket.index.remote.partitioner.enable",
    str,
    "",
    "tasks are balanced by bytes",
    status=Status.NO_EFFECT,
)


def hash_fields(config: TableConfig, options: Options) -> tuple[str, ...]:
    """The record key fields whose values are hashed, as they are given. OptionError for others."""
    keys = config.record_key_fields
    recorded = config.raw.get(BUCKET_FIELDS.key)
    fields = Options({BUCKET_FIELDS.key: recorded} if recorded else options).value(BUCKET_FIELDS) or keys
    if not keys or not set(fields) <= set(keys):
        raise OptionError.of_table(
            config.name,
            f"{BUCKET_FIELDS.key} names {', '.join(fields) or 'nothing'}, the record key is"
            f" {', '.join(keys) or 'made by the writer'}",
            option=BUCKET_FIELDS.key,
            found=fields,
            expected=keys,
        )
    return fields


def hash_fields_of_key(config: TableConfig, options: Options) -> tuple[str, ...]:
    """The same in the order of the record key, in which their values are hashed."""
    fields = hash_fields(config, options)
    return tuple(name for name in config.record_key_fields if name in fields)


def counts_by_partition(config: TableConfig, options: Options) -> bool:
    """Whether the partitions of a table have numbers of buckets of their own, by its settings or the options."""
    return bool(config.raw.get(BUCKETS_BY_PARTITION.key) or options.value(BUCKETS_BY_PARTITION))


def index_named(config: TableConfig, options: Mapping[str, str]) -> str:
    """The index that the table has recorded, else the one that the options name; empty where neither does."""
    return (config.raw.get(INDEX) or options.get(INDEX, "")).upper()


@dataclass(frozen=True, slots=True)
class GroupNames:
    """How the file groups of a table are named. `digits`: so many at the beginning of a file id are a number that the
    index computes from the keys; 0 where any group may hold any key. `fixed`: the rest of it is zeros, so that writers
    who do not wait for each other choose one name (non-blocking concurrency control, format guide 14.9).
    """

    digits: int = 0
    fixed: bool = False

    @classmethod
    def of(cls, config: TableConfig, options: Mapping[str, str] | None = None) -> GroupNames:
        """By the index of the table."""
        return BUCKET_NAMES if index_named(config, options or {}) == "BUCKET" else UUID_NAMES

    @property
    def by_key(self) -> bool:
        """Whether the keys decide which group is theirs: groups can't be merged or split by size then."""
        return self.digits > 0

    def new_file_id(self, number: int | None = None) -> str:
        """A new file group, of a number where the keys decide."""
        text = str(uuid.UUID(int=0) if self.fixed else uuid.uuid4())
        return f"{text if number is None else f'{number:0{self.digits}d}{text[self.digits :]}'}-0"

    def number_of(self, file_id: str) -> int | None:
        """The number in a file id; None for one of another index."""
        prefix = file_id[: self.digits]
        return int(prefix) if prefix.isdecimal() else None

    def conflict_key(self, group: FileGroupId) -> FileGroupId:
        """What two file groups share when writes to both collide: all of it, or partition and number.

        A second group of one number would make the table unwritable, whatever the strategy and the writer's options.
        """
        return FileGroupId(group.partition_path, group.file_id[: self.digits]) if self.by_key else group


UUID_NAMES: Final = GroupNames()
BUCKET_NAMES: Final = GroupNames(8)
FIXED_BUCKET_NAMES: Final = GroupNames(8, fixed=True)


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the keys of a table are hashed. `keys` are the record key's fields, `fields` those that count."""

    count: int
    keys: tuple[str, ...]
    fields: tuple[str, ...]
    may_be_named: bool

    @classmethod
    def known(cls, config: TableConfig, options: Mapping[str, str]) -> Buckets | None:
        """As the table's settings or the reader's options define them; None when the table has no simple buckets."""
        of_reader = Options(options)
        given = {
            key: config.raw.get(key) or of_reader.get(key, "") for key in (_ENGINE, BUCKETS.key, BUCKET_FIELDS.key)
        }
        is_simple = index_named(config, of_reader) == "BUCKET" and given[_ENGINE].upper() in ("", "SIMPLE")
        # Hudi 1.1 can count buckets by partition, beside the table.
        is_simple &= not counts_by_partition(config, of_reader)
        if not is_simple or not given[BUCKETS.key] or not config.record_key_fields:
            return None
        stated = Options({key: text for key, text in given.items() if text})
        keys, given_fields = config.record_key_fields, stated.value(BUCKET_FIELDS)
        # hashed in the order of the key
        fields = tuple(sorted(given_fields, key=lambda name: keys.index(name) if name in keys else len(keys))) or keys
        named = config.key_generator == KeyGeneratorType.COMPLEX.value and len(config.record_key_fields) == 1
        return cls(stated.value(BUCKETS), config.record_key_fields, fields, named)

    def numbers(self, values: Sequence[pa.Array]) -> frozenset[int]:
        """The buckets of rows whose hash fields have such values: texts, one array a field."""
        if len(self.keys) == 1:
            (texts,) = values
            # Some releases write the complex key of a single field with the field's name.
            named = [f"{self.keys[0]}:{text}" for text in texts.to_pylist()] if self.may_be_named else []
            keys = [*texts.to_pylist(), *named]
        else:
            keys = [",".join(parts) for parts in itertools.product(*map(self._pairs(values).__getitem__, self.keys))]
        return frozenset(bucket_numbers(pa.array(keys, pa.string()), self.fields, self.count).tolist())

    def _pairs(self, values: Sequence[pa.Array]) -> dict[str, list[str]]:
        known = dict(zip(self.fields, values, strict=True))
        return {
            field: [f"{field}:{text or EMPTY_TEXT}" for text in (known[field].to_pylist() if field in known else [""])]
            for field in self.keys
        }


def bucket_numbers(keys: pa.Array, hash_fields: Iterable[str], buckets: int) -> npt.NDArray[np.int64]:
    """Java's `List.hashCode` of the values of the hash fields, without its sign, modulo the number of buckets."""
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    hashes = np.full(len(keys), 31, np.uint64) + java_hashes(keys)
    if pc.any(composite).as_py():
        listed, some = np.ones(len(keys), np.uint64), np.zeros(len(keys), np.bool_)
        for field in hash_fields:
            value, has = _value_in_key(keys, field)
            listed = np.where(has, listed * np.uint64(31) + value, listed)
            some |= has
        hashes = np.where(composite.to_numpy(zero_copy_only=False) & some, listed, hashes)
    numbers = (hashes & np.uint64(0x7FFFFFFF)).astype(np.int64) % buckets
    return np.asarray(numbers, np.int64)


def ring_hashes(keys: pa.Array, hash_fields: Iterable[str]) -> npt.NDArray[np.int64]:
    """The hashes by which consistent hashing places keys: of the values of the hash fields, one behind the other."""
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    texts = keys
    if pc.any(composite).as_py():
        values = [_text_in_key(keys, field) for field in hash_fields]
        joined = pc.binary_join_element_wise(*(pc.fill_null(value, "") for value in values), "")
        has = reduce(pc.or_, (value.is_valid() for value in values))
        texts = pc.if_else(pc.and_(composite, has), joined, keys)
    return (xxhash32(texts) & np.uint32(GREATEST_HASH)).astype(np.int64)


def _value_in_key(keys: pa.Array, field: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The hash of the field's value in composite keys, and which keys have the field."""
    found = _in_key(keys, field)
    has = found.is_valid().to_numpy(zero_copy_only=False)
    text = pc.if_else(pc.equal(found, EMPTY_TEXT), "", found)
    hashes = java_hashes(pc.fill_null(text, "")).astype(np.uint64)
    null = pc.fill_null(pc.equal(found, NULL_TEXT), False).to_numpy(zero_copy_only=False)
    return np.where(null, np.uint64(0), hashes), has


def _text_in_key(keys: pa.Array, field: str) -> pa.Array:
    """The field's value in composite keys as Java joins it, `null` for one that is null; null where keys lack it."""
    found = _in_key(keys, field)
    return pc.if_else(pc.equal(found, EMPTY_TEXT), "", pc.if_else(pc.equal(found, NULL_TEXT), "null", found))


def _in_key(keys: pa.Array, field: str) -> pa.Array:
    """The field's value as composite keys spell it.

    A value ends at the last comma before a colon that comes after a comma: `f1:10:30,a,f2:x` holds `10:30,a`.
    """
    value = r"[^,]*(?:,[^:]*)?"
    pattern = rf"^(?:[^:]*:{value},)*?{re.escape(field)}:(?P<value>{value})(?:,[^,:]*:.*)?$"
    return pc.struct_field(pc.extract_regex(keys, f"(?s){pattern}"), "value")
