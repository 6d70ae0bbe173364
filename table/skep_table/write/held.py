"""Which keys the rows of a file slice have, its logs merged in, and where in its base file they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.basefile import read_base
from skep_table.keys.stored import StoredKeys
from skep_table.logfile import BlockType, read_blocks
from skep_table.merge.rows import POSITION
from skep_table.merge.rule import DELETE_FIELD
from skep_table.schema.types import IS_DELETED, OPERATION, RECORD_KEY
from skep_table.slices import read_slice
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.view import FileSlice

# Rows of a key column that are compared at a time.
KEYS_AT_A_TIME = 1 << 20

Mask = npt.NDArray[np.bool_]


def stored_keys(table: HudiTable) -> StoredKeys:
    """How the record keys of a table's rows are read."""
    return StoredKeys.of(table.config, table.stored_schema())


def keys_in_rows(table: HudiTable, slice_: FileSlice, keys: pa.Array) -> Mask:
    """Which of the keys the merged rows of the slice have."""
    stored = stored_keys(table)
    batches = read_slice(table, slice_, columns=stored.schema.names())
    rows = pa.chunked_array([stored.of_rows(batch) for batch in batches], pa.string())
    found: Mask = pc.is_in(keys, value_set=rows).to_numpy(zero_copy_only=False)
    return found


def may_delete(table: HudiTable, slice_: FileSlice) -> bool:
    """Whether logs may delete rows, by their headers and the schema."""
    if IS_DELETED in table.schema() or DELETE_FIELD.key in table.options or OPERATION in table.schema():
        return True
    for log in slice_.log_files:
        with table.storage.open_input(log.path) as file:
            if any(block.type is BlockType.DELETE for block in read_blocks(file, log.path)):
                return True
    return False


def in_base_file(rows: pa.Table) -> bool:
    """Whether all rows are known to have their keys in the base file, by their positions there."""
    return POSITION in rows.schema.names and rows.num_rows > 0 and pc.min(rows.column(POSITION)).as_py() >= 0


def positions_of(storage: Storage, path: str, size: int | None, keys: pa.Array) -> npt.NDArray[np.int64]:
    """For each key the number of its row in a base file: below zero where the file has none of it, or several."""
    found = np.full(len(keys), -1, np.int64)
    times = np.zeros(len(keys), np.int64)
    start = 0
    for batch in read_base(storage, path, size=size, columns=[RECORD_KEY], batch_rows=KEYS_AT_A_TIME):
        places = pc.index_in(batch.column(0), value_set=keys)
        hits = np.flatnonzero(pc.is_valid(places).to_numpy(zero_copy_only=False))
        keyed = pc.drop_null(places).to_numpy()
        found[keyed] = start + hits
        times += np.bincount(keyed, minlength=len(keys))
        start += batch.num_rows
    found[times > 1] = -1
    return found
