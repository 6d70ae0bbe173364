"""RECORD_INDEX and its later names: where each key is, by the record index in the table's metadata table.

The file groups of the index are its shards: a key is in one of them, by its hash, and of a shard only the blocks are
read that may have one of the keys. So the cost grows with the keys of a write, not with the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import OptionError
from skep_format.names import FileGroupId
from skep_format.options import Options
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_format.table_config import TableConfig
from skep_table.commit.parts.metadata_table import keeps_metadata_table
from skep_table.keys.text import single
from skep_table.metadata_table import MetadataTable, group_numbers
from skep_table.metadata_table.records.record_index import RecordIndexGroup
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.write.indexes.bloom_lookup import BloomLookUp, MetadataIndexWarning
from skep_table.write.indexes.contract import (
    NO_CANDIDATES,
    Candidates,
    FileNumbers,
    Index,
    KeyLookUp,
    LookedUp,
    by_partition,
    numbers_of,
)
from skep_table.write.output.held import uses_positions
from skep_table.write.planning.candidates import CandidateFiles, candidate_files
from skep_table.write.planning.options import INDEX_TYPE, RECORD_INDEX_MOVES, IndexType
from skep_table.write.tags import NEW_KEY, Positions

_STALE: Final = NEW_KEY - 1
_FEW_KEYS: Final = 10_000
"""So many are looked up in all shards at once, as one: that takes less than a look-up in each."""
_BETWEEN: Final = "\0"  # neither partition paths nor file ids have it


@dataclass(frozen=True)
class RecordIndex(Index):
    """Looks keys up in the record index; without one, in the base files.

    New keys go to base files, since an index of keys in logs is more than Hudi's writers expect. What is new in the
    index comes with the commit: nothing is stored here.
    """

    opens_base_files = False

    is_global: bool
    moves: bool

    @classmethod
    def of(cls, kind: IndexType, config: TableConfig, options: Options) -> RecordIndex:
        """OptionError where the write would drop the metadata table, and the index in it."""
        if not keeps_metadata_table(options):
            raise OptionError.of_table(
                config.name,
                f"{INDEX_TYPE.key}={kind.value} finds keys by the metadata table, which writes with"
                f" {METADATA_ENABLE.key}=false drop",
                hint=f"leave {METADATA_ENABLE.key} out, or set it to true, for all writers of the table",
                option=METADATA_ENABLE.key,
                found="false",
                expected="true",
            )
        return cls(kind is not IndexType.RECORD_LEVEL_INDEX, options.value(RECORD_INDEX_MOVES))

    def candidate_files(
        self, table: HudiTable, partitions: Collection[str], keys: Callable[[int], pa.Array | None]
    ) -> CandidateFiles:
        """Of few keys the files of the partitions that the index names, so that no others are listed.

        Those of all partitions where one of its entries is outdated.
        """
        few = keys(_FEW_KEYS) if self.is_global else None
        index, groups = (None, ()) if few is None else _opened(table)
        found = index.record_index(few) if index is not None and groups and groups[0].partition is None else None
        if found is not None:
            held = list(zip(*(found.column(name).to_pylist() for name in ("partition_path", "file_id")), strict=True))
            files = candidate_files(table, {*partitions, *(path for path, _ in held)})
            if files.numbers().keys() >= set(map(FileGroupId._make, held)):
                return files
        return super().candidate_files(table, partitions, keys)

    def look_up(self, table: HudiTable, files: CandidateFiles) -> KeyLookUp:
        by_files = BloomLookUp(table, files, self.is_global, positions=uses_positions(table))
        if not any(files.values()):
            return by_files  # there is no key to be found
        index, groups = _opened(table)
        if index is None or not groups:
            self._warn(table, "has no record index that lists all commits")
        elif self.is_global is not (groups[0].partition is None):
            self._warn(table, f"has a record index {'for each partition' if self.is_global else 'of the whole table'}")
        else:
            return RecordIndexLookUp(index, groups, files, by_files, by_files.positions)
        return by_files.with_log_keys()

    def _warn(self, table: HudiTable, what: str) -> None:
        scope = "the whole table" if self.is_global else "their partitions"
        warnings.warn(
            f"table {table.config.name} {what}: keys are looked up in the base files of {scope}",
            MetadataIndexWarning,
            stacklevel=2,
        )


def _opened(table: HudiTable) -> tuple[MetadataTable | None, tuple[RecordIndexGroup, ...]]:
    """The metadata table, and the file groups of the record index in it."""
    index = table.metadata_table()
    return index, () if index is None else index.record_index_groups()


@dataclass(frozen=True)
class RecordIndexLookUp(KeyLookUp):
    """Takes the file groups that the index names. `groups` are its own, whose numbers are those of the shards.

    An entry whose file group is not among the candidate files is outdated: writers of Hudi leave such ones behind when
    they replace file groups with keys in logs, and another commit may have moved the key. `by_files` looks these keys
    up, so that none is taken for a new one wrongly. It also looks up the keys of a data partition without groups, in an
    index that has groups for each.
    """

    confirms: ClassVar[bool] = True

    index: MetadataTable
    groups: tuple[RecordIndexGroup, ...]
    files: CandidateFiles
    by_files: BloomLookUp
    positions: bool = False

    @property
    def among_several(self) -> KeyLookUp | None:
        return self.by_files.among_several

    @property
    def shard_bytes(self) -> Sequence[int]:
        return [*(group.size_bytes for group in self.groups), *(0 for _ in self._without_groups)]

    def candidates(self, keyed: pa.Table) -> LookedUp:
        if not self.by_files.is_global:
            return by_partition(keyed, self._among)
        keys = single(keyed.column(RECORD_KEY))
        return self._among(None, keys, np.arange(len(keys)))

    def _among(self, partition: str | None, keys: pa.Array, rows: npt.NDArray[np.int64]) -> LookedUp:
        numbers = np.full(len(keys), NEW_KEY, np.int64)
        shards = self._shards.get(partition, [])
        if not shards:
            return LookedUp(numbers)
        if len(keys) <= _FEW_KEYS:
            return LookedUp(numbers, Candidates(keys, rows, ((shards[0], 0, len(keys)),)))
        shard = group_numbers(keys, len(shards))
        order = np.argsort(shard, kind="stable")
        ends = np.searchsorted(shard[order], np.arange(len(shards)), side="right").tolist()
        spans = zip(shards, [0, *ends[:-1]], ends, strict=True)
        found = tuple(span for span in spans if span[2] > span[1])
        return LookedUp(numbers, Candidates(keys.take(pa.array(order)), rows[order], found))

    def in_shard(self, number: int, keys: pa.Array) -> LookedUp:
        if number >= len(self.groups):
            path = self._without_groups[number - len(self.groups)]
            return LookedUp(np.full(len(keys), NEW_KEY, np.int64), self._in_files(path, keys))
        partition = self.groups[number].partition
        found = self.index.record_index(keys, None if partition is None else [partition])
        assert found is not None, partition  # it has groups
        entries = found.combine_chunks()
        files = self._files_of(entries, partition)
        entry = numbers_of(keys, single(entries.column("record_key")), len(files))
        numbers = np.append(files, NEW_KEY)[entry]
        outdated = np.flatnonzero(numbers == _STALE)
        if not len(outdated):
            return LookedUp(numbers)
        numbers[outdated] = NEW_KEY
        unsure = self._in_files(partition, keys.take(pa.array(outdated)))
        return LookedUp(numbers, Candidates(unsure.keys, outdated[unsure.rows], unsure.spans))

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        return self.by_files.confirm(number, keys)

    def _files_of(self, entries: pa.Table, partition: str | None) -> FileNumbers:
        """By entry the number of its file, _STALE where the write has no such candidate file."""
        paths = single(entries.column("partition_path"))
        names = pc.binary_join_element_wise(paths, single(entries.column("file_id")), _BETWEEN)
        numbers = numbers_of(names, self._names, _STALE)
        if partition is None:
            return numbers
        return np.where(pc.equal(paths, partition).to_numpy(zero_copy_only=False), numbers, _STALE)

    def _in_files(self, partition: str | None, keys: pa.Array) -> Candidates:
        if not len(keys):
            return NO_CANDIDATES
        paths = pa.array([partition or ""], pa.string()).take(pa.array(np.zeros(len(keys), np.int64)))
        return self.by_files.candidates(pa.table({RECORD_KEY: keys, PARTITION_PATH: paths})).candidates

    @cached_property
    def _names(self) -> pa.Array:
        """The file groups of the candidate files, by their numbers."""
        return pa.array([_BETWEEN.join(group) for group in self.files.numbers()], pa.string())

    @cached_property
    def _shards(self) -> dict[str | None, list[int]]:
        """Data partition → its shards; None for those of the whole table."""
        shards: dict[str | None, list[int]] = {}
        for number, group in enumerate(self.groups):
            shards.setdefault(group.partition, []).append(number)
        for number, partition in enumerate(self._without_groups, len(self.groups)):
            shards[partition] = [number]
        return shards

    @cached_property
    def _without_groups(self) -> list[str]:
        """Data partitions with candidate files, and without groups of an index that has groups for each."""
        if self.by_files.is_global:
            return []
        indexed = {group.partition for group in self.groups}
        return [path for path, files in self.files.items() if files and path not in indexed]
