"""INMEMORY: where each key is, held by this process. For tests and small tables: it is built by reading all keys."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_format.schema.types import RECORD_KEY
from skep_table.keys.text import single
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.indexes.contract import FileNumbers, Index, KeyLookUp, LookedUp, numbers_of
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.tags import NEW_KEY

# table → (partition path, file id) → the files of the slice, and its keys
_Known = dict[tuple[str, str], tuple[tuple[str, ...], pa.Array]]
_tables: dict[str, _Known] = {}
_lock = threading.Lock()


class InMemoryWarning(UserWarning):
    """The in-memory index reads every key of the table when a process writes to it first."""


@dataclass(frozen=True)
class InMemoryIndex(Index):
    """Holds all keys of the tables that this process writes to, those in log files too."""

    moves: bool = True
    is_global = True
    finds_log_keys = True

    def look_up(self, table: HudiTable, files: CandidateFiles) -> InMemoryLookUp:
        """Reads the keys of the slices that changed since the last look-up of this process."""
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
        keys = pa.concat_arrays(held) if held else pa.array([], pa.string())
        return InMemoryLookUp(keys, np.append(owners, NEW_KEY))


@dataclass(frozen=True)
class InMemoryLookUp(KeyLookUp):
    """`keys` and, for each, the number of the file that holds it; one more at the end for keys that none holds."""

    keys: pa.Array
    owners: FileNumbers

    def candidates(self, keyed: pa.Table) -> LookedUp:
        return LookedUp(self.owners[numbers_of(single(keyed.column(RECORD_KEY)), self.keys, -1)])


def _refreshed(table: HudiTable, files: CandidateFiles, before: _Known) -> _Known:
    view = table.view()
    now: _Known = {}
    for path, of_path in files.items():
        slices = {slice_.file_id: slice_ for slice_ in view.slices(path)}
        for file in of_path:
            slice_ = slices[file.file_id]
            made_of = tuple(file.path for file in slice_.files)
            old = before.get((path, file.file_id))
            keys = old[1] if old is not None and old[0] == made_of else _keys(table, slice_)
            now[path, file.file_id] = made_of, keys
    return now


def _keys(table: HudiTable, slice_: FileSlice) -> pa.Array:
    arrays = [batch.column(0).cast(pa.string()) for batch in read_slice(table, slice_, columns=[RECORD_KEY])]
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.string())
