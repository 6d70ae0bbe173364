"""The indexes of keys against the keys in files: Bloom filters, the record index and secondary ones.

The keys of merged slices go to a temporary file, in parts as the index spreads them over its file groups. Each part is
then compared with its file group, so that no more than one of them is in memory. A secondary index has an entry for
each row, of the value of its column and its record key; values are compared that all releases of Hudi write alike.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_base, read_footer
from skep_format.bloom import BloomFilter
from skep_format.names import BaseFileName
from skep_table.keys.stored import StoredKeys
from skep_table.metadata_table import MetadataTable, group_numbers
from skep_table.metadata_table.entries import GroupReader, alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS, NON_PARTITIONED, file_key, path_key
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    BLOOM_MEMBER,
    RECORD_INDEX,
    RECORD_INDEX_MEMBER,
    SECONDARY_INDEX_MEMBER,
)
from skep_table.metadata_table.records.record_index import file_ids
from skep_table.metadata_table.records.secondary_index import secondary_keys, sharded_parts
from skep_table.metadata_write.definitions import known_secondary
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.slices import KeySpool, keyed_slices, latest_slices
from skep_table.slices.options import SPILL_FOLDER
from skep_table.slices.spill import SpillFile
from skep_table.table import HudiTable
from skep_table.view import BaseFile, FileSlice

_NO_SLICE: Final = -1
_WITHOUT_VALUE: Final = "\0$"  # how entries of nulls begin: a NUL within a value is escaped
_FILES_AT_ONCE: Final = 256


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
        places = pa.array([f"{slice_.partition_path}\0{slice_.file_id}" for slice_ in slices], pa.string())
        for partition, groups in sets.items():
            for number, group in enumerate(groups):
                held = _Held.of(spool.part(partition, number), slices)
                _check_places(held, _Group(group, number, len(groups), partition), places, findings)


def _sets(metadata: MetadataTable) -> dict[str | None, list[GroupReader]]:
    """The file groups over which keys are spread: of the whole table as None, else by partition path."""
    sets: dict[str | None, list[GroupReader]] = {}
    for group, shown in zip(metadata.group_readers(RECORD_INDEX), metadata.record_index_groups(), strict=True):
        sets.setdefault(shown.partition, []).append(group)
    return sets


@dataclass(frozen=True)
class _Group:
    """A file group of an index, by its number among others, over which keys are spread."""

    reader: GroupReader
    number: int
    of: int
    partition: str | None = None

    def own(self, known: pa.Array, numbers: npt.NDArray[np.int64], findings: Findings) -> pa.Array:
        """Which entries are in the file group with the number, where look-ups find them. The others are named."""
        strays = numbers != self.number
        for key, number in findings.some(known, numbers, strays):
            detail = "the entry is in a file group of the index where no look-up finds it"
            expected, found = f"file group {number} of {self.of}", self.reader.file_id
            findings.add(MetadataProblem.DIFFERS, self.partition or "", key, detail, found=found, expected=expected)
        return pa.array(~strays)


@dataclass(frozen=True)
class _Held:
    """The keys of the table that belong to a file group of an index, each with the number of its slice."""

    keys: pa.Array
    numbers: npt.NDArray[np.int64]
    slices: Sequence[FileSlice]

    @classmethod
    def of(cls, held: pa.Table, slices: Sequence[FileSlice]) -> _Held:
        return cls(held["key"].combine_chunks(), held["slice"].to_numpy(), slices)

    def name(self, chosen: npt.NDArray[np.bool_], problem: MetadataProblem, detail: str, findings: Findings) -> None:
        """Names keys with the file groups that they are in."""
        for key, number in findings.some(self.keys, self.numbers, chosen):
            slice_ = self.slices[number]
            findings.add(problem, slice_.partition_path, key, detail, expected=slice_.file_id)

    def lacking(self, known: pa.Array, what: str, findings: Findings) -> npt.NDArray[np.bool_]:
        """Which keys are not among the entries of the index. They are named."""
        missing = _not_in(self.keys, known)
        self.name(missing, MetadataProblem.MISSING, f"a {what} of the table that the index lacks", findings)
        return missing


def _not_in(keys: pa.Array, others: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.invert(pc.is_in(keys, value_set=others)).to_numpy(zero_copy_only=False)
    return found


def _check_places(held: _Held, group: _Group, places: pa.Array, findings: Findings) -> None:
    """`places` are those of the table's slices, by their numbers."""
    entries = file_ids(*latest(group.reader.entries(column=RECORD_INDEX_MEMBER), RECORD_INDEX_MEMBER)).combine_chunks()
    every = entries["record_key"].combine_chunks()
    entries = entries.filter(group.own(every, group_numbers(every, group.of), findings)).combine_chunks()
    known, paths, ids = (entries[name].combine_chunks() for name in ("record_key", "partition_path", "file_id"))
    missing = held.lacking(known, "key", findings)
    codes = held.keys.dictionary_encode().indices.to_numpy()
    twice = np.bincount(codes, minlength=1)[codes] > 1
    named = pc.index_in(pc.binary_join_element_wise(paths, ids, "\0"), value_set=places)
    stated = named.fill_null(_NO_SLICE).cast(pa.int64()).to_numpy()
    numbers = np.full(len(held.keys), _NO_SLICE)
    numbers[~missing] = stated[pc.index_in(held.keys, value_set=known).drop_null().to_numpy()]
    moved = ~missing & (numbers != held.numbers)
    for key, number in findings.some(held.keys, held.numbers, moved & ~twice):
        slice_, entry = held.slices[number], pc.index(known, key).as_py()
        found, expected = f"{paths[entry].as_py()} {ids[entry].as_py()}", f"{slice_.partition_path} {slice_.file_id}"
        detail = "the key is in another file group"
        findings.add(MetadataProblem.DIFFERS, slice_.partition_path, key, detail, found=found, expected=expected)
    detail = "the table has the key in several file groups, of which the index can name one"
    held.name(moved & twice, MetadataProblem.DOUBLE, detail, findings)
    for key, entry in findings.some(known, np.arange(len(known)), _not_in(known, held.keys)):
        detail = "the table has no such key" if stated[entry] != _NO_SLICE else "of a file group that is no longer read"
        findings.add(MetadataProblem.SURPLUS, paths[entry].as_py() or "", key, detail, found=ids[entry].as_py())


def check_secondary_index(table: HudiTable, metadata: MetadataTable, findings: Findings) -> bool:
    """Compares all file groups of an index, one after the other. Whether its entries can be computed here."""
    definition = metadata.definitions.get(findings.partition)
    if definition is None or known_secondary(findings.partition, definition, table.stored_schema()) is None:
        return False
    groups = metadata.group_readers(findings.partition)

    def numbers(entries: pa.Array) -> npt.NDArray[np.int64]:
        """The file group of each entry."""
        return group_numbers(sharded_parts(entries) if definition.is_by_value else entries, len(groups))

    def looked_for(entries: pa.Array) -> pa.Array:
        """Hudi 1.0 leaves rows without a value out. No query looks for them by the index."""
        if definition.is_by_value:
            return pa.array(np.ones(len(entries), np.bool_))
        return pc.invert(pc.starts_with(entries, _WITHOUT_VALUE))

    with closing(SpillFile(table.options.value(SPILL_FOLDER))) as file:
        spool = KeySpool(file)
        slices: list[FileSlice] = []
        for each in keyed_slices(table, definition.source_fields[0]):
            entries = secondary_keys(each.texts, each.keys)
            findings.checked += len(entries)
            spool.add(None, numbers(entries), entries, len(slices))
            slices.append(each.slice)
        for number, group in enumerate(groups):
            known, _ = alive(*latest(group.entries(column=SECONDARY_INDEX_MEMBER), SECONDARY_INDEX_MEMBER))
            known = known.filter(_Group(group, number, len(groups)).own(known, numbers(known), findings))
            rows, known = spool.part(None, number), known.filter(looked_for(known))
            held = _Held.of(rows.filter(looked_for(rows["key"])), slices)
            held.lacking(known, "row", findings)
            for key, _ in findings.some(known, np.zeros(len(known), np.int64), _not_in(known, held.keys)):
                findings.add(MetadataProblem.SURPLUS, "", key, "the table has no such row")
    return True


def check_bloom_filters(table: HudiTable, metadata: MetadataTable, findings: Findings) -> None:
    """Compares the filters of the latest base files; those of files that are no longer listed are counted."""
    files = ((slice_.partition_path, slice_.base_file) for slice_ in latest_slices(table) if slice_.base_file)
    while portion := list(itertools.islice(files, _FILES_AT_ONCE)):
        filters = metadata.bloom([(path, str(base.name)) for path, base in portion]) or {}
        tasks = [(base, filters.get((path, str(base.name)))) for path, base in portion]
        problems = table.context.threads.map(lambda task: _problem(table, *task), tasks)
        for (path, base), problem in zip(portion, problems, strict=True):
            findings.checked += 1
            if problem is not None:
                findings.add(problem[0], path, str(base.name), problem[1])
    stale = _stale(metadata)
    if stale:
        findings.add(
            MetadataProblem.STALE, "", BLOOM_FILTERS, f"{stale} filters of files that are no longer listed", found=stale
        )


def _problem(table: HudiTable, base: BaseFile, stated: BloomFilter | None) -> tuple[MetadataProblem, str] | None:
    footer = read_footer(table.storage, base.path)
    if stated is None:
        return (MetadataProblem.MISSING, "the base file has no filter here") if footer.bloom is not None else None
    if footer.bloom is not None and footer.bloom.to_base64() == stated.to_base64():
        return None
    stored = StoredKeys.of(table.config, table.stored_schema())
    for rows in read_base(table.storage, base.path, size=base.known_size, schema=stored.schema):
        lacking = stated.lacking(stored.of_rows(rows).cast(pa.string()))
        if len(lacking):
            what = f"the filter lacks {len(lacking)} keys of the file, {lacking[0].as_py()} among them"
            return MetadataProblem.DIFFERS, what
    return MetadataProblem.LOOSE, "another filter than that of the footer, which contains all keys"


def _stale(metadata: MetadataTable) -> int:
    listed = metadata.all_files()
    files = zip(*(listed[name].to_pylist() for name in ("key", "name")), strict=True)
    bases = ((path, name) for path, name in files if path != ALL_PARTITIONS and BaseFileName.parse(name) is not None)
    prefix = functools.cache(lambda path: path_key("" if path == NON_PARTITIONED else path))
    keys = pa.array([prefix(path) + file_key(name) for path, name in bases], pa.string())
    found = 0
    for group in metadata.group_readers(BLOOM_FILTERS):
        known, _ = alive(*latest(group.entries(column=BLOOM_MEMBER), BLOOM_MEMBER))
        found += pc.sum(pc.invert(pc.is_in(known, value_set=keys))).as_py() or 0
    return found
