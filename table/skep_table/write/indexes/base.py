"""What an index is to the flow of a write.

An index is made on the driver for one write, and travels to the tasks. It answers with positions in the list of files
of the row's partition. A key of a global index is unique in the whole table: its row may lie in another partition than
the one that the arriving row names, and `moves.py` says what becomes of it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.merge import MergeRule
from skep_table.schema.types import PARTITION_PATH, RECORD_KEY
from skep_table.write.index import NEW_KEY, IndexFile
from skep_table.write.keyed import partition_codes, rows_by

Tags = npt.NDArray[np.int32]
Files = Mapping[str, Sequence[IndexFile]]
Tagging = Callable[[str, pa.Table], Tags]

GONE_GROUP: Final = -(2**31)


class Index(ABC):
    """Where the rows of keys are, for one write. `columns` are those of keyed rows that it looks at."""

    columns: ClassVar[tuple[str, ...]] = (RECORD_KEY, PARTITION_PATH)

    @abstractmethod
    def tag(self, keyed: pa.Table) -> Tags:
        """For each row the position of its file among those of its partition.

        NEW_KEY: there is none. Less than that, see `new_group`: the row belongs to a file group that is to be made.
        GONE_GROUP: the row says where it was, and the group is not there any more.
        """


@dataclass(frozen=True, slots=True)
class Places:
    """For each row the partition in which its key is, null for none, and the position of its file there."""

    partitions: pa.Array
    tags: Tags


class GlobalIndex(ABC):
    """An index in which a key is unique in the whole table.

    `combine`: of rows with one key, from whatever partitions, one stays by the rule. `update_partition_path`: a row
    that arrives for another partition moves there; else it stays where its key was first.
    """

    rule: MergeRule
    combine: bool
    update_partition_path: bool

    @abstractmethod
    def find(self, keys: pa.Array) -> Places:
        """Where each key is."""


def new_group(number: npt.NDArray[np.int64]) -> Tags:
    """The tags of rows that belong to the group of a number which the partition has not yet."""
    return (NEW_KEY - 1 - number).astype(np.int32)


def number_of_new_group(tag: int) -> int:
    return NEW_KEY - 1 - tag


def by_partition(keyed: pa.Table, tag: Tagging) -> Tags:
    """`tag(path, its rows)` for each partition of the rows, put together in their order."""
    paths, codes = partition_codes(keyed)
    tags = np.full(len(codes), NEW_KEY, np.int32)
    for code, rows in rows_by(codes, len(paths)):
        part = keyed if len(paths) == 1 else keyed.take(pa.array(rows))
        tags[rows] = tag(paths[code], part)
    return tags


def single(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def positions(values: pa.Array, known: pa.Array, missing: int) -> Tags:
    """For each value its position among the known ones."""
    tags: Tags = pc.fill_null(pc.index_in(values, value_set=known), missing).to_numpy().astype(np.int32)
    return tags
