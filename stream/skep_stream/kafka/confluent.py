"""Messages in Confluent's form: a zero and the id of a schema in four bytes, then the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.buffers import bytes_and_offsets

HEADER: Final = 5
NO_HEADER: Final = "not a message of Confluent's: it begins with no 0 and an id"
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Values:
    """The bytes of all messages, and where each begins and ends."""

    data: npt.NDArray[np.uint8]
    starts: Rows
    ends: Rows

    @classmethod
    def of(cls, values: pa.Array) -> Values:
        data, offsets = bytes_and_offsets(values)
        return cls(data, offsets[:-1].copy(), offsets[1:].copy())

    def schema_ids(self) -> Rows:
        """The id in each message; -1 where there is none."""
        has_header = self.ends - self.starts >= HEADER
        numbers = np.full(len(self.starts), -1, np.int64)
        at = self.starts[has_header]
        found = sum(
            (self.data[at + 1 + place].astype(np.int64) << (24 - 8 * place) for place in range(4)), start=0 * at
        )
        numbers[has_header] = np.where(self.data[at] == 0, found, -1)
        return numbers

    def without_headers(self) -> pa.Array:
        """The records alone. All messages must have a header."""
        kept = np.ones(len(self.data), np.bool_)
        for place in range(HEADER):
            kept[self.starts + place] = False
        first, last = int(self.starts[0]), int(self.ends[-1])
        offsets = np.append(self.starts, last) - first - HEADER * np.arange(len(self.starts) + 1)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data[first:last][kept[first:last]])]
        return pa.Array.from_buffers(pa.large_binary(), len(self.starts), buffers)
