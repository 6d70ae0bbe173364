"""A secondary index against the merged slices: an entry for each row, of the value of its column and its record key.

Of values that all releases of Hudi write alike.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table import MetadataTable, group_numbers
from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.entries import alive, latest
from skep_table.metadata_table.partitions import SECONDARY_INDEX_MEMBER
from skep_table.metadata_table.records.secondary_index import secondary_keys, sharded_parts
from skep_table.metadata_write.definitions import known_secondary
from skep_table.services.metadata_check.findings import Findings, MetadataProblem
from skep_table.services.metadata_check.key_spool import KeySpool
from skep_table.services.metadata_check.slices import keyed_slices
from skep_table.slices.options import SPILL_FOLDER
from skep_table.slices.spill import SpillFile
from skep_table.table import HudiTable
from skep_table.view import FileSlice

_WITHOUT_VALUE: Final = "\0$"  # how entries of nulls begin: a NUL within a value is escaped


def check_secondary_index(table: HudiTable, metadata: MetadataTable, findings: Findings) -> bool:
    """Compares all file groups of an index, one after the other. Whether its entries can be computed here."""
    definition = metadata.definitions.get(findings.partition)
    if definition is None or known_secondary(findings.partition, definition, table.stored_schema()) is None:
        return False
    groups = metadata.group_readers(findings.partition)
    with closing(SpillFile(table.options.value(SPILL_FOLDER))) as file:
        spool = KeySpool(file)
        slices: list[FileSlice] = []
        for found in keyed_slices(table, definition.source_fields[0]):
            entries = secondary_keys(found.texts, found.keys)
            findings.checked += len(entries)
            spool.add(None, _numbers(entries, definition, len(groups)), entries, len(slices))
            slices.append(found.slice)
        for number, group in enumerate(groups):
            known, _ = alive(*latest(group.entries(column=SECONDARY_INDEX_MEMBER), SECONDARY_INDEX_MEMBER))
            numbers = _numbers(known, definition, len(groups))
            strays = numbers != number
            for key, where in findings.some(known, numbers, strays):
                detail = "the entry is in a file group of the index where no look-up finds it"
                expected = f"file group {where} of {len(groups)}"
                findings.add(MetadataProblem.DIFFERS, "", key, detail, found=group.file_id, expected=expected)
            held, mine = spool.part(None, number), known.filter(pa.array(~strays))
            if not definition.is_by_value:
                # Hudi 1.0 leaves rows without a value out. No query looks for them by the index.
                held, mine = held.filter(_with_value(held["key"])), mine.filter(_with_value(mine))
            _check_group(held, mine, slices, findings)
    return True


def _check_group(held: pa.Table, known: pa.Array, slices: list[FileSlice], findings: Findings) -> None:
    keys, numbers = held["key"].combine_chunks(), held["slice"].to_numpy()
    missing = pc.invert(pc.is_in(keys, value_set=known)).to_numpy(zero_copy_only=False)
    for key, number in findings.some(keys, numbers, missing):
        slice_ = slices[number]
        detail = "a row of the table that the index lacks"
        findings.add(MetadataProblem.MISSING, slice_.partition_path, key, detail, expected=slice_.file_id)
    surplus = pc.invert(pc.is_in(known, value_set=keys)).to_numpy(zero_copy_only=False)
    for key, _ in findings.some(known, np.zeros(len(known), np.int64), surplus):
        findings.add(MetadataProblem.SURPLUS, "", key, "the table has no such row")


def _with_value(entries: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.invert(pc.starts_with(entries, _WITHOUT_VALUE))


def _numbers(entries: pa.Array, definition: IndexDefinition, groups: int) -> npt.NDArray[np.int64]:
    """The file group of each entry."""
    by = sharded_parts(entries) if definition.is_by_value else entries
    return group_numbers(by, groups)
