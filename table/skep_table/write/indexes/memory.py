"""INMEMORY: where each key is, held by this process. For tests and small tables: it is built by reading all keys."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.merge import MergeRule
from skep_table.schema.types import RECORD_KEY
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.index import NEW_KEY
from skep_table.write.indexes.base import Files, GlobalIndex, Places
from skep_table.write.indexes.footers import place_of

# table → (partition path, file id) → what the slice was made of, and its keys
_Known = dict[tuple[str, str], tuple[tuple[str, ...], pa.Array]]
_tables: dict[str, _Known] = {}
_lock = threading.Lock()


class InMemoryWarning(UserWarning):
    """The in-memory index reads every key of the table when a process writes to it first."""


@dataclass(frozen=True)
class InMemoryIndex(GlobalIndex):
    """`keys` and, row by row, `owners`: the position of the key's file among all files."""

    files: Files
    keys: pa.Array
    owners: np.ndarray
    rule: MergeRule
    combine: bool
    update_partition_path: bool

    @classmethod
    def of(cls, table: HudiTable, files: Files, rule: MergeRule, combine: bool, moves: bool) -> InMemoryIndex:
        """Reads the keys of what has changed since this process looked last."""
        root = table.storage.root
        with _lock:
            if root not in _tables:
                warnings.warn(
                    f"table {table.config.name}: the in-memory index holds all keys in this process; it is for tests",
                    InMemoryWarning,
                    stacklevel=2,
                )
            known = _refreshed(table, files, _tables.get(root, {}))
            _tables[root] = known
        held = [known[path, file.file_id][1] for path, of_path in files.items() for file in of_path]
        owners = np.repeat(np.arange(len(held)), [len(keys) for keys in held])
        together = pa.concat_arrays(held) if held else pa.array([], pa.string())
        return cls(files, together, owners, rule, combine, moves)

    def find(self, keys: pa.Array) -> Places:
        at = pc.fill_null(pc.index_in(keys, value_set=self.keys), -1).to_numpy()
        owners = np.append(self.owners, NEW_KEY)  # the last one answers for -1
        return place_of(owners[at], self.files)


def _refreshed(table: HudiTable, files: Files, before: _Known) -> _Known:
    view = table.view()
    now: _Known = {}
    for path, of_path in files.items():
        slices = {slice_.file_id: slice_ for slice_ in view.slices(path)}
        for file in of_path:
            slice_ = slices[file.file_id]
            made_of = (*([slice_.base_file.path] if slice_.base_file else []), *(log.path for log in slice_.log_files))
            old = before.get((path, file.file_id))
            keys = old[1] if old is not None and old[0] == made_of else _keys(table, slice_)
            now[path, file.file_id] = made_of, keys
    return now


def _keys(table: HudiTable, slice_: FileSlice) -> pa.Array:
    arrays = [batch.column(0).cast(pa.string()) for batch in read_slice(table, slice_, columns=[RECORD_KEY])]
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.string())
