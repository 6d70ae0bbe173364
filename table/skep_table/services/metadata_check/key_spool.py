"""Keys in a temporary file, in parts as an index spreads them over its file groups: one part is read at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_table.slices.spill import SpillFile, SpillRange

_SCHEMA: Final = pa.schema([("key", pa.string()), ("slice", pa.int64())])


@dataclass
class KeySpool:
    """Keys with the number of the file slice that each is in.

    A part is named by the set of file groups, where an index has several of them, and the number of a group in it.
    """

    file: SpillFile
    _places: dict[tuple[str | None, int], list[SpillRange]] = field(default_factory=dict)

    def add(self, group_set: str | None, groups: npt.NDArray[np.int64], keys: pa.Array, slice_number: int) -> None:
        """Adds keys of one slice, each with the number of its file group."""
        if not len(keys):  # all rows of a slice may be deleted
            return
        order = np.argsort(groups, kind="stable")
        ordered = keys.take(pa.array(order))
        numbers, starts = np.unique(groups[order], return_index=True)
        ends = [*starts[1:].tolist(), len(keys)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            part = ordered.slice(start, end - start)
            slices = pa.array(np.full(len(part), slice_number, np.int64))
            place = self.file.append(pa.RecordBatch.from_arrays([part, slices], schema=_SCHEMA))
            self._places.setdefault((group_set, number), []).append(place)

    def part(self, group_set: str | None, group: int) -> pa.Table:
        """The keys of a file group as `key`, each with its `slice`."""
        batches = map(self.file.read, self._places.get((group_set, group), ()))
        return pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
