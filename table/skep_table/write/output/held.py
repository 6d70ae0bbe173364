"""Which keys the rows of a file slice have, its logs merged in, and where in its base file they are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import open_base
from skep_format.logfile import BlockType, read_blocks
from skep_format.logfile.options import POSITIONS
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import Storage
from skep_table.keys.stored import StoredKeys
from skep_table.merge import MergeRule
from skep_table.merge.rows import POSITION
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.tags import NOT_HELD, SEVERAL, Positions

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
    """Whether logs may delete rows, by their headers, the schema and the merge rule."""
    rule = MergeRule.of(table.config, table.options)
    if rule.marks_deletes(table.schema()) or rule.merger is not None:
        return True
    for log in slice_.log_files:
        with table.storage.open_input(log.path) as file:
            if any(each.type is BlockType.DELETE or each.holds_operations for each in read_blocks(file, log.path)):
                return True
    return False


def names_positions(table: HudiTable) -> bool:
    """Whether log blocks that are written to the table name the rows of the base file that they change."""
    has_logs = table.config.is_mor and table.config.populate_meta_fields
    return has_logs and table.format.logs.has_positions and table.options.value(POSITIONS)


def uses_positions(table: HudiTable) -> bool:
    """Whether writes use the positions of keys in base files: for log blocks, or to copy what they do not change."""
    return not table.config.is_mor or names_positions(table)


def in_base_file(rows: pa.Table) -> bool:
    """Whether all rows are known to have their keys in the base file, by their positions there."""
    return POSITION in rows.schema.names and rows.num_rows > 0 and pc.min(rows.column(POSITION)).as_py() >= 0


def positions_of(storage: Storage, path: str, size: int | None, keys: pa.Array) -> Positions:
    """For each key its position in a base file, whose key column is read."""
    with open_base(storage, path, size) as held:
        return positions_among(keys, held.text_among(RECORD_KEY, keys))


def positions_among(wanted: pa.Array, stored: Iterable[tuple[int, pa.Array]]) -> Positions:
    """For each wanted key its position among the stored ones, which come with the position of their first one.

    Hash tables are made of the smaller side.
    """
    found = np.full(len(wanted), NOT_HELD, np.int64)
    for start, keys in stored:
        count, places = len(keys), np.arange(0)
        if count > len(wanted):
            places = np.flatnonzero(pc.is_in(keys, value_set=wanted).to_numpy(zero_copy_only=False))
            keys = keys.take(pa.array(places))
        if len(keys):
            at = pc.index_in(wanted, value_set=keys)
            hits = np.flatnonzero(pc.is_valid(at).to_numpy(zero_copy_only=False))
            firsts = pc.drop_null(at).to_numpy()
            new = start + (places[firsts] if len(places) else firsts)
            found[hits] = np.where(found[hits] == NOT_HELD, new, SEVERAL)
            if len(keys.dictionary_encode().dictionary) < len(keys):
                counts = keys.value_counts()
                repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
                found[pc.is_in(wanted, value_set=repeated).to_numpy(zero_copy_only=False)] = SEVERAL
    return found
