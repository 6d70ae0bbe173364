"""BUCKET: the file group of a key is its hash modulo the number of buckets; nothing is read (format guide 11.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.basefile import BaseFileFooter, read_footer
from skep_format.bucket_rules import FOLDER, BucketRules, instant_of, rules_path
from skep_format.errors import AlreadyExistsError, CorruptFileError, TableMismatchError
from skep_format.hashing_metadata import INDEX_FOLDER
from skep_format.options import Option, Options
from skep_format.table_config import TableConfig
from skep_table.commit.options import Concurrency
from skep_table.keys.buckets import (
    BUCKET_FIELDS,
    BUCKET_NAMES,
    BUCKETS,
    BUCKETS_BY_PARTITION,
    FIXED_BUCKET_NAMES,
    RULE_TYPE,
    GroupNames,
    bucket_numbers,
    hash_fields,
    hash_fields_of_key,
)
from skep_table.table import HudiTable
from skep_table.write.indexes.contract import Index, KeyLookUp, LookedUp, by_partition
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles
from skep_table.write.planning.options import INDEX_TYPE, IndexType
from skep_table.write.tags import tag_of_new_group

_VERIFIED_FILES: Final = 8


@dataclass(frozen=True)
class BucketIndex(Index):
    """`hash_fields`: the record key fields whose values are hashed, into so many groups of a partition as `rules` have.

    Those that are stored with the table count, and have to be the ones that are given, if any are.

    With non-blocking concurrency control all rows go to logs (`finds_log_keys`), those of new groups too, and all
    writers name a new group alike.
    """

    rules: BucketRules
    hash_fields: tuple[str, ...]
    finds_log_keys: bool = False
    places_new_keys = True
    finds_keys = False
    opens_base_files = False

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> BucketIndex:
        """OptionError for hash fields that are not in the record key, and for what are no rules."""
        options.value(RULE_TYPE)
        rules = BucketRules.parse(options.value(BUCKETS), options.value(BUCKETS_BY_PARTITION))
        return cls(rules, hash_fields(config, options), Concurrency.of(options).is_non_blocking)

    @property
    def names(self) -> GroupNames:
        return FIXED_BUCKET_NAMES if self.finds_log_keys else BUCKET_NAMES

    @property
    def recorded(self) -> Mapping[str, str]:
        return {
            INDEX_TYPE.key: IndexType.BUCKET.value,
            BUCKETS.key: str(self.rules.default),
            BUCKET_FIELDS.key: ",".join(self.hash_fields),
        }

    def look_up(self, table: HudiTable, files: CandidateFiles) -> BucketLookUp:
        rules, fields = self._stored(table), hash_fields_of_key(table.config, table.options)
        for path, of_path in files.items():
            groups_by_number(path, of_path, rules.number(path))  # refuses foreign groups on the driver already
        if INDEX_TYPE.key not in table.config.raw:
            _refuse_table_of_another_index(table, rules, fields)
        return BucketLookUp(files, self._kept(table, rules), fields)

    def _stored(self, table: HudiTable) -> BucketRules:
        """The rules of the table, else those given. TableMismatchError where both are there and differ."""
        path = newest_rules(table)
        if path is None:
            if self.rules.expressions and INDEX_TYPE.key in table.config.raw:
                raise _other_rules(table, BUCKETS_BY_PARTITION, self.rules.expressions, "")
            return self.rules
        stored = BucketRules.decode(table.storage.read(path), path)
        if self.rules.expressions and self.rules.expressions != stored.expressions:
            raise _other_rules(table, BUCKETS_BY_PARTITION, self.rules.expressions, stored.expressions)
        rescaled = BUCKETS.key in table.config.raw and not table.options.is_set(BUCKETS)
        if self.rules.default != stored.default and not rescaled:
            raise _other_rules(table, BUCKETS, self.rules.default, stored.default)
        return stored

    def _kept(self, table: HudiTable, rules: BucketRules) -> BucketRules:
        """The same, stored from now on where the table has none: readers leave out files by the file of them."""
        if rules.expressions and newest_rules(table) is None:
            try:
                table.storage.create_exclusive(rules_path(), rules.encode())
            except AlreadyExistsError:  # another writer was first
                stored = BucketRules.decode(table.storage.read(rules_path()), rules_path())
                if stored.expressions != rules.expressions:
                    raise _other_rules(table, BUCKETS_BY_PARTITION, rules.expressions, stored.expressions) from None
                if stored.default != rules.default:
                    raise _other_rules(table, BUCKETS, rules.default, stored.default) from None
        return rules


def newest_rules(table: HudiTable) -> str | None:
    """The path of the file of rules that counts. CorruptFileError where a table with rules has none of a commit."""
    if not table.may_have_folder(INDEX_FOLDER):
        return None
    found = [time for file in table.storage.list_prefix(FOLDER) if (time := instant_of(file.name)) is not None]
    pending = table.timeline.pending()
    committed = [time for time in found if not pending.contains(time)]
    if found and not committed:
        raise CorruptFileError.of_file(FOLDER, "none of its files is of a completed commit", found=max(found))
    return rules_path(max(committed)) if committed else None


def _refuse_table_of_another_index(table: HudiTable, rules: BucketRules, fields: Sequence[str]) -> None:
    """TableMismatchError where the last write made groups without bucket numbers, in whatever partitions, or put keys
    into others than those of their hashes.

    Nothing in a table of Hudi's writers records the index. This write would, and so make partitions unwritable that it
    does not touch.
    """
    for instant in reversed(table.timeline.data().completed().instants):
        for stat in table.commit_metadata(instant).stats:
            path = stat.partition_path
            _number(path, stat.file_id, rules.number(path))
            bases = [(each.file_id, each.base_file.path) for each in table.view().slices(path) if each.base_file]
            for file_id, base in bases[:_VERIFIED_FILES]:
                _check_keys(path, read_footer(table.storage, base), file_id, rules.number(path), fields)
            return


def _check_keys(path: str, footer: BaseFileFooter, file_id: str, buckets: int, fields: Sequence[str]) -> None:
    """TableMismatchError where the lowest or highest key of a base file is not in the group of its hash."""
    keys = [key for key in (footer.min_key, footer.max_key) if key is not None]
    for key, number in zip(keys, bucket_numbers(pa.array(keys, pa.string()), fields, buckets), strict=True):
        if number != _number(path, file_id, buckets):
            raise TableMismatchError(
                f"partition {path or 'of the table'}: group {file_id} holds key {key}, which the hash of"
                f" {', '.join(fields)} puts into number {number} of {buckets} buckets",
                hint=f"give {BUCKETS.key} and {BUCKET_FIELDS.key} as the table's other writers do",
                path=path,
                option=BUCKETS.key,
                found=file_id,
                expected=buckets,
            )


def _other_rules(table: HudiTable, known: Option[Any], given: object, stored: object) -> TableMismatchError:
    return TableMismatchError(
        f"table {table.config.name} is written with {known.key}={stored}, not {given}",
        option=known.key,
        table=table.config.name,
        found=stored,
        expected=given,
    )


@dataclass(frozen=True)
class BucketLookUp(KeyLookUp):
    """Hashes keys; a group that the partition does not have yet gets the tag of its bucket's number."""

    files: CandidateFiles
    rules: BucketRules
    hash_fields: tuple[str, ...]

    def candidates(self, keyed: pa.Table) -> LookedUp:
        return by_partition(keyed, self._of_partition)

    def _of_partition(self, path: str, keys: pa.Array, _rows: npt.NDArray[np.int64]) -> LookedUp:
        buckets = self.rules.number(path)
        number_of = tag_of_new_group(np.arange(buckets))
        groups = groups_by_number(path, self.files.get(path, ()), buckets)
        number_of[list(groups)] = self.files.first_number(path) + np.array(list(groups.values()), np.int64)
        return LookedUp(number_of[bucket_numbers(keys, self.hash_fields, buckets)])


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
