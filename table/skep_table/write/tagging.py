"""Tagging: which file group holds the row of a key. Here what every index is to the flow of a write, and prepped rows.

An index is made on the driver for one write, and travels to the tasks. It answers with positions in the list of files
of the row's partition. A key of a global index is unique in the whole table: its row may lie in another partition than
the one that the arriving row names (`write/moves.py` says what becomes of those).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.storage import Storage
from skep_table.write.index import NEW_KEY, IndexFile, tag_keys
from skep_table.write.keyed import partition_codes, rows_by

Tags = npt.NDArray[np.int32]
Files = Mapping[str, Sequence[IndexFile]]
Tagging = Callable[[str, pa.Table], Tags]


class Index(ABC):
    """Where the rows of keys are, for one write. `columns` are those of keyed rows that it looks at."""

    columns: ClassVar[tuple[str, ...]] = (RECORD_KEY, PARTITION_PATH)
    is_global: ClassVar[bool] = False

    @abstractmethod
    def tag(self, keyed: pa.Table) -> Tags:
        """For each row the position of its file among those of its partition, NEW_KEY where there is none."""


@dataclass(frozen=True)
class FooterIndex(Index):
    """BLOOM and SIMPLE: looks into footers and key columns of the partition's base files."""

    storage: Storage
    files: Files

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        files = self.files.get(path)
        if not files:
            return np.full(rows.num_rows, NEW_KEY, np.int32)
        return tag_keys(self.storage, _single(rows.column(RECORD_KEY)), files)


@dataclass(frozen=True)
class NamedFiles(Index):
    """Prepped rows: each says in `_hoodie_file_name` where it was read from."""

    columns: ClassVar[tuple[str, ...]] = (RECORD_KEY, PARTITION_PATH, FILE_NAME)

    files: Files = field(default_factory=dict)

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        known = pa.array([file.file_id for file in self.files.get(path, ())], pa.string())
        # a base file's name goes on after the file id, a log's rows bear the file id alone
        ids = pc.replace_substring_regex(_single(rows.column(FILE_NAME)), "_.*$", "")
        return pc.fill_null(pc.index_in(ids, value_set=known), NEW_KEY).to_numpy().astype(np.int32)


def by_partition(keyed: pa.Table, tag: Tagging) -> Tags:
    """`tag(path, its rows)` for each partition of the rows, put together in their order."""
    paths, codes = partition_codes(keyed)
    tags = np.full(len(codes), NEW_KEY, np.int32)
    for code, rows in rows_by(codes, len(paths)):
        part = keyed if len(paths) == 1 else keyed.take(pa.array(rows))
        tags[rows] = tag(paths[code], part)
    return tags


def _single(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
