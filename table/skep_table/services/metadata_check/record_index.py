"""The record index against the keys of the merged slices: missing, stale and moved keys, keys in several places.

The table's keys go to a temporary file, in parts as the index spreads them over its file groups. Each part is then
compared with its file group, so that no more than one of them is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table import MetadataTable, group_numbers
from skep_table.metadata_table.entries import GroupReader, latest
from skep_table.metadata_table.partitions import RECORD_INDEX, RECORD_INDEX_MEMBER
from skep_table.metadata_table.records.record_index import file_ids
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.key_spool import KeySpool
from skep_table.services.metadata_check.slices import keyed_slices
from skep_table.slices.options import SPILL_FOLDER
from skep_table.slices.spill import SpillFile
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_NO_SLICE: Final = -1


def check_record_index(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares all file groups of the index, one after the other."""
    sets = _sets(metadata)
    with closing(SpillFile(table.options.value(SPILL_FOLDER))) as file:
        spool = KeySpool(file)
        slices: list[FileSlice] = []
        for each in keyed_slices(table):
            path, keys = each.slice.partition_path, each.keys
            findings.checked += len(keys)
            partition = None if None in sets else path
            if partition in sets:
                spool.add(partition, group_numbers(keys, len(sets[partition])), keys, len(slices))
            elif len(keys):
                detail = "the index has no file groups of the partition"
                findings.add(MetadataProblem.MISSING, path, each.slice.file_id, detail, expected=f"{len(keys)} keys")
            slices.append(each.slice)
        places = _Places.of(slices)
        for partition, groups in sets.items():
            for number, group in enumerate(groups):
                held = spool.part(partition, number)
                _check_group(held, _Group(group, number, len(groups), partition), places, findings)


def _sets(metadata: MetadataTable) -> dict[str | None, list[GroupReader]]:
    """The file groups over which keys are spread: of the whole table as None, else by partition path."""
    sets: dict[str | None, list[GroupReader]] = {}
    for group, shown in zip(metadata.group_readers(RECORD_INDEX), metadata.record_index_groups(), strict=True):
        sets.setdefault(shown.partition, []).append(group)
    return sets


@dataclass(frozen=True)
class _Group:
    reader: GroupReader
    number: int
    of: int
    partition: str | None


@dataclass(frozen=True)
class _Places:
    """The table's slices by their numbers, and their partition paths and file ids as texts to be looked up."""

    slices: Sequence[FileSlice]
    texts: pa.Array

    @classmethod
    def of(cls, slices: Sequence[FileSlice]) -> _Places:
        texts = [_place(slice_.partition_path, slice_.file_id) for slice_ in slices]
        return cls(slices, pa.array(texts, pa.string()))

    def numbers(self, partitions: pa.Array, ids: pa.Array) -> npt.NDArray[np.int64]:
        """The number of the slice that each entry names; `_NO_SLICE` where the table has no such file group."""
        named = pc.binary_join_element_wise(partitions, ids, "\0")
        return pc.index_in(named, value_set=self.texts).fill_null(_NO_SLICE).cast(pa.int64()).to_numpy()


def _place(partition_path: str, file_id: str) -> str:
    return f"{partition_path}\0{file_id}"


def _check_group(held: pa.Table, group: _Group, places: _Places, findings: Findings) -> None:
    entries = file_ids(*latest(group.reader.entries(column=RECORD_INDEX_MEMBER), RECORD_INDEX_MEMBER)).combine_chunks()
    entries = _without_strays(entries, group, findings)
    known = entries["record_key"].combine_chunks()
    paths, ids = entries["partition_path"].combine_chunks(), entries["file_id"].combine_chunks()
    keys, slices = held["key"].combine_chunks(), held["slice"].to_numpy()
    at = pc.index_in(keys, value_set=known)
    missing = pc.is_null(at).to_numpy(zero_copy_only=False)
    for key, number in findings.some(keys, slices, missing):
        slice_ = places.slices[number]
        detail = "a key of the table that the index lacks"
        findings.add(MetadataProblem.MISSING, slice_.partition_path, key, detail, expected=slice_.file_id)
    twice = _twice(keys)
    stated = places.numbers(paths, ids)
    named = np.full(len(keys), _NO_SLICE)
    named[~missing] = stated[at.drop_null().to_numpy()]
    moved = ~missing & (named != slices)
    for key, number in findings.some(keys, slices, moved & ~twice):
        slice_, entry = places.slices[number], pc.index(known, key).as_py()
        found = f"{paths[entry].as_py()} {ids[entry].as_py()}"
        detail = "the key is in another file group"
        expected = f"{slice_.partition_path} {slice_.file_id}"
        findings.add(MetadataProblem.DIFFERS, slice_.partition_path, key, detail, found=found, expected=expected)
    for key, number in findings.some(keys, slices, moved & twice):
        slice_ = places.slices[number]
        detail = "the table has the key in several file groups, of which the index can name one"
        findings.add(MetadataProblem.DOUBLE, slice_.partition_path, key, detail, expected=slice_.file_id)
    surplus = pc.invert(pc.is_in(known, value_set=keys)).to_numpy(zero_copy_only=False)
    for key, entry in findings.some(known, np.arange(len(known)), surplus):
        detail = "the table has no such key" if stated[entry] != _NO_SLICE else "of a file group that is no longer read"
        findings.add(MetadataProblem.SURPLUS, paths[entry].as_py() or "", key, detail, found=ids[entry].as_py())


def _without_strays(entries: pa.Table, group: _Group, findings: Findings) -> pa.Table:
    """Entries in a file group in which nobody looks for their key are named and left out."""
    keys = entries["record_key"].combine_chunks()
    numbers = group_numbers(keys, group.of)
    strays = numbers != group.number
    for key, number in findings.some(keys, numbers, strays):
        detail = "the entry is in a file group of the index where no look-up finds it"
        expected = f"file group {number} of {group.of}"
        findings.add(
            MetadataProblem.DIFFERS, group.partition or "", key, detail, found=group.reader.file_id, expected=expected
        )
    return entries.filter(pa.array(~strays)).combine_chunks()


def _twice(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Which keys occur more than once."""
    codes = keys.dictionary_encode().indices.to_numpy()
    counts = np.bincount(codes, minlength=1)
    return np.asarray(counts[codes] > 1)
